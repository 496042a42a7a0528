"""What every decoded Struct of this package shares: tolerance for ``null``.

Kubernetes sends ``containers: null`` or ``annotations: null`` where nothing is set. A field
declared ``OrNull[T]`` accepts that on the wire, yet reads as plain ``T``: the Struct that owns it
replaces ``None`` in ``__post_init__`` with :func:`fill`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

import msgspec

__all__ = ["NOTHING", "ODD", "OrNull", "Value", "fill"]

T = TypeVar("T")

if TYPE_CHECKING:
    OrNull = Annotated[T, "null on the wire"]
else:
    OrNull = Optional


class Value(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A decoded value: frozen, unknown fields skipped, defaults left out when encoded."""


# The default of a Raw field; omitted when encoded because defaults are compared by identity.
NOTHING = msgspec.Raw(b"{}")


#: What reading a stored object may raise when it breaks its schema: wrong types, numbers out of
#: range, bytes that are no text, nesting that is too deep.
ODD = (msgspec.DecodeError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError)


def fill(value: msgspec.Struct, field: str, default: Any) -> None:
    """Set ``field`` of a just decoded, not yet shared ``value`` to ``default`` if it was null."""
    if getattr(value, field) is None:
        msgspec.structs.force_setattr(value, field, default)
