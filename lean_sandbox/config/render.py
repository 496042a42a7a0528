"""What `--help` and `lean-sandbox config` print: every option, or the settings in effect."""

from __future__ import annotations

import argparse
import textwrap
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lean_sandbox.config.declare import Flag
from lean_sandbox.config.flags import IDLE, TRANSLATED
from lean_sandbox.config.forms import BOOLEAN, DURATION, INTEGER, NUMBER
from lean_sandbox.config.options import OPTIONS
from lean_sandbox.config.sources import Effective
from lean_sandbox.log import printable

if TYPE_CHECKING:
    from argparse import _ActionsContainer

_EXAMPLES = "examples:"
_SYNTAX = """\
A flag has one or two dashes. A value stands after = or in the next argument; that of a boolean only
after =, and a boolean alone is true (--no-NAME is false). Durations are written 300ms, 1m30s or 0.

Every flag can also be given as LEAN_SANDBOX_NAME in the environment (upper case, _ for -) and, but
for some, as `name: value` in the ConfigMap agent-sandbox-config. A flag beats the environment, that
beats the ConfigMap, that beats the default. What is unknown is refused wherever it stands; the
flags end at the first word without dashes, as those of the reference do, and what follows is
ignored with a warning."""
_FOREIGN = {
    "of the reference, in its own words": TRANSLATED,
    "of the reference, without effect here; each costs one warning": IDLE,
}


class _Formatter(argparse.HelpFormatter):
    def _split_lines(self, text: str, width: int) -> list[str]:
        # A flag is not broken at its hyphens.
        return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = [
            part if part.startswith(_EXAMPLES) else "\n".join(self._split_lines(part, width))
            for part in text.split("\n\n")
        ]
        return textwrap.indent("\n\n".join(parts), indent)


def new_parser(name: str, summary: str, text: str, examples: Sequence[str]) -> ArgumentParser:
    """Return the parser of a command without its flags; paragraphs of ``text`` are wrapped."""
    return ArgumentParser(
        prog=f"lean-sandbox {name}",
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{text}".rstrip(),
        epilog="\n  ".join((_EXAMPLES, *examples)) if examples else None,
        formatter_class=_Formatter,
        # A prefix that is one flag today may be two tomorrow.
        allow_abbrev=False,
    )


def add_flags(parser: ArgumentParser) -> None:
    """Add every flag to a parser, which prints the help and is what shells complete by."""
    parser.usage = f"{parser.prog} [FLAGS]"
    parser.description = f"{parser.description}\n\n{_SYNTAX}"
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    group: _ActionsContainer = parser
    for name, option in OPTIONS.items():
        if option.topic:
            group = parser.add_argument_group(option.topic)
        default = f"{option.shown(option.default)} {option.unit}".rstrip()
        _add_flag(group, name, option, f"{option.help} (default: {default})")
    for head, flags in _FOREIGN.items():
        group = parser.add_argument_group(head)
        for name, flag in flags.items():
            _add_flag(group, name, flag, flag.help)


def _add_flag(group: _ActionsContainer, name: str, flag: Flag, meaning: str) -> None:
    form = flag.form
    meaning = meaning.replace("%", "%%")
    if form is BOOLEAN:
        group.add_argument(f"--{name}", action="store_true", help=meaning)
        return
    read = Path if form.metavar in ("FILE", "DIR") else str
    words = form.words or None
    group.add_argument(f"--{name}", type=read, choices=words, metavar=form.metavar, help=meaning)


def as_yaml(effective: Effective) -> str:
    """Return the settings as YAML, the defaults as comments; comments say where each is from."""
    lines = []
    for flag, option in OPTIONS.items():
        value = getattr(effective.settings, option.name)
        unit = "duration" if option.form is DURATION else option.unit
        place = effective.given.get(option.name, "default")
        comment = ", ".join(filter(None, (f"# {place}", unit)))
        text = option.form.write(value)
        if option.form not in (BOOLEAN, INTEGER, NUMBER, DURATION):
            # A text as JSON has it is one between double quotes in YAML.
            text = msgspec.json.encode(text).decode()
        is_default = value == option.default and option.name not in effective.given
        lines.append(f"{'# ' if is_default else ''}{flag}: {text}  {comment}")
    return "\n".join((*map(printable, lines), ""))
