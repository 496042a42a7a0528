"""Lists of conditions (metav1.Condition), and the patch of a status that holds one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import msgspec

from lean_sandbox.model import names
from lean_sandbox.model.times import format_rfc3339
from lean_sandbox.model.wire import Value, interned, small_values

# A limit of the schema of metav1.Condition; a status that breaks it would be rejected as a whole.
MAX_MESSAGE_CHARACTERS: Final = 32768


class Condition(Value, frozen=True):
    """One entry of ``status.conditions``."""

    type: str
    status: str
    # The schema requires these: a default made by a factory is never left out when encoded.
    reason: str = msgspec.field(default_factory=str)
    message: str = msgspec.field(default_factory=str)
    lastTransitionTime: str = msgspec.field(default_factory=str)
    observedGeneration: int | None = None


def new_condition(kind: str, status: str, reason: str, message: str, generation: int) -> Condition:
    """Return a condition without a transition time, which :func:`upsert` sets."""
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message[:MAX_MESSAGE_CHARACTERS],
        observedGeneration=generation,
    )


def find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """Return the first condition of the type ``kind``."""
    for one in conditions:
        if one.type == kind:
            return one
    return None


def is_true(conditions: Iterable[Condition], kind: str) -> bool:
    """Return whether the first condition of the type ``kind`` is there and True."""
    found = find(conditions, kind)
    return found is not None and found.status == names.TRUE


def has_reason(conditions: Iterable[Condition], kind: str, reason: str) -> bool:
    """Return whether the first condition of the type ``kind`` is there for this reason."""
    found = find(conditions, kind)
    return found is not None and found.reason == reason


def upsert(
    conditions: tuple[Condition, ...], new: Condition, now: datetime
) -> tuple[Condition, ...]:
    """Return ``conditions`` with ``new`` in the place of its type, or appended.

    The transition time moves only when the status changes or the type is new: to the time that
    ``new`` brings along, else to ``now``.
    """
    old = find(conditions, new.type)
    if old is not None and old.status == new.status:
        moment = old.lastTransitionTime
    else:
        moment = new.lastTransitionTime or format_rfc3339(now)
    stamped = msgspec.structs.replace(new, lastTransitionTime=moment)
    if old is None:
        return (*conditions, stamped)
    return tuple(stamped if held is old else held for held in conditions)


def remove(conditions: tuple[Condition, ...], kind: str) -> tuple[Condition, ...]:
    """Return ``conditions`` without the type ``kind``."""
    return tuple(one for one in conditions if one.type != kind)


def shared_conditions(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Return shared copies of conditions: a burst has few distinct ones; 135 bytes a Sandbox."""
    return tuple([_shared(held) for held in conditions])


@small_values(256)
def _shared(held: Condition) -> Condition:
    return msgspec.structs.replace(
        held,
        type=interned(held.type),
        status=interned(held.status),
        reason=interned(held.reason),
        message=interned(held.message),
    )


def whole_status(status: msgspec.Struct) -> dict[str, Any]:
    """Return the merge patch that replaces a whole status: all fields, null for empty ones.

    A patch of only the differences from the known status would keep stored values that we do not
    know: those of somebody else, or of a write of ours whose response was lost.
    """
    return {field: value or None for field, value in msgspec.structs.asdict(status).items()}
