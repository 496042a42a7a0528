"""Equal values that many objects hold, kept once.

Thousands of objects differ in little more than uid, name and address: maps, ports and conditions
repeat. What is shared outlives the object that it came from, so only small values are: whoever
writes large ones, each different from the last, gets no memory for objects that are gone. A value
that is not shared costs its own memory and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, ParamSpec, TypeVar, cast

import msgspec

#: Bytes of a value that is shared; with the number of entries the bound of each cache.
MOST_BYTES: Final = 4096
_MAPS: Final = 512
# What an element of a container takes besides its own bytes.
_ELEMENT_BYTES: Final = 16
_LONGEST_TEXT: Final = 256

P = ParamSpec("P")
T = TypeVar("T")


def is_small(value: object, most_bytes: int = MOST_BYTES) -> bool:
    """Return whether a value with all that it holds takes about ``most_bytes`` at most.

    Looks into tuples, dicts and Structs; the cost is bounded by ``most_bytes``, not by the value.
    """
    left = most_bytes
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            left -= len(part) * _ELEMENT_BYTES
            if left >= 0:
                waiting += part
        elif isinstance(part, dict):
            left -= 2 * len(part) * _ELEMENT_BYTES
            if left >= 0:
                waiting += part
                waiting += part.values()
        elif isinstance(part, msgspec.Struct):
            waiting += (getattr(part, name) for name in part.__struct_fields__)
        else:
            left -= sys.getsizeof(part)
        if left < 0:
            return False
    return True


def small_values(
    entries: int, most_bytes: int = MOST_BYTES
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Remember the results of a function for so many arguments, of those that are small.

    For functions whose results weigh about what their arguments do.
    """

    def decorate(make: Callable[P, T]) -> Callable[P, T]:
        remembered = cast("Callable[P, T]", lru_cache(maxsize=entries)(make))

        @wraps(make)
        def one(*args: P.args, **kwargs: P.kwargs) -> T:
            found = remembered if is_small(args, most_bytes) else make
            return found(*args, **kwargs)

        return one

    return decorate


def interned(text: str) -> str:
    """Return the one copy of a short text that repeats; a long one is returned as it is."""
    return sys.intern(text) if len(text) <= _LONGEST_TEXT else text


def shared_map(values: dict[str, str] | None) -> dict[str, str] | None:
    """Return an equal mapping that other objects may hold as well, ``None`` for an empty one.

    Nobody changes it.
    """
    return _map(tuple(values.items())) if values else None


@small_values(_MAPS)
def _map(items: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {interned(key): interned(value) for key, value in items}
