"""The query of a write: who writes, whether it is for show, how strictly fields are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from lean_sandbox.local import bodies
from lean_sandbox.local.answers import Ask
from lean_sandbox.local.errors import Cause, invalid
from lean_sandbox.local.verbs import WriteOptions

_KINDS: Final = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_MANAGER_LIMIT_BYTES: Final = 128
_VALIDATIONS: Final = ("Ignore", "Strict", "Warn")
_YES: Final = ("true", "1")


def read_options(ask: Ask, *, subresource: str | None = None) -> WriteOptions:
    """Return how a request writes: manager, dry run, validation.

    Raises:
        StatusError: 422 with a cause for each value that means nothing.

    """
    verb, query = ask.target.verb, ask.target.query
    is_apply = bodies.media_type(ask.content_type) == bodies.APPLY
    found = list(_mistakes(query, is_apply=is_apply, is_patch=verb == "patch"))
    if found:
        raise invalid("meta.k8s.io", _KINDS.get(verb, "PatchOptions"), "", found)
    agent = ask.user_agent.partition("/")[0].partition(" ")[0]
    options = WriteOptions(
        manager=query.get("fieldManager") or agent or "unknown",
        dry_run=query.get("dryRun") == "All",
        validation=query.get("fieldValidation") or "Warn",
        subresource=ask.target.subresource if subresource is None else subresource,
        force=query.get("force") in _YES,
        is_patch=verb == "patch",
    )
    if options.validation != "Ignore":
        options.repeated = bodies.repeated_fields(ask.body)
    return options


def _mistakes(query: Mapping[str, str], *, is_apply: bool, is_patch: bool) -> Iterator[Cause]:
    manager = query.get("fieldManager", "")
    if is_apply and not manager:
        text = "Required value: is required for apply patch"
        yield Cause("FieldValueRequired", text, "fieldManager")
    if len(manager.encode()) > _MANAGER_LIMIT_BYTES:
        text = f"Too long: may not be more than {_MANAGER_LIMIT_BYTES} bytes"
        yield Cause("FieldValueTooLong", text, "fieldManager")
    odd = next((at for at, letter in enumerate(manager) if not letter.isprintable()), None)
    if odd is not None:
        shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in manager)
        why = f"invalid character U+{ord(manager[odd]):04X} (at position {odd})"
        yield Cause("FieldValueInvalid", f'Invalid value: "{shown}": {why}', "fieldManager")
    if is_patch and query.get("force") in _YES and not is_apply:
        text = "Forbidden: may not be specified for non-apply patch"
        yield Cause("FieldValueForbidden", text, "force")
    dry = query.get("dryRun", "")
    if dry not in ("", "All"):
        text = f'Unsupported value: ["{dry}"]: supported values: "All"'
        yield Cause("FieldValueNotSupported", text, "dryRun")
    validation = query.get("fieldValidation", "")
    if validation and validation not in _VALIDATIONS:
        listed = ", ".join(f'"{value}"' for value in _VALIDATIONS)
        text = f'Unsupported value: "{validation}": supported values: {listed}'
        yield Cause("FieldValueNotSupported", text, "fieldValidation")
