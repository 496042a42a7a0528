"""The command line of the controller, by the rules of the reference's: those of Go's flag package.

``-x`` and ``--x`` are the same; a value follows after ``=`` or as the next argument, but that of a
boolean only after ``=``; of a flag given twice the last one holds; the first argument that is no
flag, and ``--``, end them. Ours on top: ``--no-x`` switches a boolean off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from lean_sandbox.kube.errors import ConfigError


class UsageError(ConfigError):
    """A command line that cannot be understood."""


class HelpWanted(Exception):  # noqa: N818 -- a wish, not an error
    """``-h`` or ``--help`` was given."""


class Flag(msgspec.Struct, frozen=True):
    """One flag as it was given, without its dashes; of a boolean without a value, ``true``."""

    name: str
    text: str


class Scanned(msgspec.Struct, frozen=True):
    """A command line taken apart: its flags in their order, and what follows the last of them."""

    flags: tuple[Flag, ...]
    rest: tuple[str, ...]


def scan(
    arguments: Sequence[str],
    is_boolean: Callable[[str], bool | None],
    unknown: Callable[[str], UsageError],
) -> Scanned:
    """Take a command line apart.

    ``is_boolean`` answers None for a name that is no flag; ``unknown`` makes the error for it.
    Raises UsageError for what is no flag, HelpWanted when help is asked for before that.
    """
    found: list[Flag] = []
    waiting = list(arguments)
    while waiting:
        argument = waiting[0]
        if len(argument) < 2 or not argument.startswith("-"):
            break
        waiting.pop(0)
        if argument == "--":
            break
        name, equals, text = argument.removeprefix("-").removeprefix("-").partition("=")
        if not name or name.startswith("-"):
            raise UsageError(f"{argument} is no flag")
        negated = name.removeprefix("no-")
        boolean = is_boolean(name)
        if boolean is None and name in ("h", "help"):
            raise HelpWanted
        if boolean is None and name != negated and is_boolean(negated):
            if equals:
                raise UsageError(f"--{name} takes no value")
            found.append(Flag(negated, "false"))
            continue
        if boolean is None:
            raise unknown(name)
        if not equals:
            if not boolean and not waiting:
                raise UsageError(f"--{name} needs a value")
            text = "true" if boolean else waiting.pop(0)
        found.append(Flag(name, text))
    return Scanned(tuple(found), tuple(waiting))
