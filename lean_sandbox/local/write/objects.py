"""The objects of a store: where they are, and what they are given when they are made."""

from __future__ import annotations

import random
from typing import Any, Final

from lean_sandbox.clock import Clock
from lean_sandbox.local.errors import not_found
from lean_sandbox.local.kinds.registry import Kind, Registry
from lean_sandbox.local.store.store import Collection, Entry, Store, field_cells
from lean_sandbox.local.write.admission import Admission

Json = dict[str, Any]

_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: no vowels, nothing to be mistaken."""


class Objects:
    """Finds objects, by their kinds."""

    def __init__(self, store: Store, registry: Registry, clock: Clock, rng: random.Random) -> None:
        self.store = store
        self.registry = registry
        self.admission = Admission()
        self.clock = clock
        self._rng = rng

    def now(self) -> str:
        """Return the time as metadata writes it, in whole seconds."""
        return self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def new_uid(self) -> str:
        """Return a fresh uid."""
        text = f"{self._rng.getrandbits(128):032x}"
        variant = "89ab"[int(text[16], 16) & 3]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"

    def collection(self, kind: Kind) -> Collection:
        """Return where the objects of a kind are."""
        return self.store.collection(kind.storage)

    @staticmethod
    def key(namespace: str, name: str) -> str:
        """Return the key of an object in its collection."""
        return f"{namespace}/{name}" if namespace else name

    def find(self, kind: Kind, namespace: str, name: str) -> Entry | None:
        """Return a stored object, None where there is none."""
        return self.collection(kind).entries.get(self.key(namespace, name))

    def entry(self, kind: Kind, namespace: str, name: str) -> Entry:
        """Return a stored object.

        Raises:
            StatusError: 404.

        """
        found = self.find(kind, namespace, name)
        if found is None:
            raise not_found(kind.group, kind.plural, name)
        return found

    def fields(self, kind: Kind, obj: Json) -> dict[str, str]:
        """Return what field selectors of a kind can ask of an object."""
        return field_cells(obj, kind.selectable) if kind.selectable else {}

    def suffix(self) -> str:
        """Return the random end of a generated name."""
        return "".join(self._rng.choice(_SUFFIX) for _ in range(5))
