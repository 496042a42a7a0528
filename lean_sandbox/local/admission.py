"""The one place where the server's verbs meet schemas: pruning, defaulting, validation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from lean_sandbox.local.errors import Cause, StatusError, bad_request, invalid
from lean_sandbox.local.registry import Kind
from lean_sandbox.local.schema.core import core_validate
from lean_sandbox.local.schema.decoding import (
    DecodeError,
    builtin_schema,
    complete,
    decode,
    decode_metadata,
)
from lean_sandbox.local.schema.definition import definition_defaults, validate_definition
from lean_sandbox.local.schema.errors import warning_header
from lean_sandbox.local.schema.kinddefaults import core_defaults
from lean_sandbox.local.schema.metadata import validate_metadata
from lean_sandbox.local.schema.rules import RuleSet
from lean_sandbox.local.schema.structural import apply_defaults, prune
from lean_sandbox.local.schema.validation import validate
from lean_sandbox.local.structure import Node, with_metadata

Json = dict[str, Any]


@lru_cache(maxsize=64)
def rules_of(kind: Kind) -> RuleSet:
    """Return the rules of a custom kind; control planes of one process share kinds."""
    return RuleSet(kind.schema or {})


def _unreadable(kind: Kind, why: str) -> StatusError:
    what = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
    return bad_request(f"{what}: {why}")


class Admission:
    """Schemas by kind, and what they say about an object."""

    def __init__(self) -> None:
        self._structures: dict[Kind, Node] = {}
        self._schemas: dict[Kind, Json] = {}

        self.guard: Callable[[Kind, Json, Json | None], None] | None = None
        """Is shown a new state of an object and the old one, before anything else is checked."""

    def mutate(self, kind: Kind, obj: Json) -> None:
        """Change an object that is created or updated, as webhooks do; here there are none."""

    def schema(self, kind: Kind) -> Json:
        """Return the schema of a kind."""
        found = self._schemas.get(kind)
        if found is None:
            if kind.is_custom:
                found = kind.schema or {"x-kubernetes-preserve-unknown-fields": True}
            else:
                found = builtin_schema(kind.kind, kind.api_version)
            self._schemas[kind] = found
        return found

    def structure(self, kind: Kind) -> Node:
        """Return how objects of a kind merge."""
        if kind not in self._structures:
            self._structures[kind] = with_metadata(self.schema(kind))
        return self._structures[kind]

    def decode(
        self,
        kind: Kind,
        obj: Json,
        validation: str,
        warnings: list[str],
        dropped: list[str] | None = None,
        *,
        repeated: Sequence[str] = (),
    ) -> None:
        """Drop what the schema does not know; say so, or refuse, as ``validation`` demands.

        The paths go into ``dropped`` where there is one; ``repeated`` are members said twice.

        Raises:
            StatusError: 400 when JSON types of a built-in kind do not fit, or for an unknown field
                under ``Strict``.

        """
        # What is applied stays as it is: its fields are owned, and there are none to drop.
        unknown = self._decoded(kind, obj if dropped is None else copy.deepcopy(obj))
        if dropped is not None:
            dropped.extend(unknown)
        if validation == "Ignore" or not (unknown or repeated):
            return
        texts = [f'duplicate field "{path}"' for path in repeated]
        texts += [f'unknown field "{path}"' for path in unknown]
        if validation == "Strict":
            raise _unreadable(kind, f"strict decoding error: {', '.join(texts)}")
        warnings.extend(map(warning_header, texts))

    def _decoded(self, kind: Kind, obj: Json) -> list[str]:
        """Decode an object in place and return the paths of its unknown fields."""
        try:
            if not kind.is_custom:
                return decode(obj, self.schema(kind), kind.kind)
            unknown = decode_metadata(obj)
        except DecodeError as error:
            raise _unreadable(kind, str(error)) from None
        return sorted([*unknown, *prune(obj, self.schema(kind))])

    def normalize(self, kind: Kind, obj: Json) -> None:
        """Give the fields of a built-in object, which were merged, the form of a stored one."""
        if not kind.is_custom:
            self._decoded(kind, obj)
            complete(obj, self.schema(kind))

    def default(self, kind: Kind, obj: Json) -> None:
        """Write the defaults of a kind into an object, and what is always written."""
        if kind.is_custom:
            apply_defaults(obj, self.schema(kind))
            return
        core_defaults(kind.kind, obj)
        if kind.plural == "customresourcedefinitions":
            definition_defaults(obj)
        complete(obj, self.schema(kind))

    def validate(self, kind: Kind, obj: Json, old: Json | None, *, is_status: bool = False) -> None:
        """Refuse an object that breaks the rules of its kind.

        ``is_status`` is for writes to `/status`, which change nothing else.

        Raises:
            StatusError: 422 with one cause for each broken rule.

        """
        if self.guard is not None:
            self.guard(kind, obj, old)
        errors: Iterable[Cause]
        if kind.is_custom:
            # Only the validation rules look at this object, so kind and apiVersion may stay out.
            found = validate_metadata(obj, old, namespaced=kind.namespaced)
            schema, rules = self.schema(kind), rules_of(kind)
            errors = [
                *found,
                *validate(obj, schema, old=old, before=found, rules=rules, is_status=is_status),
            ]
        else:
            errors = core_validate(kind, obj, old, is_status=is_status)
            is_definition = kind.plural == "customresourcedefinitions"
            if is_definition and not errors and not is_status:
                errors = validate_definition(obj, old)
        listed = list(errors)
        if listed:
            name = obj["metadata"].get("name", "")
            raise invalid(kind.group, kind.kind, name, listed)
