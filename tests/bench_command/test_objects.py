"""The realistic objects of the bench are what a cluster would hold."""

from __future__ import annotations

import msgspec
import pytest

from filters import EventType
from lean_sandbox.bench.holder import POD_FIELDS, pick
from lean_sandbox.bench.lines import pod_lines
from lean_sandbox.bench.objects import managed_fields, pair
from lean_sandbox.model.conditions import find
from lean_sandbox.model.meta import controller_of
from lean_sandbox.model.names import READY
from lean_sandbox.model.ownership import Ownership, ownership
from lean_sandbox.model.pod import Pod, metadata_patch
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.watch.representation import Representation
from lean_sandbox.watch.wire import WatchLine


def test_a_pair_decodes_as_a_ready_sandbox_with_its_own_running_pod() -> None:
    """Our decoders take both objects; the Pod is owned, ready, and its metadata is in order."""
    made = pair(7)
    sandbox = msgspec.json.decode(msgspec.json.encode(made.sandbox), type=Sandbox)
    pod = msgspec.json.decode(msgspec.json.encode(made.pod), type=Pod)
    ready = find(sandbox.status.conditions, READY)
    assert ready is not None
    assert ready.status == "True"
    assert sandbox.status.podIPs == pod.ips
    assert sandbox.status.nodeName == pod.spec.nodeName
    assert pod.is_ready_condition_true
    assert ownership(controller_of(pod.metadata), sandbox.metadata.uid) is Ownership.OWNED
    template = sandbox.spec.podTemplate.metadata
    assert metadata_patch(sandbox.metadata, template, pod.metadata) is None


def test_a_pair_is_as_large_as_in_a_cluster_and_mostly_not_for_us() -> None:
    """A Pod has 3 to 6.5 kB of JSON with managedFields; no two pairs are equal."""
    made = pair(7)
    assert 3_000 < len(msgspec.json.encode(made.pod)) < 6_500
    assert 1_500 < len(msgspec.json.encode(made.sandbox)) < 4_000
    assert len(msgspec.json.encode(made.pod["metadata"]["managedFields"])) > 1_500
    assert made == pair(7)
    uids = {obj["metadata"]["uid"] for n in range(50) for obj in (pair(n).sandbox, pair(n).pod)}
    assert len(uids) == 100


def test_managed_fields_name_list_items_by_their_keys() -> None:
    """Maps become f: keys, keyed lists k: keys, and other lists and values are leaves."""
    obj = {"spec": {"containers": [{"name": "a", "image": "b"}], "args": ["x"]}}
    entry = managed_fields("someone", "v1", obj, ("spec",), 0)
    assert entry["manager"] == "someone"
    assert "subresource" not in entry
    assert entry["fieldsV1"] == {
        "f:spec": {
            "f:containers": {
                ".": {},
                'k:{"name":"a"}': {".": {}, "f:name": {}, "f:image": {}},
            },
            "f:args": {},
        }
    }


def _name_and_version(event: WatchLine) -> tuple[str, str]:
    rows, meta = event.object.rows, event.object.metadata
    if rows is not None and rows[0].object is not None:
        meta = rows[0].object.metadata
    return meta.name, meta.resource_version


@pytest.mark.parametrize("representation", list(Representation))
def test_watch_lines_are_what_the_informer_decodes(representation: Representation) -> None:
    """Every line is one MODIFIED event; rounds repeat the Pods with newer versions."""
    lines = pod_lines(representation, 3, rounds=2)
    events = [msgspec.json.decode(line, type=WatchLine) for line in lines]
    assert [line.endswith(b"\n") for line in lines] == [True] * 6
    assert {EventType(event.type) for event in events} == {EventType.MODIFIED}
    told = [_name_and_version(event) for event in events]
    assert [name for name, _ in told[:3]] == [name for name, _ in told[3:]]
    versions = [int(version) for _, version in told]
    assert versions == sorted(set(versions))
    is_table = representation is Representation.TABLE
    assert [bool(e.object.column_definitions) for e in events] == [is_table, *[False] * 5]


def test_pruning_a_dict_keeps_the_fields_of_the_tree_only() -> None:
    """Lists are pruned item by item; what is absent stays absent."""
    pod = pair(1).pod
    kept = pick(pod, POD_FIELDS)
    assert set(kept) == {"metadata", "spec", "status"}
    assert "managedFields" not in kept["metadata"]
    assert kept["spec"] == {"nodeName": pod["spec"]["nodeName"]}
    assert {key for one in kept["status"]["conditions"] for key in one} == {"type", "status"}
