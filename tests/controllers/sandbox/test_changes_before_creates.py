"""What the watch shows before a child is made is heeded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.names import SANDBOXES
from tests.support.suspension import SUSPEND
from tests.support.volumes import volume
from tests.support.world import NS, open_world, sandbox

Json = dict[str, Any]
SLOW = {"volumeClaimTemplates": [volume()], "service": True}


@pytest.mark.parametrize("what", ["suspended", "deleted"])
async def test_what_the_watch_has_shown_before_a_create_is_heeded(what: str) -> None:
    """The volume claim took a while; meanwhile the Sandbox was suspended, or deleted."""
    async with open_world() as world:
        store = world.plane.store
        held = world.plane.hold("create", "persistentvolumeclaims", times=1)
        store.create(sandbox(spec=SLOW, metadata={"finalizers": ["example.com/wait"]}))
        await world.until(lambda: held.waiting)
        if what == "suspended":
            store.patch(SANDBOXES, NS, "sb-1", SUSPEND)
        else:
            store.delete(SANDBOXES, NS, "sb-1")
        await world.settle()
        held.release()
        await world.settle()
        await world.advance(60.0)
        assert not world.requests("create", "pods")
