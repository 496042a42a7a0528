"""Access to stored objects past HTTP, for tests and for the server's own start."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.kinds import Kind
from lean_sandbox.local.store import Collection, Entry, Event, field_cells, key_of
from lean_sandbox.local.write.bodies import Deletion, WriteOptions
from lean_sandbox.local.write.changes import merge_patch
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredChange:
    """One change of one stored object."""

    resource: str
    version: int
    by: str
    """The user who asked for it; empty for the server itself, and for what is done past HTTP."""
    before: Json | None
    after: Json | None


class DirectAccess:
    """Reads and writes objects as the server itself would; nothing appears in the audit.

    ``resource`` is a plural, with its group behind a dot outside the core group
    (``pods``, ``sandboxes.agents.x-k8s.io``). All methods raise StatusError as the API would.
    """

    def __init__(self, verbs: Verbs) -> None:
        self._store = verbs.store
        self._registry = verbs.registry
        self._verbs = verbs

    @property
    def version(self) -> int:
        """Return the newest resourceVersion."""
        return self._store.version

    def changed(self, plural: str) -> int:
        """Return the resourceVersion of the newest change of the kinds of this name, 0 of none."""
        return max(
            (one.changed for one in self._store if one.storage.partition(".")[0] == plural),
            default=0,
        )

    def follow(self, tell: Callable[[StoredChange], None], resources: Container[str]) -> None:
        """Call ``tell`` with every change of these kinds from now on, in order, at once."""

        def take(collection: Collection, event: Event) -> None:
            kind = self._registry.of_storage(collection.storage)
            if kind is None or kind.qualified_plural not in resources:
                return
            before = None if event.prev is None else self._shown(kind, event.prev)
            after = None if event.type == "DELETED" else self._shown(kind, event.entry)
            writer = self._store.writer
            by = "" if writer is None else writer.name
            tell(StoredChange(kind.qualified_plural, event.version, by, before, after))

        self._store.listeners.append(take)

    def _found(self, resource: str, namespace: str) -> tuple[Kind, str]:
        """Return a kind, and the namespace as objects of this kind have it."""
        kind = self._registry.by_resource(resource)
        return kind, namespace if kind.namespaced else ""

    def _read(self, obj: Mapping[str, Any]) -> tuple[Kind, Json]:
        """Return the kind of an object, and a copy as the store keeps it."""
        kind = self._registry.by_kind(obj["apiVersion"], obj["kind"])
        if kind is None:
            raise KeyError(f"{obj['apiVersion']} {obj['kind']}")
        body = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
        return kind, {**body, "metadata": dict(body.get("metadata") or {})}

    @staticmethod
    def _shown(kind: Kind, entry: Entry) -> Json:
        return {"kind": kind.kind, "apiVersion": kind.api_version, **entry.load()}

    def create(self, obj: Mapping[str, Any], namespace: str | None = None) -> Json:
        """Store an object that says its apiVersion and kind; status is kept if it has one."""
        kind, body = self._read(obj)
        home = namespace or body["metadata"].get("namespace") or "default"
        options = WriteOptions(manager="direct")
        entry = self._verbs.create(kind, home if kind.namespaced else "", body, options)
        if obj.get("status"):
            merged = {"status": obj["status"]}
            return self.patch(
                kind.qualified_plural, entry.namespace, entry.name, merged, subresource="status"
            )
        return self._shown(kind, entry)

    def plant(self, obj: Mapping[str, Any]) -> Json:
        """Store an object past every check, as one that an older definition of its kind let in.

        An object of the same name is replaced, its uid stays.
        """
        kind, body = self._read(obj)
        given = body["metadata"]
        namespace = given.get("namespace", "default") if kind.namespaced else ""
        key = key_of(namespace, given["name"])
        collection = self._verbs.collection(kind)
        held = collection.entries.get(key)
        kept: Json = held.load()["metadata"] if held is not None else {}
        body["metadata"] = {
            "namespace": namespace,
            "uid": kept.get("uid") or self._verbs.new_uid(),
            "creationTimestamp": kept.get("creationTimestamp") or "2026-01-02T03:04:05Z",
            **given,
            "generation": kept.get("generation", 0) + 1,
        }
        fields = field_cells(body, kind.selectable)
        return self._shown(kind, self._store.put(collection, key, body, fields))

    def get(self, resource: str, namespace: str, name: str) -> Json:
        """Return an object."""
        kind, home = self._found(resource, namespace)
        return self._shown(kind, self._verbs.entry(kind, home, name))

    def find(self, resource: str, namespace: str, name: str) -> Json | None:
        """Return an object, None when there is none."""
        try:
            return self.get(resource, namespace, name)
        except StatusError:
            return None

    def list(self, resource: str, namespace: str = "") -> list[Json]:
        """Return all objects of a kind, of one namespace if given."""
        kind, home = self._found(resource, namespace)
        return [self._shown(kind, entry) for entry in self._verbs.collection(kind).scan(home)]

    def patch(
        self,
        resource: str,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",
        manager: str = "direct",
    ) -> Json:
        """Apply a JSON merge patch, in the name of ``manager``."""
        kind, home = self._found(resource, namespace)
        options = WriteOptions(manager=manager, subresource=subresource)
        entry = self._verbs.update(kind, home, name, lambda obj: merge_patch(obj, patch), options)
        return self._shown(kind, entry)

    def delete(
        self,
        resource: str,
        namespace: str,
        name: str,
        *,
        grace_s: int | None = None,
        policy: str | None = None,
    ) -> bool:
        """Delete an object; return whether it is gone already."""
        kind, home = self._found(resource, namespace)
        return self._verbs.delete(kind, home, name, Deletion(grace_s, policy))[1]
