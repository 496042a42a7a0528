"""Roles: those a cluster begins with, what aggregated ones gather, and who may grant them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from filters.selectors import LabelSelector, LabelTerm
from lean_sandbox.local import recorded
from lean_sandbox.local.access.rbac import GROUP, Authorizer, Rule
from lean_sandbox.local.errors import StatusError, forbidden
from lean_sandbox.local.kinds.registry import Kind
from lean_sandbox.local.store.store import Collection, Event, Store
from lean_sandbox.local.target import Target
from lean_sandbox.local.write.options import WriteOptions
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]

_AGGREGATOR: Final = "clusterrole-aggregation-controller"
_PLURALS: Final = {"ClusterRole": "clusterroles", "Role": "roles"}
_BOUND: Final = {
    "cluster-admin": ("system:masters",),
    "system:basic-user": ("system:authenticated",),
    "system:discovery": ("system:authenticated",),
    "system:monitoring": ("system:monitoring",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
    "system:service-account-issuer-discovery": ("system:serviceaccounts",),
}
"""The roles that are bound from the start, and the groups that have them."""
_OPERATORS: Final = {"In": "in", "NotIn": "notin", "Exists": "", "DoesNotExist": "!"}


def first_roles() -> Iterator[Json]:
    """Yield the roles and bindings that every cluster has."""
    for role in recorded.roles():
        yield {"kind": "ClusterRole", **role}
        name = role["metadata"]["name"]
        groups = _BOUND.get(name, ())
        if groups:
            yield {
                "kind": "ClusterRoleBinding",
                "metadata": role["metadata"],
                "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
                "subjects": [
                    {"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups
                ],
            }


def selector_of(selector: Json) -> LabelSelector:
    """Return a label selector as objects write it; terms of an unknown operator select all."""
    equal = [
        LabelTerm(key, "=", frozenset((value,)))
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    terms = [
        LabelTerm(one["key"], _OPERATORS[one["operator"]], frozenset(one.get("values") or ()))
        for one in selector.get("matchExpressions") or ()
        if one["operator"] in _OPERATORS
    ]
    return LabelSelector((*equal, *terms))


class Aggregation:
    """Keeps the rules of cluster roles that gather those of others."""

    def __init__(self, store: Store, verbs: Verbs, kind: Kind) -> None:
        self._store = store
        self._verbs = verbs
        self._kind = kind
        self._roles = verbs.collection(kind)
        store.listeners.append(self._gather)

    def _gather(self, collection: Collection, event: Event) -> None:
        """Write what aggregated roles gather now; each write is followed by another call."""
        del event
        if collection is not self._roles:
            return
        writer, self._store.writer = self._store.writer, None
        try:
            for entry in self._roles.scan():
                members = entry.members()
                if "aggregationRule" in members:
                    # A role that cannot be written is left as it is.
                    with suppress(StatusError):
                        self._write(entry.name, msgspec.json.decode(members["aggregationRule"]))
        finally:
            self._store.writer = writer

    def _write(self, name: str, rule: Json) -> None:
        """Give a role the rules of all others that its selectors choose, each rule once."""
        others = [one for one in self._roles.scan() if one.name != name]
        rules: list[Rule] = []
        for selector in map(selector_of, rule.get("clusterRoleSelectors") or ()):
            for other in others:
                if selector.matches(other.labels):
                    found = other.load().get("rules") or ()
                    rules.extend(one for one in found if one not in rules)
        applied: Json = {"metadata": {"name": name}, **({"rules": rules} if rules else {})}
        options = WriteOptions(manager=_AGGREGATOR, force=True)
        self._verbs.apply(self._kind, "", name, applied, options)


class RoleGuard:
    """Refuses writes that could give somebody rights which their writer does not have.

    Which rights those would be is not compared: who writes a role has to have the verb `escalate`
    on it, who binds one the verb `bind`.
    """

    def __init__(self, store: Store, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    def check(self, kind: Kind, new: Json, old: Json | None) -> None:
        """Refuse to store a role or binding for a user who may not give all rights of it.

        Raises:
            StatusError: 403.

        """
        user = self._store.writer
        if user is None or kind.group != GROUP or "system:masters" in user.groups:
            return
        if old is not None and _without_owners(old) == _without_owners(new):
            return
        metadata = new["metadata"]
        verb, plural, name = "escalate", kind.plural, metadata.get("name", "")
        if plural not in ("roles", "clusterroles"):
            reference = new.get("roleRef") or {}
            plural = "roles" if reference.get("kind") == "Role" else "clusterroles"
            verb, name = "bind", reference.get("name", "")
        target = Target(verb, "", is_resource=True, group=GROUP, version="v1", resource=plural)
        target.namespace, target.name = metadata.get("namespace", ""), name
        if not self._authorizer.decide(user, target)[0]:
            raise forbidden(
                GROUP,
                kind.plural,
                metadata.get("name", ""),
                f'user "{user.name}" is attempting to grant RBAC permissions, for which this server'
                f' wants the verb "{verb}" on {plural}: it does not compare them with the'
                " permissions that the user has",
            )


def _without_owners(obj: Json) -> Json:
    """Return an object without what garbage collection changes about it."""
    ignored = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")
    metadata = {key: value for key, value in obj["metadata"].items() if key not in ignored}
    return {**obj, "metadata": metadata}
