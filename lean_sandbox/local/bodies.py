"""Request bodies: objects, patches and delete options, decoded and checked for what they claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lean_sandbox.local.deletion import Deletion
from lean_sandbox.local.errors import Cause, bad_request, invalid, unsupported_media_type
from lean_sandbox.local.protobuf import PROTOBUF, decode_body
from lean_sandbox.local.registry import Kind

__all__ = [
    "APPLY",
    "JSON_PATCH",
    "MERGE_PATCH",
    "STRATEGIC",
    "read_deletion",
    "read_object",
    "read_plain",
]

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
        if found is None:
            raise unsupported_media_type(("application/json", "application/yaml"))
        return found
    if "yaml" in content_type and body.lstrip()[:1] not in (b"{", b"["):
        return msgspec.yaml.decode(body)
    return _decode(body)


def read_object(kind: Kind, body: bytes, content_type: str) -> Json:
    """Return the object of a create, update or apply request, in its stored form.

    Raises:
        StatusError: 400 or 422 when it is not an object of the kind the path names, 415 for a
            content type that is neither JSON nor YAML.

    """
    media = media_type(content_type)
    if media not in ("", "application/json", "application/yaml", APPLY, "*/*", PROTOBUF):
        raise unsupported_media_type(("application/json", "application/yaml"))
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


def _check_claims(kind: Kind, obj: Json, body: bytes) -> None:
    claimed, version = obj.get("kind") or "", obj.get("apiVersion") or ""
    if kind.is_custom:
        if not claimed:
            shown = body[:200].decode("utf-8", "replace")
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}): Object 'Kind'"
                f" is missing in '{shown}' ({body[:100].hex()})"
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
    policy = options.get("propagationPolicy") or query.get("propagationPolicy") or None
    if options.get("orphanDependents"):
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
