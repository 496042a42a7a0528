"""When the process gives free memory back to the system."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from types import SimpleNamespace

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


@pytest.mark.parametrize("known", [(), ("malloc_trim",), ("mallopt",)])
def test_without_the_allocator_of_glibc_nothing_is_done(
    known: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other allocators lack one of its two calls, or both, and need neither."""
    called: list[tuple[int, ...]] = []
    library = SimpleNamespace(**{name: lambda *given: called.append(given) for name in known})
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: library)
    server._release_free_memory()
    assert called == []


# How many blocks the C library has from the system for themselves, before and after one more.
_BLOCKS = """
import ctypes, sys
from lean_sandbox.manager.server import _release_free_memory
class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("a", "b", "c", "hblks", *"efghij")]
library = ctypes.CDLL(None)
if not hasattr(library, "mallinfo2"):
    raise SystemExit(77)
library.mallinfo2.restype = Counts
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
_release_free_memory()
library.free(library.malloc(20 * 1024 * 1024))
for size in map(int, sys.argv[1:]):
    before = library.mallinfo2().hblks
    library.malloc(size)
    print(library.mallinfo2().hblks - before)
"""


def test_blocks_of_128_kib_go_back_when_they_are_freed() -> None:
    """They are the system's own, however large a block was freed before; smaller ones are not."""
    sizes = [str(size) for size in (128 * 1024, 2 * 1024 * 1024, 128 * 1024 - 64)]
    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-c", _BLOCKS, *sizes], capture_output=True, text=True, check=False
    )
    if done.returncode == 77:
        pytest.skip("this C library does not count its blocks")
    assert (done.stdout.split(), done.stderr) == (["1", "1", "0"], "")
