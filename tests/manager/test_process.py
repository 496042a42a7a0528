"""The process: when it contends, for what, and with which code it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from lean_sandbox.config.options import Settings
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.transport import Transport
from lean_sandbox.manager.leaderelection import AwakeClock, open_elector
from lean_sandbox.manager.preflight import HOME, LEASE_NAME
from lean_sandbox.manager.server import _open_elector
from tests.manager.processes import NS, cluster
from tests.support.names import LEASES, SANDBOXES
from tests.support.patience import PATIENCE_S
from tests.support.process import controller_process
from tests.support.world import sandbox

Json = dict[str, Any]

# -- the parts -------------------------------------------------------------------------------------


def client(*, in_cluster: bool = False) -> Client:
    """Return a client of a server that nobody asks."""
    return Client(Transport(Connection("http://127.0.0.1:9", in_cluster=in_cluster)))


@pytest.mark.parametrize(
    ("flag", "beside", "in_cluster", "elects"),
    [
        (None, False, True, True),
        (None, False, False, True),
        (None, True, True, True),
        (None, True, False, False),
        (True, False, True, True),
        (True, False, False, True),
        (True, True, False, True),
        (False, False, True, False),
        (False, False, False, False),
    ],
)
async def test_all_contend_but_who_says_not_to_or_runs_beside_another(
    *, flag: bool | None, beside: bool, in_cluster: bool, elects: bool
) -> None:
    """In a cluster as the reference does; outside of it so that others see the run."""
    settings = Settings(
        leader_elect=flag, allow_second_controller=beside, leader_election_namespace="ns"
    )
    elector = _open_elector(settings, client(in_cluster=in_cluster))
    assert (elector is not None) is elects


async def test_the_namespace_is_that_of_the_pod_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read where the kubelet puts it."""
    monkeypatch.setattr("lean_sandbox.kube.kubeconfig.SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "namespace").write_text("home\n")
    named = Settings(leader_election_namespace="named")
    assert open_elector(Settings(), client()).namespace == "home"
    assert open_elector(named, client()).namespace == "named"


async def test_outside_a_cluster_the_namespace_is_that_of_the_manifests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a controller in the cluster has its Lease, so that the two see each other."""
    monkeypatch.setattr("lean_sandbox.kube.kubeconfig.SERVICE_ACCOUNT", tmp_path)
    assert open_elector(Settings(), client()).namespace == HOME


async def test_an_identity_is_the_hosts_name_and_a_uuid() -> None:
    """As the reference has it; two processes on one host differ."""
    settings = Settings(leader_election_namespace="ns")
    one, two = (open_elector(settings, client()).identity for _ in range(2))
    host, _, unique = one.rpartition("_")
    assert host == socket.gethostname()
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", unique)
    assert one != two


def test_the_clock_of_an_election_counts_suspended_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others do not wait for a machine that sleeps: an hour of it is an hour of the lease."""
    awake_s = 100.0
    slept_s = 0.0

    def gettime(clock: int) -> float:
        return awake_s + (slept_s if clock == time.CLOCK_BOOTTIME else 0.0)

    monkeypatch.setattr(time, "clock_gettime", gettime)
    monkeypatch.setattr(time, "monotonic", lambda: awake_s)
    clock = AwakeClock()
    before_s = clock.monotonic()
    slept_s = 3600.0
    assert clock.monotonic() - before_s == 3600.0


# -- the whole -------------------------------------------------------------------------------------


async def said(process: Process) -> list[Json]:
    """Return the log of a process that has ended."""
    assert process.stderr is not None
    text = b"".join([part async for part in process.stderr])
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.case(143)
async def test_on_sigterm_the_other_process_takes_over_at_its_next_get(tmp_path: Path) -> None:
    """The first releases the Lease and ends with 0; the other asks every two seconds."""
    async with cluster(tmp_path) as running, running.process() as one:
        await running.until(lambda: running.holder)
        first = running.holder
        async with running.process() as two:
            looks = running.looks()
            await running.until(lambda: running.looks() > looks)
            one.send_signal(signal.SIGTERM)
            await running.until(lambda: running.holder != first)
            looks = running.looks()
            assert await one.wait() == 0
            await running.until(lambda: running.holder)
            assert running.looks() <= looks + 1
            assert two.returncode is None
            two.send_signal(signal.SIGINT)
            assert await two.wait() == 0
        assert running.holder == ""
        events = running.plane.store.list("events.events.k8s.io", NS)
        assert [event["reason"] for event in events] == ["LeaderElection"] * 4


async def test_a_process_that_loses_the_lease_ends_with_1_and_says_why(tmp_path: Path) -> None:
    """Who starts it anew lets it contend again."""
    async with cluster(tmp_path) as running, running.process() as one:
        await running.until(lambda: running.holder)
        held = {"spec": {"holderIdentity": "chosen"}}
        running.plane.store.patch(LEASES, NS, LEASE_NAME, held)
        with anyio.fail_after(PATIENCE_S):
            assert await one.wait() == 1
            log = await said(one)
        assert running.holder == "chosen"
        (line,) = (line for line in log if line["msg"] == "leadership_lost")
        assert line["reason"] == "'chosen' holds the Lease"
        assert "Traceback" not in json.dumps(log)


@pytest.mark.parametrize(("flags", "told"), [((), 1), (("--extensions",), 0)])
async def test_a_standby_ends_with_0_and_leaves_the_lease_alone(
    tmp_path: Path, flags: tuple[str, ...], told: int
) -> None:
    """A signal is enough, however long it has waited; its log says whether claims are served."""
    async with cluster(tmp_path) as running:
        metadata = {"name": LEASE_NAME, "namespace": NS}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 3600}
        running.plane.store.create({**body, "spec": spec})
        async with running.process(*flags) as one:
            await running.until(running.looks)
            one.send_signal(signal.SIGTERM)
            assert await one.wait() == 0
            lines = [line for line in await said(one) if line["msg"] == "extensions_off"]
        assert [line["fix"] for line in lines] == ["--extensions"] * told
        assert running.holder == "other"
        assert not running.plane.audit.select(verb="update")


async def test_a_process_without_rights_says_at_its_start_which_are_missing(
    tmp_path: Path,
) -> None:
    """In one line, which names the manifests that grant them."""
    async with cluster(tmp_path, user="system:serviceaccount:default:nobody") as running:
        async with running.process("--leader-elect=false", "--extensions") as one:
            lists = {"verb": "list", "resource": "networkpolicies"}
            reviews = {"verb": "create", "resource": "selfsubjectrulesreviews"}
            await running.until(lambda: running.plane.audit.select(**lists))
            await running.until(lambda: running.plane.audit.select(**reviews))
            one.send_signal(signal.SIGTERM)
            assert await one.wait() == 0
            (line,) = (line for line in await said(one) if line["msg"] == "rights_missing")
        assert "list, patch, watch networkpolicies.networking.k8s.io" in line["missing"]
        assert "components/extensions/clusterrole.yaml" in line["fix"]


async def test_a_second_signal_ends_it_at_once_with_1(tmp_path: Path) -> None:
    """A reconcile that gets no answer is not waited for; the Lease is left to expire."""
    async with cluster(tmp_path) as running, running.process() as one:
        await running.until(lambda: running.holder)
        running.plane.delay("create", "pods", 1000.0)
        running.plane.store.create({**sandbox(), "metadata": {"name": "sb", "namespace": NS}})
        one_pod = {"verb": "get", "resource": "sandboxes"}
        await running.until(lambda: running.plane.audit.select(**one_pod))
        one.send_signal(signal.SIGTERM)
        one.send_signal(signal.SIGINT)
        with anyio.fail_after(PATIENCE_S):
            assert await one.wait() == 1
        assert running.holder


async def test_the_command_companions_runs_no_controller(tmp_path: Path) -> None:
    """Beside whichever there is: it holds a Lease of its own, and makes no Pod."""
    async with cluster(tmp_path) as running:
        store = running.plane.store
        idle = {"annotations": {"agents.x-k8s.io/idle-timeout-seconds": "1"}}
        body = sandbox(metadata={"namespace": NS, **idle})
        store.create(body)
        flags = ("--companions=idle", f"--leader-election-namespace={NS}")
        async with controller_process(running.kubeconfig, *flags, command="companions") as process:

            def is_suspended() -> bool:
                found = store.get(SANDBOXES, NS, "sb-1")
                return bool(found["spec"].get("operatingMode") == "Suspended")

            await running.until(is_suspended)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
        assert not running.plane.audit.select(verb="create", resource="pods")
        assert store.find(LEASES, NS, LEASE_NAME) is None
        assert store.find(LEASES, NS, "companions.lean-sandbox") is not None
