"""A run from outside of the cluster does not begin beside a controller, and holds its Lease."""

from __future__ import annotations

import json
import socket
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import yaml
from anyio.abc import Process
from structlog.testing import capture_logs

from lean_sandbox.clock import SystemClock
from lean_sandbox.config.options import Settings
from lean_sandbox.config.sources import EXIT_CONFIG, EXIT_OK
from lean_sandbox.errors import ConfigError
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.manager.manager import Manager
from lean_sandbox.manager.preflight import DEPLOYMENT, HOME, LEASE_NAME, make_lease
from lean_sandbox.manager.server import _check_alone
from lean_sandbox.model.times import format_micro_time
from tests.manager.onlooker import cluster
from tests.support.clients import cluster_admin, connected, connection_to
from tests.support.names import LEASES
from tests.support.patience import PATIENCE_S
from tests.support.process import controller_process
from tests.support.world import NS, sandbox

FLAG = "--allow-second-controller"

Json = dict[str, Any]


def lease(holder: str, renewed: str | None, namespace: str = HOME, name: str = LEASE_NAME) -> Json:
    """Return the Lease that controllers contend for."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    metadata = {"name": name, "namespace": namespace}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    return {**body, "spec": {key: value for key, value in spec.items() if value is not None}}


def deployment(plane: ControlPlane, available: int) -> None:
    """Create the controller's Deployment, of which so many replicas are available."""
    labels = {"app": "x"}
    containers = [{"name": "c", "image": "i"}]
    body: Json = {"apiVersion": "apps/v1", "kind": "Deployment"}
    plane.store.create(
        {
            **body,
            "metadata": {"name": DEPLOYMENT, "namespace": HOME},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
            },
        }
    )
    status = {"status": {"availableReplicas": available, "replicas": max(1, available)}}
    plane.store.patch("deployments.apps", HOME, DEPLOYMENT, status, subresource="status")


async def test_where_nobody_works_the_question_costs_two_requests() -> None:
    """Neither a Lease nor a Deployment: nothing is in the way."""
    async with cluster() as here:
        assert await here.look() == ""
        assert here.asked() == {"list leases": 1, "get deployments": 1}


@pytest.mark.parametrize(
    ("ago_s", "is_live"), [(0.0, True), (14.0, True), (16.0, False), (-3600.0, True)]
)
async def test_a_lease_renewed_lately_refuses_and_names_its_holder(
    ago_s: float, *, is_live: bool
) -> None:
    """One LIST is enough; a clock that is ahead does not hide a holder."""
    async with cluster() as here:
        renewed = format_micro_time(here.clock.now() - timedelta(seconds=ago_s))
        here.plane.store.create(lease("pod-7_abc", renewed))
        told = await here.look()
        assert bool(told) is is_live
        if is_live:
            assert f"'pod-7_abc' holds its Lease {HOME}/{LEASE_NAME}" in told
            assert FLAG in told
            assert here.asked() == {"list leases": 1}


async def test_the_leases_of_shards_are_seen_and_those_of_others_are_not() -> None:
    """Each shard holds one of its own; whatever else has a Lease there is in nobody's way."""
    async with cluster() as here:
        renewed = format_micro_time(here.clock.now())
        here.plane.store.create(lease("another", renewed, name="another-operator"))
        assert await here.look() == ""
        shard = f"{LEASE_NAME}-1-of-2"
        here.plane.store.create(lease("pod-1_abc shard=1/2", renewed, name=shard))
        assert f"'pod-1_abc shard=1/2' holds its Lease {HOME}/{shard}" in await here.look()


@pytest.mark.parametrize(
    ("holder", "renewed"), [("", "now"), ("x", None), ("x", "soon"), ("x", "nothing")]
)
async def test_a_lease_without_a_holder_or_a_time_is_nobodys(
    holder: str, renewed: str | None
) -> None:
    """One that was released, or never held, or that no one can read."""
    async with cluster() as here:
        at = format_micro_time(here.clock.now()) if renewed == "now" else None
        made = here.plane.store.create(lease(holder, at))
        assert made["spec"]["holderIdentity"] == holder
        if renewed in ("soon", "nothing"):
            # The server would refuse it: a proxy that mangles it does not.
            spec = {**made["spec"], "renewTime": renewed} if renewed == "soon" else None
            body = {"items": [{**made, "spec": spec}]}
            here.plane.fail_next("list", "leases", 200, body=body)
        assert await here.look() == ""


@pytest.mark.parametrize("available", [0, 1, 2])
async def test_a_deployment_with_replicas_refuses_and_is_named(available: int) -> None:
    """A controller without an election has no Lease; one scaled to nothing is in nobody's way."""
    async with cluster() as here:
        deployment(here.plane, available)
        told = await here.look()
        assert bool(told) is (available > 0)
        if available:
            assert f"Deployment {HOME}/{DEPLOYMENT} has {available} available" in told
            assert FLAG in told


@pytest.mark.parametrize("in_cluster", [True, False])
async def test_in_a_cluster_its_operator_decides_what_runs_there(*, in_cluster: bool) -> None:
    """Nobody is looked for: the replicas of one controller begin beside each other."""
    async with cluster() as here:
        here.plane.store.create(lease("x", format_micro_time(here.clock.now())))
        connection = msgspec.structs.replace(connection_to(here.plane), in_cluster=in_cluster)
        async with connected(connection, clock=here.clock) as client:
            manager = Manager(client, Settings(), clock=here.clock)
            with nullcontext() if in_cluster else pytest.raises(ConfigError, match="running"):
                await _check_alone(Settings(), client, here.clock, manager, alone=True)


async def test_a_namespace_that_is_named_is_looked_at_besides() -> None:
    """``--leader-election-namespace`` hides no controller where the manifests install one."""
    async with cluster() as here:
        renewed = format_micro_time(here.clock.now())
        here.plane.store.create(lease("x", renewed, NS))
        assert await here.look() == ""
        assert f"holds its Lease {NS}/" in await here.look(NS)
        here.plane.store.delete(LEASES, NS, LEASE_NAME)
        assert await here.look(NS) == ""
        here.plane.store.create(lease("x", renewed))
        told = await here.look(NS)
        assert f"holds its Lease {HOME}/" in told
        assert f"--leader-election-namespace={HOME}" in told


async def test_who_may_not_ask_begins_and_is_told() -> None:
    """Rights in one namespace are enough for a run; what could not be seen is said."""
    async with cluster("system:serviceaccount:ns:narrow") as here:
        with capture_logs() as logs:
            assert await here.look() == ""
        assert here.asked() == {"list leases": 1, "get deployments": 1}
    assert [line["event"] for line in logs] == ["leader_check_failed"] * 2


@pytest.mark.parametrize("asked_s", [None, 3])
@pytest.mark.parametrize("code", [401, 404, 429, 500, 503])
async def test_a_server_in_trouble_is_asked_again_until_it_answers(
    code: int, asked_s: int | None
) -> None:
    """Nothing begins before the answer, with pauses that grow, none shorter than Retry-After.

    A 404 without a Status is the answer of a proxy.
    """
    async with cluster() as here:
        deployment(here.plane, 1)
        text = b"404 page not found\n" if code == 404 else None
        faults = here.plane.faults
        faults.fail_next("list", "leases", code, times=3, retry_after=asked_s, body=text)
        found: list[str] = []

        async def look() -> None:
            found.append(await here.look())

        async with anyio.create_task_group() as group:
            group.start_soon(look)
            with anyio.fail_after(PATIENCE_S):
                for asked, usual_s in enumerate((1.0, 2.0, 4.0), 1):
                    pause_s = max(usual_s, asked_s or 0.0)
                    while here.clock.next_s is None:
                        await anyio.lowlevel.checkpoint()
                    assert here.asked() == {"list leases": asked}
                    assert here.clock.next_s == pytest.approx(pause_s)
                    await here.clock.advance(pause_s)
        assert DEPLOYMENT in found[0]


@pytest.mark.parametrize("missing", ["nothing", "the Lease", "the namespace"])
async def test_what_is_missing_of_the_lease_is_made(missing: str) -> None:
    """In a cluster that has seen no controller yet there is not even a namespace for it."""
    async with cluster() as here:
        if missing == "nothing":
            here.plane.store.create(lease("", None))
        elif missing == "the namespace":
            here.plane.store.delete("namespaces", "", HOME)
            await here.plane.settled()
        here.plane.audit.reset()
        assert await make_lease(here.client, here.clock, namespace=HOME, lease=LEASE_NAME)
        assert here.plane.store.get(LEASES, HOME, LEASE_NAME)
        wanted = {"create leases": 1}
        if missing == "the namespace":
            wanted = {"create leases": 2, "create namespaces": 1}
        assert here.asked() == wanted


async def test_who_may_make_no_lease_goes_on_without_and_is_told() -> None:
    """Rights in one namespace are enough for a run; nobody can see it, and that is said."""
    async with cluster("system:serviceaccount:ns:narrow") as here:
        with capture_logs() as logs:
            assert not await make_lease(here.client, here.clock, namespace=HOME, lease=LEASE_NAME)
        assert here.plane.store.find(LEASES, HOME, LEASE_NAME) is None
    assert {line["event"] for line in logs} == {"running_without_lease"}
    assert "leases.coordination.k8s.io" in logs[0]["problem"]


# -- the process -----------------------------------------------------------------------------------


def process(kubeconfig: Path, *flags: str) -> AbstractAsyncContextManager[Process]:
    """Run a controller from outside of the cluster."""
    return controller_process(kubeconfig, "--context=chosen", *flags)


def with_two_contexts(plane: ControlPlane, file: Path) -> Path:
    """Write a kubeconfig whose current context leads nowhere."""
    plane.kubeconfig(file)
    content = yaml.safe_load(file.read_text())
    (known,) = content["contexts"]
    content["contexts"] = [
        {**known, "name": "chosen"},
        {"name": "other", "context": {"cluster": "nowhere", "user": "nobody"}},
    ]
    content["current-context"] = "other"
    file.write_text(json.dumps(content))
    return file


async def test_a_run_against_a_context_refuses_beside_another_unless_it_is_told(
    tmp_path: Path,
) -> None:
    """It ends with 1, having changed nothing; with the flag, or alone, it serves."""
    async with ControlPlane() as plane:
        config = with_two_contexts(plane, tmp_path / "config")
        for name in (HOME, NS):
            metadata = {"name": name}
            plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        plane.store.create(lease("pod-7_abc", format_micro_time(SystemClock().now())))
        plane.store.create(sandbox())
        plane.audit.reset()
        with anyio.fail_after(PATIENCE_S):
            async with process(config) as refused:
                told = await said(refused)
                assert await refused.wait() == EXIT_CONFIG
            assert "'pod-7_abc' holds its Lease" in told
            assert FLAG in told
            assert "Traceback" not in told
            assert plane.audit.counts(watches=True) == {"list leases": 1}
            async with process(config, FLAG) as beside:
                while plane.store.find("pods", NS, "sb-1") is None:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                beside.terminate()
                assert await beside.wait() == EXIT_OK
            assert holder(plane) == "pod-7_abc"
            plane.store.delete("leases.coordination.k8s.io", HOME, LEASE_NAME)
            plane.store.create(sandbox("sb-2"))
            async with process(config) as alone:
                while plane.store.find("pods", NS, "sb-2") is None:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                alone.terminate()
                assert await alone.wait() == EXIT_OK


def holder(plane: ControlPlane) -> str:
    """Return who holds the Lease, "" for nobody."""
    found = plane.store.find(LEASES, HOME, LEASE_NAME)
    return ((found or {}).get("spec") or {}).get("holderIdentity") or ""


async def said(process: Process) -> str:
    """Return what a process that has ended has logged."""
    assert process.stderr is not None
    return b"".join([part async for part in process.stderr]).decode()


async def test_a_run_from_outside_holds_the_lease_so_that_all_others_see_it(tmp_path: Path) -> None:
    """A second one is refused by its name; a controller in the cluster waits until it has ended."""
    in_cluster = ("--leader-elect", f"--leader-election-namespace={HOME}")
    async with ControlPlane() as plane:
        config = with_two_contexts(plane, tmp_path / "config")
        with anyio.fail_after(PATIENCE_S):
            async with process(config) as first:
                while not holder(plane):  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                name = holder(plane)
                assert name.startswith(f"{socket.gethostname()}_")
                async with process(config) as second:
                    told = await said(second)
                    assert await second.wait() == EXIT_CONFIG
                assert f"'{name}' holds its Lease {HOME}/{LEASE_NAME}" in told
                assert FLAG in told
                plane.audit.reset()
                async with process(config, *in_cluster) as waiting:
                    while not plane.audit.select(verb="get", resource="leases"):  # noqa: ASYNC110
                        await anyio.sleep(0.01)
                    assert holder(plane) == name
                    first.terminate()
                    assert await first.wait() == EXIT_OK
                    while holder(plane) in ("", name):  # noqa: ASYNC110
                        await anyio.sleep(0.01)
                    waiting.terminate()
                    assert await waiting.wait() == EXIT_OK
        assert holder(plane) == ""


async def test_a_run_with_rights_in_one_namespace_serves_it_without_a_lease(tmp_path: Path) -> None:
    """What it may neither see nor hold does not hold it up."""
    user = f"system:serviceaccount:{NS}:narrow"
    async with ControlPlane() as plane:
        for name in (HOME, NS):
            metadata = {"name": name}
            plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        within = {**cluster_admin(user), "kind": "RoleBinding"}
        plane.store.create({**within, "metadata": {"name": "narrow", "namespace": NS}})
        config = plane.kubeconfig(tmp_path / "config", user)
        plane.store.create(sandbox())
        with anyio.fail_after(PATIENCE_S):
            async with controller_process(config, f"--namespaces={NS}") as alone:
                while plane.store.find("pods", NS, "sb-1") is None:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                alone.terminate()
                told = await said(alone)
                assert await alone.wait() == EXIT_OK
        assert "running_without_lease" in told
        assert holder(plane) == ""
