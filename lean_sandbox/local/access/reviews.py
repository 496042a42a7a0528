"""What is asked by POST and stored nowhere: who somebody is, what they may do, and tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from lean_sandbox.local.access.rbac import Authorizer, joined
from lean_sandbox.local.auth import ISSUER, Authenticator, TokenError, UserInfo
from lean_sandbox.local.errors import StatusError, bad_request, invalid
from lean_sandbox.local.kinds.registry import Kind, make_kind
from lean_sandbox.local.schema.errors import invalid as invalid_value
from lean_sandbox.local.target import Ask, EncodedAnswer, Target
from lean_sandbox.local.write.bodies import read_body, read_options
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]
Handler = Callable[[Ask], EncodedAnswer]
_Review = Callable[[Json, Ask], Json]

_AUTHENTICATION: Final = "authentication.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"
_TOKEN_REQUEST: Final = make_kind(_AUTHENTICATION, "v1", "tokenrequests", "TokenRequest")
_LIFETIME_S: Final = 3600
_SHORTEST_S: Final = 600
_LONGEST_S: Final = 1 << 32


class Reviews:
    """Answers the review kinds, and issues tokens of service accounts."""

    def __init__(self, verbs: Verbs, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._verbs = verbs
        self._authenticator = authenticator
        self._authorizer = authorizer
        reviews: dict[str, _Review] = {
            f"selfsubjectreviews.{_AUTHENTICATION}": self._who,
            f"tokenreviews.{_AUTHENTICATION}": self._token,
            f"selfsubjectrulesreviews.{_AUTHORIZATION}": self._rules,
            f"selfsubjectaccessreviews.{_AUTHORIZATION}": self._own_access,
            f"subjectaccessreviews.{_AUTHORIZATION}": self._access,
            f"localsubjectaccessreviews.{_AUTHORIZATION}": self._local_access,
        }
        self.handlers: dict[tuple[str, str], Handler] = {
            (storage, ""): partial(self._answer, review) for storage, review in reviews.items()
        }
        """What answers a request, by collection and subresource."""
        issue = partial(self._answer, self._issue, kind=_TOKEN_REQUEST)
        self.handlers["serviceaccounts", "token"] = issue

    def _answer(self, review: _Review, ask: Ask, kind: Kind | None = None) -> EncodedAnswer:
        """Answer with the members that a review gives to the body of a request."""
        kind = kind or ask.kind
        options = read_options(ask)
        body = read_body(kind, ask, options, self._verbs.admission)
        members = review(body, ask)
        reviewed = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {}, **members}
        if ask.namespace:
            reviewed["metadata"]["namespace"] = ask.namespace
        return EncodedAnswer(201, msgspec.json.encode(reviewed), warnings=options.warnings)

    def _who(self, body: Json, ask: Ask) -> Json:
        del body
        made = {"creationTimestamp": self._verbs.now()}
        return {"metadata": made, "status": {"userInfo": ask.user.info()}}

    def _token(self, body: Json, ask: Ask) -> Json:
        del ask
        spec = body.get("spec") or {}
        if not spec.get("token"):
            raise bad_request("token is required for TokenReview in authentication")
        status: Json
        try:
            user, audiences = self._authenticator.authenticate(
                spec["token"], spec.get("audiences") or (ISSUER,)
            )
            status = {"authenticated": True, "user": user.info(), "audiences": audiences}
        except TokenError as error:
            status = {"user": {}, "error": str(error)}
        return {"spec": spec, "status": status}

    # ------------------------------------------------------------------ access

    def _rules(self, body: Json, ask: Ask) -> Json:
        namespace = (body.get("spec") or {}).get("namespace")
        if not namespace:
            raise bad_request("no namespace on request")
        rules, problems = self._authorizer.rules(ask.user, namespace)
        status = {
            "resourceRules": [rule for rule in rules if rule.get("resources")],
            "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
            "incomplete": False,
            **({"evaluationError": joined(problems)} if problems else {}),
        }
        return {"spec": {}, "status": status}

    def _own_access(self, body: Json, ask: Ask) -> Json:
        return self._allowed(body, ask.user)

    def _access(self, body: Json, ask: Ask) -> Json:
        del ask
        spec = body.get("spec") or {}
        user = spec.get("user", "")
        groups = spec.get("groups") or ()
        if not user and not groups:
            raise _mistake("spec.user", "", "at least one of user or group must be specified")
        return self._allowed(body, UserInfo(user, tuple(groups), spec.get("uid", "")))

    def _local_access(self, body: Json, ask: Ask) -> Json:
        spec = body.get("spec") or {}
        plain = spec.get("nonResourceAttributes")
        wanted = spec.get("resourceAttributes")
        if plain is not None:
            why = "disallowed on this kind of request"
            raise _mistake("spec.nonResourceAttributes", plain, why)
        if wanted is not None and wanted.get("namespace") != ask.namespace:
            where = "spec.resourceAttributes.namespace"
            raise _mistake(where, wanted.get("namespace", ""), "must match metadata.namespace")
        return self._access(body, ask)

    def _allowed(self, body: Json, user: UserInfo) -> Json:
        if body["metadata"].keys() - {"namespace", "managedFields"}:
            raise _mistake("metadata", body["metadata"], "must be empty")
        spec = body.get("spec") or {}
        wanted = spec.get("resourceAttributes")
        plain = spec.get("nonResourceAttributes")
        if wanted is not None and plain is not None:
            why = "cannot be specified in combination with resourceAttributes"
            raise _mistake("spec.nonResourceAttributes", plain, why)
        if wanted is not None:
            selectors = ("fieldSelector", "labelSelector")
            said = {key: value for key, value in wanted.items() if key not in selectors}
            question = Target(**{"verb": "", "path": "", **said}, is_resource=True)
        elif plain is not None:
            question = Target(plain.get("verb", ""), plain.get("path", ""))
        else:
            why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise _mistake("spec.resourceAttributes", None, why)
        is_allowed, reason = self._authorizer.decide(user, question)
        status = {"allowed": is_allowed, **({"reason": reason} if reason else {})}
        return {"spec": spec, "status": status}

    # ------------------------------------------------------------------ tokens

    def _issue(self, body: Json, ask: Ask) -> Json:
        """Return the members of an answered TokenRequest for the account that the path names."""
        namespace = ask.namespace
        name = ask.target.name
        account = self._verbs.entry(ask.kind, namespace, name)
        spec = body.get("spec") or {}
        lifetime = spec.get("expirationSeconds", _LIFETIME_S)
        if body["metadata"].get("name", name) != name:
            why = "must match the service account name if specified"
            raise _mistake("metadata.name", body["metadata"]["name"], why, _TOKEN_REQUEST)
        if not _SHORTEST_S <= lifetime <= _LONGEST_S:
            which = "less than 10 minutes" if lifetime < _SHORTEST_S else "larger than 2^32 seconds"
            why = f"may not specify a duration {which}"
            raise _mistake("spec.expirationSeconds", lifetime, why, _TOKEN_REQUEST)
        if spec.get("boundObjectRef") is not None:
            why = "this server binds no tokens to objects: leave out spec.boundObjectRef"
            raise StatusError(501, "NotImplemented", why)
        audiences = spec.get("audiences") or [ISSUER]
        token, end = self._authenticator.issue(namespace, name, account.uid, lifetime, audiences)
        return {
            "metadata": {"name": name, "uid": account.uid, "creationTimestamp": self._verbs.now()},
            "spec": {
                "audiences": audiences,
                "expirationSeconds": lifetime,
                "boundObjectRef": None,
            },
            "status": {"token": token, "expirationTimestamp": f"{end:%Y-%m-%dT%H:%M:%SZ}"},
        }


def _mistake(field: str, value: Any, why: str, kind: Kind | None = None) -> StatusError:
    cause = invalid_value(field, value, why)
    if kind is not None:
        return invalid(kind.group, kind.kind, "", [cause])
    refusal = invalid(_AUTHORIZATION, "", "", [cause])
    refusal.details = {"group": _AUTHORIZATION, "causes": [cause.body()]}
    return refusal
