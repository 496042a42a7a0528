"""What every decoded Struct of this package shares: tolerance for ``null``.

Kubernetes sends ``containers: null`` or ``annotations: null`` where nothing is set. A field of a
:class:`Lenient` Struct that is declared ``OrNull[T]`` accepts that on the wire, yet reads as ``T``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar, get_args

import msgspec

T = TypeVar("T")

if TYPE_CHECKING:
    OrNull = Annotated[T, "null on the wire"]
else:
    OrNull = Optional


class Value(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A decoded value: frozen, unknown fields skipped, defaults left out when encoded."""


class Lenient(Value, frozen=True):
    """A value in which a null on the wire reads as the default of its field."""

    def __post_init__(self) -> None:
        for field, default in _defaults(type(self)):
            if getattr(self, field) is None:
                msgspec.structs.force_setattr(self, field, default)


@cache
def _defaults(type_: type[Lenient]) -> tuple[tuple[str, Any], ...]:
    """Return the fields that may be null with what they then read as."""
    return tuple(
        (field.name, field.default)
        for field in msgspec.structs.fields(type_)
        if field.default is not None and type(None) in get_args(field.type)
    )


# The default of a Raw field; omitted when encoded because defaults are compared by identity.
NOTHING = msgspec.Raw(b"{}")


#: What reading a stored object may raise when it breaks its schema: wrong types, numbers out of
#: range, bytes that are no text, nesting that is too deep.
ODD = (msgspec.DecodeError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
