"""What the body and the query of a write say: objects, patches, options; and of a deletion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from lean_sandbox.local import errors
from lean_sandbox.local.errors import ErrorCause, StatusError
from lean_sandbox.local.kinds import Kind, make_kind
from lean_sandbox.local.request import Ask, Target, flag, number
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.structural import Node
from lean_sandbox.local.store import at
from lean_sandbox.local.write.admission import Admission
from lean_sandbox.local.write.changes import json_patch, merge_patch, strategic_patch
from lean_sandbox.local.write.encodings import PROTOBUF, decode

Json = dict[str, Any]

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
_PATCHES: Final = (JSON_PATCH, MERGE_PATCH, APPLY)


def media_type(content_type: str) -> str:
    """Return a content type without parameters."""
    return content_type.partition(";")[0].strip().lower()


def read_object(kind: Kind, body: bytes, content_type: str) -> Json:
    """Return the object of a create or update request, in its stored form.

    Raises StatusError: 400 or 422 when it is not an object of the kind the path names, 415 for a
    content type that is neither JSON nor YAML.
    """
    obj = decoded(kind, body, content_type)
    _check_claims(kind, obj, body)
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    return obj


def read_applied(kind: Kind, body: bytes) -> Json:
    """Return the object of an apply request, which has to say its kind. Raises StatusError: 400."""
    obj = decoded(kind, body, "application/yaml")
    claimed = obj.pop("kind", None) or ""
    version = obj.pop("apiVersion", None) or ""
    if (claimed, version) != (kind.kind, kind.api_version):
        shown = version if "/" in version else f"/{version}"
        raise errors.bad_request(f"invalid object type: {shown}, Kind={claimed}")
    return obj


def decoded(kind: Kind, body: bytes, content_type: str) -> Json:
    """Return the object in a body, whatever kind it says it is of.

    Raises StatusError: 400 when it is none, 415 for a format that is not known.
    """
    try:
        obj = decode(body, _object_type(kind, content_type))
    except msgspec.DecodeError as error:
        raise _unreadable(kind, body, f"couldn't get version/kind: {error}") from None
    if obj is None:
        obj = {}
    if not isinstance(obj, dict):
        raise _unreadable(kind, body, "the body is no object")
    for name in ("kind", "apiVersion"):
        if not isinstance(obj.get(name) or "", str):
            raise _unreadable(kind, body, f"{name} is no string")
    return obj


def _object_type(kind: Kind, content_type: str) -> str:
    """Return the media type of an object. Raises StatusError: 415."""
    media = media_type(content_type) if content_type else "application/json"
    known = ["application/json", "application/yaml", *([] if kind.is_custom else [PROTOBUF])]
    if media not in known:
        raise errors.unsupported_media_type(known)
    return media


def _unreadable(kind: Kind, body: bytes, why: str) -> StatusError:
    shown = body[:200].decode("utf-8", "replace") or "<empty>"
    return errors.bad_request(
        f"the object provided is unrecognized (must be of type {kind.kind}): {why} ({shown})"
    )


def _check_claims(kind: Kind, obj: Json, body: bytes) -> None:
    claimed = obj.get("kind") or ""
    version = obj.get("apiVersion") or ""
    if kind.is_custom:
        if not claimed:
            raise _unreadable(kind, body, "Object 'Kind' is missing")
        if version != kind.api_version:
            raise errors.bad_request(
                f"the API version in the data ({version}) does not match the expected API version"
                f" ({kind.api_version})"
            )
        if claimed != kind.kind:
            name = str((obj.get("metadata") or {}).get("name") or "")
            cause = causes.invalid("kind", claimed, f"must be {kind.kind}")
            raise errors.invalid(kind.group, claimed, name, [cause])
        return
    # An eviction of the older version has the same members.
    known = ("", kind.api_version, "policy/v1beta1" if kind.kind == "Eviction" else "")
    if claimed not in ("", kind.kind) or version not in known:
        shown_version = version.rpartition("/")[2] or kind.version
        raise errors.bad_request(
            f'{claimed or kind.kind} in version "{shown_version}" cannot be handled as a'
            f" {kind.kind}: the object is of another kind or version"
        )


def _nameless(name: str) -> StatusError:
    return errors.bad_request(
        f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
    )


def check_address(namespace: str, name: str, metadata: Json) -> None:
    """Refuse with 400 an object that is for another place than its path."""
    said = metadata.get("name")
    if not said:
        raise _nameless(name)
    if said != name:
        raise errors.bad_request(
            f"the name of the object ({said}) does not match the name on the URL ({name})"
        )
    check_namespace(namespace, metadata)


def check_namespace(namespace: str, metadata: Json) -> None:
    """Refuse with 400 an object that names another namespace than its path."""
    if namespace and metadata.get("namespace") not in (None, "", namespace):
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def patch_function(
    kind: Kind, body: bytes, content_type: str, node: Node | None
) -> Callable[[Json], Json]:
    """Return what a patch request does to an object; ``node`` is its structure if that merges.

    Raises StatusError: 415 for an apply, which only whole objects take. What is returned raises it,
    too: 400 for a body that is no patch, 422 for what cannot be done.
    """
    media = media_type(content_type)
    if media == APPLY:
        raise errors.unsupported_media_type((JSON_PATCH, MERGE_PATCH))

    def change(obj: Json) -> Json:
        """Let the patch see kind and apiVersion, and refuse one that changes them."""
        patch = _read_patch(body, media)
        shown = {"kind": kind.kind, "apiVersion": kind.api_version, **obj}
        changed: Json
        if media == STRATEGIC:
            # It changes an object of this kind, and not a text that says its kind.
            changed = strategic_patch(shown, patch, node or {})
        else:
            changed = (json_patch if media == JSON_PATCH else merge_patch)(shown, patch)
            _check_patched(kind, changed)
        changed.pop("kind", None)
        changed.pop("apiVersion", None)
        return changed

    return change


def _read_patch(body: bytes, media: str) -> Any:
    try:
        patch = decode(body, media)
    except msgspec.DecodeError as error:
        raise errors.bad_request(f"error decoding patch: {error}") from None
    if patch is None and media != MERGE_PATCH:
        patch = [] if media == JSON_PATCH else {}
    if media != JSON_PATCH and not isinstance(patch, dict):
        raise errors.bad_request("error decoding patch: the patch is no object")
    return patch


def _check_patched(kind: Kind, changed: Json) -> None:
    """Refuse a patch that makes another kind of object of it. Raises StatusError: 400, 422."""
    claimed = changed.get("kind")
    version = changed.get("apiVersion")
    if (claimed == kind.kind or not (claimed or kind.is_custom)) and version == kind.api_version:
        return
    if not (kind.is_custom or version):
        # Of no version it can be anything, which has no name.
        raise _nameless(at(changed, "metadata.name"))
    text = msgspec.json.encode(changed).decode()
    if not claimed:
        raise errors.unreadable_patch(text, f"Object 'Kind' is missing in '{text}'")
    if not kind.is_custom:
        raise errors.unreadable_patch(
            text, f'no kind "{claimed}" is registered for version "{version}"'
        )
    name = str((changed.get("metadata") or {}).get("name") or "")
    group = str(version or "").rpartition("/")[0]
    wanted = {"kind": kind.kind, "apiVersion": kind.api_version}
    found = [
        causes.invalid(member, changed.get(member), f"must be {right}")
        for member, right in wanted.items()
        if changed.get(member) != right
    ]
    raise errors.invalid(group, claimed, name, found)


_DELETE_OPTIONS: Final = make_kind("", "v1", "deleteoptions", "DeleteOptions")
_KINDS: Final = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_MANAGER_LIMIT_BYTES: Final = 128
_POLICIES: Final = ("Foreground", "Background", "Orphan")
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")


@dataclass(slots=True)
class WriteOptions:
    """Who writes, how, and what the server had to say beside the answer."""

    manager: str = "unknown"
    dry_run: bool = False
    validation: str = "Warn"
    subresource: str = ""
    force: bool = False
    is_patch: bool = False
    is_apply: bool = False
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Deletion:
    """How an object is deleted."""

    grace_s: int | None = None
    policy: str | None = None
    """``Orphan``, ``Background`` or ``Foreground``; None leaves it to the object."""
    uid: str | None = None
    version: str | None = None
    dry_run: bool = False


def read_options(ask: Ask) -> WriteOptions:
    """Return how a request writes: manager, dry run, validation.

    Raises StatusError: 415 for a patch or a new object in an unknown format, 422 with a cause for
    each value that means nothing.
    """
    target = ask.target
    query = target.query
    is_patch = target.verb == "patch"
    media = media_type(target.content_type)
    is_apply = media == APPLY
    if is_patch:
        _check_patch_type(ask.kind, media)
    elif target.verb == "create":
        _object_type(ask.kind, target.content_type)
    found = list(_mistakes(target, is_apply=is_apply, is_patch=is_patch))
    if found:
        raise errors.invalid("meta.k8s.io", _KINDS[target.verb], "", found)
    agent = target.user_agent.partition("/")[0].partition(" ")[0]
    return WriteOptions(
        manager=query.get("fieldManager") or agent or "unknown",
        dry_run=bool(target.dry_run),
        validation=query.get("fieldValidation") or "Warn",
        subresource=target.subresource,
        force=flag(query, "force"),
        is_patch=is_patch,
        is_apply=is_apply,
    )


def _check_patch_type(kind: Kind, media: str) -> None:
    if kind.is_custom and media not in _PATCHES:
        raise errors.unsupported_media_type(_PATCHES)
    if media not in (*_PATCHES, STRATEGIC):
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type")


def read_body(kind: Kind, ask: Ask, options: WriteOptions, admission: Admission) -> Json:
    """Return a body that is no object of its path: with the types of its kind, and metadata.

    Raises StatusError: 400 for what is none of that kind, 415 for an unknown format.
    """
    obj = read_object(kind, ask.body, ask.target.content_type)
    admission.decode(kind, obj, options.validation, options.warnings)
    obj["metadata"] = obj.get("metadata") or {}
    check_namespace(ask.namespace, obj["metadata"])
    return obj


def _mistakes(target: Target, *, is_apply: bool, is_patch: bool) -> Iterator[ErrorCause]:
    query = target.query
    manager = query.get("fieldManager", "")
    if is_apply and not manager:
        yield causes.required("fieldManager", "is required for apply patch")
    if len(manager.encode()) > _MANAGER_LIMIT_BYTES:
        yield causes.too_long("fieldManager", _MANAGER_LIMIT_BYTES)
    if not manager.isprintable():
        yield causes.invalid("fieldManager", manager, "should only contain printable characters")
    if is_patch and "force" in query and not is_apply:
        yield causes.forbidden("force", "may not be specified for non-apply patch")
    yield from _dry_run_mistakes(target.dry_run)
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        yield causes.not_supported("fieldValidation", validation, _VALIDATIONS)


def _dry_run_mistakes(values: Sequence[str]) -> Iterator[ErrorCause]:
    if set(values) - {"All"}:
        yield causes.not_supported("dryRun", list(values), ("All",))


def read_deletion(ask: Ask, admission: Admission) -> Deletion:
    """Return the options of a delete request: from its body, or from its query without one.

    Raises StatusError: 400 for a body that makes no sense and a number that is none, 415 for a body
    in an unknown format, 422 for a value that means nothing.
    """
    if not ask.body:
        return deletion_of(_from_query(ask.target))
    options = decoded(_DELETE_OPTIONS, ask.body, ask.target.content_type)
    if options.pop("kind", None) not in (None, "", "DeleteOptions"):
        raise errors.bad_request("the body of a deletion is of kind DeleteOptions")
    options.pop("apiVersion", None)
    admission.decode(_DELETE_OPTIONS, options, "Ignore", [])
    return deletion_of(options)


def _from_query(target: Target) -> dict[str, Any]:
    query = target.query
    options: dict[str, Any] = {
        "dryRun": target.dry_run,
        "gracePeriodSeconds": number(query, "gracePeriodSeconds"),
        "propagationPolicy": query.get("propagationPolicy"),
        "preconditions": {key: query[key] for key in ("uid", "resourceVersion") if key in query},
    }
    if "orphanDependents" in query:
        options["orphanDependents"] = flag(query, "orphanDependents")
    return options


def deletion_of(options: dict[str, Any]) -> Deletion:
    """Return what a DeleteOptions says whose types have been checked.

    Raises StatusError: 422 for a value that means nothing.
    """
    policy = options.get("propagationPolicy")
    orphans = options.get("orphanDependents")
    dry_run = options.get("dryRun") or ()
    found = list(_dry_run_mistakes(dry_run))
    if policy is not None and policy not in _POLICIES:
        found.append(causes.not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
    if orphans is not None and policy is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        found.append(causes.invalid("propagationPolicy", policy, why))
    if found:
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", found)
    if orphans is not None:
        policy = "Orphan" if orphans else "Background"
    conditions = options.get("preconditions") or {}
    return Deletion(
        grace_s=options.get("gracePeriodSeconds"),
        policy=policy,
        uid=conditions.get("uid"),
        version=conditions.get("resourceVersion"),
        dry_run=bool(dry_run),
    )
