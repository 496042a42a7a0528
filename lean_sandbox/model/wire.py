"""Shared by the decoded Structs of this package: tolerance for ``null``, and values kept once.

Kubernetes sends ``containers: null`` or ``annotations: null`` where nothing is set. A field of a
:class:`Lenient` Struct that is declared ``OrNull[T]`` accepts that on the wire, yet reads as ``T``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from functools import cache, lru_cache, wraps
from typing import TYPE_CHECKING, Annotated, Final, Optional, TypeVar, get_args

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
def _defaults(type_: type[Lenient]) -> tuple[tuple[str, object], ...]:
    return tuple(
        (field.name, field.default)
        for field in msgspec.structs.fields(type_)
        if field.default is not None and type(None) in get_args(field.type)
    )


# The default of a Raw field; omitted when encoded because defaults are compared by identity.
NOTHING = msgspec.Raw(b"{}")


#: What reading a stored object may raise when it breaks its schema: wrong types, numbers out of
#: range, bytes that are not text, nesting that is too deep.
ODD = (msgspec.DecodeError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError)


# --- equal values that many objects hold, kept once -----------------------------------------------
# A shared value outlives the object that it came from, so only small ones are shared: a tenant who
# writes large ones, each different from the last, takes no memory for objects that are gone.

#: Bytes of a value that is shared; with the number of entries the bound of each cache.
MOST_BYTES: Final = 4096
# What an element of a container takes besides its own bytes.
_ELEMENT_BYTES: Final = 16
_LONGEST_TEXT: Final = 256

A = TypeVar("A", bound=Hashable)


def is_small(value: Hashable) -> bool:
    """Return whether a value, with all that it holds, takes about ``MOST_BYTES`` at most.

    The cost is bounded by the limit, not by the value.
    """
    left = MOST_BYTES
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            left -= len(part) * _ELEMENT_BYTES
            if left >= 0:
                waiting += part
        elif isinstance(part, msgspec.Struct):
            waiting += (getattr(part, name) for name in part.__struct_fields__)
        else:
            left -= sys.getsizeof(part)
        if left < 0:
            return False
    return True


class _TooLargeError(Exception):
    """A value that is not to be remembered."""


def small_values(entries: int) -> Callable[[Callable[[A], T]], Callable[[A], T]]:
    """Remember a function's results for ``entries`` small arguments; results are of similar size.

    Arguments are weighed when they are new; an error is not remembered.
    """

    def decorate(make: Callable[[A], T]) -> Callable[[A], T]:
        @lru_cache(maxsize=entries)
        def remembered(value: A) -> T:
            if not is_small(value):
                raise _TooLargeError
            return make(value)

        @wraps(make)
        def one(value: A) -> T:
            try:
                return remembered(value)
            except _TooLargeError:
                return make(value)

        return one

    return decorate


def interned(text: str) -> str:
    """Return the one copy of a short text that repeats; a long one is returned as it is."""
    return sys.intern(text) if len(text) <= _LONGEST_TEXT else text


@small_values(512)
def shared(value: T) -> T:
    """Return an equal value that other objects may hold as well."""
    return value


def shared_map(values: dict[str, str] | None) -> dict[str, str] | None:
    """Return an equal mapping that others may hold as well, never to be changed; None if empty."""
    return _map(tuple(values.items())) if values else None


@small_values(512)
def _map(items: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {interned(key): interned(value) for key, value in items}
