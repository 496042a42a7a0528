"""The help of the commands that take the controller's flags."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from lean_sandbox.config.options import flag_of, form_of, shown_default, topics
from lean_sandbox.config.reference import IDLE, TRANSLATED
from lean_sandbox.config.values import BOOLEAN

_WIDTH = 96
_SYNTAX = """\
A flag has one or two dashes. A value stands after = or in the next argument; that of a boolean only
after =, and a boolean alone is true (--no-NAME is false). Durations are written 300ms, 1m30s or 0.

Every flag can also be given as LEAN_SANDBOX_NAME in the environment (upper case, _ for -) and as
`name: value` in the config file. A flag beats the environment, that beats the file, that beats the
default. What is unknown is refused wherever it stands."""
_CONFIG = (
    "config file of `flag: value` lines (YAML: comments, quotes, lists), or a folder with one file"
    " for each flag, as a ConfigMap is mounted (default: none)"
)


def help_text(command: str, summary: str, own: Mapping[str, str]) -> str:
    """Return the help of a command; ``own`` are its own flags with their meanings."""
    lines = [f"usage: lean-sandbox {command} [flags]", "", summary, "", _SYNTAX, ""]
    own = {**own, "--config FILE": _CONFIG}
    for flag, meaning in own.items():
        lines += _flag(flag, meaning)
    for topic, options in topics().items():
        lines += ["", f"{topic}:"]
        for option in options:
            form, metavar = form_of(option), option.metadata["metavar"]
            value = "" if form is BOOLEAN else f" {metavar}"
            unit = f" {option.metadata['unit']}".rstrip()
            meaning = f"{option.metadata['help']} (default: {shown_default(option)}{unit})"
            lines += _flag(flag_of(option.name) + value, meaning)
    lines += ["", *_reference()]
    return "\n".join((*lines, ""))


def _reference() -> Iterator[str]:
    yield "of the reference, in its own words:"
    for name, translated in TRANSLATED.items():
        value = "" if translated.form is BOOLEAN else f" {translated.form.metavar}"
        yield from _flag(f"--{name}{value}", translated.help)
    yield ""
    yield "of the reference, without effect here; each costs one warning:"
    for name, idle in IDLE.items():
        value = "" if idle.form is BOOLEAN else f" {idle.form.metavar}"
        yield from _flag(f"--{name}{value}", idle.why)


def _flag(flag: str, meaning: str) -> list[str]:
    indent = " " * 8
    return [
        f"  {flag}",
        *textwrap.wrap(
            meaning,
            _WIDTH,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ),
    ]
