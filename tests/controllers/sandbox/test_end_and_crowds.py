"""The end of a Sandbox, and what may come right before it; what it says beside a crowd."""

from __future__ import annotations

from typing import Any

from tests.support import stored
from tests.support.crowd import CROWD, crowded, number_ready, seconds_until
from tests.support.expiry import at, dying
from tests.support.extensions import bound_name, is_ready
from tests.support.names import SANDBOXES
from tests.support.world import NS, condition, open_world, pod_conditions, sandbox

Json = dict[str, Any]
POD_NAME = "agents.x-k8s.io/pod-name"


async def test_what_ends_a_connection_is_told_at_once_in_a_crowd() -> None:
    """The row of a Pod on a lost node still says ready; who wrote the status says it is not.

    Whoever connects to an old address finds nothing, or another's Pod.
    """
    lost = {"conditions": pod_conditions(ready=False)}
    moved_to = ["10.9.9.9"]
    moved = {"podIP": moved_to[0], "podIPs": [{"ip": ip} for ip in moved_to]}
    async with crowded() as world:
        await seconds_until(world, lambda: is_ready(world, "c-0") and is_ready(world, "c-1"))
        names = [bound_name(world, claim) for claim in ("c-0", "c-1")]
        writes = ((lost, "kube-controller-manager"), (moved, "kubelet"))
        for name, (status, by) in zip(names, writes, strict=True):
            world.plane.store.patch(
                "pods", NS, name, {"status": status}, subresource="status", manager=by
            )

        def are_told() -> bool:
            first, second = (world.get(name) for name in names)
            is_moved = second["status"].get("podIPs") == moved_to
            return is_moved and not stored.is_ready(first)

        await seconds_until(world, are_told)
        assert number_ready(world) < CROWD - 1


async def test_a_time_that_is_moved_during_the_teardown_keeps_the_sandbox() -> None:
    """Its user extends the Sandbox's life while its Pod is being deleted."""
    later = {"spec": {"shutdownTime": at(7200.0)}}
    async with open_world() as world:
        await world.ready_sandbox(dying(60.0, policy="Delete", service=True))
        uid = world.get()["metadata"]["uid"]
        store = world.plane.store
        held = world.plane.hold("delete", "services", answers=False)
        await world.advance(59.0)
        await world.clock.advance(1.0)
        await world.until(lambda: condition(world.get(), "Ready")["reason"] == "SandboxExpired")
        await world.moments(300)
        await world.clock.advance(0.002)
        await world.until(lambda: held.waiting)
        store.patch(SANDBOXES, NS, "sb-1", later)
        # Its watch has shown it long before the next request is sent.
        await world.moments(3000)
        held.release()
        await world.settle()
        await world.advance(5.0)
        found = world.find("sandboxes")
        assert found is not None
        assert found["metadata"]["uid"] == uid


async def test_the_mark_of_a_predecessor_is_not_written_over_and_over() -> None:
    """The watch lags: the old Sandbox expires when another has its name."""
    async with open_world() as world:
        await world.ready_sandbox(dying(60.0))
        await world.advance(59.0)
        held = world.plane.hold_events("sandboxes")
        store = world.plane.store
        store.delete(SANDBOXES, NS, "sb-1")
        store.create(sandbox())
        world.forget_requests()
        await world.advance(30.0)
        assert world.writes() == {"patch sandboxes/status": 1}
        held.release()
        await world.settle()


async def test_a_service_with_a_finalizer_that_is_not_wanted_and_wanted_again() -> None:
    """It goes when its finalizer lets it; asked for again it is made anew."""
    async with open_world() as world:
        await world.ready_sandbox(sandbox(spec={"service": True}))
        await world.patch("services", "sb-1", {"metadata": {"finalizers": ["example.com/x"]}})
        world.forget_requests()
        await world.patch("sandboxes", "sb-1", {"spec": {"service": False}})
        await world.advance(60.0)
        assert len(world.requests("delete", "services")) == 1
        await world.patch("sandboxes", "sb-1", {"spec": {"service": True}})
        await world.advance(10.0)
        await world.patch("services", "sb-1", {"metadata": {"finalizers": None}})
        await world.advance(10.0)
        assert (
            "deletionTimestamp"
            not in (world.find("services") or {"metadata": {"deletionTimestamp": 1}})["metadata"]
        )
        assert condition(world.get(), "Ready")["status"] == "True"
