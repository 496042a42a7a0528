"""Tells by versions alone what is news, what is known already, and what has ended.

Versions of one server are comparable numbers, so that neither watch nor responses can take an entry
back to an older state, whichever comes late. A response in flight when the end of its object is
seen must not bring the object back: a tombstone stays for longer than a request may take. Their
number is not bounded: dropping one too early could leave an object in the cache for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from lean_sandbox.model.meta import as_version
from lean_sandbox.watch.kind import Entry, Key

TOMBSTONE_S: Final = 60.0


class Age(Enum):
    """How what is shown of an object stands to what is known."""

    NEWS = auto()
    #: As old as what is known, or older.
    KNOWN = auto()
    #: Known, but a list that is to be compared with the cache shows it.
    LISTED_AGAIN = auto()
    #: Older than what is known, though asked for later: the store was restored from a backup.
    RESTORED = auto()
    #: Its end has been seen since the request that shows it was sent.
    ENDED = auto()
    #: It is not in a list that was made since, so it has ended or left the selector.
    UNLISTED = auto()


class Known(NamedTuple):
    """What is known when a request is sent, to tell whether its response has been overtaken.

    A ``version`` that the store has reached, the number of ``ends`` seen, the last list's version.
    """

    version: int = 0
    ends: int = 0
    listed: int = 0


class _Listing(msgspec.Struct):
    """A list in progress: ``missing`` are the cached keys that it has not shown yet.

    ``newest`` is the newest version known before it, ``version`` its own, 0 before the first page.
    """

    missing: set[Key]
    newest: int
    is_resync: bool
    version: int = 0


class _End(NamedTuple):
    """The end of an object: its version, 0 if nothing can follow it; when it was seen; its number.

    Ends are counted as they are seen.
    """

    version: int
    seen_at: float
    number: int


class VersionGate:
    """The lists of one kind, those in progress and the last complete ones, and the ends seen."""

    def __init__(self, monotonic: Callable[[], float], tombstone_s: float) -> None:
        # By namespace; None is the list of all namespaces, beside which there is no other.
        self._lists: dict[str | None, _Listing] = {}
        self._listed_at: dict[str | None, int] = {}
        self._monotonic = monotonic
        self._tombstone_s = tombstone_s
        # By uid, oldest first.
        self._tombstones: OrderedDict[str, _End] = OrderedDict()
        self._ends = 0
        #: Keys known only from the metadata in the response to their create, which shows less than
        #: the event of the same version: that is news as well.
        self.half_known: set[Key] = set()

    def follow(self, old: Entry | None, new: Entry | None) -> None:
        """Follow a change of the store."""
        if old is not None and (new is None or (new.uid, new.version) != (old.uid, old.version)):
            self.half_known.discard(old.key)
        if new is None:
            return
        self._tombstones.pop(new.uid, None)
        if old is not None and old.uid != new.uid:
            self.note_end(old.uid, 0)
        listing = self._list_of(new.key.namespace)
        if old is None and listing is not None:
            listing.missing.add(new.key)

    def note_end(self, uid: str, version: int) -> None:
        """Remember the end of an object and its version; 0 if nothing can follow it."""
        now = self._monotonic()
        self._ends += 1
        self._tombstones[uid] = _End(version, now, self._ends)
        self._tombstones.move_to_end(uid)
        while now - next(iter(self._tombstones.values())).seen_at > self._tombstone_s:
            self._tombstones.popitem(last=False)

    # -- lists -----------------------------------------------------------------------------------

    def begin_list(
        self, namespace: str | None, entries: Sequence[Entry], *, reached: int, resync: bool
    ) -> None:
        """Note the cached objects; see :meth:`.cache.Cache.begin_list`."""
        newest = max((entry.version for entry in entries), default=0)
        missing = {entry.key for entry in entries}
        self._lists[namespace] = _Listing(missing, max(newest, reached), resync)

    def begin_page(self, namespace: str | None, version: str) -> bool:
        """Note the version of a list; return whether it shows that the store was restored.

        Everything known when the list was requested had been written by then.
        """
        listing = self._lists[namespace]
        listing.version = as_version(version)
        if not 0 < listing.version < listing.newest:
            return False
        listing.newest = 0
        return True

    def present(self, key: Key) -> None:
        """Note that a list contains an object."""
        if (listing := self._list_of(key.namespace)) is not None:
            listing.missing.discard(key)

    def end_list(self, namespace: str | None) -> tuple[list[Key], int]:
        """Return the keys of the objects that the complete list lacks, and its version."""
        listing = self._lists.pop(namespace)
        self._listed_at[namespace] = listing.version
        return sorted(listing.missing), listing.version

    def listed_at(self, namespace: str) -> int:
        """Return the version of the last complete list that covers a namespace, 0 before any."""
        return max(self._listed_at.get(scope, 0) for scope in (None, namespace))

    def is_listing(self, namespace: str) -> bool:
        """Return whether a list is in progress that covers a namespace."""
        return self._list_of(namespace) is not None

    def scope_of(self, namespace: str) -> str | None:
        """Return of which namespace the list in progress is that covers this one, if not of all."""
        return None if None in self._lists else namespace

    def _list_of(self, namespace: str) -> _Listing | None:
        if not self._lists:
            return None
        return self._lists.get(None) or self._lists.get(namespace)

    # -- questions -------------------------------------------------------------------------------

    def of_old_event(self, old: Entry, version: int, *, is_whole: bool) -> Age:
        """Judge an event, or an item of a list, that is no newer than the entry of its name."""
        listing = self._list_of(old.key.namespace) if is_whole else None
        if version < old.version:
            is_restored = listing is not None and old.version <= listing.version
            return Age.RESTORED if is_restored else Age.KNOWN
        if old.key in self.half_known:
            return Age.NEWS
        return Age.LISTED_AGAIN if listing is not None and listing.is_resync else Age.KNOWN

    def of_response(
        self, old: Entry | None, namespace: str, uid: str, version: int, known: Known
    ) -> Age:
        """Judge a response by the entry of its name, and by what was known at its request."""
        if old is not None and 0 < version < old.version:
            return Age.KNOWN
        if old is None or old.uid != uid:
            # At a later version than its end, it had only stopped matching the selector.
            end = self._tombstones.get(uid)
            if end is not None and end.number > known.ends and self.has_ended(uid, version):
                return Age.ENDED
        if old is None and known.listed < version <= self.listed_at(namespace):
            return Age.UNLISTED
        return Age.NEWS

    def has_ended(self, uid: str, version: int) -> bool:
        """Return whether the end of an object was seen lately that followed this version."""
        end = self._tombstones.get(uid)
        return end is not None and (end.version == 0 or version <= end.version)

    def known(self, namespace: str, version: int) -> Known:
        """Return what is known now; ``version`` is one that the store has reached."""
        return Known(version, self._ends, self.listed_at(namespace))
