"""The kinds the server knows: built-in ones from a table, custom ones from their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from lean_sandbox.local.kinds.kinds import VERBS, FieldSelector, Kind, builtin_kinds, kind_of

__all__ = ["Definition", "Kind", "Registry", "read_definition"]

Json = dict[str, Any]

_SCALE: Final = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
_AGE: Final = ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)


@dataclass(frozen=True, slots=True)
class Definition:
    """The spec of a CustomResourceDefinition; shared by its readers, who do not change it."""

    spec: Json
    kinds: tuple[Kind, ...]
    """One for each served version."""
    stored: Kind
    """The version that objects are stored in, served or not."""


@lru_cache(maxsize=32)
def read_definition(spec: bytes) -> Definition:
    """Decode the spec of a CustomResourceDefinition.

    Cached by content, because schemas are large and the control planes of one process, as tests
    start them by the hundred, serve the same kinds.
    """
    decoded: Json = msgspec.json.decode(spec)
    kinds = {version["name"]: _kind_of(decoded, version) for version in decoded["versions"]}
    versions = decoded["versions"]
    served = tuple(kinds[version["name"]] for version in versions if version.get("served"))
    stored = next(version["name"] for version in versions if version.get("storage"))
    return Definition(decoded, served, kinds[stored])


def _kind_of(spec: Json, version: Json) -> Kind:
    names = spec["names"]
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    own = {"group": spec["group"], "version": version["name"], "kind": names["kind"]}
    parts = [
        {"subresource": name, "responseKind": body, "verbs": ["get", "patch", "update"]}
        for name, body in (("status", own), ("scale", _SCALE))
        if name in subresources
    ]
    resource = {
        "resource": names["plural"],
        "responseKind": own,
        "scope": spec["scope"],
        "singularResource": names.get("singular") or names["kind"].lower(),
        "verbs": list(VERBS),
        "shortNames": names.get("shortNames"),
        "categories": names.get("categories"),
        "subresources": parts,
    }
    selectable = [item["jsonPath"].lstrip(".") for item in version.get("selectableFields") or ()]
    return kind_of(
        spec["group"],
        version["name"],
        {key: value for key, value in resource.items() if value},
        list_kind=names.get("listKind") or names["kind"] + "List",
        is_custom=True,
        selectors={path: FieldSelector((path,)) for path in selectable},
        schema=(version.get("schema") or {}).get("openAPIV3Schema"),
        columns=version.get("additionalPrinterColumns") or _AGE,
        scale=scale
        and {
            "spec": scale["specReplicasPath"],
            "status": scale["statusReplicasPath"],
            "selector": scale.get("labelSelectorPath", ""),
        },
    )


class Registry:
    """All kinds now served, by path and by name."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self._custom: dict[str, tuple[Kind, ...]] = {}
        self._by_storage: dict[str, Kind] = {}
        self.ending: set[str] = set()
        """Names of the definitions that are being deleted."""
        self.revision = 0
        """Grows with every change, so that answers derived from the kinds can be cached."""
        self._add(builtin_kinds())

    def _add(self, kinds: Iterable[Kind]) -> None:
        for kind in kinds:
            self._by_path[kind.group, kind.version, kind.plural] = kind
            self._by_storage.setdefault(kind.storage, kind)
        self.revision += 1

    def define(self, name: str, definition: Definition) -> None:
        """Serve (or serve anew) the kinds of the CustomResourceDefinition of that name.

        Paths of built-in kinds stay theirs.
        """
        self.withdraw(name)
        kinds = [] if self.is_built_in(name) else definition.kinds
        self._custom[name] = tuple(
            kind for kind in kinds if not self.serves_built_in(kind.group, kind.version)
        )
        self._add(self._custom[name])

    def withdraw(self, name: str) -> None:
        """Stop serving the kinds of the CustomResourceDefinition of that name."""
        for kind in self._custom.pop(name, ()):
            self._by_path.pop((kind.group, kind.version, kind.plural), None)
            self._by_storage.pop(kind.storage, None)
        self.revision += 1

    def is_built_in(self, storage: str) -> bool:
        """Say whether a collection is that of a built-in kind."""
        known = self._by_storage.get(storage)
        return known is not None and not known.is_custom

    def get(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind at a path, None when nothing is served there."""
        return self._by_path.get((group, version, plural))

    def serves_built_in(self, group: str, version: str) -> bool:
        """Say whether built-in kinds are served under a group and version."""
        return any(
            key[0] == group and key[1] == version and not kind.is_custom
            for key, kind in self._by_path.items()
        )

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """Return the stored kind an object says it is, None when there is none."""
        for known in self._by_path.values():
            if (known.kind, known.api_version) == (kind, api_version) and not known.is_review:
                return known
        return None

    def by_resource(self, name: str) -> Kind:
        """Return the kind called ``plural`` or ``plural.group``.

        Raises:
            KeyError: nothing of that name is served.

        """
        for known in self._by_path.values():
            if known.qualified_plural == name:
                return known
        raise KeyError(name)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_path.values())

    def of_storage(self, storage: str) -> Kind | None:
        """Return the first kind whose objects live in a collection."""
        return self._by_storage.get(storage)
