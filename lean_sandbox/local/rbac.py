"""Rights from Role, ClusterRole and their bindings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from multidict import MultiMapping

from lean_sandbox.local.auth import ANONYMOUS, AUTHENTICATED, User, account_groups
from lean_sandbox.local.errors import StatusError, bad_request, forbidden
from lean_sandbox.local.store import Store
from lean_sandbox.local.target import Target

Json = dict[str, Any]
Rule = Mapping[str, Any]

GROUP: Final = "rbac.authorization.k8s.io"
_COLLECTIONS: Final = tuple(
    f"{plural}.{GROUP}"
    for plural in ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
)
_ROLES, _CLUSTER_ROLES, _BINDINGS, _CLUSTER_BINDINGS = _COLLECTIONS

_AUTHENTICATION: Final = "authentication.k8s.io"
_IMPERSONATE: Final = "impersonate-"
_EXTRA: Final = "impersonate-extra-"


class _Grant(NamedTuple):
    """What one binding gives to one subject."""

    rules: tuple[Rule, ...] | None
    """None where the role does not exist."""
    why: str


_Grants = dict[tuple[str, str], list[_Grant]]


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a request is allowed, and the binding that allows it or what stood in the way."""

    allowed: bool
    reason: str = ""


class Authorizer:
    """Answers whether a user may do what a request asks; bindings are read anew after a change."""

    def __init__(self, store: Store) -> None:
        self._collections = {name: store.collection(name) for name in _COLLECTIONS}
        self._grants: dict[str, _Grants] = {}
        self._version = 0

    def decide(self, user: User, target: Target) -> Decision:
        """Return whether the bindings allow a request, and why."""
        if "system:masters" in user.groups:
            return Decision(allowed=True)
        missing: list[str] = []
        right = _right(target)
        for grant in self._granted(user, target.namespace):
            if grant.rules is None:
                missing.append(grant.why)
            elif any(_covers(rule, right) for rule in grant.rules):
                return Decision(allowed=True, reason=f"RBAC: allowed by {grant.why}")
        return Decision(allowed=False, reason=f"RBAC: {joined(missing)}" if missing else "")

    def check(self, user: User, target: Target) -> None:
        """Refuse a request that the bindings do not allow.

        Raises:
            StatusError: 403.

        """
        decision = self.decide(user, target)
        if decision.allowed:
            return
        why = f": {decision.reason}" if decision.reason else ""
        if not target.is_resource:
            message = f'forbidden: User "{user.name}" cannot {target.verb} path "{target.path}"'
            raise StatusError(403, "Forbidden", message + why, details={})
        space = target.namespace
        where = f'in the namespace "{space}"' if space else "at the cluster scope"
        raise forbidden(
            target.group,
            target.resource,
            target.name,
            f'User "{user.name}" cannot {target.verb} resource "{_full(target)}" in API group'
            f' "{target.group}" {where}{why}',
        )

    def rules(self, user: User, namespace: str) -> tuple[list[Rule], list[str]]:
        """Return the rules that hold for a user in a namespace, and which roles are missing."""
        grants = list(self._granted(user, namespace))
        missing = [grant.why for grant in grants if grant.rules is None]
        found = [rule for grant in grants for rule in grant.rules or ()]
        return found, missing

    def role_rules(self, reference: Json, namespace: str) -> list[Rule] | None:
        """Return the rules of the role that a binding names, None when it does not exist."""
        if reference.get("kind") == "ClusterRole":
            collection, key = self._collections[_CLUSTER_ROLES], reference["name"]
        else:
            collection, key = self._collections[_ROLES], f"{namespace}/{reference['name']}"
        entry = collection.entries.get(key)
        return None if entry is None else entry.load().get("rules") or []

    def _granted(self, user: User, namespace: str) -> Iterator[_Grant]:
        """Yield what a user is granted, cluster-wide and in a namespace if given."""
        newest = max(collection.changed for collection in self._collections.values())
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
        plural = _BINDINGS if namespace else _CLUSTER_BINDINGS
        entries = self._collections[plural].scan(namespace)
        for entry in entries:
            binding = entry.load()
            role = binding["roleRef"]
            rules = self.role_rules(role, namespace)
            kind = "RoleBinding" if namespace else "ClusterRoleBinding"
            name = f"{entry.name}/{namespace}" if namespace else entry.name
            for subject in binding.get("subjects") or ():
                kind_of_subject, whose = subject.get("kind", ""), subject.get("name", "")
                known = (kind_of_subject, whose)
                if kind_of_subject == "ServiceAccount":
                    home = subject.get("namespace", "")
                    known = ("User", f"system:serviceaccount:{home}:{whose}")
                    whose = f"{whose}/{home}"
                why = (
                    f'{kind} "{name}" of {role["kind"]} "{role["name"]}" to {kind_of_subject}'
                    f' "{whose}"'
                )
                if rules is None:
                    why = f'{role["kind"].lower()}.{GROUP} "{role["name"]}" not found'
                grant = _Grant(None if rules is None else tuple(rules), why)
                found.setdefault(known, []).append(grant)
        return found


def joined(problems: list[str]) -> str:
    """Return several problems as one text."""
    different = list(dict.fromkeys(problems))
    return f"[{', '.join(different)}]" if len(different) > 1 else "".join(different)


def _full(target: Target) -> str:
    return target.resource + (f"/{target.subresource}" if target.subresource else "")


def _right(target: Target) -> Rule:
    """Return the single right that a request needs."""
    if not target.is_resource:
        return {"verbs": [target.verb], "nonResourceURLs": [target.path]}
    return {
        "verbs": [target.verb],
        "apiGroups": [target.group],
        "resources": [_full(target)],
        "resourceNames": [target.name] if target.name else [],
    }


def impersonated(user: User, headers: MultiMapping[str], authorizer: Authorizer) -> User:
    """Return who a request is to be carried out as: its sender, unless it says otherwise.

    Raises:
        StatusError: 403 for a name, group, uid or extra that the sender may not take on, 400 when
            there is no name among them.

    """
    said = {key.lower(): key for key in headers if key.lower().startswith(_IMPERSONATE)}
    if not said:
        return user
    name, uid = headers.get("Impersonate-User", ""), headers.get("Impersonate-Uid", "")
    groups = list(headers.getall("Impersonate-Group", ()))
    extra = {
        unquote(lower.removeprefix(_EXTRA)).lower(): tuple(headers.getall(key))
        for lower, key in said.items()
        if lower.startswith(_EXTRA)
    }
    if not name:
        if uid or groups or extra:
            raise bad_request("requested groups, a uid or extras without impersonating a user name")
        return user
    home, account = _account(name)
    asked = [("", "serviceaccounts", account, home) if account else ("", "users", name, "")]
    asked += [("", "groups", group, "") for group in groups]
    asked += [
        (_AUTHENTICATION, f"userextras/{key}", value, "")
        for key, values in extra.items()
        for value in values
    ]
    asked += [(_AUTHENTICATION, "uids", uid, "")] if uid else []
    for group, resource, what, namespace in asked:
        plural, _, key = resource.partition("/")
        target = Target("impersonate", "", is_resource=True, group=group, resource=plural)
        target.subresource, target.name, target.namespace = key, what, namespace
        authorizer.check(user, target)
    if account and not groups:
        groups = list(account_groups(home))
    if name != ANONYMOUS.name and not {AUTHENTICATED, *ANONYMOUS.groups}.intersection(groups):
        groups.append(AUTHENTICATED)
    elif name == ANONYMOUS.name and not groups:
        groups = list(ANONYMOUS.groups)
    return User(name, tuple(groups), uid, tuple(sorted(extra.items())))


def _account(name: str) -> tuple[str, str]:
    """Return namespace and name of a service account by its user name, empty for other users."""
    parts = name.split(":")
    is_account = len(parts) == 4 and parts[:2] == ["system", "serviceaccount"] and all(parts)
    return (parts[2], parts[3]) if is_account else ("", "")


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
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in rule.get("verbs") or ():
                right = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                names = rule.get("resourceNames")
                yield from [{**right, "resourceNames": [name]} for name in names or ()] or [right]
    for url in rule.get("nonResourceURLs") or ():
        for verb in rule.get("verbs") or ():
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
    names, asked = rule.get("resourceNames"), right.get("resourceNames")
    return not names or bool(asked and asked[0] in names)


def _has(rule: Rule, member: str, value: str) -> bool:
    values = rule.get(member) or ()
    return "*" in values or value in values
