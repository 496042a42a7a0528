"""The states of a reflector: listing, listed, or watching; each has what belongs to it alone."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import anyio
import msgspec

#: After how long the server ends a watch, how much later its end may arrive, and the share by which
#: that time varies, so that watches do not all end together.
SERVER_TIMEOUT_S: Final = 290.0
_END_SLACK_S: Final = 30.0
TIMEOUT_SPREAD: Final = 0.1
#: A watch that sent bookmarks (about one a minute) and then nothing for this long is cancelled, up
#: to a third later; one without bookmarks when the server has not ended it in time.
SILENCE_S: Final = 90.0
# After this long without a stream everything is listed and compared with the cache before the next
# watch, as at once after a broken connection: the server may have been started over a restored
# store, whose versions soon catch up.
_AWAY_S: Final = 5.0


class Listing(msgspec.Struct):
    """Everything is to be listed, from the beginning or from where a busy server refused a page.

    ``compare_at`` is from when on the list is compared with the cache, even where the versions are
    the same.
    """

    compare_at: float
    limit: int = 0
    continue_: str | None = None


class Listed(msgspec.Struct):
    """Everything was listed ``at`` a time: the next watch begins at the version reached.

    ``lost_at`` is when the last stream ended, until another begins.
    """

    at: float
    resync_at: float
    lost_at: float = math.inf

    @property
    def compare_at(self) -> float:
        """From when on everything is to be listed and compared with the cache."""
        return min(self.resync_at, self.lost_at + _AWAY_S)


class Watching(msgspec.Struct):
    """A watch is open, or about to be; cancelling ``scope`` ends it."""

    listed: Listed
    scope: anyio.CancelScope
    began_at: float
    bookmarks_before: int

    @property
    def compare_at(self) -> float:
        """From when on everything is to be listed and compared with the cache."""
        return self.listed.compare_at

    def longest_silence_s(self, bookmarks: int) -> float:
        """Return how long the watch may send nothing; ``bookmarks`` is their number by now."""
        if bookmarks > self.bookmarks_before:
            return SILENCE_S
        return (1.0 + TIMEOUT_SPREAD) * SERVER_TIMEOUT_S + _END_SLACK_S


State: TypeAlias = Listing | Listed | Watching
