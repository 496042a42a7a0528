"""Roles: those a cluster begins with, what aggregated ones gather, and who may grant them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from filters.selectors import LabelSelector, LabelTerm
from lean_sandbox.local import recorded
from lean_sandbox.local.access.rbac import GROUP, Authorizer, Rule, missing_rights
from lean_sandbox.local.auth import UserInfo
from lean_sandbox.local.errors import StatusError, bad_request, forbidden, not_found
from lean_sandbox.local.kinds.registry import Kind
from lean_sandbox.local.store.store import Collection, Event, Store
from lean_sandbox.local.target import Target
from lean_sandbox.local.write.bodies import WriteOptions
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]

_AGGREGATOR: Final = "clusterrole-aggregation-controller"
_EVERYTHING: Final[tuple[Rule, ...]] = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)
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
_WORDS: Final = {
    "apiGroups": "APIGroups",
    "resources": "Resources",
    "resourceNames": "ResourceNames",
    "nonResourceURLs": "NonResourceURLs",
}
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
        writer = self._store.writer
        self._store.writer = None
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
    """Refuses writes that would give somebody rights which their writer does not have."""

    def __init__(self, store: Store, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    def check(self, kind: Kind, new: Json, old: Json | None) -> None:
        """Refuse to store a role or binding beyond the rights of the user who asks for it.

        Raises:
            StatusError: 403; 404, 400 or 500 for a binding to what is no role.

        """
        user = self._store.writer
        if user is None or kind.group != GROUP or "system:masters" in user.groups:
            return
        if old is not None and _without_owners(old) == _without_owners(new):
            return
        if kind.plural in _PLURALS.values():
            self._check_role(user, kind, new, old)
        else:
            self._check_binding(user, kind, new)

    def _check_role(self, user: UserInfo, kind: Kind, new: Json, old: Json | None) -> None:
        metadata = new["metadata"]
        name = metadata.get("name", "") if old is not None else ""
        if self._may(user, "escalate", kind.plural, metadata.get("namespace", ""), name):
            return
        if any(role and role.get("aggregationRule") for role in (new, old)):
            held, _ = self._authorizer.rules(user, "")
            if missing_rights(held, _EVERYTHING):
                why = "must have cluster-admin privileges to use the aggregationRule"
                raise forbidden(GROUP, kind.plural, metadata.get("name", ""), why)
        self._check_rights(user, kind, metadata, new.get("rules") or ())

    def _check_binding(self, user: UserInfo, kind: Kind, new: Json) -> None:
        metadata = new["metadata"]
        reference = new.get("roleRef") or {}
        namespace = metadata.get("namespace", "")
        name = reference.get("name", "")
        plural = _PLURALS.get(reference.get("kind", ""))
        if plural is None:
            shown = msgspec.json.encode(reference.get("kind", "")).decode()
            raise StatusError(500, "", f"unsupported role reference kind: {shown}")
        if self._may(user, "bind", plural, namespace, name):
            return
        if plural == "roles" and not namespace:
            raise bad_request("Namespace parameter required.")
        rules = self._authorizer.role_rules(reference, namespace)
        if rules is None:
            raise not_found(GROUP, kind.plural, name)
        self._check_rights(user, kind, metadata, rules)

    def _may(self, user: UserInfo, verb: str, plural: str, namespace: str, name: str) -> bool:
        target = Target(verb, "", is_resource=True, group=GROUP, version="v1", resource=plural)
        target.namespace = namespace
        target.name = name
        return self._authorizer.decide(user, target)[0]

    def _check_rights(
        self, user: UserInfo, kind: Kind, metadata: Json, rules: Iterable[Rule]
    ) -> None:
        held, problems = self._authorizer.rules(user, metadata.get("namespace", ""))
        missing = missing_rights(held, rules)
        if not missing:
            return
        groups = " ".join(f'"{group}"' for group in user.groups)
        lines = "\n".join(sorted(set(_compact(missing))))
        unresolved = f"; resolution errors: [{', '.join(problems)}]" if problems else ""
        raise forbidden(
            GROUP,
            kind.plural,
            metadata.get("name", ""),
            f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not'
            f" currently held:\n{lines}{unresolved}",
        )


def _without_owners(obj: Json) -> Json:
    """Return an object without what garbage collection changes about it."""
    ignored = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")
    metadata = {key: value for key, value in obj["metadata"].items() if key not in ignored}
    return {**obj, "metadata": metadata}


def _compact(rights: list[Rule]) -> Iterator[str]:
    """Yield single rights as text, the verbs on one resource together."""
    together: dict[tuple[str, str], list[str]] = {}
    for right in rights:
        things = [f"{word}:{_listed(right[key])}" for key, word in _WORDS.items() if key in right]
        (verb,) = right["verbs"]
        alone = verb if "nonResourceURLs" in right else ""
        together.setdefault((", ".join(things), alone), []).append(verb)
    for (words, _), verbs in together.items():
        yield f"{{{words}, Verbs:{_listed(dict.fromkeys(verbs))}}}"


def _listed(values: Iterable[str]) -> str:
    quoted = [f'"{value}"' for value in values]
    return f"[{' '.join(quoted)}]"
