"""What companions keep of an object, whatever it says."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import pytest

from lean_sandbox.companions.autoscalers import AutoscalerItem, build_autoscaler
from lean_sandbox.companions.kinds import (
    ClaimItem,
    CompanionSandboxEntry,
    FailedPodEntry,
    PodItem,
    SandboxItem,
    build_claim,
    build_pod,
    build_sandbox,
)
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.watch.kind import Key

Json = dict[str, Any]
T = TypeVar("T")
MADE = "2026-01-02T03:04:05Z"
THEN = "2026-01-02T03:05:05Z"
IDLE = "agents.x-k8s.io/idle-timeout-seconds"
POD_NAME = "agents.x-k8s.io/pod-name"
EXTENSIONS = "extensions.agents.x-k8s.io/v1beta1"


def meta(**fields: Any) -> ObjectMeta:
    """Return metadata."""
    given = {"name": "a", "namespace": "ns", "uid": "1", "creationTimestamp": MADE, **fields}
    return msgspec.convert(given, ObjectMeta)


def decoded(kind: type[T], **body: Any) -> T:
    """Return an object as it is decoded from the wire."""
    return msgspec.json.decode(msgspec.json.encode(body), type=kind)


def sandbox(status: Json | None = None, **fields: Any) -> CompanionSandboxEntry:
    """Return what is kept of a Sandbox."""
    return build_sandbox(meta(**fields), decoded(SandboxItem, status=status), None)


def condition(kind: str, status: str, reason: str = "", at: str | None = THEN) -> Json:
    """Return a condition."""
    made = {"type": kind, "status": status, "reason": reason, "lastTransitionTime": at}
    return {name: value for name, value in made.items() if value is not None}


def pod(status: Json, **fields: Any) -> FailedPodEntry:
    """Return what is kept of a Pod that has failed."""
    return build_pod(meta(**fields), decoded(PodItem, status=status), None)


@pytest.mark.parametrize("length", [1024, 1025])
def test_of_an_annotation_1024_characters_are_kept(length: int) -> None:
    """Longer than any value that means something; of other annotations nothing is."""
    found = sandbox(annotations={IDLE: "x" * length, "other": "y"})
    assert found.annotations == {IDLE: "x" * 1024}


@pytest.mark.parametrize(
    ("conditions", "has_ended"),
    [
        ([], False),
        ([condition("Ready", "True")], False),
        ([condition("Finished", "False")], False),
        ([condition("Finished", "True")], True),
        ([condition("Other", "True")], False),
        ([condition("Ready", "False", "SandboxExpired")], True),
        ([condition("Ready", "False", "SandboxExpired"), condition("Finished", "False")], True),
        ([condition("Finished", "True"), condition("Ready", "False")], True),
    ],
)
def test_a_sandbox_has_ended_that_has_finished_or_expired(
    conditions: list[Json], *, has_ended: bool
) -> None:
    """Whatever other conditions say."""
    assert sandbox({"conditions": conditions}).has_ended is has_ended


@pytest.mark.parametrize(
    ("one", "is_running", "ready_since"),
    [
        (condition("Ready", "True"), True, THEN),
        (condition("Ready", "True", at=None), True, ""),
        (condition("Ready", "True", at="soon"), False, ""),
        (condition("Ready", "False"), True, ""),
        (condition("Other", "True"), True, ""),
    ],
)
def test_a_sandbox_is_ready_since_its_condition_says_so(
    one: Json, *, is_running: bool, ready_since: str
) -> None:
    """One whose dates cannot be read is left alone."""
    found = sandbox({"conditions": [one]})
    assert (found.is_running, found.ready_since) == (is_running, ready_since)


def test_the_newest_edit_counts_and_a_status_is_none() -> None:
    """Of all who have written."""
    writers = [
        {"manager": "a", "time": "2026-01-02T03:04:06Z"},
        {"manager": "b", "time": "2026-01-02T03:04:08Z"},
        {"manager": "c", "time": "2026-01-02T03:04:09Z", "subresource": "status"},
    ]
    assert sandbox(managedFields=writers).edited_at == "2026-01-02T03:04:08Z"
    assert sandbox().edited_at == ""


def test_the_pod_of_a_sandbox_has_its_name_or_the_one_that_is_annotated() -> None:
    """A Sandbox may have adopted a Pod."""
    assert sandbox().pod_key == Key("ns", "a")
    assert sandbox(annotations={POD_NAME: ""}).pod_key == Key("ns", "a")
    assert sandbox(annotations={POD_NAME: "p"}).pod_key == Key("ns", "p")


@pytest.mark.parametrize(
    ("spec", "is_made_to_order", "has_lifecycle"),
    [
        ({}, False, False),
        ({"env": [{"name": "A"}]}, True, False),
        ({"volumeClaimTemplates": [{}]}, True, False),
        ({"env": [], "volumeClaimTemplates": None}, False, False),
        ({"lifecycle": {}}, False, True),
        ({"lifecycle": None}, False, False),
    ],
)
def test_a_claim_is_made_to_order_that_asks_for_values_or_volumes(
    spec: Json, *, is_made_to_order: bool, has_lifecycle: bool
) -> None:
    """No member has them."""
    found = build_claim(meta(), decoded(ClaimItem, spec=spec), None)
    assert (found.is_made_to_order, found.has_lifecycle) == (is_made_to_order, has_lifecycle)
    unread = build_claim(meta(), None, None)
    assert (unread.is_made_to_order, unread.has_lifecycle) == (True, True)


@pytest.mark.parametrize(
    ("at", "made", "disrupted_at"),
    [(THEN, MADE, THEN), (None, MADE, MADE), (None, None, ""), ("", MADE, MADE)],
)
def test_a_disruption_is_dated_by_its_condition_or_as_the_pod(
    at: str | None, made: str | None, disrupted_at: str
) -> None:
    """Only one that has happened."""
    target = condition("DisruptionTarget", "True", at=at)
    assert pod({"conditions": [target]}, creationTimestamp=made).disrupted_at == disrupted_at
    for other in ({**target, "status": "False"}, {**target, "type": "Ready"}):
        assert pod({"conditions": [other]}, creationTimestamp=made).disrupted_at == ""


def test_of_the_reason_of_a_pod_1024_characters_are_kept() -> None:
    """The Pod's own goes before that of a container, and that of one that ended well is none."""

    def ended(code: int, reason: str) -> Json:
        return {"state": {"terminated": {"exitCode": code, "reason": reason}}}

    containers = [ended(0, "Completed"), ended(1, "x" * 1025), ended(1, "Later")]
    assert pod({"containerStatuses": containers}).reason == "x" * 1024
    assert pod({"containerStatuses": containers, "reason": "Evicted"}).reason == "Evicted"
    for states in ([], containers[:1], [ended(2, "")]):
        assert pod({"containerStatuses": states}).reason == ""


@pytest.mark.parametrize(
    ("target", "pool"),
    [
        ({"apiVersion": EXTENSIONS, "kind": "SandboxWarmPool", "name": "p"}, "p"),
        ({"apiVersion": "apps/v1", "kind": "SandboxWarmPool", "name": "p"}, ""),
        ({"apiVersion": EXTENSIONS, "kind": "Deployment", "name": "p"}, ""),
        (None, ""),
    ],
)
def test_an_autoscaler_sizes_a_pool_of_the_api(target: Json | None, pool: str) -> None:
    """Kind and group count, both."""
    item = decoded(AutoscalerItem, spec={"scaleTargetRef": target})
    assert build_autoscaler(meta(), item, None).pool == pool
    assert build_autoscaler(meta(), None, None).pool == ""
