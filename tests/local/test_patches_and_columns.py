"""Laws of the parts of the embedded server: patches, selectors, sets of fields, printed cells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.local.read.printers import human_duration, pod_cells
from lean_sandbox.local.write.changes import (
    changes,
    difference,
    fields_of,
    from_wire,
    intersection,
    members,
    merge_patch,
    to_wire,
    union,
)

Json = dict[str, Any]

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below, max_size=3)
    ),
    max_leaves=8,
)


def _no_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _no_null(below) for key, below in value.items() if below is not None}
    return value


@given(target=_VALUES, patch=st.dictionaries(st.sampled_from("abc"), _VALUES, max_size=3))
def test_a_merge_patch_applied_twice_is_applied_once(target: Any, patch: Any) -> None:
    """Merge patches are idempotent, and a null removes its member."""
    once = merge_patch(_no_null(target), patch)
    again = merge_patch(_no_null(once), patch)
    assert again == once
    assert all(key not in once for key, value in patch.items() if value is None)


@given(value=_VALUES.map(_no_null))
def test_a_merge_patch_of_a_whole_object_makes_that_object(value: Any) -> None:
    """A patch on nothing is the object itself, without its nulls."""
    if isinstance(value, dict):
        assert merge_patch({}, value) == value


_STEPS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])


_PATHS = st.sets(st.lists(_STEPS, min_size=1, max_size=3).map(tuple), max_size=6)


def _tree(paths: set[tuple[str, ...]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in paths:
        at = tree
        for step in path:
            at = at.setdefault(step, {})
        at["."] = {}
    return tree


@given(left=_PATHS, right=_PATHS)
def test_sets_of_fields_are_sets(left: set[Any], right: set[Any]) -> None:
    """Union, difference and intersection agree with those of plain sets of paths."""
    one = _tree(left)
    two = _tree(right)
    assert set(members(union(one, two))) == left | right
    assert set(members(difference(one, two))) == left - right
    assert set(members(intersection(one, two))) == left & right


@given(paths=_PATHS)
def test_a_set_of_fields_survives_the_wire(paths: set[Any]) -> None:
    """What is written as fieldsV1 reads back as the same set."""
    assert set(members(from_wire(to_wire(_tree(paths))))) == paths


_OBJECTS = st.recursive(
    st.integers() | st.text(max_size=2),
    lambda below: st.dictionaries(st.sampled_from("abcd"), below, max_size=3),
    max_leaves=6,
)


@given(value=_OBJECTS)
def test_nothing_changed_is_no_fields(value: Any) -> None:
    """An object does not differ from itself, and all its leaves are new against nothing."""
    assert changes(value, value, None) == ({}, {})
    if isinstance(value, dict):
        added, removed = changes({}, value, None)
        assert removed == {}
        assert set(members(fields_of(value, None, with_self=False))) - {()} <= set(members(added))


NOW = datetime(2026, 1, 2, tzinfo=UTC)


def container(name: str = "c", *, ready: bool = False, **state: Json) -> Json:
    """Return the status of a container."""
    return {"name": name, "ready": ready, "state": state}


def pod(
    phase: str = "Pending",
    *containers: Json,
    initial: tuple[Json, ...] = (),
    conditions: tuple[tuple[str, str, str], ...] = (),
    deleting: bool = False,
) -> Json:
    """Return a Pod in some state."""
    metadata: Json = {"name": "p", "creationTimestamp": "2026-01-01T23:59:00Z"}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    return {
        "metadata": metadata,
        "spec": {
            "containers": [{"name": item["name"]} for item in containers] or [{"name": "c"}],
            "initContainers": [{"name": item["name"]} for item in initial],
        },
        "status": {
            "phase": phase,
            "containerStatuses": list(containers),
            "initContainerStatuses": list(initial),
            "conditions": [
                {"type": type_, "status": status, "reason": reason}
                for type_, status, reason in conditions
            ],
        },
    }


RUNNING: Json = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


DONE: Json = {"terminated": {"exitCode": 0, "reason": "Completed"}}


@pytest.mark.parametrize(
    ("obj", "ready", "word"),
    [
        (pod(), "0/1", "Pending"),
        (
            pod("Pending", container(waiting={"reason": "ContainerCreating"})),
            "0/1",
            "ContainerCreating",
        ),
        (pod("Running", container(ready=True, **RUNNING)), "1/1", "Running"),
        (pod("Running", container(**RUNNING)), "0/1", "Running"),
        (
            pod("Running", container(waiting={"reason": "CrashLoopBackOff"})),
            "0/1",
            "CrashLoopBackOff",
        ),
        (pod("Succeeded", container(**DONE)), "0/1", "Completed"),
        (
            pod("Failed", container(terminated={"exitCode": 1, "reason": "Error"})),
            "0/1",
            "Error",
        ),
        (pod("Failed", container(terminated={"exitCode": 3})), "0/1", "ExitCode:3"),
        (pod("Failed", container(terminated={"exitCode": 0, "signal": 9})), "0/1", "Signal:9"),
        (
            pod(
                "Running",
                container("a", **DONE),
                container("b", ready=True, **RUNNING),
                conditions=(("Ready", "True", ""),),
            ),
            "1/2",
            "Running",
        ),
        (
            pod("Running", container("a", **DONE), container("b", ready=True, **RUNNING)),
            "1/2",
            "NotReady",
        ),
        (
            pod("Pending", container(), initial=(container("i", **RUNNING), container("j"))),
            "0/1",
            "Init:0/2",
        ),
        (
            pod(
                "Pending",
                container(waiting={"reason": "PodInitializing"}),
                initial=(container("i", **DONE), container("j", **RUNNING)),
            ),
            "0/1",
            "Init:1/2",
        ),
        (
            pod(
                "Pending",
                container(),
                initial=(container("i", terminated={"exitCode": 2, "reason": "Error"}),),
            ),
            "0/1",
            "Init:Error",
        ),
        (
            pod(conditions=(("PodScheduled", "False", "SchedulingGated"),)),
            "0/1",
            "SchedulingGated",
        ),
        (
            pod("Running", container(ready=True, **RUNNING), deleting=True),
            "1/1",
            "Terminating",
        ),
        (pod("Succeeded", container(**DONE), deleting=True), "0/1", "Completed"),
    ],
)
def test_the_status_word_of_a_pod_is_that_of_kubectl(obj: Json, ready: str, word: str) -> None:
    """Waiting and terminated reasons, init progress, deletion: in kubectl's order of precedence."""
    cells = pod_cells(obj, NOW)
    assert cells[1:3] == [ready, word]
    assert cells[4] == "60s"


def test_restarts_say_when() -> None:
    """A restarted container shows how long ago."""
    status = container(ready=True, **RUNNING) | {
        "restartCount": 3,
        "lastState": {"terminated": {"finishedAt": "2026-01-01T23:50:00Z"}},
    }
    assert pod_cells(pod("Running", status), NOW)[3] == "3 (10m ago)"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (9 * 3600, "9h"),
        (50 * 3600, "2d2h"),
        (10 * 86400, "10d"),
        (800 * 86400, "2y70d"),
    ],
)
def test_ages_are_short(seconds: int, text: str) -> None:
    """At most two units, coarser with age."""
    assert human_duration(seconds) == text


@given(st.integers(min_value=0, max_value=10**9))
def test_an_age_is_never_long(seconds: int) -> None:
    """No age takes more than eight characters."""
    assert 2 <= len(human_duration(seconds)) <= 8
    assert human_duration(timedelta(seconds=seconds).total_seconds())[0].isdigit()
