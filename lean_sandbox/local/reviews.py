"""What is asked by POST and stored nowhere: who somebody is, what they may do, and tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from lean_sandbox.local.auth import ISSUER, Authenticator, Named, TokenError, User
from lean_sandbox.local.bodies import read_plain
from lean_sandbox.local.errors import (
    Cause,
    StatusError,
    bad_request,
    conflict,
    invalid,
    not_allowed,
    not_found,
    unknown_resource,
)
from lean_sandbox.local.rbac import Authorizer, joined
from lean_sandbox.local.store import Entry, Store
from lean_sandbox.local.target import Target

Json = dict[str, Any]

_AUTHENTICATION: Final = "authentication.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"
_BINDABLE: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
_SHORTEST_S: Final = 600
_LONGEST_S: Final = 1 << 32
_Part_T = TypeVar("_Part_T", bound=msgspec.Struct)


class _Part(msgspec.Struct, omit_defaults=True, rename="camel"):
    pass


class _Resource(_Part):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    field_selector: Json | None = None
    label_selector: Json | None = None


class _Plain(_Part):
    path: str = ""
    verb: str = ""


class _Access(_Part):
    resource_attributes: _Resource | None = None
    non_resource_attributes: _Plain | None = None
    user: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    uid: str = ""


class _Rules(_Part):
    namespace: str = ""


class _Token(_Part):
    token: str = ""
    audiences: list[str] = []


class _Reference(_Part):
    kind: str = ""
    api_version: str = ""
    name: str = ""
    uid: str = ""


class _Wanted(msgspec.Struct, rename="camel"):
    audiences: list[str] = []
    expiration_seconds: int = 3600
    bound_object_ref: _Reference | None = None


class _Metadata(_Part):
    name: str = ""
    namespace: str = ""


def read_asked(body: bytes, content_type: str) -> Json:
    """Return the object of a request that has to have one. Raises StatusError (400)."""
    if not body:
        why = "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"
        raise bad_request(f"the object provided is unrecognized: {why}")
    return read_plain(body, content_type)


class Reviews:
    """Answers the review kinds and issues tokens."""

    def __init__(
        self, authenticator: Authenticator, authorizer: Authorizer, now: Callable[[], str]
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._now = now

    def answer(self, target: Target, body: bytes, content_type: str, user: User) -> Json | None:
        """Return the answered review, None when the path asks for none.

        Raises:
            StatusError: 400 and 422 for a question that makes no sense, 404 and 405 for a path or
                verb beside the one that asks.

        """
        kinds = {
            (_AUTHENTICATION, "selfsubjectreviews"): self._who,
            (_AUTHENTICATION, "tokenreviews"): self._token,
            (_AUTHORIZATION, "selfsubjectrulesreviews"): self._rules,
            (_AUTHORIZATION, "selfsubjectaccessreviews"): self._own_access,
            (_AUTHORIZATION, "subjectaccessreviews"): self._access,
            (_AUTHORIZATION, "localsubjectaccessreviews"): self._local_access,
        }
        answered = kinds.get((target.group, target.resource))
        if answered is None:
            return None
        is_local = target.resource.startswith("local")
        if target.name or bool(target.namespace) is not is_local:
            raise unknown_resource()
        if target.verb != "create":
            raise not_allowed()
        return answered(target, read_asked(body, content_type), user)

    def _who(self, target: Target, body: Json, user: User) -> Json:
        _check_kind(body, "SelfSubjectReview", target)
        return {
            "kind": "SelfSubjectReview",
            "apiVersion": f"{target.group}/{target.version}",
            "metadata": {"creationTimestamp": self._now()},
            "status": {"userInfo": user.info()},
        }

    def _token(self, target: Target, body: Json, user: User) -> Json:
        del user
        asked = _spec(body, "TokenReview", target, _Token)
        if not asked.token:
            raise bad_request("token is required for TokenReview in authentication")
        status: Json
        try:
            found, audiences = self._authenticator.authenticate(
                asked.token, asked.audiences or (ISSUER,)
            )
            status = {"authenticated": True, "user": found.info(), "audiences": audiences}
        except TokenError as error:
            status = {"user": {}, "error": str(error)}
        return _review("TokenReview", target, asked, status)

    def _rules(self, target: Target, body: Json, user: User) -> Json:
        kind = "SelfSubjectRulesReview"
        namespace = _spec(body, kind, target, _Rules).namespace
        if not namespace:
            raise bad_request("no namespace on request")
        rules, problems = self._authorizer.rules(user, namespace)
        status = {
            "resourceRules": [rule for rule in rules if rule.get("resources")],
            "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
            "incomplete": False,
            **({"evaluationError": joined(problems)} if problems else {}),
        }
        return _review(kind, target, _Rules(), status)

    def _own_access(self, target: Target, body: Json, user: User) -> Json:
        kind = "SelfSubjectAccessReview"
        asked = _spec(body, kind, target, _Access)
        asked.user, asked.groups, asked.extra, asked.uid = "", [], {}, ""
        return self._allowed(kind, target, asked, user)

    def _access(self, target: Target, body: Json, user: User) -> Json:
        del user
        kind = "SubjectAccessReview"
        asked = _spec(body, kind, target, _Access)
        return self._allowed(kind, target, asked, _subject(asked))

    def _local_access(self, target: Target, body: Json, user: User) -> Json:
        del user
        kind = "LocalSubjectAccessReview"
        asked = _spec(body, kind, target, _Access)
        plain, wanted = asked.non_resource_attributes, asked.resource_attributes
        if plain is not None:
            raise _mistake(
                "spec.nonResourceAttributes", _shown(plain), "disallowed on this kind of request"
            )
        if wanted is not None and wanted.namespace != target.namespace:
            raise _mistake(
                "spec.resourceAttributes.namespace",
                f'"{wanted.namespace}"',
                "must match metadata.namespace",
            )
        return self._allowed(kind, target, asked, _subject(asked))

    def _allowed(self, kind: str, target: Target, asked: _Access, user: User) -> Json:
        wanted, plain = asked.resource_attributes, asked.non_resource_attributes
        if wanted is not None and plain is not None:
            why = "cannot be specified in combination with resourceAttributes"
            raise _mistake("spec.nonResourceAttributes", _shown(plain), why)
        if wanted is not None:
            question = Target(
                wanted.verb,
                "",
                is_resource=True,
                group=wanted.group,
                version=wanted.version,
                resource=wanted.resource,
                namespace=wanted.namespace,
                name=wanted.name,
                subresource=wanted.subresource,
            )
        elif plain is not None:
            question = Target(plain.verb, plain.path)
        else:
            why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise _mistake("spec.resourceAttributes", "null", why)
        decision = self._authorizer.decide(user, question)
        status: Json = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        return _review(kind, target, asked, status)


def _subject(asked: _Access) -> User:
    if not asked.user and not asked.groups:
        raise _mistake("spec.user", '""', "at least one of user or group must be specified")
    return User(asked.user, tuple(asked.groups), asked.uid)


def _check_kind(body: Json, kind: str, target: Target) -> _Metadata:
    """Return the metadata of a body that is of a kind, or says none. Raises StatusError (400)."""
    claimed = body.get("kind") or kind
    version = body.get("apiVersion") or f"{target.group}/{target.version}"
    if claimed != kind:
        raise bad_request(
            f'{claimed} in version "{version.rpartition("/")[2]}" cannot be handled as a {kind}:'
            f' no kind "{claimed}" is registered for version "{version}"'
        )
    metadata = _read(body.get("metadata"), kind, target.version, "metadata", _Metadata)
    said = metadata.namespace
    if target.namespace and said and said != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return metadata


def _spec(body: Json, kind: str, target: Target, type_: type[_Part_T]) -> _Part_T:
    """Return what a review asks. Raises StatusError: 400, 422 for one that has a name."""
    metadata = _check_kind(body, kind, target)
    if metadata.name and type_ is _Access:
        raise _mistake("metadata", _shown(_Metadata(metadata.name)), "must be empty")
    return _read(body.get("spec"), kind, target.version, "spec", type_)


def _read(value: Any, kind: str, version: str, member: str, type_: type[_Part_T]) -> _Part_T:
    try:
        return msgspec.convert({} if value is None else _without_nulls(value), type_)
    except msgspec.ValidationError as error:
        why = f'{kind} in version "{version}" cannot be handled as a {kind}: {member}: {error}'
        raise bad_request(why) from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value


def _review(kind: str, target: Target, asked: msgspec.Struct, status: Json) -> Json:
    place = {"namespace": target.namespace} if target.namespace else {}
    return {
        "kind": kind,
        "apiVersion": f"{target.group}/{target.version}",
        "metadata": place,
        "spec": msgspec.to_builtins(asked),
        "status": status,
    }


def _shown(part: msgspec.Struct) -> str:
    named = {key[:1].upper() + key[1:]: value for key, value in msgspec.to_builtins(part).items()}
    return msgspec.json.encode(named if isinstance(part, _Plain) else part).decode()


def _mistake(field: str, value: str, why: str) -> StatusError:
    cause = Cause("FieldValueInvalid", f"Invalid value: {value}: {why}", field)
    refusal = invalid(_AUTHORIZATION, "", "", [cause])
    refusal.details = {"group": _AUTHORIZATION, "causes": [cause.body()]}
    return refusal


class TokenRequests:
    """Issues tokens of service accounts, which may be bound to a Pod, Secret or Node."""

    def __init__(self, authenticator: Authenticator, store: Store, now: Callable[[], str]) -> None:
        self._authenticator = authenticator
        self._store = store
        self._now = now

    def answer(self, target: Target, sent: bytes, content_type: str) -> Json:
        """Return an answered TokenRequest for the account that the path names.

        Raises:
            StatusError: 404 for an absent account or object, 400, 409 and 422 for a bad request.

        """
        kind, here = "TokenRequest", Target("create", "", group=_AUTHENTICATION, version="v1")
        here.namespace = target.namespace
        body = read_asked(sent, content_type)
        metadata = _check_kind(body, kind, here)
        account = self._entry("serviceaccounts", target.namespace, target.name)
        if metadata.name not in ("", account.name):
            why = "must match the service account name if specified"
            text = f'Invalid value: "{metadata.name}": {why}'
            cause = Cause("FieldValueInvalid", text, "metadata.name")
            raise invalid(_AUTHENTICATION, kind, account.name, [cause])
        asked = _read(body.get("spec"), kind, "v1", "spec", _Wanted)
        lifetime = asked.expiration_seconds
        if not _SHORTEST_S <= lifetime <= _LONGEST_S:
            bound = "less than 10 minutes" if lifetime < _SHORTEST_S else "larger than 2^32 seconds"
            text = f"Invalid value: {lifetime}: may not specify a duration {bound}"
            cause = Cause("FieldValueInvalid", text, "spec.expirationSeconds")
            raise invalid(_AUTHENTICATION, kind, "", [cause])
        asked.audiences = asked.audiences or [ISSUER]
        token, end = self._authenticator.issue(
            account.namespace,
            Named(account.name, account.uid),
            lifetime,
            audiences=asked.audiences,
            bound=self._bound(account, asked.bound_object_ref),
        )
        return {
            "kind": kind,
            "apiVersion": f"{_AUTHENTICATION}/v1",
            "metadata": {
                "name": account.name,
                "namespace": account.namespace,
                "uid": account.uid,
                "creationTimestamp": self._now(),
            },
            "spec": msgspec.to_builtins(asked),
            "status": {
                "token": token,
                "expirationTimestamp": end.strftime("%Y-%m-%dT%H:%M:%SZ"),
            },
        }

    def _entry(self, plural: str, namespace: str, name: str) -> Entry:
        key = f"{namespace}/{name}" if namespace else name
        found = self._store.collection(plural).entries.get(key)
        if found is None:
            raise not_found("", plural, name)
        return found

    def _bound(self, account: Entry, reference: _Reference | None) -> dict[str, Named]:
        """Return what a token is bound to, by the member of the token that says so."""
        if reference is None:
            return {}
        group, slash, version = reference.api_version.partition("/")
        group, version = (group, version) if slash else ("", group)
        kind = reference.kind
        if group or kind not in _BINDABLE:
            what = f"{group}/{version}, Kind={kind}"
            raise bad_request(f"cannot bind token to object of type {what}")
        if not reference.name:
            raise bad_request("Name parameter required.")
        home = "" if kind == "Node" else account.namespace
        entry = self._entry(_BINDABLE[kind], home, reference.name)
        bound = {kind.lower(): Named(entry.name, entry.uid)}
        if kind == "Pod":
            spec = entry.load()["spec"]
            if spec.get("serviceAccountName") != account.name:
                raise bad_request(
                    f'cannot bind token for serviceaccount "{account.name}" to pod running with'
                    " different serviceaccount name."
                )
            if node := spec.get("nodeName"):
                found = self._store.collection("nodes").entries.get(node)
                bound["node"] = Named(node, "" if found is None else found.uid)
        if reference.uid not in ("", entry.uid):
            raise conflict(
                "",
                kind,
                entry.name,
                f"the UID in the bound object reference ({reference.uid}) does not match the UID in"
                " record. The object might have been deleted and then recreated",
            )
        return bound
