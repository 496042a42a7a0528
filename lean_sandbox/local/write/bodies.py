"""Request bodies: objects, patches and delete options, decoded and checked for what they claim."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from lean_sandbox.local.errors import (
    StatusError,
    bad_request,
    invalid,
    unreadable_patch,
    unsupported_media_type,
)
from lean_sandbox.local.kinds.registry import Kind
from lean_sandbox.local.schema import errors
from lean_sandbox.local.schema.structural import Node
from lean_sandbox.local.write.patch import json_patch, merge_patch, strategic_patch
from lean_sandbox.local.write.protobuf import PROTOBUF, decode_body

Json = dict[str, Any]

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"

_decode_json: Final = msgspec.json.Decoder().decode


def _decode(body: bytes) -> Any:
    """Decode JSON as Go does: bytes that are no UTF-8 become replacement characters."""
    try:
        return _decode_json(body)
    except UnicodeDecodeError:
        return _decode_json(body.decode("utf-8", "replace"))


def media_type(content_type: str) -> str:
    """Return a content type without parameters."""
    return content_type.partition(";")[0].strip().lower()


def decode(body: bytes, content_type: str) -> Any:
    """Return a decoded JSON, YAML or protobuf body.

    Raises:
        msgspec.DecodeError: it is none of them.

    """
    if content_type == PROTOBUF:
        try:
            return decode_body(body)
        except ValueError as error:
            raise msgspec.DecodeError(str(error)) from None
    if "yaml" not in content_type:
        return _decode(body)
    if body.lstrip()[:1] in (b"{", b"["):
        # Much faster, where JSON it is.
        with suppress(UnicodeDecodeError):
            return _decode_json(body)
    return msgspec.yaml.decode(body)


def read_object(kind: Kind, body: bytes, content_type: str) -> Json:
    """Return the object of a create, update or apply request, in its stored form.

    Raises:
        StatusError: 400 or 422 when it is not an object of the kind the path names, 415 for a
            content type that is neither JSON nor YAML.

    """
    obj = decoded(kind, body, content_type)
    _check_claims(kind, obj, body)
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    return obj


def decoded(kind: Kind, body: bytes, content_type: str) -> Json:
    """Return the object in a body, whatever kind it says it is of.

    Raises:
        StatusError: 400 when it is none, 415 for a format that is not known.

    """
    media = media_type(content_type) if content_type else "application/json"
    known = ("application/json", "application/yaml")
    if media not in known and (kind.is_custom or media != PROTOBUF):
        accepted = ["application/json", "application/yaml"]
        raise unsupported_media_type(accepted if kind.is_custom else [*accepted, PROTOBUF])
    try:
        obj = decode(body, media)
    except msgspec.DecodeError as error:
        raise _unreadable(kind, body, str(error)) from None
    if not isinstance(obj, dict):
        raise _unreadable(kind, body, "the body is no object")
    for name in ("kind", "apiVersion"):
        if not isinstance(obj.get(name) or "", str):
            raise _unreadable(kind, body, f"{name} is no string")
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
            name = str((obj.get("metadata") or {}).get("name") or "")
            cause = errors.invalid("kind", claimed, f"must be {kind.kind}")
            raise invalid(kind.group, claimed, name, [cause])
        return
    if (claimed and claimed != kind.kind) or (version and version != kind.api_version):
        shown_version = version.rpartition("/")[2] or kind.version
        raise bad_request(
            f'{claimed or kind.kind} in version "{shown_version}" cannot be handled as a'
            f" {kind.kind}: the object is of another kind or version"
        )


def check_address(namespace: str, name: str, metadata: Json) -> None:
    """Refuse with 400 an object that is for another place than its path."""
    said = metadata.get("name")
    if not said:
        raise bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be"
            " provided"
        )
    if said != name:
        raise bad_request(
            f"the name of the object ({said}) does not match the name on the URL ({name})"
        )
    check_namespace(namespace, metadata)


def check_namespace(namespace: str, metadata: Json) -> None:
    """Refuse with 400 an object that names another namespace than its path."""
    if namespace and metadata.get("namespace") not in (None, "", namespace):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def patch_function(
    kind: Kind, body: bytes, content_type: str, node: Node | None
) -> Callable[[Json], Json]:
    """Return what a patch request does to an object; ``node`` is its structure if that merges.

    Raises:
        StatusError: 415 for an unknown format, 400 for a body that is no patch.

    """
    media = media_type(content_type)
    known = [JSON_PATCH, MERGE_PATCH] if node is None else [JSON_PATCH, MERGE_PATCH, STRATEGIC]
    if media not in known:
        if node is not None:
            raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type")
        raise unsupported_media_type((*known, APPLY))
    try:
        patch = _decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    if media != JSON_PATCH and not isinstance(patch, dict):
        raise bad_request("error decoding patch: the patch is no object")

    def change(obj: Json) -> Json:
        """Let the patch see kind and apiVersion, and refuse one that changes them."""
        shown = {"kind": kind.kind, "apiVersion": kind.api_version, **obj}
        if media == JSON_PATCH:
            changed = json_patch(shown, patch)
        elif media == MERGE_PATCH:
            changed = merge_patch(shown, patch)
        else:
            changed = strategic_patch(shown, patch, node or {})
        _check_patched(kind, changed)
        changed.pop("kind", None)
        changed.pop("apiVersion", None)
        return changed

    return change


def _check_patched(kind: Kind, changed: Json) -> None:
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
    wanted = {"kind": kind.kind, "apiVersion": kind.api_version}
    causes = [
        errors.invalid(member, changed.get(member), f"must be {right}")
        for member, right in wanted.items()
        if changed.get(member) != right
    ]
    raise invalid(group, claimed, name, causes)
