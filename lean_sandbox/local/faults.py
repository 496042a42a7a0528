"""Failures and delays on demand, so that clients can be seen to survive them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.target import Target

__all__ = ["Faults", "Matcher"]

Matcher = Callable[[Target], bool]


@dataclass(slots=True)
class _Fault:
    verb: str
    resource: str
    status: int
    left: int
    body: Mapping[str, Any] | bytes | None
    retry_after_s: int | None
    match: Matcher | None


@dataclass(slots=True)
class _Delay:
    verb: str
    resource: str
    seconds: float


class ChosenFailure(Exception):  # noqa: N818 - carries an answer, not a defect
    """An answer decided beforehand."""

    def __init__(self, status: int, body: bytes, retry_after_s: int | None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.retry_after_s = retry_after_s


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def _fits(verb: str, resource: str, target: Target) -> bool:
    full = target.resource + (f"/{target.subresource}" if target.subresource else "")
    return verb in ("*", target.verb) and resource in ("*", full)


class Faults:
    """The failures and delays waiting for their requests."""

    def __init__(self) -> None:
        self._faults: list[_Fault] = []
        self._delays: list[_Delay] = []

    def fail_next(
        self,
        verb: str,
        resource: str,
        status: int,
        *,
        times: int,
        body: Mapping[str, Any] | bytes | None,
        retry_after_s: int | None,
        match: Matcher | None,
    ) -> None:
        """Answer the next matching requests with ``status``; see ControlPlane.fail_next."""
        self._faults.append(_Fault(verb, resource, status, times, body, retry_after_s, match))

    def delay(self, verb: str, resource: str, seconds: float) -> None:
        """Hold matching requests back; zero seconds ends it."""
        self._delays = [d for d in self._delays if (d.verb, d.resource) != (verb, resource)]
        if seconds > 0:
            self._delays.append(_Delay(verb, resource, seconds))

    def clear(self) -> None:
        """Forget all failures and delays."""
        self._faults.clear()
        self._delays.clear()

    @property
    def is_idle(self) -> bool:
        """Say whether nothing is waiting, the common case."""
        return not self._faults and not self._delays

    def delay_of(self, target: Target) -> float:
        """Return the seconds a request is held back."""
        return sum(d.seconds for d in self._delays if _fits(d.verb, d.resource, target))

    def check(self, target: Target) -> None:
        """Raise the failure that waits for this request, if one does."""
        for fault in self._faults:
            if _fits(fault.verb, fault.resource, target) and (
                fault.match is None or fault.match(target)
            ):
                fault.left -= 1
                if fault.left <= 0:
                    self._faults.remove(fault)
                raise ChosenFailure(fault.status, _body(fault), fault.retry_after_s)


def _body(fault: _Fault) -> bytes:
    if isinstance(fault.body, bytes):
        return fault.body
    if fault.body is not None:
        return msgspec.json.encode(fault.body)
    return StatusError(
        fault.status,
        _REASONS.get(fault.status, ""),
        "injected failure",
        retry_after_s=fault.retry_after_s,
    ).body()
