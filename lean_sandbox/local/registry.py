"""The kinds the server knows: built-in ones from a table, custom ones from their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lean_sandbox.local.kinds import REVIEWS, Kind, PrinterColumn, builtin_kinds, make_kind

__all__ = ["REVIEWS", "Kind", "PrinterColumn", "Registry", "kinds_of_definition"]


def _columns(version: Mapping[str, Any]) -> tuple[PrinterColumn, ...]:
    listed = version.get("additionalPrinterColumns")
    if not listed:
        return (PrinterColumn("Age", "date", ".metadata.creationTimestamp"),)
    return tuple(
        PrinterColumn(
            name=column["name"],
            type=column["type"],
            path=column["jsonPath"],
            priority=column.get("priority", 0),
            description=column.get("description", ""),
            format=column.get("format", ""),
        )
        for column in listed
    )


def kinds_of_definition(definition: Mapping[str, Any]) -> list[Kind]:
    """Return one kind for each served version of a CustomResourceDefinition."""
    spec = definition["spec"]
    names = spec["names"]
    kinds = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        scale = subresources.get("scale")
        kinds.append(
            make_kind(
                spec["group"],
                version["name"],
                names["plural"],
                names["kind"],
                namespaced=spec["scope"] == "Namespaced",
                singular=names.get("singular") or names["kind"].lower(),
                list_kind=names.get("listKind") or names["kind"] + "List",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=tuple(subresources),
                is_custom=True,
                has_generation=True,
                selectable=tuple(
                    item["jsonPath"].lstrip(".") for item in version.get("selectableFields") or ()
                ),
                schema=(version.get("schema") or {}).get("openAPIV3Schema"),
                columns=_columns(version),
                scale=scale
                and {
                    "spec": scale["specReplicasPath"],
                    "status": scale["statusReplicasPath"],
                    "selector": scale.get("labelSelectorPath", ""),
                },
            )
        )
    return kinds


class Registry:
    """All kinds now served, by path and by name."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self._custom: dict[str, list[Kind]] = {}
        self._by_storage: dict[str, Kind] = {}
        self.revision = 0
        """Grows with every change, so that answers derived from the kinds can be cached."""
        self._add(builtin_kinds())

    def _add(self, kinds: Iterable[Kind]) -> None:
        for kind in kinds:
            self._by_path[kind.group, kind.version, kind.plural] = kind
            self._by_storage.setdefault(kind.storage, kind)
        self.revision += 1

    def define(self, definition: Mapping[str, Any]) -> None:
        """Serve (or serve anew) the kinds of a CustomResourceDefinition."""
        self.withdraw(definition)
        kinds = kinds_of_definition(definition)
        self._custom[definition["metadata"]["name"]] = kinds
        self._add(kinds)

    def withdraw(self, definition: Mapping[str, Any]) -> None:
        """Stop serving the kinds of a CustomResourceDefinition."""
        for kind in self._custom.pop(definition["metadata"]["name"], []):
            self._by_path.pop((kind.group, kind.version, kind.plural), None)
            self._by_storage.pop(kind.storage, None)
        self.revision += 1

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
        """Return the kind an object says it is."""
        for known in self._by_path.values():
            if known.kind == kind and known.api_version == api_version:
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
