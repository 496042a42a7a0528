"""Every flow of the controller as acts of users, and what is left of it at the end.

A flow begins on a control plane where all is well, and its acts are done one after the other, each
once everything has come to rest. Faults come from the tests; what they compare is the outcome.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.model.names import name_hash
from lean_sandbox.model.times import format_rfc3339
from tests.faults.history import OBJECTS, history_of
from tests.faults.oracle import violations
from tests.support.builders import claim, of_image, placed, pool
from tests.support.clock import EPOCH, FakeClock
from tests.support.extensions import settings
from tests.support.kubelets import Kubelets
from tests.support.names import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from tests.support.volumes import VOLUME
from tests.support.world import NS, World, open_world, running_status, sandbox, write_pod_status

__all__ = ["FLOWS", "Flow", "Run", "begun"]

Json = dict[str, Any]
Act = Callable[[ControlPlane], object]
# After the objects of a flow have come up, and before it begins.
_SOON = format_rfc3339(EPOCH + timedelta(seconds=300))
# Every window, pause and backoff is over by then, and what is due at _SOON is done.
_REST_S = 20.0
_UNTIL_S = 320.0
# A claim whose controller dies before it has noted when the claim was Ready says unknown instead.
_TIMES = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|(?<=claim-first-ready-at\": \")unknown"
)
_TOKENS = re.compile(r"kube-api-access-\w+")


def create(*objects: Json) -> Act:
    """Return the act of creating objects."""

    def act(plane: ControlPlane) -> None:
        for one in objects:
            plane.store.create(one)

    return act


def change(resource: str, name: str, spec: Json) -> Act:
    """Return the act of changing a spec."""
    return lambda plane: plane.store.patch(resource, NS, name, {"spec": spec})


def delete(resource: str, name: str, policy: str | None = None, grace_s: int | None = None) -> Act:
    """Return the act of deleting an object."""
    return lambda plane: plane.store.delete(resource, NS, name, policy=policy, grace_s=grace_s)


def finish(plane: ControlPlane) -> None:
    """Let the containers of all Pods come to their end."""
    status = running_status(ready=False) | {"phase": "Succeeded"}
    for pod in plane.store.list("pods", NS):
        write_pod_status(plane, pod["metadata"]["name"], status)


def together(*acts: Act) -> Act:
    """Return several acts done at the same moment."""

    def act(plane: ControlPlane) -> None:
        for one in acts:
            one(plane)

    return act


def conflict(plane: ControlPlane) -> None:
    """Let the next patch of a Sandbox meet a conflict."""
    plane.fail_next("patch", "sandboxes", 409)


def nothing(_plane: ControlPlane) -> None:
    """Do nothing."""


def _users(body: Json) -> Json:
    body["metadata"]["annotations"] = {"user": "made this"}
    return body


def _whole(name: str = "sb-1", **spec: Any) -> Json:
    """Return a Sandbox with everything that it can have."""
    more = {"service": True, "volumeClaimTemplates": [VOLUME], **spec}
    return _users(sandbox(name, spec=more, pod_spec={"nodeName": "node-1"}))


def _mode(name: str) -> Act:
    return change(SANDBOXES, "sb-1", {"operatingMode": name})


def _image(name: str) -> Act:
    return change(TEMPLATES, "tpl", of_image(name)["spec"])


def _over(resource: str, name: str, policy: str) -> Act:
    ends = {"shutdownTime": _SOON, "shutdownPolicy": policy}
    return change(resource, name, {"lifecycle": ends} if resource == CLAIMS else ends)


@dataclass(frozen=True)
class Flow:
    """What was there before, what a user does, and what the same user does next."""

    act: Act
    then: Act
    before: tuple[Act, ...] = ()
    is_timed: bool = False
    """It ends when something is due."""


_SANDBOX = (create(_whole()),)
_POOL = (create(placed(), pool(replicas=2)),)
_ROLLING = (create(placed(), pool(replicas=2, strategy="Recreate")),)
_CLAIMED = (*_POOL, create(claim("c")))
_COLD = (create(placed(), pool(replicas=0)),)
_OPEN: Json = {"envVarsInjectionPolicy": "Allowed", "volumeClaimTemplatesPolicy": "Allowed"}
_ENDING = {"ttlSecondsAfterFinished": 60, "shutdownPolicy": "Delete"}

FLOWS: dict[str, Flow] = {
    "cold": Flow(create(_whole()), change(SANDBOXES, "sb-1", {"service": False})),
    "suspend": Flow(_mode("Suspended"), _mode("Running"), _SANDBOX),
    "resume": Flow(_mode("Running"), delete(SANDBOXES, "sb-1"), (*_SANDBOX, _mode("Suspended"))),
    "relabel": Flow(
        change(
            SANDBOXES,
            "sb-1",
            {"podTemplate": {"metadata": {"labels": {"team": "red"}}}, "service": False},
        ),
        change(SANDBOXES, "sb-1", {"service": True}),
        _SANDBOX,
    ),
    "lost-pod": Flow(delete("pods", "sb-1", grace_s=30), _mode("Suspended"), _SANDBOX),
    "delete": Flow(delete(SANDBOXES, "sb-1"), create(_whole()), _SANDBOX),
    "delete-foreground": Flow(delete(SANDBOXES, "sb-1", "Foreground"), nothing, _SANDBOX),
    "expire-retain": Flow(
        _over(SANDBOXES, "sb-1", "Retain"), delete(SANDBOXES, "sb-1"), _SANDBOX, is_timed=True
    ),
    "expire-delete": Flow(_over(SANDBOXES, "sb-1", "Delete"), nothing, _SANDBOX, is_timed=True),
    "pool-fill": Flow(create(placed(), pool(replicas=2)), change(POOLS, "pool", {"replicas": 3})),
    "pool-shrink": Flow(
        change(POOLS, "pool", {"replicas": 1}), change(POOLS, "pool", {"replicas": 2}), _POOL
    ),
    "pool-delete": Flow(delete(POOLS, "pool"), nothing, _POOL),
    "rollout": Flow(_image("alpine"), change(POOLS, "pool", {"replicas": 3}), _ROLLING),
    "policy": Flow(
        change(TEMPLATES, "tpl", {"networkPolicy": {"egress": [{}]}}),
        change(TEMPLATES, "tpl", {"networkPolicyManagement": "Unmanaged"}),
        _POOL,
    ),
    "claim-warm": Flow(create(claim("c")), create(claim("d")), _POOL),
    "claim-conflict": Flow(together(conflict, create(claim("c"))), delete(CLAIMS, "c"), _POOL),
    "claim-cold": Flow(create(claim("c")), delete(CLAIMS, "c"), _COLD),
    "claim-own": Flow(
        create(claim("c", env=[{"name": "A", "value": "b"}], volumeClaimTemplates=[VOLUME])),
        delete(CLAIMS, "c"),
        (create(placed(**_OPEN), pool(replicas=1)),),
    ),
    "claim-deleted": Flow(delete(CLAIMS, "c"), create(claim("c")), _CLAIMED),
    "claim-expire-retain": Flow(
        _over(CLAIMS, "c", "Retain"), delete(CLAIMS, "c"), _CLAIMED, is_timed=True
    ),
    "claim-expire-delete": Flow(_over(CLAIMS, "c", "Delete"), nothing, _CLAIMED, is_timed=True),
    "claim-expire-foreground": Flow(
        _over(CLAIMS, "c", "DeleteForeground"), nothing, _CLAIMED, is_timed=True
    ),
    "claim-finished": Flow(
        finish, nothing, (*_COLD, create(claim("c", lifecycle=_ENDING))), is_timed=True
    ),
}


class Run:
    """A flow on its way, whichever process of the controller is at it."""

    def __init__(
        self,
        plane: ControlPlane,
        clock: FakeClock,
        acts: tuple[Act, ...],
        *,
        is_timed: bool = False,
    ) -> None:
        """Begin with nothing done."""
        self._is_timed = is_timed
        self.plane = plane
        self.clock = clock
        self.history = history_of(plane)
        self._left = list(acts)
        self._kubelets = Kubelets(plane, NS)

    def act(self) -> None:
        """Let the user do what is next."""
        if self._left:
            self._left.pop(0)(self.plane)

    async def go_on(self, world: World) -> None:
        """Do what is left, and let everything come to rest."""
        await self._rest(world)
        while self._left:
            self.act()
            await self._rest(world)
            await self._fall_due(world)
        await self._fall_due(world)

    def pass_alone(self, seconds: float) -> None:
        """Let time pass and kubelets work while no controller runs."""
        self._kubelets.work()
        self.clock.leap(seconds)
        self._kubelets.work()

    async def end(self, world: World) -> list[str]:
        """Go on to the end, whatever was due by then done; return the outcome."""
        await self.go_on(world)
        await world.advance(_REST_S)
        return outcome(self.plane)

    def violations(self) -> list[str]:
        """Return what was not as promised, and what is not as specified at the end."""
        return [*self.history.violations(), *violations(self.plane, (NS,))]

    async def _fall_due(self, world: World) -> None:
        left_s = _UNTIL_S - self.clock.monotonic() if self._is_timed else 0.0
        if left_s > 0.0:
            await world.advance(left_s)
            await self._rest(world)

    async def _rest(self, world: World) -> None:
        await world.advance(3.0)
        while self._kubelets.work():
            await world.advance(3.0)


@asynccontextmanager
async def begun(flow: Flow) -> AsyncIterator[tuple[ControlPlane, FakeClock]]:
    """Start a control plane with everything that was there before a flow, and no controller."""
    clock = FakeClock()
    chance = random.Random(1)  # noqa: S311 - the same names in every run
    async with ControlPlane(clock=clock.elsewhere(), rng=chance) as plane:
        if flow.before:
            async with open_world(settings(), plane=plane, clock=clock) as world:
                await Run(plane, clock, flow.before).go_on(world)
                world.kill()
        yield plane, clock


def outcome(plane: ControlPlane) -> list[str]:
    """Return everything that is stored, without times and with roles for generated names.

    What differs between runs and means nothing is gone: uids, versions, who wrote what, addresses.
    """
    objects = [one for kind in OBJECTS for one in plane.store.list(kind, NS)]
    roles = _roles(objects)
    found = []
    for one in objects:
        metadata = one["metadata"]
        shown = {
            "kind": one["kind"],
            "name": metadata["name"],
            "labels": metadata.get("labels"),
            "annotations": metadata.get("annotations"),
            "finalizers": metadata.get("finalizers"),
            "is deleted": "deletionTimestamp" in metadata,
            "owners": sorted(ref["name"] for ref in metadata.get("ownerReferences", ())),
            "spec": one.get("spec"),
            "status": _sorted(one.get("status")),
        }
        text = json.dumps(shown, sort_keys=True)
        for name, role in roles.items():
            text = text.replace(name, role)
        found.append(_TOKENS.sub("TOKEN", _TIMES.sub("TIME", text)))
    return sorted(found)


def _sorted(status: Json | None) -> Json | None:
    """Return a status with its conditions in an order: the API has none."""
    if not status or "conditions" not in status:
        return status
    return {**status, "conditions": sorted(status["conditions"], key=lambda one: str(one["type"]))}


def _roles(objects: list[Json]) -> dict[str, str]:
    """Return what stands for each name, hash, uid and address that another run makes anew."""
    roles = {}
    for one in objects:
        metadata = one["metadata"]
        role = f"{one['kind']} {metadata['name']}"
        if metadata.get("generateName"):
            (owner,) = metadata["ownerReferences"]
            role = f"{one['kind']} of {owner['kind']} {owner['name']}"
            roles[metadata["name"]] = role
            roles[name_hash(metadata["name"])] = f"hash of {role}"
        roles[metadata["uid"]] = f"uid of {role}"
        for address in one.get("status", {}).get("podIPs", ()):
            if isinstance(address, dict):
                roles[address["ip"]] = f"address of {role}"
        if one["kind"] == "Service":
            for address in one["spec"].get("clusterIPs", ()):
                roles[address] = f"address of {role}"
    # A name may be the beginning of another one.
    return dict(sorted(roles.items(), key=lambda pair: -len(pair[0])))
