"""When pools try again what the server has refused to them.

A quota, a policy or a webhook is often the same for many pools. So they share a rate, and when one
of them gets on, two others try at once, and two more for each of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import nsmallest

from lean_sandbox.controllers.warmpool.state import Backoff, PoolState
from lean_sandbox.watch.kind import Key

# The pause after the first try of a pool, and the longest, up to which it doubles.
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 4.0
# The most tries of several pools: of a namespace, and in all. Namespaces have equal shares.
_TRIES_PER_S_OF_NAMESPACE = 2.0
_TRIES_PER_S = 4.0
# How many others try at once when one pool gets on.
_OTHERS_AT_ONCE = 2
# More would only overflow a float.
_MOST_DOUBLINGS = 16


class Refusals:
    """Spaces out the tries of all pools; ``wake`` has a pool reconciled at once."""

    def __init__(self, states: Mapping[Key, PoolState], wake: Callable[[Key], None]) -> None:
        self._states = states
        self._wake = wake

    def put_off(self, pool: Key, backoff: Backoff, now: float) -> float:
        """Set the next try of a pool that was refused something; return the seconds until then."""
        doublings = min(backoff.in_vain, _MOST_DOUBLINGS)
        pause_s = min(_FIRST_PAUSE_S * 2.0**doublings, _LONGEST_PAUSE_S)
        backoff.in_vain += 1
        refused = Counter(key.namespace for key, state in self._states.items() if state.is_refused)
        if refused.total() > 1:
            share_s = max(1 / _TRIES_PER_S_OF_NAMESPACE, len(refused) / _TRIES_PER_S)
            pause_s = max(pause_s, refused[pool.namespace] * share_s)
        backoff.next_at = now + pause_s
        return pause_s

    def let_in(self, pool: Key, now: float) -> None:
        """Have others try at once, as one pool gets on: first of its namespace, then any."""

        def order(other: Key) -> tuple[bool, float]:
            return other.namespace != pool.namespace, self._states[other].next_try_at

        refused = [key for key, state in self._states.items() if state.is_refused and key != pool]
        for other in nsmallest(_OTHERS_AT_ONCE, refused, key=order):
            self._states[other].try_at(now)
            self._wake(other)
