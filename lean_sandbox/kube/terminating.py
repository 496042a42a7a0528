"""The namespaces in which nothing can be created any more, for they are being deleted.

Everything in such a namespace goes one by one and wakes whoever made it. The server has said once
that a create is of no use; for a while nobody asks again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from lean_sandbox.clock import Clock
from lean_sandbox.kube.errors import Forbidden

#: For how long a refusal is believed, and after how many seconds to come back (changes, v1.0.3).
ENDING_S: Final = 30.0
_MOST: Final = 256
# How long the others wait for the answer to the one create that is tried again.
_ANSWER_S: Final = 5.0


class TerminatingNamespaces:
    """Remembers refused creates by namespace: at most 256, for 30 s from the server's last word."""

    __slots__ = ("_clock", "_refusals")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refusals: OrderedDict[str, tuple[float, Forbidden]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._refusals)

    def remember(self, namespace: str, refusal: Forbidden) -> None:
        """Take note of a refusal; of any other than that of an ending namespace none is taken."""
        if not refusal.namespace_terminating:
            return
        self._refusals[namespace] = self._clock.monotonic() + ENDING_S, refusal
        self._refusals.move_to_end(namespace)
        if len(self._refusals) > _MOST:
            self._refusals.popitem(last=False)

    def forget(self, namespace: str) -> None:
        """Forget a refusal: something is new in the namespace, so it is another one."""
        if self._refusals:
            self._refusals.pop(namespace, None)

    def left_s(self, namespace: str) -> float:
        """Return for how long a create is of no use, in seconds; 0 where it may be tried."""
        held = self._refusals.get(namespace) if self._refusals else None
        if held is None:
            return 0.0
        return max(0.0, held[0] - self._clock.monotonic())

    def enter(self, namespace: str) -> None:
        """Let one create pass once a refusal is old, and hold up the others until it is answered.

        Raises Forbidden as :meth:`check` does.
        """
        if not self._refusals or namespace not in self._refusals:
            return
        self.check(namespace)
        _, said = self._refusals[namespace]
        self._refusals[namespace] = self._clock.monotonic() + _ANSWER_S, said

    def check(self, namespace: str) -> None:
        """Raise Forbidden where creates are refused, in the words in which the server did."""
        if self.left_s(namespace) > 0:
            refusal = self._refusals[namespace][1]
            # A new one each time: raising an error writes its traceback into it.
            raise Forbidden(refusal.status, refusal.said, refusal.asked)
