"""The world itself: what its clocks do, what rest means while something is held."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.http.faults import Loss
from lean_sandbox.local.kinds import Kind
from tests.support import patience
from tests.support.clock import FakeClock
from tests.support.names import SANDBOXES
from tests.support.webhooks import add_webhook
from tests.support.world import NS, condition, open_world, pod_conditions, sandbox, status_managers


async def test_wall_clocks_move_alone() -> None:
    """Time passes everywhere, and each machine's wall clock is its own."""
    here = FakeClock()
    there = here.elsewhere(60.0)
    began = here.now()
    here.set_wall(-5.0)
    assert (here.now() - began).total_seconds() == -5.0
    assert (there.now() - began).total_seconds() == 60.0
    await here.advance(2.0)
    assert here.monotonic() == there.monotonic() == 2.0
    assert (there.now() - began).total_seconds() == 62.0


async def test_what_is_held_is_not_waited_for() -> None:
    """The world rests with a create unanswered; once it is let go the Sandbox gets its status."""
    async with open_world() as world:
        held = world.plane.hold("create", "pods")
        await world.create(sandbox())
        await world.advance(2.0)
        assert world.find("pods") is not None
        assert "conditions" not in world.get().get("status", {})
        held.release()
        await world.run_pod()
        assert condition(world.get(), "Ready")["status"] == "True"


async def test_scheduler_and_kubelet_write_in_their_own_names() -> None:
    """As on a real server: the one before the Pod has a node, the other from then on."""
    async with open_world() as world:
        await world.create(sandbox())
        await world.pod_status(conditions=pod_conditions(ready=False, scheduled=False)[:1])
        assert status_managers(world.pod()) == {"kube-scheduler"}
        await world.run_pod()
        assert status_managers(world.pod()) == {"kube-scheduler", "kubelet"}


async def test_a_create_without_an_answer_is_found_again() -> None:
    """The Pod was made, the controller gives up waiting, and takes the Pod as its own."""
    for how in (Loss.SILENCE, Loss.RESET, 500, 504):
        async with open_world() as world:
            world.plane.fail_next("create", "pods", how, after=True)
            await world.create(sandbox())
            # The deadline of a request is one of the real clock, that of a reconcile is not.
            await world.advance(700.0 if how is Loss.SILENCE else 60.0)
            await world.run_pod()
            await world.advance(2.0)
            assert condition(world.get(), "Ready")["status"] == "True", how
            assert len(world.plane.store.list("pods", NS)) == 1, how


async def test_held_events_come_after_answers() -> None:
    """While events of Pods are held the Sandbox is not Ready; then it is."""
    async with open_world() as world:
        await world.create(sandbox())
        held = world.plane.hold_events("pods")
        await world.run_pod()
        await world.advance(5.0)
        assert condition(world.get(), "Ready")["status"] == "False"
        held.release()
        await world.settle()
        assert condition(world.get(), "Ready")["status"] == "True"


async def test_what_never_rests_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch that is behind, the queue that is busy and the request under way are named."""
    monkeypatch.setattr(patience, "PATIENCE_S", 0.2)
    async with open_world() as world:
        world.plane.delay("create", "pods", 5.0)
        world.plane.store.create(sandbox())
        with pytest.raises(TimeoutError) as failure:
            await world.settle()
        assert "queue sandbox: 1 keys" in str(failure.value)
        assert f"waits for create pods /api/v1/namespaces/{NS}/pods" in str(failure.value)
        await world.server_clock.advance(5.0)
        await world.settle()
        world.plane.hold_events("pods")
        await world.patch("pods", "sb-1", {"metadata": {"annotations": {"a": "b"}}})
        assert "watch of pods has seen" in world.explain()
        assert "(events held)" in world.explain()


async def test_a_webhooks_edit_is_a_generation_and_a_status_brings_none() -> None:
    """As on kube-apiserver 1.36: whatever changes the spec is counted, and no status does."""
    async with open_world() as world:
        store = world.plane.store
        adds = False

        def add_end(kind: Kind, obj: dict[str, Any]) -> None:
            if adds and kind.plural == "sandboxes":
                obj["spec"]["shutdownTime"] = "2036-01-01T00:00:00Z"

        add_webhook(world.plane, add_end)
        store.create(sandbox())
        adds = True
        status = {"status": {"nodeName": "node-1"}}
        told = store.patch(SANDBOXES, NS, "sb-1", status, subresource="status")
        assert told["status"]["nodeName"] == "node-1"
        assert "shutdownTime" not in told["spec"]
        assert told["metadata"]["generation"] == 1
        note = {"metadata": {"annotations": {"note": "1"}}}
        noted = store.patch(SANDBOXES, NS, "sb-1", note)
        assert "shutdownTime" in noted["spec"]
        assert noted["metadata"]["generation"] == 2
