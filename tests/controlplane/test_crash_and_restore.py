"""A real control plane that goes in the middle of a burst, and one that goes back in time."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.to_thread
import pytest

from lean_sandbox.config.options import Settings
from tests.conformance.api import Room
from tests.controlplane.binaries import provide
from tests.controlplane.objects import all_ready, extension, fill, sandbox
from tests.controlplane.plugin import REAL
from tests.controlplane.scene import SWIFT, Scene, open_stage, permitted
from tests.controlplane.server import RealServer, started
from tests.model.crds.definitions import definitions
from tests.support.patience import PATIENCE_S

pytestmark = REAL

Json = dict[str, Any]
_PLACE = "worse-days"
_POOL = 20
_CLAIMS = 40
_AWAY_S = 3.0


@pytest.fixture
def server() -> Iterator[RealServer]:
    """Give a control plane that may be broken."""
    programs = provide(os.environ, print)
    with (
        TemporaryDirectory(prefix="lean-sandbox-") as folder,
        started(programs, Path(folder), definitions().values()) as made,
    ):
        yield made


@asynccontextmanager
async def controlled(server: RealServer, folder: Path) -> AsyncIterator[None]:
    """Run a controller that loses no wake-up, and make the namespace of the tests."""
    server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": _PLACE}})
    async with permitted(server, folder, Settings(extensions=True)) as controller:
        yield
        assert not any(controller.activity().caught.values())


@asynccontextmanager
async def scene_on(server: RealServer, folder: Path) -> AsyncIterator[Scene]:
    """Run a kubelet."""
    async with open_stage(server, folder, SWIFT) as stage:
        yield replace(stage, room=Room(stage.room.api, _PLACE))


def claim(name: str) -> Json:
    """Return a claim on the pool."""
    return extension("SandboxClaim", name, warmPoolRef={"name": "p"})


async def broken(scene: Scene, act: Callable[[], None]) -> None:
    """Break the server beside the event loop, and wait until it serves our kinds again."""
    await anyio.to_thread.run_sync(act)
    for plural in ("sandboxes", "sandboxclaims"):
        # Right after its start it answers 429: the storage of a kind is yet to be initialized.
        reply = await scene.room.api.get(scene.path(plural))
        with anyio.fail_after(PATIENCE_S):
            while reply.status != HTTPStatus.OK:
                await anyio.sleep(0.2)
                reply = await scene.room.api.get(scene.path(plural))


async def bound_once(scene: Scene, count: int) -> None:
    """Wait until so many claims are Ready, and each owns the Sandbox it names, alone."""
    claims = await scene.until("sandboxclaims", all_ready(count))
    # Every taken member has been replaced, and no more than that.
    sandboxes = await scene.until("sandboxes", all_ready(count + _POOL))
    owners = {
        one["metadata"]["name"]: [ref["uid"] for ref in one["metadata"]["ownerReferences"]]
        for one in sandboxes
    }
    for one in claims:
        assert owners[one["status"]["sandbox"]["name"]] == [one["metadata"]["uid"]]
    pods = await scene.until("pods", lambda found: len(found) == len(sandboxes))
    assert {pod["metadata"]["name"] for pod in pods} == set(owners)


async def test_a_server_that_dies_in_a_burst_and_forgets_its_history_binds_every_claim_once(
    server: RealServer, tmp_path: Path
) -> None:
    """A Sandbox is bound to at most one claim, ever; killed, compacted and started anew."""
    async with controlled(server, tmp_path), scene_on(server, tmp_path) as scene:
        await fill(scene, _POOL)

        async def make(number: int) -> None:
            await scene.create("sandboxclaims", claim(f"c-{number}"))

        def break_down() -> None:
            server.kill("kube-apiserver")
            server.compact()
            time.sleep(_AWAY_S)
            server.start("kube-apiserver")

        async with anyio.create_task_group() as group:
            for number in range(_CLAIMS):
                group.start_soon(make, number)
        # Some are bound by now, some are under way, most wait.
        await broken(scene, break_down)
        await bound_once(scene, _CLAIMS)


async def test_a_store_that_goes_back_to_a_backup_is_served_as_it_is_then(
    server: RealServer, tmp_path: Path
) -> None:
    """Status tells the truth within one relist: versions go back, and what came after is undone.

    What was bound after the copy is bound again, what was made after it is gone, what was deleted
    after it is there, and what is made from now on is served.
    """
    async with controlled(server, tmp_path):
        async with scene_on(server, tmp_path) as scene:
            await fill(scene, _POOL)
            await scene.create("sandboxes", sandbox("kept"))
            await scene.create("sandboxes", sandbox("deleted"))
            await scene.until("sandboxes", all_ready(_POOL + 2))
            await broken(scene, lambda: server.back_up(tmp_path / "copy"))
            for number in range(5):
                await scene.create("sandboxclaims", claim(f"lost-{number}"))
            await scene.until("sandboxclaims", all_ready(5))
            await scene.create("sandboxes", sandbox("lost"))
            await scene.delete("sandboxes", "deleted")
            await scene.until("sandboxes", all_ready(_POOL + 5 + 2))
            await broken(scene, lambda: server.restore(tmp_path / "copy"))
        # As all that watches the store, the kubelet has to be started anew. The controller has not.
        async with scene_on(server, tmp_path) as scene:
            for number in range(5):
                await scene.create("sandboxclaims", claim(f"c-{number}"))
            await scene.create("sandboxes", sandbox("new"))
            found = await scene.until("sandboxes", all_ready(_POOL + 5 + 3))
            names = {one["metadata"]["name"] for one in found}
            assert {"kept", "deleted", "new"} <= names
            assert "lost" not in names
            for name in ("kept", "deleted", "new"):
                await scene.delete("sandboxes", name)
            await bound_once(scene, 5)
