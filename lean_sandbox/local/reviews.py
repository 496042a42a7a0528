"""Questions a client asks about itself: who it is, and what it may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lean_sandbox.local.auth import User
from lean_sandbox.local.rbac import Authorizer
from lean_sandbox.local.target import Target

Json = dict[str, Any]


def _target(spec: Json) -> Target:
    """Return the request a review asks about."""
    wanted = spec.get("resourceAttributes")
    if wanted is None:
        plain = spec.get("nonResourceAttributes") or {}
        return Target(plain.get("verb", "get"), plain.get("path", "/"))
    return Target(
        wanted.get("verb", ""),
        "",
        is_resource=True,
        group=wanted.get("group", ""),
        version=wanted.get("version", ""),
        resource=wanted.get("resource", ""),
        namespace=wanted.get("namespace", ""),
        name=wanted.get("name", ""),
        subresource=wanted.get("subresource", ""),
    )


class Reviews:
    """Answers the review kinds, which are asked by POST and stored nowhere."""

    def __init__(self, authorizer: Authorizer | None, now: Callable[[], str]) -> None:
        self._authorizer = authorizer
        self._now = now

    def answer(self, group: str, resource: str, body: Json, user: User) -> Json | None:
        """Return the answered review, None when the path asks for none."""
        if group == "authentication.k8s.io" and resource == "selfsubjectreviews":
            info: Json = {"username": user.name, "groups": list(user.groups)}
            if user.uid:
                info["uid"] = user.uid
            return {
                "kind": "SelfSubjectReview",
                "apiVersion": f"{group}/v1",
                "metadata": {"creationTimestamp": self._now()},
                "status": {"userInfo": info},
            }
        if group != "authorization.k8s.io":
            return None
        spec = body.get("spec") or {}
        if resource == "selfsubjectaccessreviews":
            return self._access("SelfSubjectAccessReview", spec, user)
        if resource == "subjectaccessreviews":
            asked = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
            return self._access("SubjectAccessReview", spec, asked)
        if resource == "selfsubjectrulesreviews":
            rules = []
            if self._authorizer is None or "system:masters" in user.groups:
                rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
            else:
                found = self._authorizer.rules(user, spec.get("namespace", ""))
                rules = [dict(rule) for rule in found]
            return {
                "kind": "SelfSubjectRulesReview",
                "apiVersion": "authorization.k8s.io/v1",
                "metadata": {},
                "spec": {},
                "status": {
                    "resourceRules": [rule for rule in rules if rule.get("resources")],
                    "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
                    "incomplete": False,
                },
            }
        return None

    def _access(self, kind: str, spec: Json, user: User) -> Json:
        allowed = self._authorizer is None or self._authorizer.allows(user, _target(spec))
        return {
            "kind": kind,
            "apiVersion": "authorization.k8s.io/v1",
            "metadata": {},
            "spec": spec,
            "status": {"allowed": allowed},
        }
