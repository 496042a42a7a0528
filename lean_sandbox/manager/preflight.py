"""Before a run begins: its scope and Lease, and whether a controller works already.

A namespace is served by one shard, with all that is in it. Replicas of a shard share its Lease; two
shards never do. Two controllers that serve the same objects undo each other's work. The Lease
prevents that, also for a run from outside of the cluster, which refuses to begin where it would
only wait.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from filters import EVERYTHING
from lean_sandbox.clock import Clock
from lean_sandbox.config.options import Settings
from lean_sandbox.errors import ConfigError
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import (
    AlreadyExists,
    ControlPlaneError,
    Forbidden,
    NotFound,
    message_of,
)
from lean_sandbox.kube.resources import DEPLOYMENTS, LEASES, NAMESPACES, Resource
from lean_sandbox.model.times import parse_rfc3339

Json = dict[str, Any]
T = TypeVar("T")

# The Lease of the reference controller, so that the two never work at the same time.
LEASE_NAME: Final = "a3317529.agent-sandbox.x-k8s.io"
# Companions without a controller have their own, since they work beside whichever there is.
COMPANIONS_LEASE: Final = "companions.lean-sandbox"
# A scope is part of the holder in a Lease, which is written every two seconds.
_LONGEST_SCOPE: Final = 120
# Where the manifests, ours and the reference's, install it.
HOME: Final = "agent-sandbox-system"
DEPLOYMENT: Final = "agent-sandbox-controller"
# A holder that has not renewed for this long is taken for dead. Clocks of two machines differ, so
# that is not enough: the Deployment is asked for as well, and the Lease is contended for.
_BELIEVED: Final = timedelta(seconds=15)
_UNKNOWN: Final = "leader_check_failed"
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 15.0

log = structlog.get_logger("controller")


def lease_of(settings: Settings, *, companions_only: bool = False) -> str:
    """Return the Lease to contend for: by default the reference's, or one for each shard."""
    if settings.leader_election_lease:
        return settings.leader_election_lease
    name = COMPANIONS_LEASE if companions_only else LEASE_NAME
    if settings.shard is not None:
        return f"{name}-{settings.shard.index}-of-{settings.shard.count}"
    return name


def scope_of(settings: Settings) -> str:
    """Return the scope of a process, "" for everything; a text that is cut ends in its digest."""
    parts = []
    if settings.shard is not None:
        parts.append(f"shard={settings.shard}")
    if settings.namespaces:
        parts.append(f"namespaces={','.join(sorted(settings.namespaces))}")
    elif settings.exclude_namespaces:
        parts.append(f"exclude-namespaces={','.join(sorted(settings.exclude_namespaces))}")
    if settings.sandbox_label_selector != EVERYTHING:
        parts.append(f"sandbox-label-selector={settings.sandbox_label_selector}")
    scope = " ".join(parts)
    if len(scope) <= _LONGEST_SCOPE:
        return scope
    digest = f"{zlib.crc32(scope.encode()):08x}"
    return f"{scope[: _LONGEST_SCOPE - len(digest) - 3]}...{digest}"


async def another_controller(
    client: Client, clock: Clock, *, namespace: str = ""
) -> ConfigError | None:
    """Return the error that another controller works in the cluster, None where none does.

    Leases, also those of shards, and Deployments are looked for in the namespace of the manifests,
    and in ``namespace`` if it is another. In each a LIST and perhaps a GET; what may not be read
    counts as missing.
    """
    for home in dict.fromkeys((namespace or HOME, HOME)):
        found = await _holder(client, clock, home) or await _deployed(client, clock, home)
        if found:
            scale = f"kubectl -n {home} scale deployment {DEPLOYMENT} --replicas=0"
            return ConfigError(
                f"another controller is already running in this cluster: {found}",
                way_out=(
                    f"stop it (a Deployment: {scale}),"
                    f" wait for its Lease (--leader-elect --leader-election-namespace={home}),"
                    " or run beside it all the same with --allow-second-controller"
                ),
            )
    return None


async def make_lease(client: Client, clock: Clock, *, namespace: str, lease: str) -> bool:
    """Create the Lease, and its namespace, if they are missing; return whether that was allowed.

    Rights in other namespaces are enough for a run, which then goes on without a Lease.
    """

    async def is_there(resource: Resource, within: str | None, name: str) -> bool:
        named = {"metadata": {"name": name}}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **named}

        async def make() -> bool:
            with suppress(AlreadyExists):
                await client.create(resource, body, bytes, namespace=within)
            return True

        return await _answer(make, clock, "running_without_lease") or False

    if await is_there(LEASES, namespace, lease):
        return True
    if not await is_there(NAMESPACES, None, namespace):
        return False
    client.ending.forget(namespace)
    return await is_there(LEASES, namespace, lease)


async def _holder(client: Client, clock: Clock, home: str) -> str:
    leases = partial(client.list, LEASES, dict, namespace=home)
    for lease in (await _answer(leases, clock, _UNKNOWN) or {}).get("items") or ():
        name = lease["metadata"]["name"]
        spec = lease.get("spec") or {}
        try:
            renewed = parse_rfc3339(spec.get("renewTime") or "")
        except ValueError:
            continue
        holder = spec.get("holderIdentity")
        if holder and name.startswith(LEASE_NAME) and clock.now() - renewed < _BELIEVED:
            return f"{holder!r} holds its Lease {home}/{name}"
    return ""


async def _deployed(client: Client, clock: Clock, home: str) -> str:
    ask = partial(client.get, DEPLOYMENTS, DEPLOYMENT, dict, namespace=home)
    deployment = await _answer(ask, clock, _UNKNOWN) or {}
    count = (deployment.get("status") or {}).get("availableReplicas")
    return f"Deployment {home}/{DEPLOYMENT} has {count} available" if count else ""


async def _answer(ask: Callable[[], Awaitable[T]], clock: Clock, unknown: str) -> T | None:
    """Ask until the server answers; None if the object is missing or, logged, not allowed."""
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return await ask()
        except NotFound:
            return None
        except Forbidden as error:
            log.warning(unknown, problem=message_of(error))
            return None
        except ControlPlaneError as error:
            next_s = max(pause_s, error.retry_after_s or 0.0)
            log.warning("server_not_answering", problem=str(error), next_s=next_s)
        await clock.sleep(next_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
