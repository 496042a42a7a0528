"""Laws of Accept: tables, partial metadata, refusals; and of the words printed for Pods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lean_sandbox.local.read.printers import pod_cells
from tests.conformance.api import PARTIAL, PARTIAL_LIST, TABLE, Room
from tests.conformance.objects import pod

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]


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


def _container(name: str = "main", *, ready: bool = False, **state: Any) -> Json:
    common = {"image": "i", "imageID": "", "restartCount": 0, "lastState": {}}
    return {"name": name, "ready": ready, "state": state, **common}


_RUNNING = _container(ready=True, running={})
_COMPLETED = _container(terminated={"reason": "Completed", "exitCode": 0})
_INIT = {"name": "init", "image": "i"}
_SIDECAR = {"name": "side", "image": "i", "restartPolicy": "Always"}
_SIDE_RUNNING = {**_container("side", ready=True, running={}), "started": True}
_SIDE_STARTED = {**_container("side", ready=True, waiting={"reason": "Odd"}), "started": True}
_PODS: dict[str, tuple[Json, Json]] = {
    "placed": (
        {"nodeName": "n"},
        {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
    ),
    "running": ({}, {"phase": "Running", "containerStatuses": [_RUNNING]}),
    "ready but not running": ({}, {"containerStatuses": [_container(ready=True, waiting={})]}),
    "crash loop": (
        {},
        {
            "phase": "Running",
            "containerStatuses": [_container(waiting={"reason": "CrashLoopBackOff"})],
        },
    ),
    "exit code": ({}, {"containerStatuses": [_container(terminated={"exitCode": 3})]}),
    "signal": ({}, {"containerStatuses": [_container(terminated={"exitCode": 9, "signal": 9})]}),
    "evicted": ({}, {"phase": "Failed", "reason": "Evicted"}),
    "not ready": (
        {"containers": [{"name": "main", "image": "i"}, {"name": "two", "image": "i"}]},
        {
            "phase": "Running",
            "containerStatuses": [_COMPLETED, _container("two", ready=True, running={})],
        },
    ),
    "init": (
        {"initContainers": [_INIT, {**_INIT, "name": "more"}]},
        {
            "initContainerStatuses": [
                _container("init", terminated={"exitCode": 0}),
                _container("more", waiting={"reason": "PodInitializing"}),
            ]
        },
    ),
    "init failed": (
        {"initContainers": [_INIT]},
        {"initContainerStatuses": [_container("init", terminated={"exitCode": 1})]},
    ),
    "init again after it was done": (
        {"initContainers": [_INIT]},
        {
            "conditions": [{"type": "Initialized", "status": "True"}],
            "initContainerStatuses": [_container("init", running={})],
            "containerStatuses": [_RUNNING],
        },
    ),
    "sidecar": (
        {"initContainers": [_SIDECAR]},
        {
            "phase": "Running",
            "initContainerStatuses": [_SIDE_RUNNING],
            "containerStatuses": [_RUNNING],
        },
    ),
    "sidecar that is ready and does not run": (
        {"initContainers": [_SIDECAR]},
        {"initContainerStatuses": [_SIDE_STARTED], "containerStatuses": [_RUNNING]},
    ),
    "gates": (
        {"readinessGates": [{"conditionType": "a.b/c"}, {"conditionType": "a.b/d"}]},
        {"conditions": [{"type": "a.b/c", "status": "True"}]},
    ),
    "scheduling gate": ({"schedulingGates": [{"name": "a.b/c"}]}, {}),
    "nominated": ({}, {"nominatedNodeName": "n"}),
}


@pytest.mark.parametrize("case", _PODS)
async def test_the_columns_of_a_pod_are_those_of_the_server(room: Room, case: str) -> None:
    """What is printed for a Pod is what the server prints for it, ages apart."""
    spec, status = _PODS[case]
    body = pod("p")
    body["spec"].update(spec)
    (await room.api.post(room.pods, body)).ok()
    path = f"{room.pods}/p"
    full = (await room.api.patch(f"{path}/status", {"status": status})).ok()
    table = (await room.api.get(path, accept=TABLE)).ok()
    names = [column["name"] for column in table["columnDefinitions"]]
    printed = dict(zip(names, table["rows"][0]["cells"], strict=True))
    ours = dict(zip(names, pod_cells(full, datetime.now(UTC)), strict=True))
    for name in ("Age", "Restarts"):
        del ours[name], printed[name]
    assert ours == printed


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


@pytest.mark.parametrize("form", [TABLE, PARTIAL_LIST])
async def test_a_form_is_of_the_version_that_was_asked_for(room: Room, form: str) -> None:
    """A server that lacks it says so: nobody gets another one than he can read."""
    reply = await room.api.get(room.maps, accept=f"{form}beta1")
    assert reply.status == 406 or reply.json["apiVersion"] == "meta.k8s.io/v1beta1"
