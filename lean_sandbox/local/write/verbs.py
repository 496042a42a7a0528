"""What the API does with objects, apart from HTTP: create, update, patch, apply, delete.

All functions are synchronous and finish in one step of the event loop, so a write is atomic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec

from lean_sandbox.local import errors
from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.kinds import Kind
from lean_sandbox.local.request import integer
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.metadata import count_generation, keep_system, tidy_metadata
from lean_sandbox.local.store import Entry
from lean_sandbox.local.write.admission import DEFINITIONS, prepare_update, structure_of
from lean_sandbox.local.write.bodies import WriteOptions, check_address
from lean_sandbox.local.write.changes import repeated
from lean_sandbox.local.write.objects import Creating
from lean_sandbox.local.write.ownership import (
    FieldManager,
    apply_managers,
    apply_onto,
    claimed_by,
    hidden_from,
    track_update,
)

Json = dict[str, Any]

_CONDITIONAL: Final = (
    "leases.coordination.k8s.io",
    "poddisruptionbudgets.policy",
    DEFINITIONS,
)
"""Built-in kinds that may not be replaced without saying which version is meant."""


def check_identity(
    kind: Kind,
    entry: Entry,
    metadata: Json,
    *,
    is_put: bool,
) -> None:
    """Refuse to write one object under the uid or version of another.

    Raises StatusError: 409 or 422, 500 for a version that is no number.
    """
    uid = metadata.get("uid")
    is_another = bool(uid) and uid != entry.uid
    if is_another and is_put:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
        raise errors.conflict(kind.group, kind.plural, entry.name, why + entry.uid)
    try:
        version = integer(metadata.get("resourceVersion") or "0")
    except ValueError as error:
        raise StatusError(500, "", str(error)) from None
    if version:
        if version != entry.version:
            raise errors.conflict(kind.group, kind.plural, entry.name)
    elif kind.is_custom or kind.storage in _CONDITIONAL:
        cause = causes.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise errors.invalid(kind.group, kind.plural, entry.name, [cause])
    if is_another:
        raise errors.invalid(
            kind.group, kind.kind, entry.name, [causes.immutable("metadata.uid", uid)]
        )


class Verbs(Creating):
    """The verbs over one store."""

    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Callable[[Json], Json],
        options: WriteOptions,
    ) -> Entry:
        """Write what ``change`` makes of the stored object; a change of nothing writes nothing.

        Raises StatusError: 404, 409 for a stale resourceVersion, 422 for a broken rule, and
        whatever ``change`` raises.
        """
        entry = self.entry(kind, namespace, name)
        new = change(entry.load())
        self.decode_patched(kind, new, options)
        check_address(namespace, name, new["metadata"])
        return self._update(kind, entry, new, options, is_put=False)

    def rewrite(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Callable[[Json], None],
        *,
        dry_run: bool = False,
    ) -> None:
        """Write what the server itself makes of an object: not checked, not owned, not counted.

        ``change`` works in place. Raises StatusError: 404, and whatever ``change`` raises.
        """
        entry = self.entry(kind, namespace, name)
        new = entry.load()
        change(new)
        self.store_changed(kind, entry, entry.load(), new, dry_run=dry_run)

    def drop_finalizer(self, kind: Kind, entry: Entry, finalizer: str) -> None:
        """Take a finalizer of the server's own from an object. Raises as :meth:`rewrite` does."""

        def change(obj: Json) -> None:
            held = obj["metadata"].get("finalizers") or ()
            obj["metadata"]["finalizers"] = [item for item in held if item != finalizer]

        self.rewrite(kind, entry.namespace, entry.name, change)

    def replace(
        self, kind: Kind, namespace: str, name: str, new: Json, options: WriteOptions
    ) -> Entry:
        """Write a whole object. Raises as :meth:`update` does."""
        self.decode(kind, new, options)
        check_address(namespace, name, new["metadata"])
        return self._update(kind, self.entry(kind, namespace, name), new, options, is_put=True)

    def _update(
        self, kind: Kind, entry: Entry, new: Json, options: WriteOptions, *, is_put: bool
    ) -> Entry:
        old = entry.load()
        metadata = new["metadata"]
        check_identity(kind, entry, metadata, is_put=is_put)
        options.warnings.extend(tidy_metadata(kind, metadata, old["metadata"]))
        keep_system(old["metadata"], metadata)
        if kind.namespaced:
            metadata["namespace"] = entry.namespace
        self._admit_changed(kind, new, old, options)
        metadata = new["metadata"]
        node = structure_of(kind)
        writer = FieldManager.of(kind, options, "Update")
        metadata["managedFields"], changed = track_update(old, new, node, writer, self.now())
        count_generation(kind, old, new)
        return self.store_changed(kind, entry, old, new, dry_run=options.dry_run, changed=changed)

    def decode_patched(self, kind: Kind, new: Json, options: WriteOptions) -> None:
        """Decode what an update makes of an object.

        Raises StatusError: 400, or 422 where a patch has made it so.
        """
        try:
            self.decode(kind, new, options)
        except StatusError as error:
            if not options.is_patch or error.code != 400:
                raise
            # A patch is not to blame by itself: the refusal shows what came of it.
            shown = {"kind": kind.kind, "apiVersion": kind.api_version, **new}
            why = error.message.partition(f"cannot be handled as a {kind.kind}: ")[2]
            raise errors.unreadable_patch(msgspec.json.encode(shown).decode(), why) from None

    def _admit_changed(self, kind: Kind, new: Json, old: Json, options: WriteOptions) -> None:
        """Prepare and check an update; webhooks come first, so a generation counts their edits."""
        if not options.subresource:
            self.admission.mutate(kind, new)
        prepare_update(kind, new, old, options.subresource)
        self.admission.default(kind, new, is_applied=options.is_apply)
        is_status = options.subresource == "status"
        self.admission.validate(kind, new, old, is_status=is_status)

    # ------------------------------------------------------------------ apply

    def apply(
        self, kind: Kind, namespace: str, name: str, obj: Json, options: WriteOptions
    ) -> tuple[Entry, bool]:
        """Apply an object server-side; return it and whether it was created.

        Raises StatusError: 409 for conflicts with other managers, and whatever create and update
        do.
        """
        applied = dict(obj)
        self._refuse_undeclared(kind, namespace, name, applied)
        asked = applied["metadata"] = {"name": name, **(applied.get("metadata") or {})}
        check_address(namespace, name, asked)
        if asked.pop("managedFields", None) is not None:
            raise errors.bad_request("metadata.managedFields must be nil")
        entry = self.find(kind, namespace, name)
        writer = FieldManager.of(kind, options, "Apply")
        node = structure_of(kind)
        hide = hidden_from(kind, options.subresource)
        if entry is None:
            if options.subresource:
                raise errors.not_found(kind.group, kind.plural, name)
            if asked.get("uid"):
                why = f"uid mismatch: the uid is {asked['uid']}, and there is no such object"
                raise errors.conflict(kind.group, kind.plural, name, why)
            asked.pop("resourceVersion", None)
            return self._apply_new(kind, namespace, applied, writer, options), True
        old = entry.load()
        new = apply_onto(
            entry.load(), applied, node, writer, self.now(), force=options.force, hide=hide
        )
        metadata = new["metadata"]
        metadata |= {key: asked[key] for key in ("uid", "resourceVersion") if key in asked}
        check_identity(kind, entry, metadata, is_put=False)
        managed = metadata["managedFields"]
        keep_system(old["metadata"], metadata)
        self.admission.normalize(kind, new)
        self._admit_changed(kind, new, old, options)
        new["metadata"]["managedFields"] = managed
        count_generation(kind, old, new)
        return self.store_changed(kind, entry, old, new, dry_run=options.dry_run), False

    def _refuse_undeclared(self, kind: Kind, namespace: str, name: str, applied: Json) -> None:
        """Refuse to apply unknown fields, and items twice: nobody could own them.

        API servers take that, and values of a wrong type, for a failure of their own.
        """
        unknown: list[str] = []
        try:
            self.admission.decode(kind, applied, "Ignore", [], unknown)
        except StatusError as error:
            shown = error.message
        else:
            lines = [f".{path}: field not declared in schema" for path in unknown]
            lines += repeated(applied, structure_of(kind))
            if not lines:
                return
            shown = lines[0] if len(lines) == 1 else "errors:\n  " + "\n  ".join(lines)
        what = f"{namespace}/{name}; {kind.api_version}, Kind={kind.kind}"
        raise StatusError(500, "", f"failed to create typed patch object ({what}): {shown}")

    def _apply_new(
        self, kind: Kind, namespace: str, obj: Json, writer: FieldManager, options: WriteOptions
    ) -> Entry:
        # Before defaults: the applier owns what it said and no more.
        claimed = claimed_by(obj, structure_of(kind), hide=hidden_from(kind, ""))
        trial = replace(options, dry_run=True, validation="Ignore")
        created = self.create(kind, namespace, obj, trial).load()
        metadata = created["metadata"]
        now = metadata["creationTimestamp"]
        metadata["managedFields"] = apply_managers({}, writer, claimed, {}, now)
        return self.store_new(kind, namespace, created, options)
