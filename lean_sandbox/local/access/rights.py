"""Rights from roles and bindings: who may do what, and who may grant it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import product
from typing import Any, Final, NamedTuple

import msgspec

from filters import SelectorError
from lean_sandbox.local import recorded
from lean_sandbox.local.errors import StatusError, bad_request, forbidden, not_found
from lean_sandbox.local.kinds import Kind
from lean_sandbox.local.request import AUTHENTICATED, Target, UserInfo, parse_fields
from lean_sandbox.local.schema.metadata import selector_of
from lean_sandbox.local.store import Collection, Event, Store
from lean_sandbox.local.write.bodies import WriteOptions
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]
Rule = Mapping[str, Any]

GROUP: Final = "rbac.authorization.k8s.io"


class _Grant(NamedTuple):
    """What one binding gives to one subject."""

    rules: list[Rule] | None
    """None where the role does not exist."""
    why: str


_Grants = dict[tuple[str, str], list[_Grant]]


class Authorizer:
    """Answers whether a user may do what a request asks; bindings are read anew after a change."""

    def __init__(self, store: Store) -> None:
        self._roles = store.collection(f"roles.{GROUP}")
        self._cluster_roles = store.collection(f"clusterroles.{GROUP}")
        self._bindings = store.collection(f"rolebindings.{GROUP}")
        self._cluster_bindings = store.collection(f"clusterrolebindings.{GROUP}")
        self._grants: dict[str, _Grants] = {}
        self._version = 0

    def decide(self, user: UserInfo, target: Target) -> tuple[bool, str]:
        """Return whether a request is allowed, and by which binding or what stood in the way."""
        if "system:masters" in user.groups:
            return True, ""
        missing: list[str] = []
        right = _right(target)
        for grant in self._granted(user, target.namespace):
            if grant.rules is None:
                missing.append(grant.why)
            elif any(_covers(rule, right) for rule in grant.rules):
                return True, f"RBAC: allowed by {grant.why}"
        return False, f"RBAC: {joined(missing)}" if missing else ""

    def check(self, user: UserInfo, target: Target) -> None:
        """Refuse a request that the bindings do not allow. Raises StatusError: 403."""
        is_allowed, reason = self.decide(user, target)
        if is_allowed:
            return
        why = f": {reason}" if reason else ""
        if not target.is_resource:
            message = f'forbidden: User "{user.name}" cannot {target.verb} path "{target.path}"'
            raise StatusError(403, "Forbidden", message + why, details={})
        space = target.namespace
        where = f'in the namespace "{space}"' if space else "at the cluster scope"
        raise forbidden(
            target.group,
            target.resource,
            _name_of(target),
            f'User "{user.name}" cannot {target.verb} resource "{target.full_resource}" in API'
            f' group "{target.group}" {where}{why}',
        )

    def rules(self, user: UserInfo, namespace: str) -> tuple[list[Rule], list[str]]:
        """Return the rules that hold for a user in a namespace, and which roles are missing."""
        grants = list(self._granted(user, namespace))
        missing = [grant.why for grant in grants if grant.rules is None]
        found = [rule for grant in grants for rule in grant.rules or ()]
        return found, missing

    def role_rules(self, reference: Json, namespace: str) -> list[Rule] | None:
        """Return the rules of the role that a binding names, None when it does not exist."""
        name = reference["name"]
        if reference.get("kind") == "ClusterRole":
            entry = self._cluster_roles.entries.get(name)
        else:
            entry = self._roles.entries.get(f"{namespace}/{name}")
        return None if entry is None else entry.load().get("rules") or []

    def _granted(self, user: UserInfo, namespace: str) -> Iterator[_Grant]:
        """Yield what a user is granted, cluster-wide and in a namespace if given."""
        read = (self._roles, self._cluster_roles, self._bindings, self._cluster_bindings)
        newest = max(collection.changed for collection in read)
        if newest != self._version:
            self._version = newest
            self._grants.clear()
        subjects = [("User", user.name), *(("Group", group) for group in user.groups)]
        for scope in ("", namespace) if namespace else ("",):
            if scope not in self._grants:
                self._grants[scope] = self._read(scope)
            for subject in subjects:
                yield from self._grants[scope].get(subject, ())

    def _read(self, namespace: str) -> _Grants:
        found: _Grants = {}
        bindings = self._bindings if namespace else self._cluster_bindings
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        for entry in bindings.scan(namespace):
            binding = entry.load()
            role = binding["roleRef"]
            rules = self.role_rules(role, namespace)
            name = f"{entry.name}/{namespace}" if namespace else entry.name
            for subject in binding.get("subjects") or ():
                type_ = subject.get("kind", "")
                whose = subject.get("name", "")
                known = (type_, whose)
                if type_ == "ServiceAccount":
                    home = subject.get("namespace", "")
                    known = ("User", f"system:serviceaccount:{home}:{whose}")
                    whose = f"{whose}/{home}"
                why = f'{kind} "{name}" of {role["kind"]} "{role["name"]}" to {type_} "{whose}"'
                if rules is None:
                    why = f'{role["kind"].lower()}.{GROUP} "{role["name"]}" not found'
                found.setdefault(known, []).append(_Grant(rules, why))
        return found


def joined(problems: list[str]) -> str:
    """Return several problems as one text."""
    different = list(dict.fromkeys(problems))
    return f"[{', '.join(different)}]" if len(different) > 1 else "".join(different)


def _right(target: Target) -> Rule:
    """Return the single right that a request needs."""
    if not target.is_resource:
        return {"verbs": [target.verb], "nonResourceURLs": [target.path]}
    return {
        "verbs": [target.verb],
        "apiGroups": [target.group],
        "resources": [target.full_resource],
        "resourceNames": [name] if (name := _name_of(target)) else [],
    }


def _name_of(target: Target) -> str:
    """Return the name that a request is about, maybe by a field selector that allows no other."""
    if target.verb not in ("list", "watch"):
        return target.name
    with suppress(SelectorError):
        for term in parse_fields(target.query.get("fieldSelector", "")):
            if term.path == "metadata.name" and term.equal:
                return term.value
    return ""


def missing_rights(held: Iterable[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Return what ``wanted`` allows and no rule of ``held`` does, one right in each rule."""
    owned = list(held)
    return [
        right
        for rule in wanted
        for right in _rights(rule)
        if not any(_covers(one, right) for one in owned)
    ]


def _rights(rule: Rule) -> Iterator[Rule]:
    """Yield the single rights of a rule: one verb on one thing."""
    groups, resources, urls, verbs = (
        rule.get(member) or () for member in ("apiGroups", "resources", "nonResourceURLs", "verbs")
    )
    names: list[Json] = [{"resourceNames": [name]} for name in rule.get("resourceNames") or ()]
    for group, resource, verb, name in product(groups, resources, verbs, names or [{}]):
        yield {"apiGroups": [group], "resources": [resource], "verbs": [verb], **name}
    for url, verb in product(urls, verbs):
        yield {"nonResourceURLs": [url], "verbs": [verb]}


def _covers(rule: Rule, right: Rule) -> bool:
    """Say whether a rule gives a single right."""
    if not _has(rule, "verbs", right["verbs"][0]):
        return False
    if "nonResourceURLs" in right:
        (path,) = right["nonResourceURLs"]
        return any(
            url in ("*", path) or (url.endswith("*") and path.startswith(url[:-1]))
            for url in rule.get("nonResourceURLs") or ()
        )
    if not _has(rule, "apiGroups", right["apiGroups"][0]):
        return False
    (resource,) = right["resources"]
    _, slash, subresource = resource.partition("/")
    accepted = {"*", resource, f"*/{subresource}" if slash else "*"}
    if accepted.isdisjoint(rule.get("resources") or ()):
        return False
    names = rule.get("resourceNames")
    asked = right.get("resourceNames")
    return not names or bool(asked and asked[0] in names)


def _has(rule: Rule, member: str, value: str) -> bool:
    values = rule.get(member) or ()
    return "*" in values or value in values


# ------------------------------------------------------------------ roles


_AGGREGATOR: Final = "clusterrole-aggregation-controller"
_EVERYTHING: Final[tuple[Rule, ...]] = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)
_PLURALS: Final = {"ClusterRole": "clusterroles", "Role": "roles"}
_BOUND: Final = {
    "cluster-admin": ("system:masters",),
    "system:basic-user": (AUTHENTICATED,),
    "system:discovery": (AUTHENTICATED,),
    "system:monitoring": ("system:monitoring",),
    "system:public-info-viewer": (AUTHENTICATED, "system:unauthenticated"),
    "system:service-account-issuer-discovery": ("system:serviceaccounts",),
}
"""The roles that are bound from the start, and the groups that have them."""
_WORDS: Final = {
    "apiGroups": "APIGroups",
    "resources": "Resources",
    "resourceNames": "ResourceNames",
    "nonResourceURLs": "NonResourceURLs",
}


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


class Aggregation:
    """Keeps the rules of cluster roles that gather those of others."""

    def __init__(self, verbs: Verbs) -> None:
        self._store = verbs.store
        self._verbs = verbs
        self._kind = verbs.registry.by_resource(f"clusterroles.{GROUP}")
        self._roles = verbs.collection(self._kind)
        self._store.listeners.append(self._gather)

    def _gather(self, collection: Collection, _event: Event) -> None:
        """Write what aggregated roles gather now; each write is followed by another call."""
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

        Raises StatusError: 403; 404, 400 or 500 for a binding to what is no role.
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
        where: Json = {"group": GROUP, "namespace": namespace, "resource": plural, "name": name}
        return self._authorizer.decide(user, Target(verb, "", is_resource=True, **where))[0]

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
