"""idle: Sandboxes that nobody uses are suspended, those in use never."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.companions.idle import active_at
from lean_sandbox.companions.kinds import CompanionSandboxEntry
from lean_sandbox.local.kinds import Kind
from lean_sandbox.model.times import format_rfc3339
from lean_sandbox.trace.recorder import Recorder
from lean_sandbox.watch.kind import Key
from tests.companions.metrics_api import METRICS_API, use_cpu
from tests.companions.support import reports, warned_of
from tests.support.builders import claim, placed
from tests.support.clock import EPOCH, FakeClock
from tests.support.extensions import open_claims, settings
from tests.support.names import CLAIMS, SANDBOXES, TEMPLATES
from tests.support.suspension import resume
from tests.support.webhooks import add_webhook
from tests.support.world import CONTROLLER, NS, World, open_world, sandbox

Json = dict[str, Any]
TIMEOUT = "agents.x-k8s.io/idle-timeout-seconds"
ACTIVITY = "agents.x-k8s.io/last-activity-time"


@asynccontextmanager
async def open_idle(
    annotations: dict[str, str] | None = None, *, before: tuple[Json, ...] = (), **more: Any
) -> AsyncIterator[World]:
    """Open a world with the companion and a Sandbox that is Ready; one clock for all."""
    given_ = settings(companions=("idle",), **more)
    async with open_world(given_, one_time=True, clock=FakeClock(), before=before) as world:
        wishes = {TIMEOUT: "600"} if annotations is None else annotations
        await world.ready_sandbox(sandbox(metadata={"annotations": wishes}))
        world.forget_requests()
        yield world


@asynccontextmanager
async def open_claimed(age_s: float = 0.0) -> AsyncIterator[World]:
    """Open a world with the companion and a claim that has just taken a member of this age."""
    async with open_claims("m-1", companions=("idle",), clock=FakeClock(), one_time=True) as world:
        await world.advance(age_s)
        await world.create(claim(metadata={"annotations": {TIMEOUT: "600"}}))
        yield world


def mode(world: World, name: str = "sb-1") -> str:
    """Return the operating mode of a Sandbox."""
    return str(world.get(name)["spec"].get("operatingMode", "Running"))


async def note(world: World, resource: str, name: str, **annotations: str) -> None:
    """Write annotations of the API, such as ``idle_timeout_seconds``."""
    written = {f"agents.x-k8s.io/{key.replace('_', '-')}": it for key, it in annotations.items()}
    await world.patch(resource, name, {"metadata": {"annotations": written}})


async def test_a_sandbox_that_nobody_uses_is_suspended_in_time() -> None:
    """Not before, by one PATCH, with an Event that says since when it was idle."""
    async with open_idle() as world:
        await world.advance(590.0)
        assert mode(world) == "Running"
        await world.advance(20.0)
        assert mode(world) == "Suspended"
        assert world.writes()["patch sandboxes"] == 1
        ((kind, reason, told),) = reports(world)
        assert (kind, reason) == ("Sandbox", "IdleSuspended")
        assert "idle since 2026-01-02T03:04:05Z" in told


async def test_a_policy_that_keeps_it_running_is_told() -> None:
    """It is not said to be suspended, and is not asked for again until something changes."""
    async with open_idle() as world:

        def keep_running(kind: Kind, obj: Json) -> None:
            if kind.plural == "sandboxes":
                obj["spec"]["operatingMode"] = "Running"

        add_webhook(world.plane, keep_running)
        await world.advance(700.0)
        ((_, reason, told),) = reports(world)
        assert reason == "IdleNotSuspended"
        assert "keeps it Running" in told
        assert warned_of(world) == [reason]
        assert world.writes()["patch sandboxes"] == 1


@pytest.mark.parametrize("when", ["2026-01-02T03:04:05x5Z", "soon"])
async def test_where_a_date_cannot_be_read_nothing_is_suspended(when: str) -> None:
    """Anybody may write a status, and a definition lets in what is no date."""
    async with open_idle() as world:
        held = world.get()
        for one in held["status"]["conditions"]:
            one["lastTransitionTime"] = when
        world.plane.store.plant(held)
        await world.advance(700.0)
        assert mode(world) == "Running"


async def test_without_the_annotation_nothing_is_suspended_or_asked() -> None:
    """A Sandbox that asks for nothing costs no request."""
    async with open_idle({}) as world:
        await world.advance(1300.0)
        assert mode(world) == "Running"
        assert not world.asked(events=True)


@pytest.mark.parametrize("resource", ["sandboxes", CLAIMS])
async def test_whoever_renews_the_activity_keeps_it_running(resource: str) -> None:
    """On the Sandbox or on its claim."""
    async with open_claims("m-1", companions=("idle",), clock=FakeClock(), one_time=True) as world:
        await world.create(claim(metadata={"annotations": {TIMEOUT: "600"}}))
        await world.advance(5.0)
        name = "c" if resource == CLAIMS else "m-1"
        for _ in range(2):
            await world.advance(500.0)
            assert mode(world, "m-1") == "Running"
            await note(world, resource, name, last_activity_time=format_rfc3339(world.clock.now()))
        await world.advance(590.0)
        assert mode(world, "m-1") == "Running"
        await world.advance(20.0)
        assert mode(world, "m-1") == "Suspended"


async def test_a_resume_counts_as_activity() -> None:
    """It runs for the whole time again."""
    async with open_idle() as world:
        await world.advance(610.0)
        assert mode(world) == "Suspended"
        await world.advance(700.0)
        await resume(world)
        await world.advance(590.0)
        assert mode(world) == "Running"
        await world.advance(20.0)
        assert mode(world) == "Suspended"


async def test_a_claimed_sandbox_can_be_resumed() -> None:
    """A binding removes the record of who wrote a Sandbox, and so of its resumption."""
    async with open_claimed() as world:
        await world.advance(610.0)
        assert mode(world, "m-1") == "Suspended"
        await world.delete("pods", "m-1")
        await world.advance(700.0)
        await resume(world, "m-1")
        await world.advance(300.0)
        async with open_world(
            settings(companions=("idle",)), plane=world.plane, clock=world.clock
        ) as after:
            await after.advance(290.0)
            assert mode(after, "m-1") == "Running"
            await after.advance(20.0)
            assert mode(after, "m-1") == "Suspended"


async def test_a_claim_has_its_member_for_the_whole_time() -> None:
    """However long the member was ready before, and however long the claim waited for it."""
    async with open_claimed(age_s=700.0) as world:
        await world.advance(590.0)
        assert mode(world, "m-1") == "Running"
        await world.advance(20.0)
        assert mode(world, "m-1") == "Suspended"


@pytest.mark.parametrize("change", [{"shutdownPolicy": "Delete"}, {"service": True}])
async def test_an_edit_of_a_claimed_sandbox_counts_as_activity(change: Json) -> None:
    """Although nothing records when it was made."""
    async with open_claimed() as world:
        await world.advance(500.0)
        await world.patch("sandboxes", "m-1", {"spec": change})
        await world.advance(590.0)
        assert mode(world, "m-1") == "Running"
        await world.advance(20.0)
        assert mode(world, "m-1") == "Suspended"


@pytest.mark.parametrize("editor", ["direct", "somebody-else"])
async def test_an_edit_of_the_spec_counts_as_activity(editor: str) -> None:
    """Whatever it changes, and whoever made it: of several editors the last one counts."""
    async with open_idle() as world:
        await world.advance(500.0)
        change = {"spec": {"shutdownPolicy": "Delete"}}
        world.plane.store.patch(SANDBOXES, NS, "sb-1", change, manager=editor)
        await world.advance(500.0)
        assert mode(world) == "Running"


async def test_the_nearest_annotation_wins() -> None:
    """The Sandbox's own before its claim's, that before the template's."""
    template = placed()
    template["metadata"]["annotations"] = {TIMEOUT: "60"}
    ref = {"agents.x-k8s.io/sandbox-template-ref": "tpl"}
    async with open_idle({TIMEOUT: "600", **ref}, before=(template,)) as world:
        await world.advance(300.0)
        assert mode(world) == "Running"
        gone = {"metadata": {"annotations": {TIMEOUT: None}}}
        await world.patch("sandboxes", "sb-1", gone)
        await world.advance(70.0)
        assert mode(world) == "Suspended"


async def test_a_template_that_begins_to_ask_reaches_its_sandboxes() -> None:
    """Nobody has to touch each of them."""
    ref = {"agents.x-k8s.io/sandbox-template-ref": "tpl"}
    async with open_idle(ref, before=(placed(),)) as world:
        await world.advance(120.0)
        await note(world, TEMPLATES, "tpl", idle_timeout_seconds="60")
        await world.advance(61.0)
        assert mode(world) == "Suspended"


async def test_a_trace_of_the_controllers_does_not_disturb_it() -> None:
    """The caches of controllers are recorded; a companion keeps less of an object."""
    async with open_idle() as world:
        manager = world.whole
        recorder = Recorder(100, world.clock)
        recorder.follow(manager.all_caches, manager.controllers, world.admin.transport)
        await note(world, "sandboxes", "sb-1", idle_timeout_seconds="60")
        await world.advance(70.0)
        assert mode(world) == "Suspended"


async def test_free_members_of_pools_are_never_touched() -> None:
    """Their template asks, but nobody has them yet."""
    async with open_claims("m-1", companions=("idle",), clock=FakeClock(), one_time=True) as world:
        await note(world, TEMPLATES, "tpl", idle_timeout_seconds="60")
        await note(world, SANDBOXES, "m-1", idle_timeout_seconds="60")
        await world.advance(600.0)
        assert mode(world, "m-1") == "Running"


async def test_a_sandbox_that_has_finished_is_left_as_it_is() -> None:
    """A suspension would delete the Pod that shows how it ended."""
    async with open_idle() as world:
        await world.pod_status(phase="Succeeded")
        await world.advance(700.0)
        assert mode(world) == "Running"
        assert world.find("pods") is not None


@pytest.mark.parametrize(
    ("wishes", "named", "fix"),
    [
        ({TIMEOUT: "10m"}, TIMEOUT, "whole number from 1"),
        ({TIMEOUT: "0"}, TIMEOUT, "whole number from 1"),
        ({TIMEOUT: "60", ACTIVITY: "yesterday"}, ACTIVITY, "RFC 3339"),
    ],
)
async def test_a_wrong_value_is_told_once_and_nothing_is_suspended(
    wishes: dict[str, str], named: str, fix: str
) -> None:
    """The Event names the annotation and what it may be."""
    async with open_idle(wishes) as world:
        await world.advance(120.0)
        assert mode(world) == "Running"
        ((kind, reason, told),) = reports(world)
        assert (kind, reason) == ("Sandbox", "InvalidAnnotation")
        assert named in told
        assert fix in told


# -- CPU -------------------------------------------------------------------------------------------


async def test_a_sandbox_that_uses_cpu_is_not_suspended() -> None:
    """Until it has been quiet for the whole time; the containers of a Pod count together."""
    async with open_idle(before=(METRICS_API,)) as world:
        use_cpu(world.plane, "sb-1", "15m", "6000000n")
        await world.advance(800.0)
        assert mode(world) == "Running"
        use_cpu(world.plane, "sb-1", "15m", "4m")
        await world.advance(500.0)
        assert mode(world) == "Running"
        await world.advance(240.0)
        assert mode(world) == "Suspended"


async def test_a_pod_without_samples_is_not_suspended() -> None:
    """The API is served, but it says nothing of this Pod: nobody knows whether it is used."""
    async with open_idle(before=(METRICS_API,)) as world:
        await world.advance(800.0)
        assert mode(world) == "Running"


async def test_samples_that_begin_later_are_believed() -> None:
    """The API came after the companion had found that the server has none."""
    async with open_idle({TIMEOUT: "700"}) as world:
        await world.advance(60.0)
        await world.create(METRICS_API)
        use_cpu(world.plane, "sb-1", "1")
        await world.advance(800.0)
        assert mode(world) == "Running"


async def test_a_gap_between_samples_begins_the_time_anew() -> None:
    """While the API does not answer, somebody may have used it."""
    async with open_idle(before=(METRICS_API,)) as world:
        use_cpu(world.plane, "sb-1", "1m")
        await world.advance(500.0)
        world.plane.fail_next("list", "pods", 503, times=5, match=_of_metrics)
        await world.advance(300.0)
        assert mode(world) == "Running"
        await world.advance(540.0)
        assert mode(world) == "Running"
        await world.advance(240.0)
        assert mode(world) == "Suspended"


def _of_metrics(target: Any) -> bool:
    return bool(target.group == "metrics.k8s.io")


async def test_samples_cost_one_list_a_minute_and_nothing_once_all_are_suspended() -> None:
    """And one in ten minutes where no server has the API."""
    async with open_idle({TIMEOUT: "1200"}, before=(METRICS_API,)) as world:
        use_cpu(world.plane, "sb-1", "1m")
        await world.advance(900.0)
        assert 14 <= world.asked()["list pods.metrics.k8s.io"] + world.asked()["list pods"] <= 16
        assert len(world.asked()) == 1
        await world.advance(500.0)
        assert mode(world) == "Suspended"
        await world.advance(120.0)
        world.forget_requests()
        await world.advance(700.0)
        assert not world.asked(events=True)
    async with open_idle({TIMEOUT: "7200"}) as world:
        await world.advance(1500.0)
        assert world.plane.audit.counts(CONTROLLER).total() <= 3


async def test_a_restart_does_not_suspend_what_was_in_use() -> None:
    """What was sampled is forgotten with the process, so the time begins anew."""
    async with open_idle(before=(METRICS_API,)) as world:
        use_cpu(world.plane, "sb-1", "1")
        await world.advance(700.0)
        use_cpu(world.plane, "sb-1", "1m")
        async with open_world(
            settings(companions=("idle",)), plane=world.plane, clock=world.clock
        ) as after:
            await after.advance(300.0)
            assert mode(after) == "Running"


async def test_only_those_in_use_run_on() -> None:
    """One in use is never suspended; of the others each runs for the time of its timeout."""
    given_ = settings(companions=("idle",), idle_cpu=0.0)
    wishes = {"annotations": {TIMEOUT: "900"}}
    every = [sandbox(f"sb-{number}", metadata=wishes) for number in range(5)]
    async with open_world(given_, one_time=True, clock=FakeClock(), before=tuple(every)) as world:
        running = []
        await world.advance(60.0)
        for _ in range(5):
            used = {"metadata": {"annotations": {ACTIVITY: format_rfc3339(world.clock.now())}}}
            world.plane.store.patch(SANDBOXES, NS, "sb-0", used)
            running.append(sum(mode(world, f"sb-{number}") == "Running" for number in range(5)))
            await world.advance(450.0)
        assert mode(world, "sb-0") == "Running"
        assert running == [5] * 2 + [1] * 3


# -- decisions -------------------------------------------------------------------------------------

MOMENTS = st.integers(0, 10**7)


@given(dates=st.tuples(*[MOMENTS] * 5), known=st.lists(MOMENTS))
def test_the_newest_use_counts(dates: tuple[int, ...], known: list[int]) -> None:
    """Whatever kind it is of."""
    texts = [format_rfc3339(EPOCH + timedelta(seconds=after_s)) for after_s in dates]
    made, edited, ready, resumed, claimed = texts
    entry = CompanionSandboxEntry(
        Key(NS, "sb-1"),
        "uid",
        1,
        created_at=made,
        edited_at=edited,
        ready_since=ready,
        resumed_at=resumed,
    )
    zero_s = EPOCH.timestamp()
    found_s = active_at(entry, claimed, *[zero_s + one for one in known])
    assert found_s == zero_s + max(*dates, *known)
