"""The command line: finds the command, and reports what went wrong in one line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lean_sandbox.commands import COMMANDS, GROUPS, Command
from lean_sandbox.config.sources import (
    EXIT_CONFIG,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    UsageError,
    nearest,
    undecoded,
)
from lean_sandbox.errors import ConfigError, missing_extra
from lean_sandbox.program import NAME, called

if TYPE_CHECKING:
    from argparse import Namespace

_HEAD: Final = """\
A lean controller for agent sandboxes on Kubernetes.

usage: lean-sandbox COMMAND [FLAGS]

"""
_FOOT: Final = """\
exit codes:
  0    done, or ended by a signal as `run`, `local up` and `top` are meant to be
  1    failed, or configuration refused: the last line says how to fix it
  2    wrong usage: an unknown command or flag, or a value that cannot be read
  130  interrupted
"""
_HELP: Final = ("-h", "--help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # How Python shows a descriptor that the caller has closed. In this order each file gets
            # the number of its descriptor, which no other may have: a child would write there.
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    try:
        code = _perform(words)
        sys.stdout.flush()
    except UsageError as error:
        return _failed(f"{error}", EXIT_USAGE)
    except ConfigError as error:
        return _failed(f"{error}", EXIT_CONFIG)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        from lean_sandbox.log import let_go_of  # noqa: PLC0415

        let_go_of(sys.stdout)
        if isinstance(error, BrokenPipeError):
            # The reader of a pipe has seen enough.
            return EXIT_OK
        place = f"{error.filename}: " if error.filename else ""
        return _failed(f"{place}{error.strerror or error}", EXIT_FAILED)
    return code


def _failed(why: str, code: int) -> int:
    print(f"{NAME}: {why}", file=sys.stderr)  # noqa: T201
    return code


def _perform(words: list[str]) -> int:
    for word in words:
        if wrong := undecoded(word):
            raise UsageError(wrong)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if words[:1] == ["--version"]:
        words = ["config", *words]
    if not words or words[0] in _HELP:
        start = f"`{called()} help COMMAND` explains one and gives examples.\n"
        start += f"Start with `{called()} demo`.\n\n"
        sys.stdout.write(f"{_HEAD}{_listed()}{start}{_FOOT}")
        return EXIT_OK if words else EXIT_USAGE
    actions = [name for name in COMMANDS if name.startswith(f"{words[0]} ")]
    if actions and (not words[1:] or words[1] in _HELP):
        sys.stdout.write(_listed(actions))
        return EXIT_OK if words[1:] else EXIT_USAGE
    own = 2 if actions else 1
    name = " ".join(words[:own])
    if name not in COMMANDS:
        # Of several words the first is known: it says nothing of which is meant.
        near = nearest(name, COMMANDS if not actions else ())
        if actions and (second := nearest(words[1], [one.split()[1] for one in actions])):
            near = f"{words[0]} {second}"
        way_out = f"did you mean {near}?" if near else f"`{called()} help` lists them"
        raise UsageError(f"unknown command {name}; {way_out}")
    return _run(name, COMMANDS[name], words[own:])


def _run(name: str, command: Command, words: list[str]) -> int:
    try:
        return command.run(words if command.is_raw else _parse(name, command, words))
    except ModuleNotFoundError as error:
        if not command.extra:
            raise
        raise missing_extra(f"lean-sandbox {name}", command.extra, error) from error
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt):
            # A signal that came while one of several tasks was at work.
            raise KeyboardInterrupt from group
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if isinstance(first, SystemExit):
            # How rich ends a program whose reader has seen enough.
            return EXIT_OK
        if not isinstance(first, ConfigError if command.is_raw else (ConfigError, OSError)):
            raise
        raise first from group


def _listed(names: Container[str] | None = None) -> str:
    lines = []
    for title, commands in GROUPS.items():
        rows = [
            f"  {name:<14} {command.summary}"
            for name, command in commands.items()
            if not names or name in names
        ]
        lines += [f"{title}:", *rows, ""] if rows else []
    return "\n".join((*lines, ""))


def _parse(name: str, command: Command, words: list[str]) -> Namespace:
    parser = command.parser(name)
    given, unknown = parser.parse_known_args(words)
    if unknown:
        if not unknown[0].startswith("-"):
            parser.error(f"{unknown[0]} is not expected")
        flag = unknown[0].partition("=")[0]
        near = nearest(flag, re.findall(r"--[a-z-]+", parser.format_help()))
        parser.error(f"unknown flag {flag}" + (f"; did you mean {near}?" if near else ""))
    return given
