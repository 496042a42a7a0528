"""Lists everything of one kind by pages into its cache."""

from __future__ import annotations

from typing import Generic, TypeVar

from lean_sandbox.kube import errors
from lean_sandbox.model.meta import as_version
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.decode import EventDecoder
from lean_sandbox.watch.kind import Entry
from lean_sandbox.watch.source import Source
from lean_sandbox.watch.states import Listing

E = TypeVar("E", bound=Entry)

# Objects on the first page of a list: enough for most kinds, and few if they are large.
_FIRST_PAGE = 25
# The size a page should have.
_PAGE_BYTES = 2 * 1024 * 1024


class Lister(Generic[E]):
    """Lists by pages, beginning with a small one.

    Each next page has as many objects as should fit, at most ``page_size``, judging by the page
    before. A page that is far too large is dropped and requested again with fewer objects; a single
    object is read whatever its size.
    """

    def __init__(
        self, source: Source, cache: Cache[E], decoder: EventDecoder[E], page_size: int
    ) -> None:
        self._source = source
        self._cache = cache
        self._decoder = decoder
        self._page_size = page_size

    async def read(self, listing: Listing, *, initial: bool, resync: bool) -> None:
        """Read a list to its end; the next watch begins at its version.

        With ``initial`` it is the first list. With ``resync`` every object is applied again, even
        at the cached version. After a page that a busy server refuses, ``listing`` says where to
        continue.
        """
        cache = self._cache
        decoder = self._decoder
        source = self._source
        dropped_before = cache.dropped_elsewhere
        if listing.continue_ is None:
            decoder.steps["list"] += 1
            reached = as_version(decoder.version or "")
            cache.begin_list(source.namespace, reached=reached, resync=resync)
            listing.limit = min(_FIRST_PAGE, self._page_size)
        version = await self._pages(listing, initial=initial)
        if not version:
            raise errors.ProtocolFault(f"the list of {cache.kind.resource.plural} has no version")
        cache.end_list(source.namespace)
        dropped = cache.dropped_elsewhere - dropped_before
        if source.shard_selector and dropped:
            decoder.log.info("shard_selector_ignored", dropped=dropped)
        decoder.version = version

    async def _pages(self, listing: Listing, *, initial: bool) -> str:
        """Apply the pages that are left; return the version of the list."""
        limit = listing.limit
        continue_ = listing.continue_
        listing.continue_ = None
        while True:
            try:
                body = await self._source.page(limit, continue_)
            except errors.AnswerTooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            except errors.ApiError as error:
                if continue_ and error.status in (429, 503):
                    listing.limit = limit
                    listing.continue_ = continue_
                raise
            self._decoder.steps["page"] += 1
            metadata = self._decoder.page(body, initial=initial)
            continue_ = metadata.continue_
            if not continue_:
                return metadata.resourceVersion
            limit = min(max(1, _PAGE_BYTES * limit // len(body)), self._page_size)
