"""A pool that is rolled to another template, and what is seen of its members."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from lean_sandbox.metrics.registry import Exposition
from tests.companions.support import PREFIX, notes
from tests.support.builders import placed, pool
from tests.support.clock import FakeClock
from tests.support.extensions import settings
from tests.support.names import POOLS, SANDBOXES, TEMPLATES
from tests.support.stored import is_ending, is_ready, owner_of
from tests.support.world import NS, World, open_world

Json = dict[str, Any]
STATUS = PREFIX + "rollout-status"
NEW = "busybox:2"


@asynccontextmanager
async def open_rolling(
    wish: str | None = "1", *, replicas: int = 4, strategy: str | None = None, **more: Any
) -> AsyncIterator[World]:
    """Open a world with a pool whose members are all Ready; one clock for all."""
    owner = pool(replicas=replicas, strategy=strategy)
    if wish is not None:
        owner["metadata"]["annotations"] = {PREFIX + "rolling-update": wish}
    given_ = settings(**{"companions": ("rollout",), **more})
    before = (placed(), owner)
    async with open_world(given_, clock=FakeClock(), one_time=True, before=before) as world:
        await make_ready(world)
        await world.advance(5.0)
        world.forget_requests()
        yield world


def members(world: World) -> list[Json]:
    """Return the free members that nobody deletes."""
    found = world.plane.store.list(SANDBOXES, NS)
    free = [one for one in found if not is_ending(one)]
    return [one for one in free if owner_of(one).get("kind") == "SandboxWarmPool"]


def images(world: World) -> list[str]:
    """Return the images of the free members."""
    return sorted(image_of(one) for one in members(world))


def image_of(body: Json) -> str:
    """Return the image of a Sandbox."""
    return str(body["spec"]["podTemplate"]["spec"]["containers"][0]["image"])


def ready(world: World) -> int:
    """Return how many free members are ready."""
    return sum(is_ready(one) for one in members(world))


async def make_ready(world: World, image: str | None = None) -> None:
    """Run the Pods that do not run, of one image or of all, as their kubelets do."""
    for pod in world.plane.store.list("pods", NS):
        is_new = not is_ending(pod) and pod.get("status", {}).get("phase") != "Running"
        if is_new and image in (None, pod["spec"]["containers"][0]["image"]):
            await world.run_pod(pod["metadata"]["name"])


async def change_template(world: World, image: str = NEW) -> None:
    """Write another image into the template."""
    body = placed(image=image)
    await world.patch(TEMPLATES, "tpl", {"spec": body["spec"]})


def status(world: World) -> str | None:
    """Return what the annotation of the pool says of the rollout."""
    return notes(world.plane.store.get(POOLS, NS, "pool")).get(STATUS)


def old_members(world: World) -> float:
    """Return how many members the metric says are old."""
    found = Exposition()
    world.whole.collect(found)
    _, series = found.families["lean_sandbox_companion_rollout_old_members"]
    return sum(float(str(number)) for _, number in series)
