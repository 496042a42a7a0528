"""Rights from Role, ClusterRole and their bindings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from multidict import MultiMapping

from lean_sandbox.local.auth import ANONYMOUS, AUTHENTICATED, UserInfo, account_groups
from lean_sandbox.local.errors import StatusError, bad_request, forbidden
from lean_sandbox.local.store.store import Store
from lean_sandbox.local.target import Target

Json = dict[str, Any]
Rule = Mapping[str, Any]

GROUP: Final = "rbac.authorization.k8s.io"
_AUTHENTICATION: Final = "authentication.k8s.io"
_IMPERSONATE: Final = "impersonate-"
_EXTRA: Final = "impersonate-extra-"


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
        """Refuse a request that the bindings do not allow.

        Raises:
            StatusError: 403.

        """
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
            target.name,
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
        "resourceNames": [target.name] if target.name else [],
    }


def impersonated(user: UserInfo, headers: MultiMapping[str], authorizer: Authorizer) -> UserInfo:
    """Return who a request is to be carried out as: its sender, unless it says otherwise.

    Raises:
        StatusError: 403 for a name, group, uid or extra that the sender may not take on, 400 when
            there is no name among them.

    """
    said = {key.lower(): key for key in headers if key.lower().startswith(_IMPERSONATE)}
    if not said:
        return user
    name = headers.get("Impersonate-User", "")
    uid = headers.get("Impersonate-Uid", "")
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
    asked = [("", "serviceaccounts", "", account, home) if account else ("", "users", "", name, "")]
    asked += [("", "groups", "", group, "") for group in groups]
    for key, values in extra.items():
        asked += [(_AUTHENTICATION, "userextras", key, value, "") for value in values]
    asked += [(_AUTHENTICATION, "uids", "", uid, "")] if uid else []
    for group, resource, part, what, namespace in asked:
        right = Target("impersonate", "", is_resource=True, group=group, resource=resource)
        right.subresource = part
        right.name = what
        right.namespace = namespace
        authorizer.check(user, right)
    if account and not groups:
        groups = list(account_groups(home))
    if name != ANONYMOUS.name and not {AUTHENTICATED, *ANONYMOUS.groups}.intersection(groups):
        groups.append(AUTHENTICATED)
    elif name == ANONYMOUS.name and not groups:
        groups = list(ANONYMOUS.groups)
    return UserInfo(name, tuple(groups), uid, tuple(sorted(extra.items())))


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
