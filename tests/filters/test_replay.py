"""Laws of the replay: every line of a log is accounted for, whatever it holds."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from filters import (
    Decision,
    EventType,
    Filter,
    Predicate,
    annotation,
    any_of,
    column,
    deletion,
    from_json,
    generation,
    if_known,
    labels,
    owners,
)
from filters.events import ObservedObject
from filters.replay import Decide, Explained, LineOutcome, explain, replay
from tests.filters.objects import POD_COLUMNS, partial, table

SANDBOXES = any_of(
    generation(),
    deletion(),
    labels(),
    annotation("agents.x-k8s.io/pod-name"),
    column("Ready"),
    column("Reason"),
)
PODS = any_of(
    deletion(),
    labels(),
    owners(),
    column("Ready"),
    column("Status"),
    if_known(column("Readiness Gates")),
)


def by_predicate(predicate: Predicate) -> Decide:
    """Return what decides by a predicate, as an operator would."""
    memory = Filter(predicate)

    def decide(
        event_type: EventType, obj: Any, columns: Mapping[str, str] | None
    ) -> tuple[ObservedObject, Decision]:
        observed = from_json(obj, columns=columns)
        return observed, memory.admit(event_type, observed)

    return decide


def replayed(log: list[Any], predicate: Predicate) -> list[Explained]:
    """Return what a predicate makes of a log."""
    return list(replay(log, by_predicate(predicate)))


def event(kind: str, obj: Any) -> str:
    """Return one line of a log."""
    return json.dumps({"type": kind, "object": obj})


def sandbox_row(
    version: str, ready: str | None, reason: str | None, **metadata: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Return a Table row of a Sandbox; the age moves with the version."""
    return ["box", ready, reason, f"{version}s"], partial(version=version, generation=1, **metadata)


SANDBOX_COLUMNS = ("Name", "Ready", "Reason", "Age")

SANDBOX_LOG = [
    event("ADDED", table(sandbox_row("1", None, None), columns=SANDBOX_COLUMNS)),
    event("MODIFIED", table(sandbox_row("2", None, None, annotations={"noise": "1"}))),
    event("MODIFIED", table(sandbox_row("3", "False", "DependenciesNotReady"))),
    event("BOOKMARK", table(([], partial("", uid="", version="9")))),
    event("MODIFIED", table(sandbox_row("4", "False", "SandboxExpired"))),
    event("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"}),
    event("ADDED", table(sandbox_row("4", "False", "SandboxExpired"))),
    event("ADDED", table(sandbox_row("1", "False", "SandboxExpired", uid="uid-2"))),
    '{"type": "MODIFIED", "object": {"metad',
    "",
    event("DELETED", table(sandbox_row("6", "False", "SandboxExpired", uid="uid-2"))),
]

EXPECTED = [
    (1, "passed", "first sight"),
    (
        2,
        "dropped",
        (
            "nothing of [generation, deletion, labels, annotation agents.x-k8s.io/pod-name, "
            "column Ready, column Reason] changed"
        ),
    ),
    (3, "passed", "column Ready empty -> False; column Reason empty -> DependenciesNotReady"),
    (4, "bookmark", "bookmark"),
    (5, "passed", "column Reason DependenciesNotReady -> SandboxExpired"),
    (6, "error", "410 too old resource version"),
    (7, "dropped", None),
    (8, "passed", "re-created: uid uid-1 -> uid-2"),
    (9, "broken", None),
    (11, "passed", "deleted"),
]


def test_a_table_log_is_explained_line_by_line() -> None:
    """Definitions come once; a relist, a gap, an error and a torn line are all told apart."""
    found = replayed(SANDBOX_LOG, SANDBOXES)
    assert [(item.line, item.outcome.value) for item in found] == [row[:2] for row in EXPECTED]
    for item, (_, _, reason) in zip(found, EXPECTED, strict=True):
        assert reason in (item.reason, None)
    assert found[8].reason.startswith("JSONDecodeError: ")


def test_raw_bytes_and_text_are_read_alike() -> None:
    """A log opened in binary mode gives the same answer."""
    raw = [f"{line}\r\n".encode() for line in SANDBOX_LOG]
    assert [item.text() for item in replayed(raw, SANDBOXES)] == [
        item.text() for item in replayed(SANDBOX_LOG, SANDBOXES)
    ]


def pod_object(phase: str, *, ready: bool = False, **status: Any) -> dict[str, Any]:
    """Return a full Pod as recorded without columns."""
    state = (
        {"running": {"startedAt": "t"}} if ready else {"waiting": {"reason": "ContainerCreating"}}
    )
    return {
        "kind": "Pod",
        "metadata": partial()["metadata"],
        "spec": {"containers": [{"name": "c"}]},
        "status": {
            "phase": phase,
            "containerStatuses": [{"ready": ready, "state": state}],
            **status,
        },
    }


def test_a_log_of_full_objects_is_judged_by_derived_columns() -> None:
    """Phase churn of a starting Pod is dropped, readiness passes, as with a Table watch."""
    ips = [{"ip": "10.0.0.1"}]
    log = [
        event("ADDED", pod_object("Pending")),
        event(
            "MODIFIED",
            pod_object("Pending", conditions=[{"type": "Initialized", "status": "True"}]),
        ),
        event("MODIFIED", pod_object("Running", ready=True, podIPs=ips)),
        event("MODIFIED", pod_object("Running", ready=True, podIPs=ips, qosClass="BestEffort")),
    ]
    found = replayed(log, any_of(deletion(), column("Ready"), column("IP")))
    assert [item.outcome.value for item in found] == ["passed", "dropped", "passed", "dropped"]
    assert found[2].reason == "column Ready 0/1 -> 1/1; column IP <none> -> 10.0.0.1"
    assert found[2].leaves == ("column Ready", "column IP")


def test_a_log_of_metadata_alone_passes_what_it_cannot_judge() -> None:
    """Without columns the leaves over columns have no opinion, and say so."""
    log = [event("ADDED", partial()), event("MODIFIED", partial(version="2"))]
    found = replayed(log, PODS)
    assert found[1].outcome is LineOutcome.PASSED
    assert "column Ready unknown" in found[1].reason
    judged = replayed(log, any_of(generation()))
    assert judged[1].reason == "generation unknown"


def test_a_server_without_readiness_gates_column_does_not_pass_everything() -> None:
    """An optional column counts only where it exists."""
    cells = {"Name": "box", "Ready": "1/1", "Status": "Running", "IP": "10.0.0.1", "Node": "n"}
    columns = tuple(name for name in POD_COLUMNS if name in cells)
    row = ([cells[name] for name in columns], partial())
    log = [event("ADDED", table(row, columns=columns)), event("MODIFIED", table(row))]
    found = replayed(log, PODS)
    assert found[1].outcome is LineOutcome.DROPPED


def test_bare_objects_lists_and_tables_are_states() -> None:
    """Documents without an envelope are judged one by one, all rows and items on one line."""
    log = [
        json.dumps(partial(generation=1)),
        json.dumps({"kind": "List", "items": [partial(generation=1), partial("b", uid="u2")]}),
        json.dumps(table(([], partial(generation=2)), ([], partial("c", uid="u3")))),
    ]
    found = [
        (item.line, item.object.name, item.outcome.value) for item in replayed(log, generation())
    ]
    assert found == [
        (1, "box", "passed"),
        (2, "box", "dropped"),
        (2, "b", "passed"),
        (3, "box", "passed"),
        (3, "c", "passed"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[]",
        "3",
        "{}",
        '{"type": "NEWS", "object": {"metadata": {}}}',
        '{"type": "ADDED", "object": null}',
        '{"type": "ADDED", "object": {"kind": "Table", "rows": [{"cells": []}]}}',
        '{"type": "ADDED", "object": {"kind": "Pod", "metadata": {}, "spec": [], "status": 1}}',
        '{"type": "ADDED", "object": {"kind": "Table", "rows": []}}',
        "[" * 100_000,
        b"\xff\xfe{",
    ],
)
def test_a_broken_line_is_reported_with_its_number_and_is_not_fatal(line: str | bytes) -> None:
    """The lines before and after are judged as if it were not there."""
    good = event("ADDED", partial(generation=1))
    found = replayed([good, line, good], generation())
    assert [(item.line, item.outcome.value) for item in found] == [
        (1, "passed"),
        (2, "broken"),
        (3, "dropped"),
    ]
    assert found[1].reason


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
METADATA_KEYS = ("uid", "name", "labels", "annotations", "finalizers", "ownerReferences")
metadata_values = st.fixed_dictionaries({}, optional=dict.fromkeys(METADATA_KEYS, json_values))
documents = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"])
        | json_values,
        "object": json_values
        | st.fixed_dictionaries(
            {"metadata": metadata_values | json_values},
            optional={
                "kind": st.sampled_from(["Pod", "Sandbox", "Table"]),
                "spec": json_values,
                "status": json_values,
                "rows": json_values,
                "columnDefinitions": json_values,
                "items": json_values,
            },
        ),
    }
)


@given(log=st.lists(documents.map(json.dumps) | st.text(max_size=20), max_size=6))
@example(log=[json.dumps({"type": "ADDED", "object": {"kind": "Pod"}}), "neither"])
@example(log=[json.dumps({"type": "ADDED", "object": {"metadata": {}, "kind": "Table"}})])
def test_no_log_can_end_a_replay(log: list[str]) -> None:
    """Any JSON and any text give at most explanations, never an error."""
    for predicate in (PODS, SANDBOXES):
        items = replayed(log, predicate)
        assert items or not any(line.strip() for line in log)
        for item in items:
            assert item.text()


def test_the_text_form_ends_with_the_summary() -> None:
    """One line for each event, then the counts, the causes and the broken lines."""
    out = io.StringIO()
    summary = explain(SANDBOX_LOG, by_predicate(SANDBOXES), out=out)
    lines = out.getvalue().splitlines()
    assert lines[0] == "     1 passed   ADDED    default/box@1  first sight"
    assert lines[2].endswith(
        "box@3  column Ready empty -> False; column Reason empty -> DependenciesNotReady"
    )
    assert lines[-3:] == [
        "7 events: 5 passed, 2 dropped (29%); 1 bookmarks, 1 errors, 1 broken lines",
        "passed by: column Reason 2, column Ready 1, deleted 1, first sight 1, re-created 1",
        "broken lines: 9",
    ]
    assert (summary.events, summary.broken_lines) == (7, [9])


def test_an_empty_log_has_a_summary() -> None:
    """No events are no division by zero."""
    summary = explain([], by_predicate(generation()), out=io.StringIO())
    assert summary.events == 0
    assert summary.text().startswith("0 events: 0 passed, 0 dropped (0%)")


@pytest.mark.parametrize(
    "row",
    [
        {"cells": ["1/1"]},
        {"cells": ["1/1", "Running", "more"]},
        {"cells": {"0": "1/1", "1": "Running"}},
        {"cells": None},
        {},
    ],
)
def test_cells_that_do_not_fit_the_columns_are_none(row: dict[str, Any]) -> None:
    """Such a row is one of metadata alone: nothing is judged by cells of other columns."""
    head = table((["1/1", "Running"], partial()), columns=("Ready", "Status"))
    odd = {"kind": "Table", "rows": [{**row, "object": partial(version="2")}]}
    first, found = replayed([event("ADDED", head), event("MODIFIED", odd)], column("Ready"))
    assert first.object is not None
    assert found.object is not None
    assert first.object.columns == {"Ready": "1/1", "Status": "Running"}
    assert found.object.columns is None
    bare = replayed([event("ADDED", table(([], pod_object("Running", ready=True))))], PODS)
    assert bare[0].object is not None
    assert bare[0].object.columns == from_json(pod_object("Running", ready=True)).columns


@pytest.mark.parametrize("half", ["type", "object"])
def test_an_object_with_one_field_of_an_envelope_is_an_object(half: str) -> None:
    """Some kinds have a field of that name; only both make an event."""
    (found,) = replayed([json.dumps({**partial(generation=1), half: "x"})], generation())
    assert (found.outcome, found.object is not None) == (LineOutcome.PASSED, True)


@pytest.mark.parametrize(("broken", "ends"), [(10, ""), (11, ", ..."), (500, ", ...")])
def test_ten_broken_lines_are_shown_and_named(broken: int, ends: str) -> None:
    """And that there are more; what stands between or behind them is explained as ever."""
    out = io.StringIO()
    log = ["no log\n"] * broken + [event("ADDED", partial(generation=1))]
    summary = explain(log, by_predicate(generation()), out=out)
    *told, last, _, _, named = out.getvalue().splitlines()
    assert [" broken " in line for line in told] == [True] * 10
    assert "first sight" in last
    assert named == f"broken lines: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10{ends}"
    assert len(summary.broken_lines) == broken
