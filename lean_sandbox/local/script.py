"""What a Pod asks the simulated kubelet to play: by annotations, image names and commands.

Durations are Go durations (``1m30s``) or plain seconds (``90``). A value that cannot be read is
ignored and counted. docs/local.md lists the annotations, image names and commands.

What follows an end is up to ``restartPolicy``: Succeeded or Failed, or a restart with back-off.

A Pod that is deleted with a grace period becomes Failed before it is removed, its containers ended
with 137; those that had ended keep their code, and if all of them ended well it becomes Succeeded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lean_sandbox.local.kubelet_settings import KubeletSettings
from lean_sandbox.local.podview import Container, PodView
from lean_sandbox.model import times

PREFIX = "kubelet.lean-sandbox/"

_COMMAND = re.compile(
    r"\s*(?:sleep\s+(?P<sleep>\d+(?:\.\d+)?)\s*(?:(?:;|&&)\s*|$))?"
    r"(?:(?:exit\s+(?P<code>\d{1,3})|(?P<word>true|false))\s*;?\s*)?$"
)
_SHELL_FLAGS = frozenset({"-c", "-ec", "-ce", "-lc", "-exc"})
_T = TypeVar("_T")
_F = TypeVar("_F", float, float | None)
_MISSING_TAG = "does-not-exist"


@dataclass(frozen=True, slots=True)
class Exit:
    """A container that ends ``after_s`` seconds after its start with ``code``."""

    after_s: float
    code: int


@dataclass(frozen=True, slots=True)
class Script:
    """The play of one Pod. Durations in seconds; infinity means for ever, None means not at all."""

    is_ignored: bool = False
    node: str = ""
    unschedulable_s: float | None = None
    unschedulable_message: str = ""
    start_delay_s: float = 0.0
    ready_delay_s: float = 0.0
    unready_after_s: float | None = None
    unready_for_s: float | None = None
    evict_after_s: float | None = None
    termination_s: float | None = None
    churn: int = 0
    churn_interval_s: float = 1.0
    churns_restarts: bool = False
    pull_error_s: float | None = None
    # Names of containers.
    unpullable: frozenset[str] = frozenset()
    never_ready: frozenset[str] = frozenset()
    exits: Mapping[str, Exit] = field(default_factory=dict)
    # Annotations that could not be read.
    mistakes: tuple[str, ...] = ()


_NOTHING = Script()


def read_script(pod: PodView, settings: KubeletSettings) -> Script:
    """Return what ``pod`` asks for; never raises, what cannot be read is listed in ``mistakes``."""
    words = _Words(pod.metadata.annotations or {})
    if not words and not any(map(_is_special, pod.spec.containers)):
        return _NOTHING
    script = _read_words(words, pod, settings)
    return replace(script, mistakes=tuple(words.mistakes)) if words.mistakes else script


def _read_words(words: _Words, pod: PodView, settings: KubeletSettings) -> Script:
    images = {c.name: _image_behaviour(c.image) for c in pod.spec.containers}
    names, played = frozenset(images), frozenset(images.values())
    unpullable = frozenset(name for name, play in images.items() if play == "image-pull-error")
    never_ready = frozenset(name for name, play in images.items() if play == "never-ready")
    pull_error_s = words.spell("image-pull-error", math.inf)
    slow_start_s = settings.slow_start_s if "slow-start" in played else 0.0
    return Script(
        is_ignored=words.flag("ignore"),
        node=words.text("node"),
        unschedulable_s=_first(
            words.spell("unschedulable", math.inf), math.inf if "unschedulable" in played else None
        ),
        unschedulable_message=words.text("unschedulable-message"),
        start_delay_s=_first(words.seconds("start-delay"), slow_start_s),
        ready_delay_s=_first(words.seconds("ready-delay"), 0.0),
        unready_after_s=words.seconds("unready-after"),
        unready_for_s=words.seconds("unready-for"),
        evict_after_s=_first(words.seconds("evict-after"), 0.0 if "evicted" in played else None),
        termination_s=words.seconds("termination-delay"),
        churn=words.count("churn") or 0,
        churn_interval_s=_first(words.seconds("churn-interval"), 1.0),
        churns_restarts=words.choice("churn-kind", ("heartbeat", "restarts")) == "restarts",
        pull_error_s=_first(pull_error_s, math.inf if unpullable else None),
        unpullable=names if pull_error_s is not None else unpullable,
        never_ready=names if words.flag("never-ready") else never_ready,
        exits=_exits(words, pod.spec.containers, settings),
    )


def _exits(
    words: _Words, containers: tuple[Container, ...], settings: KubeletSettings
) -> dict[str, Exit]:
    annotated = words.exit(settings)
    ends = {
        c.name: annotated or _command_exit(c, settings) or _image_exit(c.image, settings)
        for c in containers
    }
    return {name: end for name, end in ends.items() if end is not None}


def _is_special(container: Container) -> bool:
    return bool(_image_behaviour(container.image) or _command(container))


class _Words:
    """The Pod's annotations under the prefix, read by type; unreadable ones are noted."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        cut = len(PREFIX)
        self._values = {k[cut:]: v.strip() for k, v in annotations.items() if k.startswith(PREFIX)}
        self.mistakes: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._values)

    def text(self, key: str) -> str:
        return self._values.get(key, "")

    def flag(self, key: str) -> bool:
        return self.choice(key, ("true", "false", "")) == "true"

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self._values.get(key, "").lower()
        if value and value not in allowed:
            self.mistakes.append(key)
            return ""
        return value

    def seconds(self, key: str) -> float | None:
        return self._read(key, _seconds)

    def count(self, key: str) -> int | None:
        return self._read(key, _natural)

    def spell(self, key: str, when_true: float) -> float | None:
        """Read ``true`` as ``when_true``, ``false`` as nothing, anything else as a duration."""
        value = self._values.get(key, "").lower()
        if value in ("", "false"):
            return None
        return when_true if value == "true" else self.seconds(key)

    def exit(self, settings: KubeletSettings) -> Exit | None:
        """Read crash-loop, complete-after and exit-code together."""
        code = self.count("exit-code")
        if code is not None and code > 255:
            self.mistakes.append("exit-code")
            code = None
        crash_s = self.spell("crash-loop", settings.crash_after_s)
        if crash_s is not None:
            return Exit(crash_s, 1 if code is None else code)
        complete_s = self.seconds("complete-after")
        return None if complete_s is None else Exit(complete_s, code or 0)

    def _read(self, key: str, reader: Callable[[str], _T]) -> _T | None:
        value = self._values.get(key, "")
        if not value:
            return None
        try:
            return reader(value)
        except ValueError:
            self.mistakes.append(key)
            return None


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float(times.parse_duration(text))
    if not math.isfinite(value) or value < 0:
        raise ValueError(text)
    return value


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def _first(value: float | None, otherwise: _F) -> float | _F:
    return otherwise if value is None else value


def _image_behaviour(image: str) -> str:
    """Return what the name of ``image`` asks for, or the empty string."""
    name, _, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    if tag == _MISSING_TAG:
        return "image-pull-error"
    return name if name in _IMAGES else ""


_IMAGES = frozenset(
    {
        "image-pull-error",
        "crash-loop",
        "never-ready",
        "completes",
        "evicted",
        "unschedulable",
        "slow-start",
    }
)


def _image_exit(image: str, settings: KubeletSettings) -> Exit | None:
    behaviour = _image_behaviour(image)
    if behaviour == "crash-loop":
        return Exit(settings.crash_after_s, 1)
    return Exit(settings.exit.base_s, 0) if behaviour == "completes" else None


def _command(container: Container) -> re.Match[str] | None:
    """Return the parts of a command that ends by itself."""
    words = (*container.command, *container.args)
    if not words:
        return None
    if len(words) == 2 and words[0] == "sleep":
        text = " ".join(words)
    elif len(words) == 1 or words[-2] in _SHELL_FLAGS:
        text = words[-1]
    else:
        # An option of some program may happen to read like a shell's word.
        return None
    return _COMMAND.match(text) if text.strip() else None


def _command_exit(container: Container, settings: KubeletSettings) -> Exit | None:
    """Return how a shell would end the container's command, or None when it runs on."""
    found = _command(container)
    if found is None:
        return None
    sleep, code, word = found["sleep"], found["code"], found["word"]
    return Exit(
        settings.exit.base_s if sleep is None else float(sleep),
        int(code) % 256 if code is not None else int(word == "false"),
    )
