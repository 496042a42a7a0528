"""What somebody writes just before a write of ours is carried out: our response shows it.

Its event is of an older version then, and tells nobody anything. Every write of every flow meets
every edit with ``SANDBOX_TESTS_BEHIND=all`` (``.ci/tasks behind``), by default some of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.request import Target
from tests.faults.details import TEAM, discrepancies
from tests.faults.edits import OVER, STOLEN
from tests.faults.flows import FLOWS, Flow, Run, begun
from tests.support.extensions import settings
from tests.support.names import (
    ANNOTATION,
    CLAIMS,
    CREATED_BY,
    LAUNCH_TYPE,
    POD_NAME,
    POLICIES,
    POOLS,
    REF_HASH,
    SANDBOXES,
    TEMPLATES,
    WARM_POOL,
)
from tests.support.world import NS, open_world
from tests.totals import EDITS_BEHIND

Json = dict[str, Any]
ALL = os.environ.get("SANDBOX_TESTS_BEHIND") == "all"
# Of so many pairs of a write and an edit one is tried. A prime: each edit meets other writes.
STEP = 97
# Every window, pause and backoff is over by then.
_REST_S = 130.0
_RESTART_S = 65.0
_WRITES = ("create", "patch", "update", "delete")
_USERS = {"annotations": {"user": "made this"}}
# What its user has taken away nobody else owns; it is in the way of a claim of its name, and a Pod
# keeps its volume.
_OF_USERS = (
    "belongs to nobody",
    "has no NetworkPolicy",
    "is not its own",
    "is not controlled by claim",
    "PersistentVolumeClaim ns/data-sb-1 has an owner that is gone",
)


@dataclass(frozen=True)
class Edit:
    """A change of the first object of a kind; without a body its end."""

    resource: str
    body: Json | None = None
    subresource: str = ""
    spares_members: bool = False
    """Pools look after their members themselves: nobody suspends one, or lets it end."""

    def apply(self, plane: ControlPlane) -> None:
        """Do it, if there is such an object."""
        for one in plane.store.list(self.resource, NS):
            owners = one["metadata"].get("ownerReferences") or [{}]
            if self.spares_members and owners[0].get("kind") == "SandboxWarmPool":
                continue
            name = one["metadata"]["name"]
            if self.body is None:
                plane.store.delete(self.resource, NS, name, grace_s=0)
            else:
                plane.store.patch(self.resource, NS, name, self.body, subresource=self.subresource)
            return


def labels(resource: str, **values: str | None) -> Edit:
    """Return a change of labels."""
    return Edit(resource, {"metadata": {"labels": values or None}})


def spec(resource: str, *, spares_members: bool = False, **fields: Any) -> Edit:
    """Return a change of a spec."""
    return Edit(resource, {"spec": fields}, spares_members=spares_members)


def status(resource: str, **fields: Any) -> Edit:
    """Return a status that is not so."""
    return Edit(resource, {"status": fields}, "status")


def sandbox_spec(**fields: Any) -> Edit:
    """Return a change of the spec of a Sandbox that is no member of a pool."""
    return spec(SANDBOXES, spares_members=True, **fields)


def lifecycle(policy: str) -> Edit:
    """Return the end of a claim's time."""
    return spec(CLAIMS, lifecycle={"shutdownTime": OVER, "shutdownPolicy": policy})


DISOWNED: Json = {"metadata": {"ownerReferences": None}}
IMAGE = {"spec": {"containers": [{"name": "main", "image": "new"}]}}
TAKEN = {**_USERS, "ownerReferences": None, "labels": {WARM_POOL: None, LAUNCH_TYPE: None}}

EDITS: dict[str, Edit] = {
    "sandbox taken away": Edit(SANDBOXES, {"metadata": TAKEN}),
    "sandbox disowned": Edit(SANDBOXES, {"metadata": {**_USERS, "ownerReferences": None}}),
    "sandbox unlabelled": labels(SANDBOXES, **{REF_HASH: None, LAUNCH_TYPE: None}),
    "sandbox of another maker": labels(SANDBOXES, **{CREATED_BY: "go-client"}),
    "sandbox of another pod": Edit(SANDBOXES, {"metadata": {"annotations": {POD_NAME: "none"}}}),
    "sandbox suspended": sandbox_spec(operatingMode="Suspended"),
    "sandbox running": sandbox_spec(operatingMode="Running"),
    "sandbox with a service": sandbox_spec(service=True),
    "sandbox without a service": sandbox_spec(service=False),
    "sandbox of a team": sandbox_spec(podTemplate={"metadata": {"labels": {TEAM: "blue"}}}),
    "sandbox over": sandbox_spec(shutdownTime=OVER, shutdownPolicy="Retain"),
    "sandbox over for good": sandbox_spec(shutdownTime=OVER, shutdownPolicy="Delete"),
    "sandbox says odd things": status(SANDBOXES, conditions=[STOLEN]),
    "sandbox says addresses": status(SANDBOXES, podIPs=["192.0.2.1"], nodeName=None),
    "sandbox deleted": Edit(SANDBOXES),
    "pod stripped": labels("pods"),
    "pod disowned": Edit("pods", DISOWNED),
    "pod relabelled": labels("pods", **{CREATED_BY: "x"}),
    "pod deleted": Edit("pods"),
    "service stripped": labels("services"),
    "service disowned": Edit("services", DISOWNED),
    "service of another selector": spec("services", selector={"a": "b"}),
    "service deleted": Edit("services"),
    "volume disowned": Edit("persistentvolumeclaims", DISOWNED),
    "claim of another maker": labels(CLAIMS, **{CREATED_BY: "go-client"}),
    "claim of another name": Edit(CLAIMS, {"metadata": {"annotations": {ANNOTATION: "none"}}}),
    "claim marked": spec(CLAIMS, additionalPodMetadata={"labels": {"sandbox.users.io/mark": "v1"}}),
    "claim over": lifecycle("Retain"),
    "claim over for good": lifecycle("Delete"),
    "claim says odd things": status(CLAIMS, conditions=[STOLEN]),
    "claim deleted": Edit(CLAIMS),
    "pool scaled": spec(POOLS, replicas=1),
    "pool rolling": spec(POOLS, updateStrategy={"type": "Recreate"}),
    "pool says odd things": status(POOLS, replicas=7, readyReplicas=5, selector=None),
    "pool deleted": Edit(POOLS),
    "template of another image": spec(TEMPLATES, podTemplate=IMAGE),
    "template unmanaged": spec(TEMPLATES, networkPolicyManagement="Unmanaged"),
    "template stripped": labels(TEMPLATES),
    "template deleted": Edit(TEMPLATES),
    "policy emptied": spec(POLICIES, egress=[]),
    "policy disowned": Edit(POLICIES, DISOWNED),
    "policy deleted": Edit(POLICIES),
}


class Behind:
    """Sees the writes of a controller come, and acts before the n-th is carried out."""

    def __init__(self, plane: ControlPlane, number: int = 0, act: Edit | None = None) -> None:
        """Begin to count."""
        self.seen = 0
        self.at = ""
        self._plane = plane
        self._number = number
        self._act = act
        plane.hold("*", "*", answers=False, match=self._note)

    def _note(self, target: Target) -> bool:
        if target.verb in _WRITES and target.resource not in ("events", "leases"):
            self.seen += 1
            if self.seen == self._number and self._act is not None:
                self.at = f"{target.verb} {target.resource} {target.name}"
                self._act.apply(self._plane)
        return False


async def number_of_writes(flow: Flow) -> int:
    """Return how many writes a flow takes when nobody edits anything."""
    async with begun(flow) as (plane, clock):
        run = Run(plane, clock, (flow.act,), is_timed=flow.is_timed)
        behind = Behind(plane)
        async with open_world(settings(), plane=plane, clock=clock) as world:
            await run.end(world)
        return behind.seen


async def wrong_after(flow: Flow, number: int, edit: Edit) -> tuple[str, list[str]]:
    """Run a flow with an edit behind a write of it; return which one, and what is wrong."""
    async with begun(flow) as (plane, clock):
        run = Run(plane, clock, (flow.act,), is_timed=flow.is_timed)
        behind = Behind(plane, number, edit)
        async with open_world(settings(), plane=plane, clock=clock) as world:
            await run.go_on(world)
            await world.advance(_REST_S)
            await run.go_on(world)
            found = [*run.violations(), *discrepancies(plane, (NS,))]
            caught = {name: n for name, n in world.controller.activity().caught.items() if n}
            world.kill()
        plane.audit.reset()
        async with open_world(settings(), plane=plane, clock=clock) as world:
            await world.advance(_RESTART_S)
            written = dict(+world.writes())
    if edit.body is not None and "ownerReferences" in edit.body.get("metadata", {}):
        found = [text for text in found if not any(of in text for of in _OF_USERS)]
    if caught:
        found.append(f"the safety net caught {caught}")
    if written:
        found.append(f"a fresh controller writes over what is at rest: {written}")
    return behind.at, found


@pytest.mark.parametrize("name", sorted(FLOWS))
async def test_an_edit_that_a_write_of_ours_hides_is_followed(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """All promises: in the end all is as specified, and the safety net has caught nothing."""
    flow = FLOWS[name]
    writes = range(1, await number_of_writes(flow) + 1)
    pairs = list(product(writes, EDITS))
    chosen = pairs if ALL else pairs[sorted(FLOWS).index(name) :: STEP]
    wrong = []
    for number, title in chosen:
        at, found = await wrong_after(flow, number, EDITS[title])
        if found:
            wrong.append("\n  ".join([f"{title} behind write {number} ({at}):", *found]))
    assert not wrong, "\n".join(["", *wrong])
    record_property(EDITS_BEHIND, len(chosen))
