"""Pruning: what is worth remembering of labels, annotations and ``metadata.managedFields``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol


class WriterLike(Protocol):
    """One entry of ``managedFields`` without the set of fields, its by far largest part."""

    @property
    def manager(self) -> str:
        """The name of the writer."""

    @property
    def subresource(self) -> str:
        """Empty for the object itself, otherwise ``status`` or ``scale``."""

    @property
    def time(self) -> str:
        """RFC 3339 with whole seconds: two writes within one look the same."""


def keep(mapping: Mapping[str, str] | None, keys: Collection[str]) -> dict[str, str] | None:
    """Return the entries under the keys, ``None`` when there are none.

    The cost is that of ``keys``, not of the mapping. The result has the caller's key texts, so that
    all objects share them and the decoded ones can be freed.
    """
    if not mapping:
        return None
    return {key: mapping[key] for key in keys if key in mapping} or None


def status_writers(writers: Iterable[WriterLike], *, besides: str) -> int:
    """Return a digest of who wrote the status and when, apart from ``besides``; 0 for nobody.

    A change of the digest tells a foreign write of the status on events that carry metadata alone,
    but not two writes of one manager within a second.
    """
    foreign = tuple(
        [
            (writer.manager, writer.time)
            for writer in writers
            if writer.subresource == "status" and writer.manager != besides
        ]
    )
    return hash(foreign) if foreign else 0
