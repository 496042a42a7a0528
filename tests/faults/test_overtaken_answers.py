"""An answer that is older than an event seen already is no end: each kind that is fetched.

The server reads the state for a GET, keeps the answer, and lets an irrelevant change and its event
pass. What the GET was for must be done all the same, long before any safety net looks again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.local.http.faults import HeldRequests
from lean_sandbox.watch.kind import Representation
from tests.faults.overtaking import (
    DRIFTED,
    LOST,
    RUNNING,
    UNREADY,
    Act,
    another_volume,
    asked,
    create,
    has_adopted,
    hold_and_create,
    is_ready,
    nothing,
    overtaken,
    patch,
    pending,
    ready,
    refused_status,
    with_volume,
)
from tests.support.builders import claim, pool, template
from tests.support.extensions import bound_name, open_claims, ready_of
from tests.support.names import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from tests.support.volumes import ADOPTABLE, volume_claim
from tests.support.world import (
    NS,
    World,
    controlled_by,
    open_world,
    pod_body,
    running_status,
    sandbox,
    tracking,
)

Json = dict[str, Any]
# Longer than any window or pause, shorter than the safety net's first reconcile.
SOON_S = 8.0


@dataclass(frozen=True)
class Case:
    """A change that makes the controller fetch an object, and what it has to come to."""

    plural: str
    relevant: Act
    resource: str
    name: str
    holds: Act
    begin: Callable[[World], Any] = nothing


CASES = {
    "a Pod becomes ready": Case(
        "pods", patch("pods", "sb-1", RUNNING, "status"), "pods", "sb-1", is_ready(), pending
    ),
    "a Pod ceases to be ready": Case(
        "pods", patch("pods", "sb-1", LOST, "status"), "pods", "sb-1",
        is_ready(status="False"), ready,
    ),
    "a Sandbox is created": Case(
        "sandboxes", create(sandbox()), SANDBOXES, "sb-1", lambda world: world.find("pods"),
    ),
    "a Sandbox wants no Service any more": Case(
        "sandboxes", patch(SANDBOXES, "sb-1", {"spec": {"service": False}}), SANDBOXES, "sb-1",
        lambda world: world.find("services") is None, ready,
    ),
    "a Service is changed by somebody": Case(
        "services", patch("services", "sb-1", DRIFTED), "services", "sb-1",
        lambda world: "app" not in (world.find("services") or {})["spec"]["selector"], ready,
    ),
    "a volume's claim exists already": Case(
        "persistentvolumeclaims",
        hold_and_create(
            "persistentvolumeclaims", volume_claim("data-sb-1", labels=ADOPTABLE), with_volume()
        ),
        "persistentvolumeclaims", "data-sb-1", has_adopted,
        another_volume,
    ),
    "a claim's status meets a conflict": Case(
        "sandboxclaims", create(claim()), CLAIMS, "c", bound_name, refused_status
    ),
    "a claim names a pool that is not known yet": Case(
        "sandboxwarmpools",
        hold_and_create("sandboxwarmpools", pool("later"), claim(pool="later")),
        POOLS, "later", bound_name,
    ),
    "a claim's template is not known yet": Case(
        "sandboxtemplates",
        hold_and_create(
            "sandboxtemplates",
            template("later"), pool("empty", template="later"), claim(pool="empty"),
        ),
        TEMPLATES, "later", bound_name,
    ),
}  # fmt: skip


def noise(case: Case, world: World, number: int) -> None:
    """Change what concerns nobody."""
    body = {"metadata": {"annotations": {"example.com/noise": str(number)}}}
    world.plane.store.patch(case.resource, NS, case.name, body)


async def event_first(case: Case, world: World) -> None:
    """The event of the irrelevant change comes before the answer."""
    async with overtaken(world, case.relevant, case.plural):
        noise(case, world, 1)
        await world.settle()


async def answer_first(case: Case, world: World) -> None:
    """The answer, which does not show the irrelevant change, comes before its event."""
    async with overtaken(world, case.relevant, case.plural):
        events = world.plane.hold_events(case.plural)
        noise(case, world, 1)
    events.release()


async def event_between_answers(case: Case, world: World) -> None:
    """The second GET, if there is one, is overtaken as the first was."""
    async with overtaken(world, case.relevant, case.plural):
        noise(case, world, 1)
        await world.settle()
        second = world.plane.hold("get", case.plural, times=1)
    noise(case, world, 2)
    await world.settle()
    second.release()


ORDERS = {
    "event first": event_first,
    "answer first": answer_first,
    "event between two answers": event_between_answers,
}


def every() -> list[Any]:
    """Return each case in each order."""
    return [
        pytest.param(case, order, id=f"{what}-{how}")
        for what, case in CASES.items()
        for how, order in ORDERS.items()
    ]


@pytest.mark.parametrize(("case", "order"), every())
async def test_an_overtaken_answer_is_no_end(
    case: Case, order: Callable[[Case, World], Any]
) -> None:
    """Whatever comes first, answer or event, the controller ends where the spec asks."""
    async with open_claims("m1") as world:
        await case.begin(world)
        await order(case, world)
        await world.settle()
        world.plane.faults.clear()
        await world.advance(SOON_S)
        assert case.holds(world)


@pytest.mark.parametrize("form", ["table", "metadata"])
@pytest.mark.parametrize(
    "change",
    [{"annotations": {"cni.projectcalico.org/podIP": "10.244.0.5"}}, {"finalizers": ["a.b/c"]}],
    ids=["annotation", "finalizer"],
)
async def test_readiness_is_reported_whatever_form_the_watch_has(form: str, change: Json) -> None:
    """The GET of a ready Pod is overtaken, and no window is left that would look again."""
    settings = Settings(
        sandbox_status_window=0.0, watch_representation=Representation(form), namespaces=(NS,)
    )
    async with open_world(settings) as world:
        await pending(world)
        async with overtaken(world, patch("pods", "sb-1", RUNNING, "status"), "pods"):
            patch("pods", "sb-1", {"metadata": change})(world)
            await world.settle()
        assert is_ready()(world)
        assert world.get()["status"]["podIPs"] == ["10.244.0.5"]


async def test_a_late_404_does_not_hide_what_has_appeared_since() -> None:
    """A Pod made while the answer was held is known by its event, and deleted as it has to be."""
    async with open_world(Settings(sandbox_status_window=0.0)) as world:
        suspended = sandbox(spec={"operatingMode": "Suspended"})
        async with overtaken(world, create(suspended), "pods"):
            owner = controlled_by(world.get())
            world.plane.store.create(pod_body(labels=tracking(), owners=(owner,)))
            await world.settle()
        pod = world.find("pods")
        assert pod is None or pod["metadata"].get("deletionTimestamp")


@pytest.mark.parametrize("ready", [True, False])
async def test_the_last_state_of_a_pod_wins(*, ready: bool) -> None:
    """An answer of before a relevant event does not undo what the event has shown."""
    async with open_world() as world:
        await world.ready_sandbox()
        if ready:
            await world.run_pod(ready=False)
        await world.advance(3.0)
        first = patch("pods", "sb-1", {"status": running_status(ready=ready)}, "status")
        async with overtaken(world, first, "pods"):
            last = {"status": running_status(ready=not ready, ips=("10.244.0.9",))}
            patch("pods", "sb-1", last, "status")(world)
            await world.settle()
        await world.advance(SOON_S)
        assert is_ready(status=str(not ready))(world)
        assert world.get()["status"]["podIPs"] == ["10.244.0.9"]


@pytest.mark.parametrize("wants", [True, False])
async def test_the_last_spec_of_a_sandbox_wins(*, wants: bool) -> None:
    """An answer that shows the spec before the last is followed by another GET."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(spec={"service": not wants}))
        change = patch(SANDBOXES, "sb-1", {"spec": {"service": wants}})
        async with overtaken(world, change, "sandboxes"):
            patch(SANDBOXES, "sb-1", {"spec": {"service": not wants}})(world)
            await world.settle()
        await world.advance(SOON_S)
        assert bool(world.find("services")) is not wants


async def test_an_answer_does_not_bring_back_a_pod_that_is_gone() -> None:
    """The Pod is replaced, and the Sandbox tells of the new one alone."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.advance(3.0)
        async with overtaken(world, patch("pods", "sb-1", UNREADY, "status"), "pods"):
            await world.delete("pods", "sb-1")
        await world.advance(SOON_S)
        assert world.find("pods") is not None
        await world.run_pod(ips=("10.244.0.9",))
        await world.advance(SOON_S)
        assert is_ready()(world)
        assert world.get()["status"]["podIPs"] == ["10.244.0.9"]


async def find_gone(world: World, change: Act, plural: str, resource: str, name: str) -> None:
    """Delete what a GET is on its way to, so that no event tells: only the next list misses it."""
    held = world.plane.hold("get", plural, times=1, answers=False)
    change(world)
    await asked(world, held)
    world.plane.drop_watches()
    world.plane.store.delete(resource, NS, name, grace_s=0)
    world.plane.store.create(sandbox("later"))
    world.plane.compact()
    held.release()
    await world.recover()
    await world.advance(SOON_S)


async def test_a_pod_that_a_get_finds_gone_is_replaced_although_no_event_tells() -> None:
    """The GET forgets it, so the next list cannot miss it."""
    async with open_world() as world:
        await world.ready_sandbox()
        await world.advance(3.0)
        change = patch("pods", "sb-1", UNREADY, "status")
        await find_gone(world, change, "pods", "pods", "sb-1")
        assert world.find("pods") is not None
        assert not any(world.controller.activity().caught.values())


async def test_a_sandbox_that_a_get_finds_gone_is_made_anew_for_its_claim() -> None:
    """The GET of the one controller tells the other."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        assert bound_name(world) == "m1"
        change = patch(SANDBOXES, "m1", {"spec": {"service": True}})
        await find_gone(world, change, "sandboxes", SANDBOXES, "m1")
        assert bound_name(world) not in ("", "m1")
        assert not any(world.controller.activity().caught.values())


async def test_a_spec_that_changes_while_a_status_is_written_is_followed() -> None:
    """The event comes before the answer to our own write, and is taken after it."""
    async with open_world() as world:
        await world.create(sandbox())
        await world.bind()
        run = patch("pods", "sb-1", RUNNING, "status")
        async with overtaken(world, run, "sandboxes/status", "patch"):
            patch(SANDBOXES, "sb-1", {"spec": {"operatingMode": "Suspended"}})(world)
            await world.settle()
        await world.advance(SOON_S)
        found = world.find("pods")
        assert found is None or "deletionTimestamp" in found["metadata"]
        assert not any(world.controller.activity().caught.values())


async def release_late(world: World, held: HeldRequests, later: Json, *, is_listed: bool) -> None:
    """Let an answer go once an event, or a list, has told of what is newer; let time pass."""
    if is_listed:
        world.plane.drop_watches()
        world.plane.store.create(later)
        world.plane.compact()
        await world.pass_time(3.0)
    await world.settle()
    held.release()
    if is_listed:
        await world.recover()
    await world.settle()
    await world.advance(SOON_S)


@pytest.mark.parametrize("is_listed", [False, True])
async def test_a_status_written_by_others_while_ours_is_written_is_repaired(
    *, is_listed: bool
) -> None:
    """Whoever was last, and whether an event or a list tells of it: in the end it is the Pod's."""
    async with open_world() as world:
        await world.create(sandbox())
        held = world.plane.hold("patch", "sandboxes/status", times=1)
        await world.run_pod()
        await asked(world, held)
        stolen = {"status": {"podIPs": ["10.9.9.9"]}}
        patch(SANDBOXES, "sb-1", stolen, "status")(world)
        await release_late(world, held, sandbox("later"), is_listed=is_listed)
        assert is_ready()(world)
        assert world.get()["status"]["podIPs"] == ["10.244.0.5"]
        assert not any(world.controller.activity().caught.values())


@pytest.mark.parametrize("is_listed", [False, True])
async def test_a_claims_status_written_by_others_while_ours_is_written_is_repaired(
    *, is_listed: bool
) -> None:
    """Whoever was last, and whether an event or a list tells of it: in the end it is what holds."""
    async with open_claims("m-1") as world:
        held = world.plane.hold("patch", "sandboxclaims/status", times=1)
        world.plane.store.create(claim("c"))
        await asked(world, held)
        stolen = {"status": {"conditions": [], "sandbox": {"podIPs": ["10.9.9.9"]}}}
        patch(CLAIMS, "c", stolen, "status")(world)
        await release_late(world, held, claim("later"), is_listed=is_listed)
        assert bound_name(world) == "m-1"
        assert ready_of(world)[0] == "True"
        assert not any(world.controller.activity().caught.values())
