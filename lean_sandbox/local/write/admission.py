"""Where the server's verbs meet schemas, and what the server itself decides about an object."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from lean_sandbox.local.errors import StatusError, bad_request, invalid
from lean_sandbox.local.kinds import Kind
from lean_sandbox.local.schema.assigned import first_status, keep_allocated
from lean_sandbox.local.schema.causes import warning_header
from lean_sandbox.local.schema.core import core_validate
from lean_sandbox.local.schema.decoding import (
    DecodeError,
    builtin_schema,
    complete,
    decode,
    decode_embedded,
    decode_metadata,
)
from lean_sandbox.local.schema.defaults import core_defaults
from lean_sandbox.local.schema.metadata import put_back, validate_metadata
from lean_sandbox.local.schema.rules import RuleSet
from lean_sandbox.local.schema.structural import OPEN, Node, apply_defaults, prune, with_metadata
from lean_sandbox.local.schema.validation import validate
from lean_sandbox.local.store import at

Json = dict[str, Any]

DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
"""Where CustomResourceDefinitions are stored."""


def schema_of(kind: Kind) -> Json:
    """Return the schema of a kind, which nobody changes."""
    if kind.is_custom:
        return kind.schema or {OPEN: True}
    return builtin_schema(kind.kind, kind.api_version)


# Control planes of one process share kinds.
@lru_cache(maxsize=64)
def _rules_of(kind: Kind) -> RuleSet:
    return RuleSet(kind.schema or {})


@lru_cache(maxsize=128)
def structure_of(kind: Kind) -> Node:
    """Return how objects of a kind merge."""
    return with_metadata(schema_of(kind))


def _unreadable(kind: Kind, why: str) -> StatusError:
    what = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
    return bad_request(f"{what}: {why}")


class Admission:
    """What the schemas of kinds say about an object."""

    def __init__(self) -> None:
        self.guards: list[Callable[[Kind, Json, Json | None], None]] = []
        """Are shown a new state of an object and the old one, before anything else is checked."""

    def mutate(self, kind: Kind, obj: Json) -> None:
        """Change an object that is created or updated, as webhooks do; here there are none."""

    def decode(
        self,
        kind: Kind,
        obj: Json,
        validation: str,
        warnings: list[str],
        dropped: list[str] | None = None,
    ) -> None:
        """Drop what the schema does not know; say so, or refuse, as ``validation`` demands.

        The paths go into ``dropped`` where there is one. Raises StatusError: 400 when JSON types of
        a built-in kind do not fit, or for an unknown field under ``Strict``.
        """
        # What is applied stays as it is: its fields are owned, and there are none to drop.
        unknown = self._decoded(kind, obj if dropped is None else copy.deepcopy(obj))
        if dropped is not None:
            dropped.extend(unknown)
        if validation == "Ignore" or not unknown:
            return
        texts = [f'unknown field "{path}"' for path in unknown]
        if validation == "Strict":
            raise _unreadable(kind, f"strict decoding error: {', '.join(texts)}")
        warnings.extend(map(warning_header, texts))

    def _decoded(self, kind: Kind, obj: Json) -> list[str]:
        """Decode an object in place and return the paths of its unknown fields."""
        try:
            if not kind.is_custom:
                return decode(obj, schema_of(kind), kind.kind)
            unknown = decode_metadata(obj)
            decode_embedded(obj, schema_of(kind))
        except DecodeError as error:
            raise _unreadable(kind, str(error)) from None
        return sorted([*unknown, *prune(obj, schema_of(kind))])

    def normalize(self, kind: Kind, obj: Json) -> None:
        """Give the fields of an object, which were merged, the form of a stored one."""
        self._decoded(kind, obj)
        if not kind.is_custom:
            complete(obj, schema_of(kind))

    def default(self, kind: Kind, obj: Json, *, is_applied: bool = False) -> None:
        """Write the defaults of a kind into an object, and what is always written.

        A null that was applied is a value, and refused later if it may not be there.
        """
        if kind.is_custom:
            apply_defaults(obj, schema_of(kind), drops_nulls=not is_applied)
        else:
            core_defaults(kind.kind, obj)
            complete(obj, schema_of(kind))

    def validate(self, kind: Kind, obj: Json, old: Json | None, *, is_status: bool = False) -> None:
        """Refuse an object that breaks the rules of its kind.

        ``is_status`` is for writes to `/status`, which change nothing else. Raises StatusError: 422
        with one cause for each broken rule.
        """
        for guard in self.guards:
            guard(kind, obj, old)
        if kind.is_custom:
            found = validate_metadata(obj, old, namespaced=kind.namespaced)
            schema = schema_of(kind)
            rules = _rules_of(kind)
            found += validate(obj, schema, old=old, before=found, rules=rules, is_status=is_status)
        else:
            found = core_validate(kind, obj, old, is_status=is_status)
        if found:
            raise invalid(kind.group, kind.kind, obj["metadata"].get("name", ""), found)


# ------------------------------------------------------------------ what the server decides

_FIRST_STATUS: Final[dict[str, Json]] = {
    "namespaces": {"phase": "Active"},
    "persistentvolumeclaims": {"phase": "Pending"},
    "services": {"loadBalancer": {}},
}


_CONTENT: Final = "kubernetes"
"""The finalizer that keeps a namespace until there is nothing in it."""
_ACCEPTED: Final = tuple(
    {"type": type_, "status": "True", "reason": reason, "message": why}
    for type_, reason, why in (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    )
)
"""The conditions of every definition: one whose names are taken is refused."""


def prepare_create(kind: Kind, obj: Json) -> None:
    """Set what the server decides about a new object, before defaults."""
    # A kubelet registers its node, with its status, by one POST.
    if kind.has_status and kind.storage != "nodes":
        obj.pop("status", None)
    if kind.storage in _FIRST_STATUS:
        obj["status"] = copy.deepcopy(_FIRST_STATUS[kind.storage])
    if kind.storage == "pods":
        obj["status"] = first_status(obj.get("spec") or {})
    elif kind.storage == "namespaces":
        given = (obj.get("spec") or {}).get("finalizers") or ()
        obj["spec"] = {"finalizers": [*given, *([] if _CONTENT in given else [_CONTENT])]}
    elif kind.storage == "secrets":
        _encode_strings(obj)
    elif kind.storage == DEFINITIONS:
        now = obj["metadata"]["creationTimestamp"]
        obj["status"] = {"conditions": [{**one, "lastTransitionTime": now} for one in _ACCEPTED]}


def _encode_strings(obj: Json) -> None:
    strings = obj.pop("stringData", None)
    if strings:
        data = obj.setdefault("data", {})
        for key, value in strings.items():
            data[key] = base64.b64encode(value.encode()).decode()


_ADMITTED: Final[dict[str, tuple[str, ...]]] = {
    "pods": ("serviceAccount", "serviceAccountName", "priority", "preemptionPolicy"),
    "namespaces": ("finalizers",),
    "services": ("clusterIPs", "ipFamilies", "ipFamilyPolicy"),
}
"""Fields of spec that admission fills in after ownership has been recorded."""


def unowned(kind: Kind, obj: Json, sent: set[str]) -> Json:
    """Return what a new object is compared with: the part its creator does not come to own.

    ``sent`` are the members of spec the creator named.
    """
    made: Json = {"metadata": {}}
    if kind.is_custom:
        return made
    # What is written of an empty object belongs to nobody.
    complete(made, builtin_schema(kind.kind, kind.api_version))
    _empty_lists(made, obj)
    if kind.has_status and "status" in obj:
        made["status"] = obj["status"]
    if not kind.group:
        given = obj.get("spec") or {}
        admitted = (key for key in _ADMITTED.get(kind.plural, ()) if key not in sent)
        made.get("spec", {}).update({key: given[key] for key in admitted if key in given})
    return made


def _empty_lists(made: Json, obj: Json) -> None:
    """Write the lists of an empty object as lists, so that items are owned and not the list."""
    for key, value in made.items():
        if value is None and isinstance(obj.get(key), list):
            made[key] = []
        elif isinstance(value, dict) and isinstance(obj.get(key), dict):
            _empty_lists(value, obj[key])


def prepare_update(kind: Kind, new: Json, old: Json, subresource: str) -> None:
    """Put back what a write to this path cannot change."""
    if subresource == "status":
        # Labels and annotations may ride along on a status write of a built-in kind.
        metadata = dict(old["metadata"] if kind.is_custom else new["metadata"])
        if kind.storage == "pods":
            # Kubelets do not decide these, whatever they write.
            put_back(old["metadata"], metadata, ("deletionTimestamp", "ownerReferences"))
            if quality := at(old, "status.qosClass"):
                new.setdefault("status", {}).setdefault("qosClass", quality)
        status = {"status": new["status"]} if "status" in new else {}
        rest = {key: value for key, value in old.items() if key != "status"}
        new.clear()
        new.update({**rest, "metadata": metadata, **status})
        return
    if kind.has_status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    if kind.storage == "namespaces" and subresource != "finalize":
        new["spec"] = old.get("spec") or {}
    elif kind.storage == "services":
        keep_allocated(new.setdefault("spec", {}), old.get("spec") or {})
    elif kind.storage == "secrets":
        _encode_strings(new)
