"""From the default, the ConfigMap, the environment and the command line to the settings.

The strongest source that names an option gives its value: flag, then environment, then the
ConfigMap of all controllers as it is mounted, then the default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from lean_sandbox.config.declare import flag_of
from lean_sandbox.config.doubts import doubts
from lean_sandbox.config.flags import DEVELOPMENT, DEVELOPMENT_DEFAULTS, FLAGS, REMOVED, TUNABLE
from lean_sandbox.config.forms import BOOLEAN, Form
from lean_sandbox.config.options import Settings
from lean_sandbox.errors import ConfigError
from lean_sandbox.program import called

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
# As in the reference: a value that cannot work exits like a failure, one that cannot be read not.
EXIT_CONFIG: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
PREFIX: Final = "LEAN_SANDBOX_"
# Where the manifests, as the reference's do, mount the optional ConfigMap agent-sandbox-config.
MOUNTED: Final = Path("/etc/sandbox-config")
# Kubernetes sets these in every Pod for a Service of our name; they are not settings.
_SERVICE_LINK = re.compile(
    r"\w*_SERVICE_HOST|\w*_SERVICE_PORT(_\w+)?|\w*_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://.+")


class UsageError(ConfigError):
    """A command line that cannot be understood."""


class HelpRequested(Exception):  # noqa: N818 -- a request, not an error
    """``-h`` or ``--help`` was given."""


class Origin(StrEnum):
    """The kinds of sources, from the strongest to the weakest."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    CONFIG_MAP = "ConfigMap"


class Given(msgspec.Struct, frozen=True):
    """A flag (without its dashes) and its value as a source gives it; a bare switch has ``true``.

    ``where`` is the flag as it is written, the variable, or the file of the ConfigMap's key.
    """

    name: str
    text: str
    origin: Origin
    where: str

    def __str__(self) -> str:
        return f"{self.origin} {self.where}"

    def parsed(self, form: Form) -> Any:
        """Return the value. Raises UsageError on the command line, elsewhere ConfigError."""
        try:
            return form.parse(self.text)
        except ValueError as error:
            problem = f"{self.text!r} is not valid: {error}"
            if self.origin is Origin.FLAG:
                raise UsageError(f"{self.where}: {problem}") from error
            raise ConfigError(problem, source=str(self), field=f"--{self.name}") from error


class Scanned(msgspec.Struct, frozen=True):
    """A command line taken apart: its flags in their order, and what follows the last of them."""

    flags: tuple[Given, ...]
    rest: tuple[str, ...]


class Remark(msgspec.Struct, frozen=True):
    """Something about a flag that works but is probably not what was meant."""

    flag: str
    place: str
    why: str


class Effective(msgspec.Struct, frozen=True):
    """The settings, what gave each (by its name; the defaults are left out), and remarks."""

    settings: Settings
    given: Mapping[str, Given]
    remarks: tuple[Remark, ...]


_Values = dict[str, tuple[Any, Given]]


def variable_of(flag: str) -> str:
    """Return the environment variable of a flag, given without dashes."""
    return PREFIX + flag.upper().replace("-", "_")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return which of the known words is probably meant, empty if none is close."""
    import difflib  # noqa: PLC0415 -- for an error only

    return next(iter(difflib.get_close_matches(word, known)), "")


def undecoded(text: str) -> str:
    """Return why a text cannot be used, of which Python could not decode some bytes; else empty."""
    with suppress(UnicodeEncodeError):
        text.encode()
        return ""
    try:
        meant = os.fsencode(text).decode("utf-8")
    except UnicodeError:
        return f"{text!r} is not valid UTF-8"
    return f"{meant} cannot be read in this locale; set LC_ALL=C.UTF-8, or leave PYTHONUTF8 unset"


def scan(arguments: Sequence[str], extra: Mapping[str, Form] | None = None) -> Scanned:
    """Take a command line apart by the rules of Go's flag package; ``extra`` are a command's own.

    ``-x`` and ``--x`` are the same; a value follows after ``=`` or as the next argument, but that
    of a boolean only after ``=``; the first argument that is not a flag, and ``--``, end the flags.
    Ours on top: ``--no-x`` switches a boolean off. Raises UsageError for an unknown flag,
    HelpRequested when help is asked for before that.
    """
    forms = {name: flag.form for name, flag in FLAGS.items()} | dict(extra or {})
    found: list[Given] = []
    waiting = list(arguments)
    while waiting and len(waiting[0]) > 1 and waiting[0].startswith("-"):
        argument = waiting.pop(0)
        if argument == "--":
            break
        name, equals, text = argument.removeprefix("-").removeprefix("-").partition("=")
        if not name or name.startswith("-"):
            raise UsageError(f"unknown flag {argument}")
        form = forms.get(name)
        negated = name.removeprefix("no-")
        flag = f"--{name}" if len(name) > 1 else f"-{name}"
        if form is None and name in ("h", "help"):
            raise HelpRequested
        if form is None and forms.get(negated) is BOOLEAN:
            if equals:
                raise UsageError(f"{flag} takes no value")
            name = negated
            text = "false"
        elif form is None:
            raise _unknown(Given(name, text, Origin.FLAG, flag))
        elif not equals and form is BOOLEAN:
            text = "true"
        elif not equals:
            if not waiting:
                raise UsageError(f"{flag} needs a value")
            text = waiting.pop(0)
        found.append(Given(name, text, Origin.FLAG, flag))
    return Scanned(tuple(found), tuple(waiting))


def effective(scanned: Scanned, environment: Mapping[str, str]) -> Effective:
    """Return the settings that a command line, the environment and the ConfigMap result in.

    A key of the ConfigMap that sets nothing is remarked upon. Raises UsageError for a flag whose
    value cannot be read, ConfigError for everything else.
    """
    flags = [flag for flag in scanned.flags if flag.name in FLAGS]
    values: _Values = {}
    noted: dict[str, Remark] = {}
    for source in (_in_config_map(), _in_environment(environment), flags):
        values |= _values_of(source, noted)
    development = values.pop(DEVELOPMENT, None)
    if development is not None and development[0]:
        defaults = {name: (text, development[1]) for name, text in DEVELOPMENT_DEFAULTS.items()}
        values = defaults | values
    givers = {name: given for name, (_, given) in values.items()}
    try:
        settings = Settings(**{name: value for name, (value, _) in values.items()})
    except ConfigError as error:
        raise _with_places(error, givers) from error
    doubtful = doubts(settings)
    if scanned.rest:
        near = nearest(scanned.rest[0], FLAGS)
        meant = f"; did you mean --{near}?" if near else ""
        if scanned.rest[0] in ("true", "false"):
            meant = f"; write --flag={scanned.rest[0]}"
        doubtful[" ".join(scanned.rest)] = f"ignored: flags end at a word without dashes{meant}"
    remarks = (Remark(flag, "", why) for flag, why in doubtful.items())
    return Effective(settings, givers, (*noted.values(), *remarks))


def _values_of(source: Iterable[Given], noted: dict[str, Remark]) -> _Values:
    values: _Values = {}
    for given in source:
        flag = FLAGS.get(given.name)
        if given.origin is Origin.CONFIG_MAP and given.name not in TUNABLE:
            why = "only a flag or the environment can set this"
            if flag is None:
                why = _unknown(given).problem
            noted[given.name] = Remark(given.name, str(given), f"it is not used: {why}")
            continue
        if flag is None:
            raise _unknown(given)
        value = given.parsed(flag.form)
        if value == () and given.origin is Origin.CONFIG_MAP:
            # The domains, the one key that the reference has: none is the default.
            continue
        if not flag.name:
            place = "" if given.origin is Origin.FLAG else str(given)
            noted[given.name] = Remark(f"--{given.name}", place, flag.help)
            continue
        before, first = values.get(flag.name, (value, given))
        if before != value and first.name != given.name:
            raise ConfigError(
                f"--{first.name} and --{given.name} contradict each other",
                source=f"{first}, {given}",
                way_out="leave one of them out",
            )
        values[flag.name] = (value, given)
    return values


def _with_places(error: ConfigError, givers: Mapping[str, Given]) -> ConfigError:
    """Add to an error where the flags that it names got their values, unless by a flag."""
    source = ", ".join(
        str(given)
        for name, given in givers.items()
        if given.origin is not Origin.FLAG and re.search(rf"{flag_of(name)}\b(?!-)", error.problem)
    )
    return ConfigError(error.problem, source=source, way_out=error.way_out)


def _unknown(given: Given) -> ConfigError:
    name = given.name.lower().replace("_", "-")
    problem = "unknown flag"
    way_out = f"; `{called()} run --help` lists all of them"
    if name in REMOVED:
        way_out = f": {REMOVED[name]}"
    else:
        near = nearest(name, FLAGS)
        if near:
            spelt = {Origin.FLAG: f"--{near}", Origin.ENVIRONMENT: variable_of(near)}
            way_out = f"; did you mean {spelt.get(given.origin, near)}?"
    if given.origin is Origin.FLAG:
        return UsageError(f"{problem} {given.where}{way_out}")
    return ConfigError(f"{problem}{way_out}", source=str(given))


def _in_environment(environment: Mapping[str, str]) -> Iterator[Given]:
    names = {variable_of(name): name for name in FLAGS}
    for variable, text in environment.items():
        name = names.get(variable, variable.removeprefix(PREFIX))
        if not variable.startswith(PREFIX):
            continue
        is_port = variable.endswith("_PORT") and _SERVICE_URL.fullmatch(text)
        if wrong := undecoded(text):
            raise ConfigError(wrong, source=f"{Origin.ENVIRONMENT} {variable}")
        if not (is_port or _SERVICE_LINK.fullmatch(variable)):
            yield Given(name, text, Origin.ENVIRONMENT, variable)


def _in_config_map() -> Iterator[Given]:
    file = MOUNTED
    try:
        for file in sorted(MOUNTED.iterdir()) if MOUNTED.exists() else ():
            # Keys that begin so are comments, as in the reference; and the folders that a kubelet
            # keeps the values in begin with two dots.
            if not file.name.startswith((".", "_")):
                text = file.read_text(encoding="utf-8", errors="replace")
                # A list may have one value a line.
                in_one_line = ",".join(line.strip() for line in text.strip().splitlines())
                yield Given(file.name, in_one_line, Origin.CONFIG_MAP, str(file))
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}", source=str(file)) from error
