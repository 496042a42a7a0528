"""What a launch costs in bytes, as a ratio between the forms in which Pods are watched."""

from __future__ import annotations

from tests.support.world import open_world, sandbox, watched


async def received(form: str) -> int:
    """Return what the watch of Pods receives for one launch, the first of a watch left out."""
    async with open_world(watched(form)) as world:

        def so_far() -> int:
            watches = world.controller.statistics().kinds["pods"].watch
            return sum(one.received_bytes for one in watches)

        # The first event names the columns and describes them.
        await world.ready_sandbox()
        before = so_far()
        await world.create(sandbox("sb-2"))
        await world.bind("sb-2")
        await world.run_pod("sb-2")
        await world.settle()
        return so_far() - before


async def test_a_launch_told_in_cells_takes_less_than_half_of_the_bytes() -> None:
    """Budget: nothing but the cells of each event, and no more events than before.

    Without the bookmarks, of which the server of a test sends one for each step, it is a sixth.
    """
    cells, table = await received("cells"), await received("table")
    assert 0 < 2 * cells <= table
