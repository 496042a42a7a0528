"""Retry-After of a refused write, over the wire; that of a watch is in ``watch/``."""

from __future__ import annotations

import pytest

from lean_sandbox.config.options import Settings
from tests.support.world import condition, open_world, sandbox


@pytest.mark.parametrize(("verb", "resource"), [("create", "pods"), ("patch", "sandboxes/status")])
async def test_retry_after_is_honoured(verb: str, resource: str) -> None:
    """A 429 with Retry-After: nothing of the kind is asked before that, then at once."""
    what = f"{verb} {resource}"
    async with open_world(Settings(sandbox_status_window=0.0)) as world:
        world.plane.fail_next(verb, resource, 429, retry_after=7)
        world.forget_requests()
        await world.create(sandbox())
        # A status that tells of the refused Pod may be written meanwhile; the refused one may not.
        refused = world.asked()[what]
        await world.advance(6.9)
        assert world.asked()[what] == refused
        await world.advance(0.2)
        assert world.asked()[what] == refused + 1
        await world.run_pod()
        await world.advance(1.0)
        assert condition(world.get(), "Ready")["status"] == "True"
