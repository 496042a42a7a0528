"""What a failed pass asks for: another try, a try not before some time, or none.

Errors say so themselves, through their attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Protocol, runtime_checkable

import msgspec

from lean_sandbox.kube.errors import ControlPlaneError, said


class ReconcileError(Exception):
    """A reconcile that could not bring its object to the wanted state; repeated with backoff.

    The text is what a condition shows. ``retry_after_s`` is how long the server asked to wait.
    """

    retryable = True

    def __init__(self, text: str, *causes: BaseException | None) -> None:
        super().__init__(text)
        waits = [getattr(cause, "retry_after_s", None) for cause in causes]
        self.retry_after_s = max((wait for wait in waits if wait is not None), default=None)

    @classmethod
    def of(cls, step: str, cause: ControlPlaneError) -> ReconcileError:
        """Return the error for what a named step has met."""
        return cls(f"{step}: {said(cause)}", cause)


@runtime_checkable
class _Expected(Protocol):
    """An error that was foreseen. It may also have ``retry_after_s`` (seconds, or None)."""

    retryable: bool


class FailureKind(Enum):
    """What to do about a failure."""

    RETRYABLE = "retryable"
    # Trying again cannot help until something changes.
    TERMINAL = "terminal"
    # A bug: nobody foresaw this exception.
    PANIC = "panic"


class Failure(msgspec.Struct, frozen=True):
    """A judged exception; ``retry_after_s`` is the server's wish, zero when it has none."""

    kind: FailureKind
    retry_after_s: float
    error: BaseException


def classify(error: Exception) -> Failure:
    """Judge the exception that ended a pass.

    A group, as task groups raise it, is a bug if any of its errors is, else worth another try if
    any of its errors is, after the longest of the times asked for.
    """
    leaves = list(_leaves(error))
    retry_after_s = 0.0
    kind, decisive = FailureKind.TERMINAL, leaves[0]
    for leaf in leaves:
        if not isinstance(leaf, _Expected):
            return Failure(FailureKind.PANIC, 0.0, error)
        if not leaf.retryable:
            continue
        retry_after_s = max(retry_after_s, getattr(leaf, "retry_after_s", None) or 0.0)
        if kind is FailureKind.TERMINAL:
            kind, decisive = FailureKind.RETRYABLE, leaf
    return Failure(kind, retry_after_s, decisive)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
