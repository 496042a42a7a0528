"""The objects of a store: where they are, how they come into being, and how they go."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from lean_sandbox.clock import Clock
from lean_sandbox.local import errors
from lean_sandbox.local.errors import ErrorCause, StatusError
from lean_sandbox.local.kinds import Kind, Registry
from lean_sandbox.local.request import integer
from lean_sandbox.local.schema.assigned import (
    SYSTEM_PRIORITIES,
    add_token,
    add_tolerations,
    assign_address,
    assign_ports,
    resolve_priority,
    resolve_runtime,
)
from lean_sandbox.local.schema.causes import warning_header
from lean_sandbox.local.schema.metadata import is_unchanged, ordered_metadata, tidy_metadata
from lean_sandbox.local.store import Collection, Entry, Store, at, field_cells, key_of
from lean_sandbox.local.write.admission import (
    DEFINITIONS,
    Admission,
    prepare_create,
    structure_of,
    unowned,
)
from lean_sandbox.local.write.bodies import Deletion, WriteOptions, check_namespace
from lean_sandbox.local.write.ownership import FieldManager, track_update

Json = dict[str, Any]

_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: no vowels, nothing to be mistaken."""
CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer that keeps a definition until its objects are gone."""
_IMMORTAL: Final = {
    "namespaces": (
        ("default", "kube-public", "kube-system"),
        "this namespace may not be deleted",
    ),
    "priorityclasses.scheduling.k8s.io": (
        tuple(SYSTEM_PRIORITIES),
        "this is a system priority class and cannot be deleted",
    ),
}
"""The names of what nobody may delete, by collection, and what is told to whoever tries."""
_TERMINATING: Final = {
    "type": "Terminating",
    "status": "True",
    "reason": "InstanceDeletionInProgress",
    "message": "CustomResource deletion is in progress",
}
_MOST_OBJECT_BYTES: Final = 1536 * 1024
"""The largest stored object, as etcd would take it."""
_COLLECTORS: Final = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}


def check_size(entry: Entry) -> None:
    """Refuse an object that is too large to be stored, as etcd does."""
    if len(entry.tail) > _MOST_OBJECT_BYTES:
        raise StatusError(500, "", "etcdserver: request is too large")


def check_preconditions(kind: Kind, entry: Entry, how: Deletion) -> None:
    """Refuse with 409 a deletion meant for another incarnation or version."""
    for name, wanted, held, why in (
        ("UID", how.uid, entry.uid, "deleted and then recreated"),
        ("ResourceVersion", how.version, str(entry.version), "modified"),
    ):
        if wanted is not None and wanted != held:
            raise errors.conflict(
                kind.group,
                kind.kind,
                entry.name,
                f"the {name} in the precondition ({wanted}) does not match the {name} in record"
                f" ({held}). The object might have been {why}",
            )


def _goes_at_once(kind: Kind, metadata: Json) -> bool:
    """Say whether nothing holds an object back: no finalizer, no process, no content."""
    if metadata.get("finalizers") or metadata.get("deletionTimestamp"):
        return False
    return kind.storage not in ("pods", "namespaces", DEFINITIONS)


def _set_collector(metadata: Json, how: Deletion) -> None:
    """Put the garbage collector's finalizer for the propagation policy, drop the other.

    Without a policy those that the object has stay.
    """
    if how.policy is None:
        return
    held = metadata.get("finalizers") or ()
    kept = [item for item in held if item not in _COLLECTORS.values()]
    if how.policy in _COLLECTORS:
        kept.append(_COLLECTORS[how.policy])
    if kept:
        metadata["finalizers"] = kept
    else:
        metadata.pop("finalizers", None)


def _grace_of(kind: Kind, obj: Json, how: Deletion) -> int | None:
    """Return the seconds a Pod gets to end; 0 for what has no process; None for no opinion."""
    if kind.storage != "pods":
        return 0
    if obj["metadata"].get("deletionTimestamp"):
        return how.grace_s
    if not at(obj, "spec.nodeName") or at(obj, "status.phase") in ("Succeeded", "Failed"):
        return 0
    grace = how.grace_s
    if grace is None:
        grace = at(obj, "spec.terminationGracePeriodSeconds", 30)
    return 1 if grace < 0 else grace


def is_finished(kind: Kind, obj: Json) -> bool:
    """Say whether a deletion that waited for finalizers is complete."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if kind.storage == "namespaces":
        return not (obj.get("spec") or {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


class Objects:
    """Finds objects, by their kinds, and deletes them."""

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

    def find(self, kind: Kind, namespace: str, name: str) -> Entry | None:
        """Return a stored object, None where there is none."""
        return self.collection(kind).entries.get(key_of(namespace, name))

    def entry(self, kind: Kind, namespace: str, name: str) -> Entry:
        """Return a stored object. Raises StatusError: 404."""
        found = self.find(kind, namespace, name)
        if found is None:
            raise errors.not_found(kind.group, kind.plural, name)
        return found

    def suffix(self) -> str:
        """Return the random end of a generated name."""
        return "".join(self._rng.choice(_SUFFIX) for _ in range(5))

    def delete(self, kind: Kind, namespace: str, name: str, how: Deletion) -> tuple[Entry, bool]:
        """Delete an object, or start its deletion; return its state and whether it is gone.

        Raises StatusError: 404, or 409 when a precondition does not hold.
        """
        entry = self.entry(kind, namespace, name)
        collection = self.collection(kind)
        check_preconditions(kind, entry, how)
        immortal, why = _IMMORTAL.get(kind.storage, ((), ""))
        if name in immortal:
            raise errors.forbidden(kind.group, kind.plural, name, why)
        obj = entry.load()
        metadata = obj["metadata"]
        before = entry.load()
        _set_collector(metadata, how)
        grace = _grace_of(kind, obj, how)
        deleting = metadata.get("deletionTimestamp")
        if _goes_at_once(kind, metadata):
            last = Entry(entry.key, obj, entry.version, entry.fields)
            return (last if how.dry_run else self.store.remove(collection, entry.key)), True
        if kind.storage == "namespaces":
            if not deleting:
                metadata["deletionTimestamp"] = self.now()
                obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        elif not deleting or (
            grace is not None and grace < metadata.get("deletionGracePeriodSeconds", 0)
        ):
            if kind.storage == DEFINITIONS and not deleting:
                # The definition stays until the objects of its kind are gone.
                metadata.setdefault("finalizers", []).append(CLEANUP)
                ending = {**_TERMINATING, "lastTransitionTime": self.now()}
                status = obj.setdefault("status", {})
                status["conditions"] = [*(status.get("conditions") or ()), ending]
            if metadata.get("generation") and not deleting:
                metadata["generation"] += 1
            moment = self.clock.now() + timedelta(seconds=grace or 0)
            metadata["deletionTimestamp"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
            if kind.storage != DEFINITIONS:
                metadata["deletionGracePeriodSeconds"] = grace or 0
        if is_finished(kind, obj) and not how.dry_run:
            obj["metadata"] = ordered_metadata(metadata)
            return self.store.remove(collection, entry.key, obj), True
        left = self.store_changed(kind, entry, before, obj, dry_run=how.dry_run)
        return left, is_finished(kind, obj)

    def _assign(self, kind: Kind, key: str, obj: Json, *, dry_run: bool) -> None:
        """Give a Service what it asks for, or what is free. Raises StatusError (422)."""
        entries = self.collection(kind).entries
        others = [entry for own, entry in entries.items() if own != key]
        assign_address(obj, {entry.fields.get("spec.clusterIP") for entry in others})
        assign_ports(obj, (entry.load() for entry in others), is_stored=not dry_run)

    def store_changed(
        self,
        kind: Kind,
        entry: Entry,
        old: Json,
        new: Json,
        *,
        dry_run: bool,
        changed: bool = False,
    ) -> Entry:
        """Store a new state of an object, or take it away if that ends its deletion."""
        new["metadata"] = ordered_metadata(new["metadata"])
        new.pop("kind", None)
        new.pop("apiVersion", None)
        if kind.storage == "services":
            self._assign(kind, entry.key, new, dry_run=dry_run)
        if not changed and is_unchanged(old, new):
            return entry
        fields = field_cells(new, kind.selectable)
        collection = self.collection(kind)
        if is_finished(kind, new):
            last = Entry(entry.key, new, entry.version, fields)
            if not dry_run:
                # Two encodings: the answer keeps the old version, the event has the new one.
                self.store.remove(collection, entry.key, last.load())
            return last
        trial = Entry(entry.key, new, entry.version, fields)
        check_size(trial)
        if dry_run:
            return trial
        return self.store.put(collection, entry.key, new, fields)


# ------------------------------------------------------------------ creating


_STORED_ONLY: Final = ("apps", "autoscaling")
"""The groups of kinds that nothing acts on."""
PROTECTED: Final = "kubernetes.io/pvc-protection"
"""The finalizer of claims for volumes."""


class Creating(Objects):
    """Creates objects, and stores what becomes of them."""

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        home = self.store.collection("namespaces").entries.get(namespace)
        if home is None:
            raise errors.not_found("", "namespaces", namespace)
        if home.fields.get("status.phase") == "Terminating":
            why = f"namespace {namespace} is being terminated"
            raise errors.forbidden(
                kind.group,
                kind.plural,
                name,
                f"unable to create new content in namespace {namespace} because it is being"
                " terminated",
                [ErrorCause("NamespaceTerminating", why, "metadata.namespace")],
            )

    def create(self, kind: Kind, namespace: str, obj: Json, options: WriteOptions) -> Entry:
        """Store a new object and return it. Raises StatusError: whatever is wrong with it."""
        self.decode(kind, obj, options)
        metadata = obj["metadata"]
        name = metadata.get("name") or ""
        if kind.storage in self.registry.ending:
            why = "create not allowed while custom resource definition is terminating"
            raise errors.forbidden(kind.group, kind.plural, name, why)
        check_namespace(namespace, metadata)
        self._check_namespace(kind, namespace, name)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"][:58] + self.suffix()
        if kind.namespaced:
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"):
            metadata.pop(key, None)
        metadata["uid"] = self.new_uid()
        metadata["creationTimestamp"] = self.now()
        if kind.has_generation:
            metadata["generation"] = 1
        options.warnings.extend(tidy_metadata(kind, metadata, {}))
        if kind.group in _STORED_ONLY:
            why = f"nothing on this server acts on kind {kind.kind}: it is stored, and no more"
            options.warnings.append(warning_header(why))
        self.admission.mutate(kind, obj)
        given = obj.get("spec")
        sent = set(given) if isinstance(given, dict) else set()
        prepare_create(kind, obj)
        self.admission.default(kind, obj, is_applied=options.is_apply)
        self.admission.validate(kind, obj, None)
        metadata["managedFields"], _ = track_update(
            unowned(kind, obj, sent),
            obj,
            structure_of(kind),
            FieldManager.of(kind, options, "Update"),
            metadata["creationTimestamp"],
            is_new=True,
        )
        if kind.storage == "pods":
            self._admit_pod(namespace, obj)
        elif kind.storage == "persistentvolumeclaims":
            metadata["finalizers"] = [*(metadata.get("finalizers") or ()), PROTECTED]
        return self.store_new(kind, namespace, obj, options)

    def _admit_pod(self, namespace: str, obj: Json) -> None:
        """Add what the creator does not come to own. Refuses an account that is not there."""
        accounts = self.store.collection("serviceaccounts").entries
        wanted = obj["spec"]["serviceAccountName"]
        account = accounts.get(key_of(namespace, wanted))
        if account is None:
            why = f'looking up service account {namespace}/{wanted}: serviceaccount "{wanted}"'
            raise errors.forbidden("", "pods", obj["metadata"]["name"], f"error {why} not found")
        resolve_priority(obj, self._all("priorityclasses.scheduling.k8s.io"))
        resolve_runtime(obj, self._all("runtimeclasses.node.k8s.io"))
        add_token(obj, account.load(), self.suffix())
        add_tolerations(obj)

    def _all(self, storage: str) -> dict[str, Json]:
        entries = self.store.collection(storage).entries
        return {key: entry.load() for key, entry in entries.items()}

    def store_new(self, kind: Kind, namespace: str, obj: Json, options: WriteOptions) -> Entry:
        """Store an object that has passed all checks but that of its name. Raises StatusError."""
        obj["metadata"] = ordered_metadata(obj["metadata"])
        name = obj["metadata"]["name"]
        with suppress(ValueError):  # one that is no number is none
            if not options.dry_run and integer(obj["metadata"].get("resourceVersion", "0")):
                why = "resourceVersion should not be set on objects to be created"
                raise StatusError(500, "", why)
        collection = self.collection(kind)
        key = key_of(namespace, name)
        held = collection.entries.get(key)
        if held is not None:
            raise errors.already_exists(kind.group, kind.plural, name, is_deleting=held.deleting)
        if kind.storage == "services":
            self._assign(kind, key, obj, dry_run=options.dry_run)
        fields = field_cells(obj, kind.selectable)
        trial = Entry(key, obj, 0, fields)
        check_size(trial)
        return trial if options.dry_run else self.store.put(collection, key, obj, fields)

    def decode(self, kind: Kind, obj: Json, options: WriteOptions) -> None:
        """Give the members of an object the types that its kind has, and it metadata.

        Raises StatusError: 400.
        """
        metadata = obj.get("metadata")
        record = metadata.get("managedFields") if isinstance(metadata, dict) else None
        if record == [] and not kind.is_custom:
            obj["metadata"]["managedFields"] = [{}]  # decoding leaves it: both end the record
        self.admission.decode(kind, obj, options.validation, options.warnings)
        if obj.get("metadata") is None:
            obj["metadata"] = {}
