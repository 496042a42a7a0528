"""Rights from Role, ClusterRole and their bindings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from lean_sandbox.local.auth import User
from lean_sandbox.local.errors import StatusError, forbidden
from lean_sandbox.local.store import Collection, Event, Store
from lean_sandbox.local.target import Target

Json = dict[str, Any]
Rules = tuple[Mapping[str, Any], ...]

_GROUP: Final = "rbac.authorization.k8s.io"
_COLLECTIONS: Final = {
    name: f"{name}.{_GROUP}"
    for name in ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
}
_READ: Final = ["get", "list", "watch"]


def _role(name: str, rules: list[Json]) -> Json:
    return {"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}


def _bind(name: str, role: str, group: str) -> Json:
    return {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _GROUP, "kind": "Group", "name": group}],
    }


BOOTSTRAP: Final = (
    _role(
        "cluster-admin",
        [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["*"]},
        ],
    ),
    _role("admin", [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
    _role("edit", [{"apiGroups": ["", "apps", "batch"], "resources": ["*"], "verbs": ["*"]}]),
    _role("view", [{"apiGroups": ["", "apps", "batch"], "resources": ["*"], "verbs": _READ}]),
    _role(
        "system:discovery",
        [
            {
                "nonResourceURLs": [
                    "/api",
                    "/api/*",
                    "/apis",
                    "/apis/*",
                    "/healthz",
                    "/livez",
                    "/openapi",
                    "/openapi/*",
                    "/readyz",
                    "/version",
                    "/version/",
                ],
                "verbs": ["get"],
            }
        ],
    ),
    _role(
        "system:basic-user",
        [
            {
                "apiGroups": ["authorization.k8s.io"],
                "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                "verbs": ["create"],
            },
            {
                "apiGroups": ["authentication.k8s.io"],
                "resources": ["selfsubjectreviews"],
                "verbs": ["create"],
            },
        ],
    ),
    _role(
        "system:public-info-viewer",
        [
            {
                "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"],
                "verbs": ["get"],
            }
        ],
    ),
    _bind("cluster-admin", "cluster-admin", "system:masters"),
    _bind("system:discovery", "system:discovery", "system:authenticated"),
    _bind("system:basic-user", "system:basic-user", "system:authenticated"),
    _bind("system:public-info-viewer", "system:public-info-viewer", "system:unauthenticated"),
)
"""Roles and bindings every cluster has."""


def refusal(user: User, target: Target) -> StatusError:
    """Return the 403 for a request ``user`` may not make."""
    if not target.is_resource:
        message = f'forbidden: User "{user.name}" cannot {target.verb} path "{target.path}"'
        return StatusError(403, "Forbidden", message, details={})
    resource = target.resource + (f"/{target.subresource}" if target.subresource else "")
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    return forbidden(
        target.group,
        target.resource,
        target.name,
        f'User "{user.name}" cannot {target.verb} resource "{resource}" in API group'
        f' "{target.group}" {where}',
    )


class Authorizer:
    """Answers whether a user may do what a request asks; rules are read again after a change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rules: dict[tuple[User, str], Rules] = {}
        store.listeners.append(self._forget)

    def _forget(self, collection: Collection, event: Event) -> None:
        del event
        if collection.storage in _COLLECTIONS.values():
            self._rules.clear()

    def allows(self, user: User, target: Target) -> bool:
        """Say whether the bindings allow a request."""
        if "system:masters" in user.groups:
            return True
        scopes = ("", target.namespace) if target.namespace else ("",)
        return any(
            _rule_fits(rule, target) for scope in scopes for rule in self._rules_of(user, scope)
        )

    def rules(self, user: User, namespace: str) -> Rules:
        """Return the rules that hold for a user in a namespace, cluster-wide ones included."""
        own = self._rules_of(user, namespace) if namespace else ()
        return self._rules_of(user, "") + own

    def _rules_of(self, user: User, namespace: str) -> Rules:
        key = (user, namespace)
        if key not in self._rules:
            self._rules[key] = tuple(self._collect(user, namespace))
        return self._rules[key]

    def _collect(self, user: User, namespace: str) -> Iterator[Mapping[str, Any]]:
        plural = "rolebindings" if namespace else "clusterrolebindings"
        for entry in self._store.collection(_COLLECTIONS[plural]).scan(namespace):
            binding = entry.load()
            if any(_is_subject(user, item) for item in binding.get("subjects") or ()):
                yield from self._role_rules(binding["roleRef"], namespace)

    def _role_rules(self, reference: Json, namespace: str) -> list[Mapping[str, Any]]:
        if reference.get("kind") == "ClusterRole":
            key, plural = reference["name"], "clusterroles"
        else:
            key, plural = f"{namespace}/{reference['name']}", "roles"
        entry = self._store.collection(_COLLECTIONS[plural]).entries.get(key)
        return [] if entry is None else entry.load().get("rules") or []


def _is_subject(user: User, subject: Json) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "Group":
        return name in user.groups
    if kind == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace')}:{name}"
    return kind == "User" and user.name == name


def _rule_fits(rule: Mapping[str, Any], target: Target) -> bool:
    verbs = rule.get("verbs") or ()
    if "*" not in verbs and target.verb not in verbs:
        return False
    if not target.is_resource:
        return any(
            url in ("*", target.path) or (url.endswith("*") and target.path.startswith(url[:-1]))
            for url in rule.get("nonResourceURLs") or ()
        )
    groups = rule.get("apiGroups") or ()
    if "*" not in groups and target.group not in groups:
        return False
    resources = rule.get("resources") or ()
    full = target.resource + (f"/{target.subresource}" if target.subresource else "")
    accepted = {"*", full} | ({f"*/{target.subresource}"} if target.subresource else set())
    if accepted.isdisjoint(resources):
        return False
    names = rule.get("resourceNames") or ()
    return not names or target.name in names
