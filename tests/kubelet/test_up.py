"""Laws of ``local up``: what it starts, says, leaves behind."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import anyio
import anyio.abc
import pytest

from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.kube.resources import NODES, PODS
from lean_sandbox.local.serversettings import LocalSettings
from lean_sandbox.local.up import StartController, UpSettings, up
from tests.kubelet.test_over_the_wire import SWIFT, is_ready
from tests.support.clients import connected

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
}


class Session:
    """One run of ``local up``, stopped by a signal as a user would."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.kubeconfig = folder / "config"
        self.state = folder / "state"

    async def run(self, *, start_controller: StartController | None = None) -> None:
        """Start, make sure of a Pod, stop with SIGTERM."""
        settings = UpSettings(
            server=LocalSettings(state_file=self.state),
            kubelet=SWIFT,
            kubeconfig=self.kubeconfig,
        )

        async def live(*, task_status: anyio.abc.TaskStatus[str]) -> None:
            await up(
                settings,
                start_controller=start_controller,
                say=self.said.append,
                task_status=task_status,
            )

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                await group.start(live)
                await self.use()
                os.kill(os.getpid(), signal.SIGTERM)

    async def use(self) -> None:
        """Look around through the kubeconfig."""
        async with connected(load(str(self.kubeconfig))) as client:
            nodes = await client.list_page(NODES, None, dict)
            assert len(nodes["items"]) == 2
            found = await client.list_page(PODS, "default", dict)
            if not found["items"]:
                await client.create(PODS, "default", POD, bytes)
            while True:
                if is_ready(await client.get(PODS, "default", "web", dict)):
                    break
                await anyio.sleep(0.005)


async def test_it_serves_until_a_signal_and_saves_what_it_had(tmp_path: Path) -> None:
    """The second run has the Pod of the first, and both end without an error."""
    first, second = Session(tmp_path), Session(tmp_path)
    await first.run()
    assert first.state.exists()
    await second.run()
    assert any("export KUBECONFIG=" in line for line in first.said)
    assert any("SIGTERM" in line for line in first.said)
    assert any("State saved" in line for line in first.said)


async def test_the_kubeconfig_is_private(tmp_path: Path) -> None:
    """It holds a token."""
    session = Session(tmp_path)
    await session.run()
    assert stat.S_IMODE(session.kubeconfig.stat().st_mode) == 0o600


async def test_the_controller_is_handed_the_kubeconfig(tmp_path: Path) -> None:
    """And may end without ending the cluster."""
    session = Session(tmp_path)
    seen: list[Path] = []

    async def controller(kubeconfig: Path) -> None:
        seen.append(kubeconfig)

    await session.run(start_controller=controller)
    assert seen == [session.kubeconfig]
    assert any("controller has ended" in line for line in session.said)


async def test_a_controller_that_fails_ends_the_cluster_with_its_error(tmp_path: Path) -> None:
    """After the state was saved."""
    session = Session(tmp_path)

    async def controller(_: Path) -> None:
        raise LookupError("no such thing")

    with pytest.raises(ExceptionGroup) as caught:
        await up(
            UpSettings(
                server=LocalSettings(state_file=session.state),
                kubelet=SWIFT,
                kubeconfig=session.kubeconfig,
            ),
            start_controller=controller,
            say=session.said.append,
        )
    assert caught.group_contains(LookupError)
    assert session.state.exists()
