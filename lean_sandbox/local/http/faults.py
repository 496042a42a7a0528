"""Failures, delays and held messages on demand, so that clients can be seen to survive them.

A request can fail before it is carried out (nothing happened) or afterwards (it happened, and the
client does not learn of it). Requests, answers and the events of watches can be held and let go in
any order, as networks and caches between a client and the store reorder them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NoReturn

import anyio
import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.request import AuditEntry, Target

Matcher = Callable[[Target], bool]
_SILENCE_S = 30.0


class Loss(Enum):
    """How an answer can be lost, in place of a status code."""

    RESET = "reset"
    """The connection breaks."""
    SILENCE = "silence"
    """Nothing comes, until the client gives up or, after half a minute, the connection breaks."""


@dataclass(slots=True, eq=False)
class _Matching:
    """Which requests are meant, and how many more of them."""

    verb: str
    resource: str
    left: int | None
    """How many more; None for any number."""
    match: Matcher | None
    after: bool
    """Their answers are meant: they are carried out first."""

    def takes(self, target: Target, *, after: bool) -> bool:
        """Say whether a request, or its answer, is meant; counts it."""
        if self.after is not after or self.left == 0 or not _fits(self.verb, self.resource, target):
            return False
        if self.match is not None and not self.match(target):
            return False
        if self.left is not None:
            self.left -= 1
        return True


@dataclass(slots=True, eq=False)
class _Fault(_Matching):
    status: int | Loss
    body: Mapping[str, Any] | bytes | None
    retry_after_s: int | None


class ChosenFailure(StatusError):  # noqa: N818 - carries an answer, not a defect
    """An answer decided beforehand."""

    def __init__(
        self, status: int, body: Mapping[str, Any] | bytes | None, retry_after_s: int | None
    ) -> None:
        reason = _REASONS.get(status, "")
        super().__init__(status, reason, "injected failure", retry_after_s=retry_after_s)
        self._said = body

    def body(self) -> bytes:
        """Return the body that was chosen, a fitting Status by default."""
        if self._said is None:
            return super().body()
        return self._said if isinstance(self._said, bytes) else msgspec.json.encode(self._said)


class AnswerLostError(Exception):
    """The connection breaks instead of an answer."""


@dataclass(slots=True, eq=False)
class HeldRequests(_Matching):
    """Requests that wait until they are let go; see Faults.hold."""

    waiting: list[AuditEntry] = field(default_factory=list)
    """What waits at present, in the order of arrival."""
    _open: anyio.Event = field(default_factory=anyio.Event)

    def release(self) -> None:
        """Let everything go on, and hold nothing more."""
        self.left = 0
        self._open.set()

    @property
    def is_over(self) -> bool:
        """Say whether it was released."""
        return self._open.is_set()

    async def wait(self, entry: AuditEntry) -> None:
        """Wait until it is released."""
        self.waiting.append(entry)
        try:
            await self._open.wait()
        finally:
            self.waiting.remove(entry)


class HeldEvents:
    """The events of one kind that wait until they are let go; see Faults.hold_events."""

    def __init__(self, plural: str, wake: Callable[[str], None]) -> None:
        self.plural = plural
        self.allowed = 0
        """How many events each watch has been allowed since the hold began."""
        self.is_over = False
        self._wake = wake

    def release(self, count: int | None = None) -> None:
        """Let the next ``count`` events of each watch go; all, and hold nothing more, by default.

        Events beyond what waits may pass later: an allowance does not end.
        """
        if count is None:
            self.is_over = True
        else:
            self.allowed += count
        self._wake(self.plural)


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
    return verb in ("*", target.verb) and resource in ("*", target.full_resource)


class Faults:
    """The failures, delays and holds waiting for their requests."""

    def __init__(self) -> None:
        self._faults: list[_Fault] = []
        self._delays: dict[tuple[str, str], float] = {}
        self._requests: list[HeldRequests] = []
        self._events: dict[str, HeldEvents] = {}
        self._silenced: list[AuditEntry] = []
        self._speak = anyio.Event()
        self.wake: Callable[[str], None] = lambda _plural: None
        """Is called when events of a kind may go on; set by what sends them."""

    def fail_next(
        self,
        verb: str,
        resource: str,
        status: int | Loss,
        times: int = 1,
        *,
        body: Mapping[str, Any] | bytes | None = None,
        retry_after: int | None = None,
        match: Matcher | None = None,
        after: bool = False,
    ) -> None:
        """Answer the next ``times`` matching requests with ``status`` and do nothing else.

        Args:
            verb: get, list, watch, create, update, patch, delete, deletecollection, or ``*``.
            resource: plural, with ``/status`` and the like for a subresource, or ``*``.
            status: HTTP code, or the way in which the answer is lost.
            times: how many requests fail.
            body: the answer's body; a Status fitting the code by default.
            retry_after: seconds of a Retry-After header.
            match: a further test on the request.
            after: carry the request out first, so that only its answer fails; not for watches.

        """
        fault = _Fault(verb, resource, times, match, after, status, body, retry_after)
        self._faults.append(fault)

    def delay(self, verb: str, resource: str, seconds: float) -> None:
        """Hold back matching requests by ``seconds``; zero ends it."""
        self._delays[verb, resource] = seconds
        if seconds <= 0:
            del self._delays[verb, resource]

    def hold(
        self,
        verb: str,
        resource: str,
        *,
        answers: bool = True,
        times: int | None = None,
        match: Matcher | None = None,
    ) -> HeldRequests:
        """Hold matching requests until what is returned is released.

        With ``answers`` a request is carried out when it comes and only its answer waits, so that
        the answer is older than what happens meanwhile; without, the request itself waits.
        At most ``times`` requests are held, or any number.
        """
        held = HeldRequests(verb, resource, times, match, answers)
        self._requests = [one for one in self._requests if not one.is_over or one.waiting]
        self._requests.append(held)
        return held

    def hold_events(self, plural: str) -> HeldEvents:
        """Hold the events, bookmarks included, of all watches of a kind until they are released.

        A watch that opens meanwhile shows nothing either, and then the state it was opened at.
        """
        held = self.events_held(plural)
        if held is None:
            held = self._events[plural] = HeldEvents(plural, self.wake)
        return held

    def events_held(self, plural: str) -> HeldEvents | None:
        """Return the hold on the events of a kind, if there is one."""
        held = self._events.get(plural)
        return None if held is None or held.is_over else held

    @property
    def is_idle(self) -> bool:
        """Say whether nothing is waiting for a request or an event."""
        return not (self._faults or self._delays or self._requests or self.held_kinds)

    @property
    def waiting(self) -> list[AuditEntry]:
        """What is held, or will never be answered, at present."""
        held = [entry for one in self._requests for entry in one.waiting if not one.is_over]
        return held + self._silenced

    @property
    def held_kinds(self) -> set[str]:
        """The kinds whose events are held."""
        return {plural for plural, held in self._events.items() if not held.is_over}

    def clear(self) -> None:
        """Forget all failures and delays, let go what is held, and break what is silent."""
        self._faults.clear()
        self._delays.clear()
        for requests in self._requests:
            requests.release()
        for events in self._events.values():
            events.release()
        self._requests.clear()
        self._events.clear()
        self._speak.set()
        self._speak = anyio.Event()

    async def meet(self, entry: AuditEntry, clock: Clock, *, after: bool = False) -> None:
        """Do to a request what waits for it, or to its answer once it has been carried out.

        Raises ChosenFailure: it is answered with this instead; AnswerLostError: it is not answered.
        """
        for held in list(self._requests):
            if held.takes(entry, after=after):
                await held.wait(entry)
        seconds = sum(s for asked, s in self._delays.items() if _fits(*asked, entry))
        if seconds and not after:
            await clock.sleep(seconds)
        for fault in self._faults:
            if fault.takes(entry, after=after):
                if not fault.left:
                    self._faults.remove(fault)
                if isinstance(fault.status, Loss):
                    await self._lose(fault.status, entry, clock)
                raise ChosenFailure(fault.status, fault.body, fault.retry_after_s)

    async def _lose(self, how: Loss, entry: AuditEntry, clock: Clock) -> NoReturn:
        if how is Loss.SILENCE:
            self._silenced.append(entry)
            try:
                await clock.wait(self._speak, _SILENCE_S)
            finally:
                self._silenced.remove(entry)
        raise AnswerLostError
