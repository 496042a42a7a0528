"""Laws of reading a Pod's annotations."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.local.kubelet.pods import PREFIX, Script, read_script
from tests.docs.pages import ROOT

# The table of docs/local.md.
_ROW = re.compile(r"^\| `([a-z][a-z-]+)` \|", re.MULTILINE)
DOCUMENTED = set(_ROW.findall((ROOT / "docs" / "local.md").read_text()))


def read(**script: str) -> Script:
    """Read the script of a Pod with these annotations."""
    return read_script({PREFIX + k.replace("_", "-"): v for k, v in script.items()})


def test_a_plain_pod_plays_nothing() -> None:
    """Nor does one with annotations of others."""
    for theirs in (None, {}, {"example.com/crash-loop": "true"}):
        assert read_script(theirs) == Script()


def test_durations_are_go_durations_or_seconds() -> None:
    """Both mean the same."""
    assert read(ready_delay="1m30s").ready_delay == 90
    assert read(ready_delay="90").ready_delay == 90
    assert read(ready_delay=" 250ms ").ready_delay == 0.25


def test_true_means_for_ever_and_false_means_no() -> None:
    """For all of them."""
    assert read(image_pull_error="TRUE").image_pull_error == math.inf
    assert read(image_pull_error="5s").image_pull_error == 5
    assert read(image_pull_error="false").image_pull_error is None


def test_containers_end_when_they_crash_or_are_done() -> None:
    """A crash comes first, after a second if nothing else is said."""
    for script, end in (
        (read(crash_loop="3s"), 3),
        (read(crash_loop="0"), 0),
        (read(crash_loop="true"), 1),
        (read(crash_loop="3s", complete_after="2"), 3),
        (read(complete_after="5"), 5),
        (read(), None),
    ):
        assert script.ends_after == end


@pytest.mark.parametrize("key", sorted(DOCUMENTED))
@pytest.mark.parametrize("value", ["?", "-1", "1e999", "nan", "--", ""])
def test_what_cannot_be_read_is_told_and_left_out(key: str, value: str) -> None:
    """With the annotation's name and what it takes; the rest of the script holds."""
    other = "evict-after" if key != "evict-after" else "unready-after"
    found = read_script({PREFIX + key: value, PREFIX + other: "3"})
    (told,) = found.mistakes
    assert told.startswith(f"{PREFIX}{key}: {value!r} is not ")
    assert getattr(found, other.replace("-", "_")) == 3


def test_an_annotation_that_does_not_exist_is_told() -> None:
    """A mistyped name would be a script that silently plays nothing."""
    (told,) = read(crash_lop="true").mistakes
    assert told == f"{PREFIX}crash-lop: crash-lop is not the name of an annotation"


@given(st.dictionaries(st.sampled_from([*sorted(DOCUMENTED), "", "new", "mistakes"]), st.text()))
def test_no_annotation_breaks_the_reader(script: dict[str, str]) -> None:
    """Any text is read or told."""
    found = read_script({PREFIX + key: value for key, value in script.items()})
    assert len(found.mistakes) <= len(script)


@pytest.mark.parametrize("key", sorted(DOCUMENTED))
def test_every_documented_annotation_is_read(key: str) -> None:
    """With both kinds of values that docs/local.md names, and none of them is a mistake."""
    for value in ("true", "1m30s"):
        found = read_script({PREFIX + key: value})
        assert found.mistakes == ()
        assert found != Script()


def test_every_annotation_is_documented() -> None:
    """Each field of a script has its line in docs/local.md."""
    fields = set(Script.__dataclass_fields__) - {"mistakes"}
    assert {field.replace("_", "-") for field in fields} == DOCUMENTED
