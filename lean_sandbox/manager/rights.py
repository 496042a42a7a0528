"""Whether a process has the rights that it needs: one question at its start, one line if not.

Otherwise each missing right shows by itself, and one to write only at the first object that needs
it. Where the server cannot list rights, such as with an authorizer that is a webhook, nothing is
told, and the refusals are.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from typing import Final, NamedTuple

import structlog

from lean_sandbox.clock import Clock
from lean_sandbox.config.options import Settings
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.kube.resources import (
    EVENTS,
    NETWORKPOLICIES,
    PODS,
    PVCS,
    SANDBOXCLAIMS,
    SANDBOXES,
    SANDBOXTEMPLATES,
    SANDBOXWARMPOOLS,
    SERVICES,
    Resource,
)
from lean_sandbox.kube.transport import Transport
from lean_sandbox.model.wire import Lenient, OrNull

_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectrulesreviews",
    "SelfSubjectRulesReview",
    namespaced=False,
)
_ALL: Final = ("create", "delete", "get", "list", "patch", "watch")
# Rules are asked for in a namespace; those of the whole cluster hold in each, also in one that does
# not exist, where no others do.
_NO_NAMESPACE: Final = "lean-sandbox.no-such-namespace"

# The files with the rules for Sandboxes, and with those for claims.
_IN_CLUSTER: Final = (
    "manifests/base/clusterrole.yaml",
    "manifests/components/extensions/clusterrole.yaml",
)
_IN_NAMESPACE: Final = (
    "manifests/components/sidecar/role.yaml",
    "manifests/components/sidecar-extensions/role.yaml",
)

log = structlog.get_logger("controller")


class Need(NamedTuple):
    """What a controller does with one resource."""

    resource: Resource
    verbs: tuple[str, ...]
    subresource: str = ""


#: What Sandboxes need; only an admission plugin asks for the other rights of the manifests.
SANDBOX_NEEDS: Final = (
    Need(PODS, _ALL),
    Need(SERVICES, _ALL),
    Need(PVCS, ("create", "get", "list", "patch", "watch")),
    Need(EVENTS, ("create", "patch")),
    Need(SANDBOXES, ("delete", "get", "list", "patch", "watch")),
    Need(SANDBOXES, ("patch",), "status"),
)
#: What claims, templates and pools need besides.
CLAIM_NEEDS: Final = (
    Need(SANDBOXES, ("create",)),
    Need(SANDBOXCLAIMS, ("delete", "get", "list", "patch", "watch")),
    Need(SANDBOXCLAIMS, ("patch",), "status"),
    Need(SANDBOXTEMPLATES, ("get", "list", "patch", "watch")),
    Need(SANDBOXWARMPOOLS, ("get", "list", "watch")),
    Need(SANDBOXWARMPOOLS, ("patch",), "status"),
    Need(NETWORKPOLICIES, _ALL),
)


class Rule(Lenient, frozen=True):
    """A rule of RBAC, as the server lists those of a user."""

    verbs: OrNull[tuple[str, ...]] = ()
    apiGroups: OrNull[tuple[str, ...]] = ()
    resources: OrNull[tuple[str, ...]] = ()
    resourceNames: OrNull[tuple[str, ...]] = ()


class _Status(Lenient, frozen=True):
    resourceRules: OrNull[tuple[Rule, ...]] = ()
    incomplete: OrNull[bool] = False


class _Review(Lenient, frozen=True):
    status: OrNull[_Status] = _Status()


def missing(needs: Iterable[Need], rules: tuple[Rule, ...]) -> list[str]:
    """Return what no rule permits, as in "create, patch events.events.k8s.io"."""
    found = []
    for need in needs:
        verbs = [verb for verb in need.verbs if not any(_permits(one, need, verb) for one in rules)]
        if verbs:
            path = f"{need.resource.qualified}/{need.subresource}".removesuffix("/")
            found.append(f"{', '.join(verbs)} {path}")
    return found


def _permits(rule: Rule, need: Need, verb: str) -> bool:
    plural = need.resource.plural
    paths = {plural, "*"}
    if need.subresource:
        paths = {f"{plural}/{need.subresource}", f"*/{need.subresource}", "*"}
    return (
        not rule.resourceNames
        and not {verb, "*"}.isdisjoint(rule.verbs)
        and not {need.resource.group, "*"}.isdisjoint(rule.apiGroups)
        and not paths.isdisjoint(rule.resources)
    )


async def tell_missing_rights(connection: Connection, settings: Settings, clock: Clock) -> None:
    """Log once which rights are missing, and which manifests grant them.

    One POST, or one for each namespace that is chosen. A server that does not answer is not waited
    for: whatever needs it says so.
    """
    # The manager's own transport lets no POST pass before this process leads.
    async with aclosing(Transport(connection, clock=clock)) as transport:
        client = Client(transport)
        for namespace in settings.namespaces or ("",):
            named = {"apiVersion": _REVIEWS.api_version, "kind": _REVIEWS.kind}
            body = {**named, "spec": {"namespace": namespace or _NO_NAMESPACE}}
            try:
                review = await client.create(_REVIEWS, body, _Review)
            except ControlPlaneError:
                return
            if not review.status.incomplete:
                _tell(namespace, review.status.resourceRules, extensions=settings.extensions)


def _tell(namespace: str, rules: tuple[Rule, ...], *, extensions: bool) -> None:
    core, extended = _IN_NAMESPACE if namespace else _IN_CLUSTER
    found = []
    files = []
    for file, needs in ((core, SANDBOX_NEEDS), (extended, CLAIM_NEEDS if extensions else ())):
        if lacking := missing(needs, rules):
            found += lacking
            files.append(file)
    if found:
        place = {"namespace": namespace} if namespace else {}
        fix = f"grant the rules of {' and '.join(files)}"
        log.warning("rights_missing", missing="; ".join(found), **place, fix=fix)
