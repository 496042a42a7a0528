"""``lean-sandbox explain`` says of a recorded watch what the running controller makes of it."""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from filters.replay import LineOutcome, explain, replay
from lean_sandbox.config.options import Settings
from lean_sandbox.errors import ConfigError
from lean_sandbox.watch.explain import by_cache, by_kind, caches_by_kind
from tests.support.world import open_world
from tests.watch.hand import Hand
from tests.watch.objects import (
    POD_COLUMNS,
    SANDBOX_COLUMNS,
    Json,
    event,
    meta,
    owned_by,
    partial,
    pod_row,
    sandbox,
    sandbox_row,
    table,
    table_bookmark,
)


async def test_every_watched_kind_is_explained_by_the_predicate_that_runs() -> None:
    """The kinds, their predicates and what contradicts an entry are those of the controller."""
    async with open_world(Settings(sandbox_status_window=1.0, extensions=True)) as world:
        running = {cache.kind.resource.plural: cache.kind for cache in world.whole.all_caches}
    explained = {cache.kind.resource.plural: cache.kind for cache in caches_by_kind().values()}
    assert explained.keys() == running.keys()
    for plural, kind in running.items():
        assert explained[plural].predicate == kind.predicate
        assert explained[plural].suspects is kind.suspects


KINDS = sorted(caches_by_kind())
# For each of the kinds, which have nearly all of it in common.
FEW = settings(max_examples=settings.default.max_examples // 4)  # type: ignore[union-attr]
METADATA = st.fixed_dictionaries(
    {"generation": st.integers(1, 2), "uid": st.sampled_from(["u1", "u1", "u1", "u2"])},
    optional={
        "labels": st.dictionaries(
            st.sampled_from(["app", "agents.x-k8s.io/sandbox-name-hash"]), st.sampled_from("xy")
        ),
        "annotations": st.dictionaries(
            st.sampled_from(["note", "agents.x-k8s.io/pod-name"]), st.sampled_from("xy")
        ),
        "deletionTimestamp": st.just("2026-01-02T03:04:05Z"),
        "ownerReferences": st.sampled_from([owned_by("a"), owned_by("b", controller=False)]),
    },
)
EVENTS = st.lists(
    st.tuples(st.sampled_from(["ADDED", "MODIFIED", "MODIFIED", "DELETED"]), METADATA),
    min_size=2,
    max_size=8,
)


def outcomes(kind: str, log: list[Json]) -> list[str]:
    """Return what ``explain`` says became of each event."""
    lines = [json.dumps(line) for line in log]
    return [item.outcome.value for item in replay(lines, by_cache(caches_by_kind()[kind]))]


def woken(kind: str, log: list[Json], *, full: bool) -> list[str]:
    """Return which events of a watch reach the controllers, through decoder and cache."""
    hand = Hand(caches_by_kind()[kind].kind)
    found = []
    for line in log:
        hand.deltas.clear()
        encoded = msgspec.json.encode(line)
        (hand.feed.full_line if full else hand.feed.line)(encoded)
        found.append("passed" if hand.deltas else "dropped")
    return found


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(events=EVENTS)
def test_metadata_passes_exactly_when_the_controller_is_woken(
    kind: str, events: list[tuple[str, Json]]
) -> None:
    """Whatever changes in metadata, in whatever order."""
    log = [
        partial(event_type, meta("a", version, **fields))
        for version, (event_type, fields) in enumerate(events, start=1)
    ]
    assert outcomes(kind, log) == woken(kind, log, full=False)


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(events=EVENTS)
def test_full_objects_pass_exactly_when_the_controller_is_woken(
    kind: str, events: list[tuple[str, Json]]
) -> None:
    """As on a server that sends nothing else, and as claims and templates always come."""
    log = [
        event(event_type, {"metadata": meta("a", version, **fields), "spec": {}})
        for version, (event_type, fields) in enumerate(events, start=1)
    ]
    assert outcomes(kind, log) == woken(kind, log, full=True)


CELLS = st.fixed_dictionaries(
    {
        "ready": st.sampled_from(["0/1", "1/1"]),
        "status": st.sampled_from(["Pending", "ContainerCreating", "Running", "Error"]),
        "ip": st.sampled_from(["<none>", "10.0.0.1"]),
        "node": st.sampled_from(["<none>", "node-1"]),
    }
)


@given(rows=st.lists(CELLS, min_size=1, max_size=8))
def test_rows_of_pods_pass_exactly_when_the_controller_is_woken(rows: list[dict[str, str]]) -> None:
    """The columns that the controller reads decide; a word of waiting for another does not."""
    log = [
        pod_row("MODIFIED", "a", version, first=version == 1, **cells)
        for version, cells in enumerate(rows, start=1)
    ]
    assert outcomes("Pod", log) == woken("Pod", log, full=False)


def words(kind: str, *log: Json) -> list[str]:
    """Return the reasons that ``explain`` gives."""
    lines = [json.dumps(line) for line in log]
    return [item.reason for item in replay(lines, by_cache(caches_by_kind()[kind]))]


NOTHING_CHANGED = (
    "nothing of [deletion, owners, labels, managed metadata, status, waiting reason, column IP, "
    "column Node, version while unscheduled] changed"
)


def test_a_log_of_pods_is_explained_in_words() -> None:
    """The columns come with the first event, be it a bookmark; a known version says nothing new."""
    labels: Any = {"labels": {"app": "web"}}
    assert words(
        "Pod",
        table_bookmark(1, POD_COLUMNS),
        pod_row("ADDED", "a", 2, status="Pending", ready="0/1", **labels),
        pod_row("MODIFIED", "a", 3, status="ContainerCreating", ready="0/1", **labels),
        pod_row("MODIFIED", "a", 4, **labels),
        pod_row("MODIFIED", "a", 4, **labels),
        pod_row("DELETED", "a", 5, **labels),
    ) == [
        "bookmark",
        "first sight",
        NOTHING_CHANGED,
        "status waiting -> ready",
        "known already",
        "deleted",
    ]


def test_a_foreign_status_of_a_sandbox_contradicts_what_is_remembered() -> None:
    """As in the controller, which fetches again."""
    row = sandbox_row("MODIFIED", "a", 2, first=True)
    # Some ask for whole objects in rows: the controller reads their columns, too.
    row["object"]["rows"][0]["object"]["spec"] = {}
    told = words(
        "Sandbox",
        event("ADDED", sandbox("a", 1)),
        row,
        sandbox_row("MODIFIED", "a", 3, ready="False"),
    )
    assert told[0] == "first sight"
    assert told[1].startswith("nothing of [")
    assert told[2] == "condition Ready True -> False"


def test_a_kind_that_is_not_watched_is_told() -> None:
    """As the kind to begin with it ends the command; as that of an object, it ends its line."""
    with pytest.raises(ConfigError, match=r"Node is not watched.*use Sandbox"):
        by_kind("Node")
    log = [
        event("ADDED", {"kind": "Node", "metadata": meta("n", 1)}),
        event("ADDED", {"kind": ["Node"], "metadata": meta("n", 1)}),
        partial("ADDED", meta("a", 2)),
    ]
    lines = [json.dumps(line) for line in log]
    told = [(item.outcome, item.reason) for item in replay(lines, by_kind("Pod"))]
    assert [outcome.value for outcome, _ in told] == ["broken", "broken", "passed"]
    assert "Node is not watched" in told[0][1]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
DOCUMENTS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]),
        "object": st.fixed_dictionaries(
            {
                "metadata": st.fixed_dictionaries(
                    {},
                    optional=dict.fromkeys(("uid", "name", "labels", "managedFields"), JSON_VALUES),
                )
            },
            optional=dict.fromkeys(("spec", "status", "rows", "items"), JSON_VALUES),
        ),
    }
)


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(log=st.lists(DOCUMENTS, min_size=1, max_size=4))
@example(log=[{"type": "ADDED", "object": {}}, {"type": "ADDED", "object": {"metadata": 3}}])
def test_no_object_can_end_an_explanation(kind: str, log: list[Any]) -> None:
    """What cannot be understood is a broken line, and the next one is explained."""
    out = io.StringIO()
    lines = [json.dumps(line) for line in (*log, partial("ADDED", meta("z", 9)))]
    summary = explain(lines, by_cache(caches_by_kind()[kind]), out=out)
    assert sum(summary.counts.values()) >= len(lines)
    last = next(line for line in out.getvalue().splitlines() if "ns/z@9" in line)
    assert last.split()[1] == LineOutcome.PASSED


@pytest.mark.parametrize("missing", ["Ready", "Reason"])
def test_a_table_without_a_column_is_explained_as_the_controller_takes_it(missing: str) -> None:
    """An older or newer server may lack one: then no column counts, and metadata decides."""
    columns = [name for name in SANDBOX_COLUMNS if name != missing]
    rows = [
        table("ADDED", meta("a", 1, generation=1), ["a", "x", "1m"], columns),
        table("MODIFIED", meta("a", 2, generation=1), ["a", "y", "2m"], columns),
        table("MODIFIED", meta("a", 3, generation=2), ["a", "y", "3m"], columns),
    ]
    assert outcomes("Sandbox", rows) == woken("Sandbox", rows, full=False)
    assert outcomes("Sandbox", rows) == ["passed", "dropped", "passed"]
