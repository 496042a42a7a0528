"""Laws of reading a Pod's script."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.local import script as module
from lean_sandbox.local.kubelet_settings import KubeletSettings
from lean_sandbox.local.script import PREFIX, Exit, Script, read_script
from tests.docs.pages import ROOT
from tests.kubelet.life import pod

SETTINGS = KubeletSettings()


def read(**script: str) -> Script:
    """Read the script of a Pod with these annotations."""
    return read_script(pod(script={k.replace("_", "-"): v for k, v in script.items()}), SETTINGS)


def command(*words: str) -> Exit | None:
    """Return how a container with this command ends."""
    found = read_script(pod({"name": "main", "image": "x", "command": list(words)}), SETTINGS)
    return found.exits.get("main")


def image(name: str) -> Script:
    """Read the script of a Pod with this image."""
    return read_script(pod({"name": "main", "image": name}), SETTINGS)


def test_a_plain_pod_plays_nothing() -> None:
    """The empty script."""
    assert read_script(pod(), SETTINGS) == Script()


def test_durations_are_go_durations_or_seconds() -> None:
    """Both mean the same."""
    assert read(start_delay="1m30s").start_delay_s == 90
    assert read(start_delay="90").start_delay_s == 90
    assert read(start_delay="250ms").start_delay_s == 0.25


def test_true_means_for_ever_and_false_means_no() -> None:
    """For spells that may also last a while."""
    assert read(unschedulable="true").unschedulable_s == math.inf
    assert read(unschedulable="5s").unschedulable_s == 5
    assert read(unschedulable="false").unschedulable_s is None
    assert read(image_pull_error="TRUE").pull_error_s == math.inf


@pytest.mark.parametrize("key", ["start-delay", "churn", "never-ready", "churn-kind", "exit-code"])
@pytest.mark.parametrize("value", ["?", "-1", "1e999", "nan", "--"])
def test_what_cannot_be_read_is_noted_and_ignored(key: str, value: str) -> None:
    """The rest of the script holds."""
    script = {key: value, "evict-after": "3"}
    found = read_script(pod(script=script), SETTINGS)
    assert found.mistakes == (key,)
    assert found.evict_after_s == 3


@given(st.dictionaries(st.sampled_from(["churn", "unready-for", "ignore", "new"]), st.text()))
def test_no_annotation_breaks_the_reader(script: dict[str, str]) -> None:
    """Any text is read or noted."""
    assert set(read_script(pod(script=script), SETTINGS).mistakes) <= set(script)


@pytest.mark.parametrize(
    ("words", "end"),
    [
        (("sh", "-c", "exit 0"), Exit(0.3, 0)),
        (("/bin/sh", "-c", "sleep 2; exit 7"), Exit(2, 7)),
        (("sh", "-c", "sleep 0.5 && exit 1;"), Exit(0.5, 1)),
        (("sleep", "3600"), Exit(3600, 0)),
        (("sh", "-c", "sleep 4"), Exit(4, 0)),
        (("false",), Exit(0.3, 1)),
        (("sleep", "infinity"), None),
        (("sh", "-c", "exit 0 if nothing"), None),
        (("server", "--verbose", "true"), None),
        (("nginx",), None),
        (("",), None),
    ],
)
def test_commands_end_as_a_shell_would(words: tuple[str, ...], end: Exit | None) -> None:
    """Other commands run on."""
    assert command(*words) == end


@pytest.mark.parametrize(
    "name",
    [
        "crash-loop",
        "crash-loop:v1",
        "registry.example:5000/team/crash-loop",
        "registry.example/crash-loop:2@sha256:abc",
    ],
)
def test_image_names_play_what_they_are_called(name: str) -> None:
    """Registry, tag and digest do not matter."""
    assert image(name).exits == {"main": Exit(1.0, 1)}


def test_other_images_play_nothing() -> None:
    """Nor do names that only contain a known one."""
    for name in ("nginx", "my-crash-loop", "crash-loop/nginx", "", ":", "@"):
        assert image(name) == Script()


def test_annotations_win_over_image_names() -> None:
    """A Pod of a slow-start image with a start-delay waits that delay."""
    found = read_script(
        pod({"name": "main", "image": "slow-start"}, script={"start-delay": "1"}), SETTINGS
    )
    assert found.start_delay_s == 1


def test_every_annotation_is_documented() -> None:
    """The table of docs/local.md names each key the reader knows, and no other."""
    page = (ROOT / "docs" / "local.md").read_text()
    documented = set(re.findall(r"^\| `([a-z][a-z-]+)` \|", page, re.MULTILINE))
    asked: set[str] = set()

    class Recorder(dict[str, str]):
        """Annotations that note which keys the reader asks for."""

        def get(self, key: str, default: str = "") -> str:  # type: ignore[override]
            asked.add(key)
            return {"crash-loop": "false"}.get(key, default)

    words = module._Words({PREFIX + "x": "y"})
    words._values = Recorder(x="y")
    module._read_words(words, pod(), SETTINGS)
    assert asked == documented
