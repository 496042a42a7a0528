"""From the default, the config file, the environment and the command line to the settings.

The strongest source that names an option gives its value: flag, then environment, then config file,
then the ConfigMap of all controllers, then the reference's mounted file of label domains, then the
default. An option is named by its flag, by ``LEAN_SANDBOX_`` and the flag in upper case with
underscores, and by its key in the file or the ConfigMap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lean_sandbox.config.checks import doubts
from lean_sandbox.config.flags import Scanned, UsageError, scan
from lean_sandbox.config.options import Settings
from lean_sandbox.config.reference import IDLE, REMOVED, TRANSLATED
from lean_sandbox.config.values import BOOLEAN, Form
from lean_sandbox.kube.errors import ConfigError

if TYPE_CHECKING:
    from lean_sandbox.config.configmap import ConfigMap

PREFIX = "LEAN_SANDBOX_"
CONFIG = "config"
# Where the reference's manifests mount their optional ConfigMap (spec of claims, 1.3).
MOUNTED_DOMAINS = Path("/etc/sandbox-config/allowed-label-domains")

_OPTIONS = {option.name.replace("_", "-"): option for option in fields(Settings)}
_NAMES = (*_OPTIONS, *TRANSLATED, *IDLE)
# Kubernetes sets these in every Pod for a Service of our name; they are nobody's settings.
_SERVICE_LINK = re.compile(
    r"\w*_SERVICE_HOST|\w*_SERVICE_PORT(_\w+)?|\w*_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://.+")


class Origin(StrEnum):
    """The kinds of sources, from the strongest to the weakest."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    CONFIG_MAP = "ConfigMap"
    DEFAULT = "default"


class Place(msgspec.Struct, frozen=True):
    """Where a value came from: the flag, the variable, or the file with its line."""

    origin: Origin
    name: str = ""

    def __str__(self) -> str:
        return f"{self.origin} {self.name}".rstrip()


DEFAULT = Place(Origin.DEFAULT)


class Remark(msgspec.Struct, frozen=True):
    """Something about a flag that works but is probably not what was meant."""

    flag: str
    place: str
    why: str


class Effective(msgspec.Struct, frozen=True):
    """The settings, where each came from (by its name; the defaults are left out), and remarks."""

    settings: Settings
    places: Mapping[str, Place]
    remarks: tuple[Remark, ...]

    def place(self, name: str) -> Place:
        """Return where the value of a setting came from."""
        return self.places.get(name, DEFAULT)


class _Given(msgspec.Struct, frozen=True):
    """An option as a source names it."""

    name: str
    text: str
    place: Place


def variable_of(flag: str) -> str:
    """Return the environment variable of a flag, given without dashes."""
    return PREFIX + flag.upper().replace("-", "_")


def scan_flags(arguments: Sequence[str], extra: Mapping[str, Form]) -> Scanned:
    """Take the command line of a controller apart; ``extra`` are the command's own flags.

    Raises UsageError and HelpWanted as :func:`.settings_flags.scan` does.
    """

    def is_boolean(name: str) -> bool | None:
        form = extra.get(name) or _form(name)
        return None if form is None else form is BOOLEAN

    def unknown(name: str) -> UsageError:
        return UsageError(f"--{name}: {_unknown(name)}", way_out=_way_out(name, "--{}".format))

    return scan(arguments, is_boolean, unknown)


def resolve(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    mounted_domains: Path = MOUNTED_DOMAINS,
) -> Effective:
    """Return the settings that a command line, the environment and the files it names make.

    Raises UsageError for a command line that cannot be understood, ConfigError for everything else.
    """
    scanned = scan_flags(arguments, {CONFIG: Form("FILE", str)})
    return effective(scanned, environment, mounted_domains=mounted_domains)


def effective(
    scanned: Scanned,
    environment: Mapping[str, str],
    *,
    mounted_domains: Path = MOUNTED_DOMAINS,
    config_map: ConfigMap | None = None,
) -> Effective:
    """Return the settings for a command line that was taken apart; see :func:`resolve`.

    ``config_map`` is what the server told; a key of it that sets nothing is remarked upon.
    """
    flags = [
        _Given(flag.name, flag.text, Place(Origin.FLAG, f"--{flag.name}"))
        for flag in scanned.flags
        if flag.name in _NAMES
    ]
    named = {flag.name: flag.text for flag in scanned.flags}
    config = named.get(CONFIG, environment.get(variable_of(CONFIG), ""))
    tuned, strange = _in_config_map(config_map) if config_map is not None else ([], [])
    merged = _Merged()
    for layer in (tuned, _in_file(config), _in_environment(environment), flags):
        merged.add(layer)
    found = merged.effective(mounted_domains, scanned.rest)
    return msgspec.structs.replace(found, remarks=(*found.remarks, *strange))


class _Merged:
    """The values of all sources, taken in from the weakest to the strongest."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[Any, _Given]] = {}
        self._defaults: dict[str, tuple[Any, _Given]] = {}
        self._idle: dict[str, Remark] = {}

    def add(self, layer: Iterable[_Given]) -> None:
        values: dict[str, tuple[Any, _Given]] = {}
        for given in layer:
            for name, value in self._settings_of(given).items():
                before = values.get(name)
                if before is not None and before[1].name != given.name and before[0] != value:
                    raise ConfigError(
                        f"--{before[1].name} and --{given.name} contradict each other",
                        source=_sources(before[1].place, given.place),
                        way_out="leave one of them out",
                    )
                values[name] = (value, given)
        self._values |= values

    def _settings_of(self, given: _Given) -> Mapping[str, Any]:
        option = _OPTIONS.get(given.name)
        if option is not None:
            return {option.name: _parsed(given, option.metadata["form"])}
        if (idle := IDLE.get(given.name)) is not None:
            value = _parsed(given, idle.form)
            place = "" if given.place.origin is Origin.FLAG else str(given.place)
            if idle.least is not None and value < idle.least:
                problem = f"--{given.name} must be at least {idle.least}, not {value}"
                raise ConfigError(problem, source=place)
            self._idle[given.name] = Remark(f"--{given.name}", place, idle.why)
            return {}
        translated = TRANSLATED[given.name]
        values = translated.settings(_parsed(given, translated.form))
        if translated.is_default:
            self._defaults = {name: (value, given) for name, value in values.items()}
            return {}
        return values

    def effective(self, mounted_domains: Path, rest: tuple[str, ...]) -> Effective:
        chosen = self._defaults | self._values
        values = {name: value for name, (value, _) in chosen.items()}
        places = {name: given.place for name, (_, given) in chosen.items()}
        if values.get("extensions") and "allowed_label_domains" not in values:
            domains = _domains(mounted_domains)
            if domains:
                values["allowed_label_domains"] = domains
                places["allowed_label_domains"] = Place(Origin.FILE, str(mounted_domains))
        try:
            settings = Settings(**values)
        except ConfigError as error:
            raise _placed(error, places) from error
        remarks = list(self._idle.values())
        remarks += [Remark(flag, "", why) for flag, why in doubts(settings).items()]
        if rest:
            why = "what follows the first argument that is no flag is not looked at"
            remarks.append(Remark(" ".join(rest), "", why))
        return Effective(settings, places, tuple(remarks))


def _parsed(given: _Given, form: Form) -> Any:
    try:
        return form.parse(given.text)
    except ValueError as error:
        problem = f"{given.text!r} is not valid: {error}"
        if given.place.origin is Origin.FLAG:
            raise UsageError(f"{given.place.name}: {problem}") from error
        source = str(given.place)
        raise ConfigError(problem, source=source, field=f"--{given.name}") from error


def _placed(error: ConfigError, places: Mapping[str, Place]) -> ConfigError:
    """Add to an error from where the flags that it names got their values."""
    named = [
        places[name.replace("-", "_")]
        for name in dict.fromkeys(re.findall(r"--([a-z][a-z-]*[a-z])", error.problem))
        if name.replace("-", "_") in places
    ]
    elsewhere = [place for place in named if place.origin is not Origin.FLAG]
    return ConfigError(error.problem, source=_sources(*elsewhere), way_out=error.way_out)


def _sources(*places: Place) -> str:
    return ", ".join(str(place) for place in places)


def _form(name: str) -> Form | None:
    if (option := _OPTIONS.get(name)) is not None:
        form: Form = option.metadata["form"]
        return form
    known = TRANSLATED.get(name) or IDLE.get(name)
    return known.form if known is not None else None


# -- names nobody knows ----------------------------------------------------------------------------


def _unknown(name: str) -> str:
    removed = REMOVED.get(name)
    return f"there is no such flag any more: {removed}" if removed else "there is no such flag"


def _way_out(name: str, spelt: Callable[[str], str]) -> str:
    if name in REMOVED:
        return ""
    import difflib  # noqa: PLC0415 -- for an error only

    near = difflib.get_close_matches(name, (*_NAMES, CONFIG), n=1, cutoff=0.5)
    if near:
        return f"did you mean {spelt(near[0])}?"
    return "`lean-sandbox run --help` lists those there are"


# -- environment -----------------------------------------------------------------------------------


def _in_environment(environment: Mapping[str, str]) -> list[_Given]:
    names = {variable_of(name): name for name in _NAMES}
    found = []
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable == variable_of(CONFIG):
            continue
        name = names.get(variable)
        if name is not None:
            found.append(_Given(name, text, Place(Origin.ENVIRONMENT, variable)))
        elif not _is_service_link(variable, text):
            guessed = variable.removeprefix(PREFIX).lower().replace("_", "-")
            raise ConfigError(
                _unknown(guessed),
                source=f"{Origin.ENVIRONMENT} {variable}",
                way_out=_way_out(guessed, variable_of),
            )
    return found


def _is_service_link(variable: str, text: str) -> bool:
    if _SERVICE_LINK.fullmatch(variable) is not None:
        return True
    return variable.endswith("_PORT") and _SERVICE_URL.fullmatch(text) is not None


# -- files -----------------------------------------------------------------------------------------


def _in_file(config: str) -> list[_Given]:
    if not config:
        return []
    from lean_sandbox.config.file import read  # noqa: PLC0415 -- rarely used

    found = []
    for entry in read(Path(config)):
        if entry.name not in _NAMES:
            raise ConfigError(
                _unknown(entry.name),
                source=entry.place,
                field=entry.name,
                way_out=_way_out(entry.name, str),
            )
        found.append(_Given(entry.name, entry.text, Place(Origin.FILE, entry.place)))
    return found


def _in_config_map(config_map: ConfigMap) -> tuple[list[_Given], list[Remark]]:
    from lean_sandbox.config.configmap import TUNABLE  # noqa: PLC0415 -- in a cluster only

    found, strange = [], []
    for name, text in sorted(config_map.values.items()):
        place = Place(Origin.CONFIG_MAP, f"{config_map.name} key {name}")
        if name in TUNABLE:
            value = ",".join(text.strip("\r\n").splitlines())
            found.append(_Given(name, value, place))
        elif name in _NAMES:
            why = "it is not used: only a flag, the environment or the config file can set this"
            strange.append(Remark(name, str(place), why))
        else:
            why = ": ".join(filter(None, (_unknown(name), _way_out(name, str))))
            strange.append(Remark(name, str(place), f"it is not used: {why}"))
    return found, strange


def _domains(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"it cannot be read: {error}", source=str(path)) from error
    form: Form = _OPTIONS["allowed-label-domains"].metadata["form"]
    domains: tuple[str, ...] = form.parse(text)
    return domains
