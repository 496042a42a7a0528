"""Laws of the simulated scheduler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lean_sandbox.local.kubelet.pods import PodStep, PodView, condition
from lean_sandbox.local.kubelet.podstatus import perform
from lean_sandbox.local.kubelet.scheduling import NodeView, Use, demand_of, next_binding
from tests.local.kubelet.life import SETTINGS
from tests.local.kubelet.placements import (
    PLACEMENTS,
    PREFERRED,
    REQUIRED,
    Placement,
    container,
    node,
)
from tests.local.kubelet.placements import pod as spec_of
from tests.support.clock import EPOCH

Json = dict[str, Any]


def pod(spec: Json, uid: str = "new", **meta: Any) -> PodView:
    """Build a Pod as a server keeps it."""
    found = {"metadata": {"name": uid, "uid": uid, **meta}, "spec": spec}
    return msgspec.convert(found, PodView)


def nodes_of(found: Mapping[str, Json]) -> dict[str, NodeView]:
    """Build Nodes."""
    return {
        name: msgspec.convert({**one, "metadata": {**one["metadata"], "name": name}}, NodeView)
        for name, one in found.items()
    }


def uses_of(running: Mapping[str, Iterable[Json]]) -> dict[str, Use]:
    """Count Pods on their Nodes."""
    uses: defaultdict[str, Use] = defaultdict(Use)
    for name, specs in running.items():
        for number, spec in enumerate(specs):
            uses[name].add(f"{name}{number}", demand_of(pod(spec)))
    return uses


def schedule(found: PodView, placement: Placement) -> PodStep | None:
    """Return what the scheduler does next."""
    return next_binding(found, nodes_of(placement.nodes), uses_of(placement.running), SETTINGS)


NOBODY = Placement(spec_of(), "", {"a": node(), "b": node()})


@pytest.mark.parametrize("name", PLACEMENTS)
def test_pods_are_placed_as_kube_scheduler_places_them(name: str) -> None:
    """And in its words where no Node will do; tests/controlplane asks it the same."""
    placement = PLACEMENTS[name]
    step = schedule(pod(placement.pod), placement)
    assert step is not None
    assert step.detail == placement.expected
    assert step.name == ("bind" if step.detail in placement.nodes else "unschedulable")


def test_the_emptiest_node_is_taken() -> None:
    """Ties by name."""
    for a, b, expected in ((0, 0, "a"), (2, 1, "b"), (1, 1, "a")):
        running = {"a": [spec_of()] * a, "b": [spec_of()] * b}
        step = schedule(pod(spec_of()), Placement(spec_of(), "", NOBODY.nodes, running))
        assert step is not None
        assert (step.name, step.detail) == ("bind", expected)


def test_a_pod_no_node_satisfies_says_so_once() -> None:
    """And not again while it stands."""
    placement = PLACEMENTS["cordoned"]
    found = pod(placement.pod)
    step = schedule(found, placement)
    assert step is not None
    said = replace(found, status=perform(found, step, EPOCH)[0])
    written = condition(said.status, "PodScheduled")
    assert (written["status"], written["reason"]) == ("False", "Unschedulable")
    assert written["message"] == placement.expected
    assert schedule(said, placement) is None


def test_pods_of_others_are_left_alone() -> None:
    """Bound ones, deleted ones, gated ones, those of another scheduler."""
    gates = [{"name": "example.com/hold"}]
    for found in (
        pod(spec_of(nodeName="a")),
        pod(spec_of(), deletionTimestamp="2026-01-02T03:04:05Z"),
        pod(spec_of(schedulingGates=gates)),
        pod(spec_of(schedulerName="mine")),
    ):
        assert schedule(found, NOBODY) is None


_RULE: Json = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
_NAMED: Json = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
_SPREAD: Json = {"maxSkew": 1, "topologyKey": "zone"}


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (
            {"affinity": {"podAffinity": {REQUIRED: [_RULE]}}},
            f"spec.affinity.podAffinity.{REQUIRED}",
        ),
        (
            {"affinity": {"podAntiAffinity": {REQUIRED: [_RULE]}}},
            f"spec.affinity.podAntiAffinity.{REQUIRED}",
        ),
        (
            {"topologySpreadConstraints": [{**_SPREAD, "whenUnsatisfiable": "DoNotSchedule"}]},
            "spec.topologySpreadConstraints with whenUnsatisfiable: DoNotSchedule",
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
        (
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [_NAMED]}}}},
            f"spec.affinity.nodeAffinity.{REQUIRED} with matchFields",
        ),
        (
            {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": _NAMED}]}}},
            "",
        ),
        ({"affinity": {"podAffinity": {PREFERRED: [{"weight": 1}]}}}, ""),
        ({"affinity": {"podAffinity": {REQUIRED: []}}}, ""),
        ({"topologySpreadConstraints": [{**_SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]}, ""),
    ],
)
def test_a_demand_that_is_not_simulated_is_never_ignored(spec: Json, named: str) -> None:
    """The Pod waits and its condition names the field; preferences alone keep nobody waiting."""
    step = schedule(pod(spec_of(**spec)), NOBODY)
    assert step is not None
    assert step.name == ("unschedulable" if named else "bind")
    assert named in step.detail


_CPUS = st.sampled_from(["", "1", "1500m", "3"])
_SPECS = st.builds(lambda cpu: spec_of(container(**({"cpu": cpu} if cpu else {}))), _CPUS)


@given(st.lists(_SPECS, max_size=12))
def test_no_node_is_ever_given_more_than_it_has(specs: list[Json]) -> None:
    """Whatever comes in which order; a Pod stays where it is counted."""
    nodes = nodes_of({"a": node(), "b": node(room={"pods": "3"})})
    uses: dict[str, Use] = {"a": Use(), "b": Use()}
    for number, spec in enumerate(specs):
        found = pod(spec, uid=f"u{number}")
        step = next_binding(found, nodes, uses, SETTINGS)
        assert step is not None
        if step.name == "bind":
            uses[step.detail].add(found.metadata.uid, demand_of(found))
            again = next_binding(found, nodes, uses, SETTINGS)
            assert again is not None
            assert again == step
    for name, limit in (("a", 10), ("b", 3)):
        use = uses[name]
        assert use.resources["cpu"] <= 4000
        assert len(use.pods) <= limit


@given(st.lists(st.tuples(st.integers(0, 4), _SPECS), max_size=20))
def test_what_a_pod_takes_is_free_when_it_is_gone(plays: list[tuple[int, Json]]) -> None:
    """A Node that everybody has left is as empty as before."""
    use = Use()
    for number, spec in plays:
        uid = f"u{number}"
        if uid in use.pods:
            use.remove(uid)
        else:
            use.add(uid, demand_of(pod(spec)))
    for uid in list(use.pods):
        use.remove(uid)
    assert not use.pods
    assert not +use.resources
