"""Who is asking: tokens, impersonation, and the reviews that tell about users and their rights."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Final, NoReturn
from urllib.parse import unquote

import msgspec
from multidict import MultiMapping

from lean_sandbox.local.access.rights import Authorizer, joined
from lean_sandbox.local.errors import StatusError, bad_request, invalid
from lean_sandbox.local.kinds import Kind, make_kind
from lean_sandbox.local.request import (
    ANONYMOUS,
    AUTHENTICATED,
    Ask,
    EncodedAnswer,
    Target,
    UserInfo,
)
from lean_sandbox.local.schema.causes import invalid as invalid_value
from lean_sandbox.local.write.bodies import read_body, read_options
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]
Handler = Callable[[Ask], EncodedAnswer]
_Review = Callable[[Json, Ask], Json]

ISSUER: Final = "https://kubernetes.default.svc"
"""Who signs the tokens of service accounts, and the audience that the server itself is."""
_AUTHENTICATION: Final = "authentication.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"
_IMPERSONATE: Final = "impersonate-"
_EXTRA: Final = "impersonate-extra-"
_PLACE: Final = "kubernetes.io"
_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"
_TOKEN_REQUEST: Final = make_kind(_AUTHENTICATION, "v1", "tokenrequests", "TokenRequest")
_ACCOUNT: Final = re.compile("system:serviceaccount:([^:]+):([^:]+)")
_LIFETIME_S: Final = 3600
_SHORTEST_S: Final = 600
_LONGEST_S: Final = 1 << 32


def account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of the service accounts of a namespace."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)


class TokenError(Exception):
    """A token that is not accepted; the message says why."""


class Authenticator:
    """Knows tokens; those of service accounts are signed, so they survive a restart."""

    def __init__(self, key: bytes, verbs: Verbs, *, nobody: UserInfo = ANONYMOUS) -> None:
        self._nobody = nobody
        self._key = key
        self._verbs = verbs
        self._static: dict[str, UserInfo] = {}

    def add(self, token: str, user: UserInfo) -> None:
        """Accept ``token`` for ``user`` until the server ends."""
        self._static[token] = user

    def derive(self, name: str) -> str:
        """Return a token for a name that only this server's key can make."""
        digest = hmac.new(self._key, f"static:{name}".encode(), hashlib.sha256).hexdigest()
        return f"local-{digest[:40]}"

    def issue(
        self,
        namespace: str,
        account: str,
        uid: str,
        lifetime_s: int,
        audiences: Iterable[str] = (ISSUER,),
    ) -> tuple[str, datetime]:
        """Return a token of a service account and when it expires."""
        start = self._verbs.clock.now()
        second = int(start.timestamp())
        claims = {
            "aud": list(audiences),
            "exp": second + lifetime_s,
            "iat": second,
            "iss": ISSUER,
            "jti": self._verbs.new_uid(),
            _PLACE: {"namespace": namespace, "serviceaccount": {"name": account, "uid": uid}},
            "nbf": second,
            "sub": f"system:serviceaccount:{namespace}:{account}",
        }
        head = _b64(msgspec.json.encode({"alg": "HS256", "typ": "JWT"}))
        signed = f"{head}.{_b64(msgspec.json.encode(claims))}"
        return f"{signed}.{_b64(_sign(self._key, signed))}", start + timedelta(seconds=lifetime_s)

    def identify(self, authorization: str) -> UserInfo | None:
        """Return who has the token of an Authorization header, None for a token of nobody."""
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() != "bearer" or not token:
            return self._nobody
        try:
            return self.authenticate(token.strip())[0]
        except TokenError:
            return None

    def authenticate(
        self, token: str, audiences: Iterable[str] = (ISSUER,)
    ) -> tuple[UserInfo, list[str]]:
        """Return who a token is of, and for which of the ``audiences``.

        Raises TokenError: nobody whose token is known, or meant for one of the audiences.
        """
        wanted = list(audiences)
        user = self._static.get(token)
        if user is not None and ISSUER in wanted:
            return user, [ISSUER]
        claims = _read_token(self._key, token)
        if claims is None:
            raise TokenError("invalid bearer token")
        found = [one for one in claims["aud"] if one in wanted]
        if not found:
            meant, aims = (
                " ".join(f'"{one}"' for one in names) for names in (claims["aud"], wanted)
            )
            _refuse(f"token audiences [{meant}] is invalid for the target audiences [{aims}]")
        if claims["exp"] < self._verbs.clock.now().timestamp():
            _refuse("service account token has expired")
        namespace = claims[_PLACE]["namespace"]
        account = claims[_PLACE]["serviceaccount"]
        name = account["name"]
        uid = account["uid"]
        held = self._verbs.store.collection("serviceaccounts").entries.get(f"{namespace}/{name}")
        if held is None or held.uid != uid:
            _refuse(f'serviceaccounts "{name}" with the UID of the token not found')
        extra = ((_CREDENTIAL, (f"JTI={claims['jti']}",)),)
        return UserInfo(claims["sub"], account_groups(namespace), uid, extra), found


def _refuse(why: str) -> NoReturn:
    raise TokenError(f"[invalid bearer token, {why}]")


@lru_cache(maxsize=256)
def _read_token(key: bytes, token: str) -> dict[str, Any] | None:
    """Return what a token says that was signed with a key, None for any other.

    Remembered, because it comes with every request of its holder.
    """
    signed, _, signature = token.rpartition(".")
    try:
        if not hmac.compare_digest(_unb64(signature), _sign(key, signed)):
            return None
        claims: dict[str, Any] = msgspec.json.decode(_unb64(signed.split(".")[1]))
    except (ValueError, IndexError, msgspec.DecodeError):
        return None
    return claims


def _sign(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def impersonated(user: UserInfo, headers: MultiMapping[str], authorizer: Authorizer) -> UserInfo:
    """Return who a request is to be carried out as: its sender, unless it says otherwise.

    Raises StatusError: 403 for a name, group, uid or extra that the sender may not take on, 400
    when there is no name among them.
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
        where: Json = {
            "group": group,
            "namespace": namespace,
            "resource": resource,
            "subresource": part,
        }
        authorizer.check(user, Target("impersonate", "", is_resource=True, name=what, **where))
    if account and not groups:
        groups = list(account_groups(home))
    if name != ANONYMOUS.name and not {AUTHENTICATED, *ANONYMOUS.groups}.intersection(groups):
        groups.append(AUTHENTICATED)
    elif name == ANONYMOUS.name and not groups:
        groups = list(ANONYMOUS.groups)
    return UserInfo(name, tuple(groups), uid, tuple(sorted(extra.items())))


def _account(name: str) -> tuple[str, str]:
    """Return namespace and name of a service account by its user name, empty for other users."""
    found = _ACCOUNT.fullmatch(name)
    return (found[1], found[2]) if found else ("", "")


# ------------------------------------------------------------------ reviews


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

    def _who(self, _body: Json, ask: Ask) -> Json:
        made = {"creationTimestamp": self._verbs.now()}
        return {"metadata": made, "status": {"userInfo": ask.user.info()}}

    def _token(self, body: Json, _ask: Ask) -> Json:
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

    def _access(self, body: Json, _ask: Ask) -> Json:
        spec = body.get("spec") or {}
        user = spec.get("user", "")
        groups = spec.get("groups") or ()
        if not user and not groups:
            raise _mistake("spec.user", "", "at least one of user or group must be specified")
        return self._allowed(body, UserInfo(user, tuple(groups), spec.get("uid", "")))

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
            "spec": {"audiences": audiences, "expirationSeconds": lifetime, "boundObjectRef": None},
            "status": {"token": token, "expirationTimestamp": f"{end:%Y-%m-%dT%H:%M:%SZ}"},
        }


def _mistake(field: str, value: Any, why: str, kind: Kind | None = None) -> StatusError:
    cause = invalid_value(field, value, why)
    if kind is not None:
        return invalid(kind.group, kind.kind, "", [cause])
    refusal = invalid(_AUTHORIZATION, "", "", [cause])
    refusal.details = {"group": _AUTHORIZATION, "causes": [cause.body()]}
    return refusal
