"""The refusals of the API server as exceptions that know their `Status` body.

Reasons, codes, message forms and details follow what a Kubernetes 1.36 API server answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

_encode = msgspec.json.Encoder().encode
_STATUS: Final = {"kind": "Status", "apiVersion": "v1"}


class ErrorCause(NamedTuple):
    """One entry of `details.causes`."""

    reason: str
    message: str
    field: str = ""

    def body(self) -> dict[str, str]:
        """Return the wire form, without empty members."""
        full = {"reason": self.reason, "message": self.message, "field": self.field}
        return {key: value for key, value in full.items() if value}


class StatusError(Exception):
    """A refusal: HTTP code, machine-readable reason, message and details."""

    content_type = "application/json"

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details) if details is not None else None
        self.metadata = dict(metadata) if metadata is not None else {}
        self.retry_after_s = retry_after_s

    def status(self) -> dict[str, Any]:
        """Return the `Status` object of this refusal."""
        body: dict[str, Any] = {
            **_STATUS,
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        details = self.details
        if self.retry_after_s is not None:
            details = {**(details or {}), "retryAfterSeconds": self.retry_after_s}
        if details is not None:
            body["details"] = details
        body["code"] = self.code
        return body

    def body(self) -> bytes:
        """Return the encoded `Status`."""
        return _encode(self.status())


def status_success(details: Mapping[str, Any] | None = None, code: int | None = None) -> bytes:
    """Return the encoded `Status` of a request that has nothing else to show."""
    body: dict[str, Any] = {**_STATUS, "metadata": {}, "status": "Success"}
    if details is not None:
        body["details"] = dict(details)
    if code is not None:
        body["code"] = code
    return _encode(body)


def qualified(group: str, name: str) -> str:
    """Return ``name.group``, or ``name`` alone in the core group."""
    return f"{name}.{group}" if group else name


def details_of(group: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    """Return what a Status tells of the object that it is about."""
    named = {key: value for key, value in (("name", name), ("group", group)) if value}
    return {**named, "kind": kind, **more}


def not_found(group: str, plural: str, name: str) -> StatusError:
    """Refuse because the object does not exist."""
    message = f'{qualified(group, plural)} "{name}" not found'
    return StatusError(404, "NotFound", message, details=details_of(group, plural, name))


class PageNotFoundError(StatusError):
    """Nothing is served at a path; unlike other refusals it is answered in plain text."""

    content_type = "text/plain; charset=utf-8"

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")

    def body(self) -> bytes:
        """Return the text."""
        return f"{self.message}\n".encode()


def not_allowed() -> StatusError:
    """Refuse a verb that the resource, or this path of it, does not have."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, details={})


def not_supported(group: str, plural: str, verb: str) -> StatusError:
    """Refuse a verb that a custom kind, or this path of it, does not have."""
    message = f'{verb} is not supported on resources of kind "{qualified(group, plural)}"'
    return StatusError(405, "MethodNotAllowed", message, details=details_of(group, plural, ""))


def unknown_resource() -> StatusError:
    """Refuse because the path names no resource of the server."""
    message = "the server could not find the requested resource"
    return StatusError(404, "NotFound", message, details={})


def already_exists(group: str, plural: str, name: str, *, is_deleting: bool) -> StatusError:
    """Refuse a create because the name is taken, maybe by an object on its way out."""
    before = "object is being deleted: " if is_deleting else ""
    message = f'{before}{qualified(group, plural)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=details_of(group, plural, name))


_MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(group: str, plural: str, name: str, why: str = _MODIFIED) -> StatusError:
    """Refuse a write because its precondition does not hold."""
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=details_of(group, plural, name))


def bad_request(message: str) -> StatusError:
    """Refuse a request that makes no sense."""
    return StatusError(400, "BadRequest", message)


def unreadable_patch(patched: str, why: str) -> StatusError:
    """Refuse a patch because nothing sensible comes out of it."""
    text = f"Invalid value: {msgspec.json.encode(patched).decode()}: {why}"
    cause = ErrorCause("FieldValueInvalid", text, "patch")
    message = f' "" is invalid: patch: {text}'
    return StatusError(422, "Invalid", message, details={"causes": [cause.body()]})


def forbidden(
    group: str, plural: str, name: str, why: str, causes: Iterable[ErrorCause] = ()
) -> StatusError:
    """Refuse what the user, or the state of the namespace, does not allow."""
    subject = qualified(group, plural) + (f' "{name}"' if name else "")
    listed = [cause.body() for cause in causes]
    details = details_of(group, plural, name, **({"causes": listed} if listed else {}))
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {why}", details=details)


def invalid(group: str, kind: str, name: str, causes: Iterable[ErrorCause]) -> StatusError:
    """Refuse an object that breaks rules; each cause names its field."""
    listed = list(causes)
    parts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in listed))
    text = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
    message = f'{qualified(group, kind)} "{name}" is invalid: {text}'
    details = details_of(group, kind, name, causes=[cause.body() for cause in listed])
    return StatusError(422, "Invalid", message, details=details)


def unsupported_media_type(accepted: Iterable[str]) -> StatusError:
    """Refuse a body in a format this resource does not take."""
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
    return StatusError(415, "UnsupportedMediaType", message)


def not_acceptable(message: str) -> StatusError:
    """Refuse to answer in a representation the server does not have."""
    return StatusError(406, "NotAcceptable", message)


def expired(message: str, continue_hint: str | None = None) -> StatusError:
    """Refuse a version that history does not reach back to."""
    metadata = {} if continue_hint is None else {"continue": continue_hint}
    return StatusError(410, "Expired", message, metadata=metadata)


def too_large_version(asked: int, current: int) -> StatusError:
    """Refuse a version that has not happened yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={"causes": [cause]},
        retry_after_s=1,
    )


def internal(message: str) -> StatusError:
    """Report a failure inside the server."""
    full = f"Internal error occurred: {message}"
    return StatusError(500, "InternalError", full, details={"causes": [{"message": message}]})
