"""What passes need of a tracing; without one they pay nothing for it."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

T = TypeVar("T")


class Tracing(Protocol):
    """The tracing that a pass takes part in, when it is switched on."""

    def span(
        self, name: str, attributes: Mapping[str, str] | None = None, parent: str | None = None
    ) -> AbstractContextManager[object]:
        """Return a span that is the current one inside of the ``with``.

        ``parent`` are W3C headers as a JSON object, as a client left them on the object; without
        them, or if they cannot be read, the current span is the parent.
        """

    def event(self, name: str, attributes: Mapping[str, str]) -> None:
        """Note in the current span that something was observed, if it records."""

    def carrier(self) -> str | None:
        """Return the current span's W3C headers as a JSON object, ``None`` without a span."""


async def traced(tracing: Tracing | None, name: str, step: Awaitable[T]) -> T:
    """Await a step inside of a span of its own, if there is a tracing."""
    if tracing is None:
        return await step
    with tracing.span(name):
        return await step
