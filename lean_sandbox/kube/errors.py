# ruff: noqa: N818 -- the names are those of Kubernetes' reasons: NotFound, Conflict, Invalid.
"""Everything that can go wrong on the way to the API server, as one tree.

A refusal by the server is an :class:`ApiError`, the lack of a whole answer a
:class:`TransportError`. A work queue retries retryable errors with backoff; terminal errors wait
for the next change of the object.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lean_sandbox.model.wire import ODD, Lenient, OrNull

#: What is kept of a body that is not a Kubernetes Status (a proxy's HTML page, plain text).
_TEXT_LIMIT_BYTES = 256
#: Statuses of admission, quotas and rights; 500 is that of a webhook which does not answer.
_REFUSALS = frozenset({400, 403, 422, 500})
#: How a server begins to pass on what a webhook has answered, and says that a policy has refused.
_BY_WEBHOOK = 'admission webhook "'
_BY_POLICY = " is forbidden: ValidatingAdmissionPolicy '"
#: What the answer says if the reason is a missing right, not a quota or an admission plugin.
_BY_RIGHTS = ' is forbidden: User "'
#: No working server asks for a longer wait.
_LONGEST_RETRY_AFTER_S = 3600.0


class StatusCause(msgspec.Struct, frozen=True, gc=False):
    """One entry of ``Status.details.causes``; the message of the Status says the rest."""

    reason: str = ""
    field: str = ""


class StatusDetails(Lenient, frozen=True):
    """``Status.details``: why, for programs."""

    causes: OrNull[tuple[StatusCause, ...]] = ()
    retryAfterSeconds: int = 0
    #: The plural of what was refused, which is not always what was asked for.
    kind: str = ""


class Status(Lenient, frozen=True):
    """A ``v1.Status``: the body of errors, of most deletes, and of watch ERROR events."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: OrNull[StatusDetails] = StatusDetails()


class Asked(msgspec.Struct, frozen=True, gc=False):
    """What was asked of the server; ``resource`` is the plural with the group and subresource."""

    verb: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.verb} {self.resource}".strip()
        if self.name:
            what += f" {self.name!r}"
        if self.namespace:
            what += f" in namespace {self.namespace!r}"
        return what


_NO_STATUS = Status()
_NOTHING_ASKED = Asked()
_status_decoder = msgspec.json.Decoder(Status)


class ControlPlaneError(Exception):
    """Root of the tree; ``retryable`` says whether repeating the same work can help."""

    retryable: bool = True
    #: How long the server asked to wait, if it did.
    retry_after_s: float | None = None
    #: Whether a create was refused because its namespace is being deleted, or is gone.
    namespace_terminating: bool = False
    #: Whether the same object would be refused again, until something else has changed.
    is_refusal: bool = False
    #: Whether the object breaks the rules of its kind: then only a change of it can help.
    is_schema_refusal: bool = False


class ApiError(ControlPlaneError):
    """The server answered with a status of 300 or more.

    ``answer`` is the Status body, with its machine-readable ``reason`` ("" when there was none) and
    its sentence ``message``.
    """

    def __init__(
        self,
        status: int,
        answer: Status = _NO_STATUS,
        asked: Asked = _NOTHING_ASKED,
        *,
        retry_after_s: float | None = None,
    ) -> None:
        self.status = status
        self.answer = answer
        self.asked = asked
        self.reason = answer.reason
        self.message = answer.message
        self.causes = answer.details.causes
        self.retry_after_s = retry_after_s
        self.is_by_admission = _is_by_admission(answer)
        is_gone = asked.verb == "create" and answer.details.kind == "namespaces"
        is_ending = status == 403 and self.has_cause("NamespaceTerminating")
        has_no_namespace = is_ending or (status == 404 and is_gone)
        self.namespace_terminating = has_no_namespace and not self.is_by_admission
        is_refusal = status in _REFUSALS or self.is_by_admission
        self.is_refusal = is_refusal and not self.namespace_terminating
        # Causes of the server's own validation name the fields; a test of a JSON patch has none.
        has_fields = bool(self.causes) and all(cause.field for cause in self.causes)
        self.is_schema_refusal = status == 422 and has_fields and not self.is_by_admission
        # Any other refusal may pass by itself, even 400 or 422: admission policies answer so, too.
        self.retryable = not self.namespace_terminating
        super().__init__(self._sentence())

    def has_cause(self, reason: str) -> bool:
        """Whether the server gave this cause."""
        return any(cause.reason == reason for cause in self.causes)

    @property
    def is_of_another(self) -> bool:
        """Whether a patch that named its object's uid has met another object of the name."""
        is_invalid = self.status == 422 and not self.is_by_admission
        return is_invalid and any(cause.field == "metadata.uid" for cause in self.causes)

    def _sentence(self) -> str:
        reason = f" {self.reason}" if self.reason else ""
        text = f"{self.asked}: {self.status}{reason}"
        return f"{text}: {self.message}" if self.message else text


class Unauthorized(ApiError):
    """401: the credential is missing, wrong or expired, and a refresh did not help."""

    def _sentence(self) -> str:
        return (
            f"{super()._sentence()}; the server did not accept the credential for this request: "
            "check that the token, client certificate or credential plugin of the kubeconfig "
            "is valid and belongs to this cluster"
        )


class Forbidden(ApiError):
    """403: RBAC, a quota, an admission plugin, or a namespace that is being deleted.

    Also what a webhook or an admission policy denies, whatever code below 500 it gives but 429:
    they know nothing of our object, so their 404 does not say that this is gone, and their 409 not
    that the name is taken.
    """

    def _sentence(self) -> str:
        text = super()._sentence()
        if self.namespace_terminating:
            return f"{text}; the namespace is being deleted, nothing can be created in it"
        if _BY_RIGHTS not in self.message:
            return text
        asked = self.asked
        where = f"in namespace {asked.namespace!r}" if asked.namespace else "in the whole cluster"
        return (
            f"{text}; allow verb {asked.verb!r} on resource {asked.resource!r} {where} in the "
            "controller's Role or ClusterRole"
        )


class NotServed(ApiError):
    """404: the path is unknown to the server, or to a proxy; it says nothing about an object."""


class NotFound(ApiError):
    """404 with a Status of this reason: no such object or namespace."""


class NotAcceptable(ApiError):
    """406: the server has no such representation of this resource."""


class Conflict(ApiError):
    """409: the object changed since it was read, or a precondition (uid) does not hold."""


class AlreadyExists(Conflict):
    """409 on create: an object of this name is there."""


class Gone(ApiError):
    """410: the resource version or continue token is too old; list from the start."""


class Invalid(ApiError):
    """422: validation or a policy refuses the object, or a test of a JSON patch does not hold."""


class TooManyRequests(ApiError):
    """429: priority and fairness, or an eviction budget; repeat after ``retry_after_s``."""


class ServerFault(ApiError):
    """5xx: the server, its store or a proxy in front of it has a problem."""


class TransportError(ControlPlaneError):
    """No whole answer arrived; whether the request was carried out is unknown."""


class ConnectFailed(TransportError):
    """Name lookup, TCP or TLS failed before anything was sent."""


class RequestTimeout(TransportError):
    """The deadline of the call passed; the server may still have carried it out."""


class ProtocolFault(TransportError):
    """The peer does not speak HTTP/1.1 as it should: garbage, truncation, an oversized answer."""


class AnswerTooLarge(ProtocolFault):
    """An answer is larger than the caller takes; the rest of it was not read."""


class DecodeFault(ProtocolFault):
    """A whole answer arrived, but it does not fit the type that was asked for."""


class CredentialFault(ControlPlaneError):
    """No credential is available just now: token file unreadable, credential plugin failed."""


class NotLeaderError(ControlPlaneError):
    """This process does not hold the Lease, or not any more; the request was not sent."""

    retryable = False


def message_of(error: BaseException) -> str:
    """Return the server's own message if it gave one, else the text of the error."""
    return getattr(error, "message", "") or str(error)


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotServed,
    406: NotAcceptable,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def _is_by_admission(answer: Status) -> bool:
    return answer.message.startswith(_BY_WEBHOOK) or _BY_POLICY in answer.message


def _parse(body: bytes) -> Status:
    try:
        status = _status_decoder.decode(body)
    except ODD:
        status = _NO_STATUS
    if status.kind == "Status" or status.reason or status.message:
        return status
    text = body[:_TEXT_LIMIT_BYTES].decode("utf-8", "replace").strip()
    return Status(message=" ".join(text.split()))


def from_response(
    status: int, body: bytes, headers: Mapping[bytes, bytes], asked: Asked = _NOTHING_ASKED
) -> ApiError:
    """Build the error for an answer of 300 or more; its code decides the class.

    A ``body`` that is not a ``v1.Status`` becomes the message, cut short. ``headers`` have
    lower-case names.
    """
    answer = _parse(body)
    kind = ServerFault if status >= 500 else _BY_STATUS.get(status, ApiError)
    if _is_by_admission(answer) and status < 500 and status != 429:
        kind = Forbidden
    elif kind is Conflict and answer.reason == "AlreadyExists":
        kind = AlreadyExists
    elif kind is NotServed and answer.reason == "NotFound":
        kind = NotFound
    # Kubernetes sends whole seconds; the HTTP-date form would need a clock and is never used by it.
    header = headers.get(b"retry-after", b"")
    wait_s = float(header) if header.isdigit() else answer.details.retryAfterSeconds
    retry_after_s = float(min(wait_s, _LONGEST_RETRY_AFTER_S)) if wait_s > 0 else None
    return kind(status, answer, asked, retry_after_s=retry_after_s)


def from_status(body: bytes, asked: Asked = _NOTHING_ASKED) -> ApiError:
    """Build the error of a watch's ERROR event, a ``v1.Status``; without a code it is a 500."""
    return from_response(_parse(body).code or 500, body, {}, asked)
