"""Laws of ``local up``: what it starts, says, leaves behind."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.abc
import pytest
import yaml

from lean_sandbox.errors import ConfigError
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.kube.resources import NODES, PODS
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.files import NAME, clusters
from lean_sandbox.local.request import LocalSettings
from lean_sandbox.local.up import UpSettings, up
from lean_sandbox.manager.preflight import LEASE_NAME
from lean_sandbox.model.times import format_micro_time
from tests.conformance.api import until
from tests.local.kubelet.life import SWIFT
from tests.support.clients import connected
from tests.support.patience import PATIENCE_S
from tests.support.stored import is_ready

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
}


@pytest.fixture(autouse=True)
def _own_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """List clusters apart from those of the user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "list"))


class Session:
    """One run of ``local up``, stopped by a signal as a user would."""

    def __init__(self, folder: Path, end: signal.Signals = signal.SIGTERM) -> None:
        self.end = end
        self.said: list[str] = []
        self.kubeconfig = folder / "config"
        self.state = folder / "state"

    def settings(self, controller: Sequence[str] | None = None) -> UpSettings:
        """Return the options, with a controller that has these flags."""
        return UpSettings(
            server=LocalSettings(state_file=self.state),
            kubelet=SWIFT,
            kubeconfig=self.kubeconfig,
            controller=controller,
        )

    async def run(self) -> None:
        """Start, make sure of a Pod, stop by the signal."""

        async def live(*, task_status: anyio.abc.TaskStatus[str]) -> None:
            await up(self.settings(), say=self.said.append, task_status=task_status)

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as group:
                await group.start(live)
                await self.use()
                os.kill(os.getpid(), self.end)

    async def use(self) -> None:
        """Look around through the kubeconfig."""
        async with connected(load(str(self.kubeconfig), NAME)) as client:
            nodes = await client.list(NODES, dict)
            assert len(nodes["items"]) == 2
            found = await client.list(PODS, dict, namespace="default")
            if not found["items"]:
                await client.create(PODS, POD, bytes, namespace="default")
            while True:
                if is_ready(await client.get(PODS, "web", dict, namespace="default")):
                    break
                await anyio.sleep(0.005)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_it_serves_until_a_signal_and_saves_what_it_had(
    tmp_path: Path, end: signal.Signals
) -> None:
    """The second run has the Pod of the first, and both end without an error."""
    first = Session(tmp_path, end)
    second = Session(tmp_path)
    await first.run()
    assert first.state.exists()
    await second.run()
    assert any("export KUBECONFIG=" in line for line in first.said)
    assert any(end.name in line for line in first.said)
    assert any("State saved" in line for line in first.said)


async def test_the_kubeconfig_is_private(tmp_path: Path) -> None:
    """It holds a token."""
    session = Session(tmp_path)
    await session.run()
    assert stat.S_IMODE(session.kubeconfig.stat().st_mode) == 0o600


async def test_a_kubeconfig_keeps_its_other_clusters(tmp_path: Path) -> None:
    """The entries are added, or replace those of before, and another current context stays."""
    session = Session(tmp_path)
    names = ("clusters", "users", "contexts")
    theirs: dict[str, object] = {"kind": "Config", "current-context": "theirs"}
    theirs |= {name: [{"name": "theirs"}, {"name": NAME}] for name in names}
    session.kubeconfig.write_text(yaml.safe_dump(theirs))
    await session.run()
    found = yaml.safe_load(session.kubeconfig.read_text())
    for name in names:
        assert [one["name"] for one in found[name]] == ["theirs", NAME]
    assert found["current-context"] == "theirs"
    assert f"kubectl config use-context {NAME}" in session.said[0]


async def test_a_controller_that_fails_ends_the_cluster(tmp_path: Path) -> None:
    """After the state was saved."""
    session = Session(tmp_path)
    with anyio.fail_after(PATIENCE_S), pytest.raises(ConfigError, match="ended with code 2"):
        await up(session.settings(["--bogus"]), say=session.said.append)
    assert session.state.exists()
    assert clusters() == []


async def test_a_controller_that_refuses_to_work_is_no_start(tmp_path: Path) -> None:
    """What was asked before it refused is no sign of life: nobody is told that a cluster is up."""
    session = Session(tmp_path)
    flag = "--leader-election-namespace=default"
    async with ControlPlane(LocalSettings(state_file=session.state)) as plane:
        held = {"holderIdentity": "x", "renewTime": format_micro_time(plane.clock.now())}
        lease = {"metadata": {"name": LEASE_NAME}, "spec": held}
        plane.store.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease})
    with anyio.fail_after(PATIENCE_S), pytest.raises(ConfigError, match="ended with code 1"):
        await up(session.settings([flag]), say=session.said.append)
    assert not any("Cluster is up" in line for line in session.said)


async def test_a_signal_amid_the_start_ends_it(tmp_path: Path) -> None:
    """Before all nodes are there; the kubeconfig is as it was, and no cluster was up."""
    session = Session(tmp_path)
    settings = replace(session.settings(), kubelet=replace(SWIFT, nodes=100_000))

    async def has_a_node() -> bool:
        if not session.kubeconfig.exists():
            return False
        async with connected(load(str(session.kubeconfig), NAME)) as client:
            return bool((await client.list(NODES, dict))["items"])

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(partial(up, settings, say=session.said.append))
            await until(has_a_node)
            os.kill(os.getpid(), session.end)
    assert len(session.said) == 1
    assert "State saved" in session.said[0]
    assert not session.kubeconfig.exists()


@pytest.mark.parametrize("theirs", [None, "# mine\nkind: Config\nclusters: []\n"])
async def test_a_start_that_fails_leaves_the_kubeconfig_as_it_was(
    tmp_path: Path, theirs: str | None
) -> None:
    """Also what was written by hand; without a file, no folder is left either."""
    session = Session(tmp_path)
    session.kubeconfig = tmp_path / "new" / "folder" / "config"
    if theirs is not None:
        session.kubeconfig.parent.mkdir(parents=True)
        session.kubeconfig.write_text(theirs)
    with anyio.fail_after(PATIENCE_S), pytest.raises(ConfigError, match="ended with code 2"):
        await up(session.settings(["--bogus"]), say=session.said.append)
    if theirs is None:
        assert not (tmp_path / "new").exists()
    else:
        assert session.kubeconfig.read_text() == theirs
