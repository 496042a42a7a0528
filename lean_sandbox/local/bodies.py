"""Request bodies: objects, patches and delete options, decoded and checked for what they claim."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from lean_sandbox.local.deletion import Deletion
from lean_sandbox.local.errors import (
    Cause,
    StatusError,
    bad_request,
    invalid,
    unreadable_patch,
    unsupported_media_type,
)
from lean_sandbox.local.protobuf import PROTOBUF, decode_body
from lean_sandbox.local.registry import Kind

Json = dict[str, Any]

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"

_decode: Final = msgspec.json.Decoder().decode
_POLICIES: Final = ("Orphan", "Background", "Foreground")


def media_type(content_type: str) -> str:
    """Return a content type without parameters."""
    return content_type.partition(";")[0].strip().lower()


def decode(body: bytes, content_type: str) -> Any:
    """Return a decoded JSON or YAML body, or a protobuf one of the few kinds taken that way.

    Raises:
        msgspec.DecodeError: it is none of them.
        StatusError: 415 for another kind in protobuf.

    """
    if content_type == PROTOBUF:
        try:
            found = decode_body(body)
        except ValueError as error:
            raise msgspec.DecodeError(str(error)) from None
        if isinstance(found, str):
            raise StatusError(
                415,
                "UnsupportedMediaType",
                f"this server does not read kind {found} in protobuf, as kubectl create sends it;"
                " add --dry-run=client -o yaml, and pipe that to kubectl apply -f -",
            )
        return found
    if "yaml" in content_type and body.lstrip()[:1] not in (b"{", b"["):
        return msgspec.yaml.decode(body)
    return _decode(body)


def repeated_fields(body: bytes) -> list[str]:
    """Return the paths of members that a JSON body says twice; empty for what is no JSON."""
    repeats: list[bool] = []

    def look(pairs: list[tuple[str, Any]]) -> Any:
        made = dict(pairs)
        if len(made) < len(pairs):
            repeats.append(True)
        return made

    try:
        json.loads(body, object_pairs_hook=look)
        if not repeats:
            return []
        whole = json.loads(body, object_pairs_hook=_Pairs)
    except ValueError:
        return []
    return list(_repeats(whole, ""))


class _Pairs(list[tuple[str, Any]]):
    """The members of one object, in order and with those said twice."""


def _repeats(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, below in value:
            where = f"{path}.{key}" if path else key
            if key in seen:
                yield where
            seen.add(key)
            yield from _repeats(below, where)
    elif isinstance(value, list):
        for position, below in enumerate(value):
            yield from _repeats(below, f"{path}[{position}]")


def read_object(kind: Kind, body: bytes, content_type: str) -> Json:
    """Return the object of a create, update or apply request, in its stored form.

    Raises:
        StatusError: 400 or 422 when it is not an object of the kind the path names, 415 for a
            content type that is neither JSON nor YAML.

    """
    media = media_type(content_type)
    if media not in ("", "application/json", "application/yaml", APPLY, "*/*", PROTOBUF):
        accepted = ["application/json", "application/yaml"]
        raise unsupported_media_type(accepted if kind.is_custom else [*accepted, PROTOBUF])
    try:
        obj = decode(body, media)
    except msgspec.DecodeError as error:
        raise _unreadable(kind, body, str(error)) from None
    if not isinstance(obj, dict):
        raise _unreadable(kind, body, "the body is no object")
    _check_claims(kind, obj, body)
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    return obj


def read_plain(body: bytes, content_type: str) -> Json:
    """Return the object of a request whose kind does not matter; empty for an empty body.

    Raises:
        StatusError: 400.

    """
    if not body:
        return {}
    try:
        obj = decode(body, media_type(content_type))
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding the body: {error}") from None
    if not isinstance(obj, dict):
        raise bad_request("the body is no object")
    return obj


def _unreadable(kind: Kind, body: bytes, why: str) -> Exception:
    shown = body[:200].decode("utf-8", "replace") or "<empty>"
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get"
        f" version/kind; json parse error: {why} ({shown})"
    )


def _beginning(body: bytes) -> str:
    text = body[:30].decode("utf-8", "replace")
    return text if len(body) <= 30 else text + " ..."


def _check_claims(kind: Kind, obj: Json, body: bytes) -> None:
    claimed, version = obj.get("kind") or "", obj.get("apiVersion") or ""
    if kind.is_custom:
        if not claimed:
            shown = body[:200].decode("utf-8", "replace")
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): Object 'Kind'"
                f" is missing in '{shown}' ({_beginning(body)})"
            )
        if version != kind.api_version:
            raise bad_request(
                f"the API version in the data ({version}) does not match the expected API version"
                f" ({kind.api_version})"
            )
        if claimed != kind.kind:
            text = f'Invalid value: "{claimed}": must be {kind.kind}'
            name = str((obj.get("metadata") or {}).get("name") or "")
            cause = Cause("FieldValueInvalid", text, "kind")
            raise invalid(kind.group, claimed, name, [cause])
        return
    if (claimed and claimed != kind.kind) or (version and version != kind.api_version):
        shown_version = version.rpartition("/")[2] or kind.version
        raise bad_request(
            f'{claimed or kind.kind} in version "{shown_version}" cannot be handled as a'
            f" {kind.kind}: the object is of another kind or version"
        )


def check_patched(kind: Kind, changed: Json) -> None:
    """Refuse with 422 a patch that makes another kind of object of it."""
    claimed, version = changed.get("kind"), changed.get("apiVersion")
    if claimed == kind.kind and version == kind.api_version:
        return
    text = msgspec.json.encode(changed).decode()
    if not claimed:
        raise unreadable_patch(text, f"Object 'Kind' is missing in '{text}'")
    if not kind.is_custom:
        raise unreadable_patch(text, f'no kind "{claimed}" is registered for version "{version}"')
    name = str((changed.get("metadata") or {}).get("name") or "")
    group = str(version or "").rpartition("/")[0]
    causes = []
    if claimed != kind.kind:
        causes.append(
            Cause("FieldValueInvalid", f'Invalid value: "{claimed}": must be {kind.kind}', "kind")
        )
    if version != kind.api_version:
        why = f'Invalid value: "{version}": must be {kind.api_version}'
        causes.append(Cause("FieldValueInvalid", why, "apiVersion"))
    raise invalid(group, claimed, name, causes)


def _number(text: str | None) -> int | None:
    if text is None or text == "":
        return None
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def read_deletion(body: bytes, content_type: str, query: Mapping[str, str]) -> Deletion:
    """Return the options of a delete request, from its body or else its query.

    Raises:
        StatusError: 400 for a body that makes no sense, 422 for an unknown policy.

    """
    options: Json = {}
    if body:
        options = read_plain(body, content_type)
        claimed, version = options.get("kind") or "DeleteOptions", options.get("apiVersion") or ""
        if claimed != "DeleteOptions":
            raise bad_request(f'no kind "{claimed}" is registered for version "{version}"')
    policy = options.get("propagationPolicy") or query.get("propagationPolicy") or None
    orphans = options.get("orphanDependents")
    if orphans is None and query.get("orphanDependents"):
        orphans = query["orphanDependents"] in ("true", "1")
    if orphans is not None and policy is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        text = f'Invalid value: "{policy}": {why}'
        cause = Cause("FieldValueInvalid", text, "propagationPolicy")
        raise invalid("meta.k8s.io", "DeleteOptions", "", [cause])
    if orphans:
        policy = "Orphan"
    if policy is not None and policy not in _POLICIES:
        text = (
            f'Unsupported value: "{policy}": supported values: "Foreground", "Background",'
            ' "Orphan", "nil"'
        )
        cause = Cause("FieldValueNotSupported", text, "propagationPolicy")
        raise invalid("meta.k8s.io", "DeleteOptions", "", [cause])
    conditions = options.get("preconditions") or {}
    grace = options.get("gracePeriodSeconds")
    if grace is None:
        grace = _number(query.get("gracePeriodSeconds"))
    dry = options.get("dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
    return Deletion(
        grace_s=grace,
        policy=policy,
        uid=conditions.get("uid"),
        version=conditions.get("resourceVersion"),
        dry_run="All" in dry,
    )
