"""How often the safety net looks at many objects, as docs/design.md says."""

from __future__ import annotations

from itertools import pairwise

from tests.runtime.test_safety_net import AT_ONCE
from tests.support.world import open_world, sandbox

MANY = 300


async def test_looks_at_many_objects_are_ten_a_second_in_all() -> None:
    """Three hundred Sandboxes that wait for a node: a hundred are looked at after ten seconds."""
    async with open_world(AT_ONCE) as world:
        for number in range(MANY):
            world.plane.store.create(sandbox(f"sb-{number}"))
        await world.settle()
        world.reports.clear()
        looks = []
        for _ in range(30):
            await world.advance(1.0)
            looks.append(sum(one.item.is_safety_net for one in world.reports))
        assert looks[8] == 0
        assert 90 <= looks[9] <= 110
        assert all(later - before <= 12 for before, later in pairwise(looks[9:]))
        assert looks[-1] >= MANY - 20
