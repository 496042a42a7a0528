"""What `--help` and `lean-sandbox config` print: every option, or the settings in effect."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lean_sandbox.config.forms import BOOLEAN, DURATION, INTEGER, NUMBER, TEXT
from lean_sandbox.config.options import FLAGS, IDLE, OPTIONS, TRANSLATED, Flag, Option
from lean_sandbox.config.sources import CONFIG, Effective
from lean_sandbox.log import aligned

if TYPE_CHECKING:
    from argparse import ArgumentParser

_PATHS = (CONFIG, "kubeconfig", "metrics-cert-dir")
_INDENT = " " * 8
_SYNTAX = """\
A flag has one or two dashes. A value stands after = or in the next argument; that of a boolean only
after =, and a boolean alone is true (--no-NAME is false). Durations are written 300ms, 1m30s or 0.

Every flag can also be given as LEAN_SANDBOX_NAME in the environment (upper case, _ for -) and as
`name: value` in the config file. A flag beats the environment, that beats the file, that beats the
default. What is unknown is refused wherever it stands."""
_FOREIGN = {
    "of the reference, in its own words": TRANSLATED,
    "of the reference, without effect here; each costs one warning": IDLE,
}
_CONFIG = (
    "config file of `flag: value` lines (YAML: comments, quotes, lists), or a folder with one file"
    " for each flag, as a ConfigMap is mounted (default: none)"
)


def help_text(command: str, summary: str, examples: Iterable[str], own: Mapping[str, str]) -> str:
    """Return the help of a command; ``own`` are its own flags with their meanings."""
    lines = [
        f"usage: lean-sandbox {command} [FLAGS]",
        "",
        textwrap.fill(summary, 96),
        "",
        "examples:",
    ]
    lines += [*(f"  {one}" for one in examples), "", _SYNTAX, ""]
    for usage, meaning in {**own, "--config FILE": _CONFIG}.items():
        lines += entry(usage, meaning)
    for name, option in OPTIONS.items():
        if option.topic:
            lines += ["", f"{option.topic}:"]
        default = f"{option.shown(option.default)} {option.unit}".rstrip()
        lines += entry(_usage(name, option), f"{option.help} (default: {default})")
    for head, flags in _FOREIGN.items():
        lines += ["", f"{head}:"]
        for name, flag in flags.items():
            lines += entry(_usage(name, flag), flag.help)
    return "\n".join((*lines, ""))


def add_flags(parser: ArgumentParser) -> None:
    """Add every flag to a parser, from which the completion of shells is made."""
    files = {CONFIG: Flag(TEXT, _CONFIG), **FLAGS}
    for name, flag in files.items():
        meaning = flag.help.replace("%", "%%")
        if flag.form is BOOLEAN:
            parser.add_argument(f"--{name}", action="store_true", help=meaning)
            continue
        choices = flag.form.words or None
        read = Path if name in _PATHS else str
        parser.add_argument(f"--{name}", type=read, choices=choices, help=meaning)


def _usage(name: str, flag: Flag) -> str:
    return f"--{name}" if flag.form is BOOLEAN else f"--{name} {flag.form.metavar}"


def entry(usage: str, meaning: str) -> list[str]:
    """Return the lines of one entry: how it is written, below it what it means."""
    wrapped = textwrap.wrap(
        meaning,
        width=96,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [f"  {usage}", *wrapped]


def as_table(effective: Effective) -> str:
    """Return one line for each setting, under a head."""
    rows = [("SETTING", "VALUE", "UNIT", "SOURCE")]
    for flag, option, value in _values(effective):
        place = str(effective.place(option.name))
        rows.append((flag, option.shown(value), _unit(option) or "-", place))
    return aligned(*rows)


def as_json(effective: Effective) -> str:
    """Return one object: the settings by name, and what was remarked."""
    settings = {}
    for flag, option, value in _values(effective):
        place = effective.place(option.name)
        settings[flag] = {
            "value": _plain(option, value),
            "default": _plain(option, option.default),
            "unit": _unit(option),
            "source": place.origin.value,
            "from": place.where,
        }
    remarks = [{"flag": one.flag, "from": one.place, "why": one.why} for one in effective.remarks]
    report = {"settings": settings, "warnings": remarks}
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


def as_yaml(effective: Effective) -> str:
    """Return a config file that gives the same settings; what came from where is a comment."""
    lines = []
    for flag, option, value in _values(effective):
        comment = ", ".join(filter(None, (f"# {effective.place(option.name)}", _unit(option))))
        if value is None:
            lines.append(f"# {flag}: automatic {comment}")
            continue
        text = option.form.write(value)
        if option.form not in (BOOLEAN, INTEGER, NUMBER, DURATION):
            # A text as JSON has it is one between double quotes in YAML.
            text = msgspec.json.encode(text).decode()
        lines.append(f"{flag}: {text}  {comment}")
    return "\n".join((*lines, ""))


WRITERS = {"table": as_table, "json": as_json, "yaml": as_yaml}


def _values(effective: Effective) -> Iterator[tuple[str, Option, Any]]:
    for flag, option in OPTIONS.items():
        yield flag, option, getattr(effective.settings, option.name)


def _unit(option: Option) -> str:
    return "duration" if option.form is DURATION else option.unit


def _plain(option: Option, value: Any) -> Any:
    if value is None or option.form in (BOOLEAN, INTEGER, NUMBER):
        return value
    return list(value) if isinstance(value, tuple) else option.form.write(value)
