"""Laws of reading objects from JSON."""

from __future__ import annotations

import pytest

from filters import Change, from_json
from filters.events import Owner
from tests.filters.objects import partial


def test_metadata_is_read_into_plain_attributes() -> None:
    """Every attribute predicates read comes from the field of the same meaning."""
    obj = from_json(
        partial(
            version="7",
            generation=3,
            labels={"a": "b"},
            annotations={"c": "d"},
            deletionTimestamp="2026-01-02T03:04:05Z",
            ownerReferences=[
                {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": True},
                {"apiVersion": "v1", "kind": "K", "name": "m", "uid": "w"},
            ],
        )
    )
    assert (obj.name, obj.namespace) == ("box", "default")
    assert (obj.uid, obj.resource_version) == ("uid-1", "7")
    assert (obj.generation, obj.labels, obj.annotations) == (3, {"a": "b"}, {"c": "d"})
    assert obj.deletion_timestamp == "2026-01-02T03:04:05Z"
    assert obj.owners == (Owner("u", controller=True), Owner("w", controller=False))
    assert obj.columns is None


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"metadata": 3},
        {"metadata": {"labels": ["a"]}},
        {"kind": "Pod", "metadata": {}, "spec": [], "status": 1},
        {"kind": "Pod", "metadata": {}, "status": {"podIPs": {"ip": "x"}}},
    ],
)
def test_an_unusable_object_is_a_value_error(document: dict[str, object]) -> None:
    """What is not of the right shape is refused with one kind of error."""
    with pytest.raises(ValueError, match="the object"):
        from_json(document)


def test_a_pod_shows_its_readiness_and_first_address() -> None:
    """A sidecar counts like a container; one that is ready but not running does not."""
    pod = {
        **partial(),
        "kind": "Pod",
        "spec": {
            "containers": [{"name": "c"}, {"name": "d"}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        },
    }
    assert from_json(pod).columns == {"Ready": "0/3", "IP": "<none>"}
    pod["status"] = {
        "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd::1"}],
        "containerStatuses": [
            {"name": "c", "ready": True, "state": {"running": {}}},
            {"name": "d", "ready": True},
        ],
        "initContainerStatuses": [{"name": "i", "ready": True}, {"name": "s", "ready": True}],
    }
    assert from_json(pod).columns == {"Ready": "2/3", "IP": "10.0.0.1"}


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        dict.fromkeys(("uid", "name", "namespace", "resourceVersion", "deletionTimestamp")),
        dict.fromkeys(("generation", "labels", "annotations", "ownerReferences")),
        {"generation": "3", "labels": {}, "annotations": {}, "ownerReferences": []},
    ],
)
def test_metadata_that_says_nothing_is_empty(metadata: dict[str, object]) -> None:
    """Null is as absent; a generation that is no number is none."""
    obj = from_json({"metadata": metadata})
    assert obj == from_json({"metadata": {}})
    assert (obj.generation, obj.deletion_timestamp, obj.namespace) == (None, None, "")
    assert (obj.labels, obj.annotations, obj.owners) == ({}, {}, ())


@pytest.mark.parametrize(
    ("read", "given", "text"),
    [
        ("uid", {"uid": 5}, "5"),
        ("name", {"name": 5}, "5"),
        ("namespace", {"namespace": 5}, "5"),
        ("resource_version", {"resourceVersion": 5}, "5"),
        ("deletion_timestamp", {"deletionTimestamp": 5}, "5"),
        ("labels", {"labels": {1: 2}}, {"1": "2"}),
        ("annotations", {"annotations": {1: None}}, {"1": "None"}),
        ("owners", {"ownerReferences": [{"uid": 5}]}, (Owner("5", controller=False),)),
        ("owners", {"ownerReferences": [{"uid": None}]}, (Owner("", controller=False),)),
        ("owners", {"ownerReferences": [{"controller": 1}]}, (Owner("", controller=False),)),
    ],
)
def test_what_should_be_text_is_read_as_text(
    read: str, given: dict[str, object], text: object
) -> None:
    """A recorded log may have been written by anything."""
    assert getattr(from_json({"metadata": given}), read) == text


@pytest.mark.parametrize(
    ("status", "columns"),
    [
        (None, {"Ready": "", "Reason": ""}),
        ({}, {"Ready": "", "Reason": ""}),
        ({"conditions": [{"type": "Ready"}]}, {"Ready": "", "Reason": ""}),
        (
            {"conditions": [{"type": "Other"}, {"type": "Ready", "status": True, "reason": 5}]},
            {"Ready": "True", "Reason": "5"},
        ),
    ],
)
def test_a_full_object_shows_its_condition_ready(status: object, columns: dict[str, str]) -> None:
    """A spec or a status makes it a full one; whoever has its columns may hand them in."""
    assert from_json({"metadata": {}, "status": status}).columns == columns
    assert from_json({"metadata": {}, "status": status}, columns={"A": "b"}).columns == {"A": "b"}
    assert from_json({"metadata": {}, "spec": {}}).columns == {"Ready": "", "Reason": ""}


def test_a_pod_has_the_first_of_its_addresses() -> None:
    """None before there is any; whatever the value, it is text."""
    for ips, shown in (([], "<none>"), ([{}], "<none>"), ([{"ip": 5}, {"ip": "6"}], "5")):
        pod = {"kind": "Pod", "metadata": {}, "spec": {}, "status": {"podIPs": ips}}
        assert (from_json(pod).columns or {})["IP"] == shown


def test_each_change_has_a_bit_of_its_own() -> None:
    """So that several of them are told at once."""
    bits = [one.value for one in Change if one]
    assert bits == [1 << place for place in range(len(bits))]
