"""What happens to one tenant's objects costs time by what that tenant has, not by the cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Entry, Key
from tests.support.builders import claim, orphan, placed, pool
from tests.support.extensions import change_pool, change_template, members, open_claims
from tests.support.names import POOLS, SANDBOXES, TEMPLATES
from tests.support.world import NS


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is filled with the kind of each cache that is walked over, or asked for keys."""
    found: list[str] = []
    iterate = Cache.__iter__
    keys = Cache.keys

    def walked(self: Cache[Entry]) -> Iterator[Entry]:
        found.append(self.kind.resource.plural)
        return iterate(self)

    def asked(self: Cache[Entry], namespace: str | None = None) -> list[Key]:
        found.append(self.kind.resource.plural)
        return keys(self, namespace)

    monkeypatch.setattr(Cache, "__iter__", walked)
    monkeypatch.setattr(Cache, "keys", asked)
    return found


async def test_no_event_of_a_tenant_walks_over_a_cache(walks: list[str]) -> None:
    """Pools, templates, members, orphans and claims come, change and go; no cache is walked."""
    async with open_claims("m1", "m2", templates=(placed(),), replicas=2) as world:
        walks.clear()
        await world.create(claim())
        await change_pool(world, {"replicas": 3})
        await change_template(world, {"podTemplate": {"metadata": {"labels": {"a": "b"}}}})
        await world.create(orphan("lost"))
        await world.patch(SANDBOXES, "lost", {"metadata": {"labels": {"x": "y"}}})
        await world.advance(3.0)
        await world.create(claim("waits", pool="later"))
        await world.create(pool("later", 1, template="unborn"))
        await world.create(placed("unborn"))
        await world.advance(3.0)
        await world.delete("sandboxclaims.extensions.agents.x-k8s.io", "c")
        await world.delete(POOLS, "later")
        await world.delete(TEMPLATES, "unborn")
        await world.advance(3.0)
        assert walks == []


async def test_an_orphan_wakes_its_own_pool_alone() -> None:
    """Of the pools of a namespace the one whose label the Sandbox has takes it in."""
    async with open_claims(templates=(placed(),), replicas=1) as world:
        await world.create(pool("other", 0))
        await world.advance(5.0)
        (made,) = members(world)
        await world.delete(SANDBOXES, made["metadata"]["name"])
        await world.advance(5.0)
        before = world.controller.activity().reconciles["sandboxwarmpool"]
        await world.create(orphan("lost", pool_name="other"))
        await world.advance(1.0)
        assert world.controller.activity().reconciles["sandboxwarmpool"] > before
        assert all(one["metadata"]["name"] != "lost" for one in members(world))
        assert world.plane.store.find(SANDBOXES, NS, "lost") is None


@pytest.mark.parametrize("renamed", ["pool", "template"])
async def test_the_index_follows_what_an_object_names(renamed: str) -> None:
    """A claim that turns to another pool, or a pool to another template, is woken by that one."""
    async with open_claims(templates=(placed(),), replicas=0) as world:
        if renamed == "pool":
            await world.create(claim(pool="a"))
            await world.patch(
                "sandboxclaims.extensions.agents.x-k8s.io",
                "c",
                {"spec": {"warmPoolRef": {"name": "b"}}},
            )
            await world.create(pool("b", 0))
        else:
            await world.create(pool("b", 0, template="away"))
            await world.create(claim(pool="b"))
            await change_pool(world, {"sandboxTemplateRef": {"name": "tpl2"}}, "b")
            await world.create(placed("tpl2"))
        await world.advance(5.0)
        assert world.plane.store.find(SANDBOXES, NS, "c") is not None
