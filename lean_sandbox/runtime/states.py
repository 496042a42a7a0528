"""What a controller remembers of its objects from one reconcile to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from lean_sandbox.watch.kind import Entry, Key


class State(msgspec.Struct):
    """What is remembered of one object, by uid: a successor of the same name starts anew.

    No object depends on it to reach its final state: a new process begins without it.
    """

    uid: str


S = TypeVar("S", bound=State)


class States(dict[Key, S], Generic[S]):
    """The states of a controller's objects, by key."""

    def __init__(self, new: Callable[[str], S]) -> None:
        """``new`` returns what is remembered of an object, by its uid, before anything happens."""
        super().__init__()
        self._new = new

    def of(self, entry: Entry) -> S | None:
        """Return what is remembered of an object."""
        state = self.get(entry.key)
        return state if state is not None and state.uid == entry.uid else None

    def begin(self, entry: Entry) -> S:
        """Return what is remembered of an object, from now on whatever is written into it."""
        state = self.of(entry)
        if state is None:
            state = self[entry.key] = self._new(entry.uid)
        return state

    def settle(self, entry: Entry) -> None:
        """Drop a state that says no more than a new one does."""
        if self.get(entry.key) == self._new(entry.uid):
            del self[entry.key]
