"""Laws of Accept: tables, partial metadata, refusals; and of the words printed for Pods."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.local.cells import human_duration
from lean_sandbox.local.jsonpath import parse_path
from lean_sandbox.local.printers import PRINTERS
from tests.local.api import PARTIAL, PARTIAL_LIST, TABLE, Room

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
NOW = datetime(2026, 1, 2, tzinfo=UTC)


async def test_the_first_form_the_server_has_is_taken(room: Room) -> None:
    """Unknown forms are passed over; with nothing left the answer is 406."""
    await room.widget("a")
    path = f"{room.widgets}/a"
    odd = "application/json;as=Odd;g=meta.k8s.io;v=v1"
    assert (await room.api.get(path, accept=f"{odd},application/json")).ok()["kind"] == "Widget"
    table = await room.api.get(path, accept=f"{TABLE},application/json")
    assert table.ok()["kind"] == "Table"
    for accept in (odd, "text/html", "image/png"):
        assert (await room.api.get(path, accept=accept)).status == 406
    assert (await room.api.get(path, accept="*/*")).ok()["kind"] == "Widget"


async def test_partial_lists_and_partial_objects_are_told_apart(room: Room) -> None:
    """Asking for the one where the other is gets no answer (a real server says 406 or 500)."""
    made = await room.widget("a")
    one = (await room.api.get(f"{room.widgets}/a", accept=PARTIAL)).ok()
    assert one["metadata"] == made["metadata"]
    assert one["kind"] == "PartialObjectMetadata"
    many = (await room.api.get(room.widgets, accept=PARTIAL_LIST)).ok()
    assert many["kind"] == "PartialObjectMetadataList"
    assert many["items"] == [one]
    assert (await room.api.get(room.widgets, accept=PARTIAL)).status >= 400
    assert (await room.api.get(f"{room.widgets}/a", accept=PARTIAL_LIST)).status >= 400


async def test_writes_answer_in_the_asked_form(room: Room) -> None:
    """Create, patch and status patch can answer with metadata alone or a Table."""
    body = {"metadata": {"name": "a"}, "data": {"k": "v"}}
    made = (await room.api.post(room.maps, body, accept=PARTIAL)).ok()
    assert set(made) == {"kind", "apiVersion", "metadata"}
    changed = (await room.api.patch(f"{room.maps}/a", {"data": {"k": "w"}}, accept=PARTIAL)).ok()
    assert changed["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    table = (await room.api.patch(f"{room.maps}/a", {"data": {"l": "x"}}, accept=TABLE)).ok()
    assert table["rows"][0]["cells"][:2] == ["a", 2]


async def test_a_table_of_pods_has_the_columns_of_kubectl(room: Room) -> None:
    """Names and priorities of the columns, and the cells of a Pending Pod."""
    await room.pod("p")
    table = (await room.api.get(room.pods, accept=TABLE)).ok()
    columns = [(column["name"], column["priority"]) for column in table["columnDefinitions"]]
    assert columns == [
        ("Name", 0),
        ("Ready", 0),
        ("Status", 0),
        ("Restarts", 0),
        ("Age", 0),
        ("IP", 1),
        ("Node", 1),
        ("Nominated Node", 1),
        ("Readiness Gates", 1),
    ]
    cells = table["rows"][0]["cells"]
    assert cells[:4] == ["p", "0/1", "Pending", "0"]
    assert cells[5:] == ["<none>"] * 4


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("services", ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"]),
        ("configmaps", ["Name", "Data", "Age"]),
        ("secrets", ["Name", "Type", "Data", "Age"]),
        ("serviceaccounts", ["Name", "Age"]),
        (
            "persistentvolumeclaims",
            [
                "Name",
                "Status",
                "Volume",
                "Capacity",
                "Access Modes",
                "StorageClass",
                "VolumeAttributesClass",
                "Age",
                "VolumeMode",
            ],
        ),
        (
            "events",
            [
                "Last Seen",
                "Type",
                "Reason",
                "Object",
                "Subobject",
                "Source",
                "Message",
                "First Seen",
                "Count",
                "Name",
            ],
        ),
    ],
)
async def test_tables_of_built_in_kinds_have_their_columns(
    room: Room, path: str, columns: list[str]
) -> None:
    """The columns a kubectl user knows."""
    table = (await room.api.get(f"{room.core}/{path}", accept=TABLE)).ok()
    assert [column["name"] for column in table["columnDefinitions"]] == columns


async def test_tables_of_cluster_kinds_have_their_columns(room: Room) -> None:
    """Namespaces, Nodes and definitions."""
    expected = {
        "/api/v1/namespaces": ["Name", "Status", "Age"],
        "/api/v1/nodes": [
            "Name",
            "Status",
            "Roles",
            "Age",
            "Version",
            "Internal-IP",
            "External-IP",
            "OS-Image",
            "Kernel-Version",
            "Container-Runtime",
        ],
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": ["Name", "Created At"],
    }
    for path, columns in expected.items():
        table = (await room.api.get(path, accept=TABLE)).ok()
        assert [column["name"] for column in table["columnDefinitions"]] == columns


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
async def test_the_status_word_of_a_pod_is_that_of_kubectl(
    obj: Json, ready: str, word: str
) -> None:
    """Waiting and terminated reasons, init progress, deletion: in kubectl's order of precedence."""
    cells = PRINTERS["pods"].cells(obj, NOW)
    assert cells[1:3] == [ready, word]
    assert cells[4] == "60s"


async def test_restarts_say_when() -> None:
    """A restarted container shows how long ago."""
    status = container(ready=True, **RUNNING) | {
        "restartCount": 3,
        "lastState": {"terminated": {"finishedAt": "2026-01-01T23:50:00Z"}},
    }
    assert PRINTERS["pods"].cells(pod("Running", status), NOW)[3] == "3 (10m ago)"


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
async def test_ages_are_short(seconds: int, text: str) -> None:
    """At most two units, coarser with age."""
    assert human_duration(seconds) == text


@given(st.integers(min_value=0, max_value=10**9))
async def test_an_age_is_never_long(seconds: int) -> None:
    """No age takes more than eight characters."""
    assert 2 <= len(human_duration(seconds)) <= 8
    assert human_duration(timedelta(seconds=seconds).total_seconds())[0].isdigit()


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        ("{.a.b}", [1]),
        (".list[0].n", ["x"]),
        (".list[-1].n", ["y"]),
        (".list[*].n", ["x", "y"]),
        (".list[?(@.n=='y')].v", [2]),
        ('.list[?(@.n=="y")].v', [2]),
        (".list[?(@.v==1)].n", ["x"]),
        (".list[?(@.n!='y')].v", [1]),
        (".labels.example\\.com/k", ["v"]),
        (".labels['example.com/k']", ["v"]),
        (".no.such", []),
        (".list[9]", []),
    ],
)
async def test_json_paths_find_what_they_name(path: str, found: list[Any]) -> None:
    """Members, indexes, wildcards, filters, escapes."""
    obj = {
        "a": {"b": 1},
        "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}],
        "labels": {"example.com/k": "v"},
    }
    assert parse_path(path)(obj) == found


async def test_a_json_path_that_cannot_be_read_is_refused() -> None:
    """Unknown syntax is an error, not an empty column."""
    with pytest.raises(ValueError, match="JSONPath"):
        parse_path(".a[")
