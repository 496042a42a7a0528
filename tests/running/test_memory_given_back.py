"""When the process gives free memory back to the system."""

from __future__ import annotations

import ctypes

import anyio
import pytest

from lean_sandbox.manager import server
from lean_sandbox.manager.server import trim_when_idle
from tests.support.world import open_world, sandbox


async def test_memory_is_given_back_after_a_peak_and_not_while_nothing_happens() -> None:
    """Soon after the start, then at most every five minutes, and only if there was work since."""
    given: list[float] = []
    async with open_world() as world, anyio.create_task_group() as group:

        def release() -> None:
            given.append(world.clock.monotonic() - began)

        began = world.clock.monotonic()
        group.start_soon(trim_when_idle, world.whole, world.clock, release)
        await world.advance(2.0)
        assert given == [1.0]
        await world.ready_sandbox()
        await world.advance(200.0)
        assert given == [1.0]
        await world.advance(200.0)
        assert given == [1.0, 301.0]
        await world.advance(3000.0)
        assert len(given) == 2
        await world.create(sandbox("sb-2"))
        await world.delete("sandboxes", "sb-2")
        await world.advance(300.0)
        assert len(given) == 3
        group.cancel_scope.cancel()


async def test_memory_is_not_given_back_in_the_midst_of_work() -> None:
    """While a reconcile runs it waits for a moment without any."""
    given: list[float] = []
    async with open_world() as world, anyio.create_task_group() as group:
        held = world.plane.hold("create", "pods")
        world.plane.store.create(sandbox())
        await world.until(lambda: not world.whole.is_idle)
        group.start_soon(trim_when_idle, world.whole, world.clock, lambda: given.append(1.0))
        await world.clock.advance(5.0)
        assert given == []
        held.release()
        await world.settle()
        await world.advance(2.0)
        assert given == [1.0]
        group.cancel_scope.cancel()


def test_without_the_allocator_of_glibc_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other allocators have no such call, and need none."""

    class Library:
        pass

    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Library())
    server._release_free_memory()
