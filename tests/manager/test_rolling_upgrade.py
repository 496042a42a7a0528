"""Two processes, one of which is replaced or stopped: one works after the other, never both."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

from lean_sandbox.config.sources import EXIT_FAILED, EXIT_OK
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.request import AuditEntry
from lean_sandbox.manager.preflight import LEASE_NAME
from tests.support.clients import cluster_admin
from tests.support.names import LEASES
from tests.support.patience import PATIENCE_S
from tests.support.process import controller_process
from tests.support.world import sandbox

Json = dict[str, Any]
NS = "default"
OLD = f"system:serviceaccount:{NS}:old"
NEW = f"system:serviceaccount:{NS}:new"
_READS = ("get", "list", "watch")
# A process also asks at its start, while it may not lead yet, what it is permitted.
_NO_WORK = ("leases", "events", "selfsubjectrulesreviews")


def running(kubeconfig: Path, log: Path) -> AbstractAsyncContextManager[Process]:
    """Run a replica of the controller as a process."""
    election = ("--leader-elect", f"--leader-election-namespace={NS}")
    return controller_process(kubeconfig, *election, log=log)


async def test_the_new_process_takes_over_in_the_middle_of_the_work_and_nothing_is_done_twice(
    tmp_path: Path,
) -> None:
    """Sandboxes come all the while: all writes of the old one precede all those of the new one."""
    async with ControlPlane() as plane:
        plane.store.create(cluster_admin(OLD, NEW))
        made = 0

        def create() -> None:
            nonlocal made
            plane.store.create(sandbox(f"sb-{made}", namespace=NS))
            made += 1

        def pods() -> int:
            return len(plane.store.list("pods", NS))

        async def keep_creating(until: anyio.Event) -> None:
            while not until.is_set():
                create()
                await anyio.sleep(0.02)

        old_config = plane.kubeconfig(tmp_path / "old", OLD)
        new_config = plane.kubeconfig(tmp_path / "new", NEW)
        enough = anyio.Event()
        with anyio.fail_after(PATIENCE_S):
            async with (
                running(old_config, tmp_path / "old.log") as old,
                running(new_config, tmp_path / "new.log") as new,
                anyio.create_task_group() as group,
            ):
                while plane.store.find(LEASES, NS, LEASE_NAME) is None:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                group.start_soon(keep_creating, enough)
                holder = plane.store.get(LEASES, NS, LEASE_NAME)["spec"]["holderIdentity"]
                # Either may have been first; the one that leads is the one that is replaced.
                leads = _leader_of(plane)
                first, second = (old, new) if leads == OLD else (new, old)
                while pods() < 20:  # noqa: ASYNC110 -- what another process does sets no event
                    await anyio.sleep(0.01)
                first.terminate()
                assert await first.wait() == EXIT_OK
                before = pods()
                while pods() < before + 20:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                enough.set()
                while pods() < made:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                took = plane.store.get(LEASES, NS, LEASE_NAME)["spec"]["holderIdentity"]
                assert took not in ("", holder)
                second.terminate()
                assert await second.wait() == EXIT_OK
        entries = [
            entry
            for entry in plane.audit.entries
            if entry.user in (OLD, NEW)
            and entry.verb not in _READS
            and entry.resource not in _NO_WORK
        ]
        users = [entry.user for entry in entries]
        changed = users.index(next(user for user in users if user != leads))
        assert set(users[:changed]) == {leads}
        assert leads not in users[changed:]
        created = [entry for entry in entries if entry.what == "create pods"]
        assert all(entry.code == 201 for entry in created)
        assert len(created) == made
        for name in ("old.log", "new.log"):
            said = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
            assert not [line for line in said if line["level"] == "error"]


async def test_a_leader_that_was_stopped_and_goes_on_writes_nothing_more(tmp_path: Path) -> None:
    """It has events to answer and a request half-way; another has led since, and goes on.

    The request that was on its way when it was stopped is carried out last of all: it finds the
    Pod that the other has made, and changes nothing.
    """
    async with ControlPlane() as plane:
        plane.store.create(cluster_admin(OLD, NEW))
        configs = [plane.kubeconfig(tmp_path / f"config-{user[-3:]}", user) for user in (OLD, NEW)]
        logs = [tmp_path / "old.log", tmp_path / "new.log"]

        async def until(holds: Callable[[], object]) -> None:
            while not holds():  # noqa: ASYNC110 -- what another process does sets no event
                await anyio.sleep(0.01)

        def create(numbers: range) -> None:
            for number in numbers:
                plane.store.create(sandbox(f"sb-{number}", namespace=NS))

        def pods() -> int:
            return len(plane.store.list("pods", NS))

        with anyio.fail_after(PATIENCE_S):
            async with running(configs[0], logs[0]) as old:
                await until(lambda: holder(plane))
                first = holder(plane)
                async with running(configs[1], logs[1]) as new:
                    await until(lambda: plane.audit.select(user=NEW, resource="leases"))
                    held = plane.hold("create", "pods", answers=False, times=1)
                    create(range(20))
                    await until(lambda: held.waiting and pods() == 19)
                    old.send_signal(signal.SIGSTOP)
                    create(range(20, 40))
                    await until(lambda: holder(plane) not in ("", first) and pods() == 40)
                    held.release()
                    await until(lambda: not _writes_under_way(plane, OLD))
                    later: list[AuditEntry] = []
                    plane.audit.listeners.append(later.append)
                    old.send_signal(signal.SIGCONT)
                    create(range(40, 60))
                    assert await old.wait() == EXIT_FAILED
                    await until(lambda: pods() == 60)
                    assert [one.what for one in later if one.user == OLD and is_write(one)] == []
                    new.terminate()
                    assert await new.wait() == EXIT_OK
        told = [json.loads(line) for line in logs[0].read_text().splitlines()]
        assert [line["msg"] for line in told if line["msg"] == "leadership_lost"]
        codes = [
            one.code for one in plane.audit.entries if one.what == "create pods" and one.user == OLD
        ]
        assert sorted(codes) == [201] * 19 + [409]


def holder(plane: ControlPlane) -> str:
    """Return who holds the Lease, "" for nobody."""
    lease = plane.store.find(LEASES, NS, LEASE_NAME)
    return str(lease["spec"]["holderIdentity"]) if lease is not None else ""


def is_write(entry: AuditEntry) -> bool:
    """Say whether a request may change something."""
    return entry.verb not in _READS


def _writes_under_way(plane: ControlPlane, user: str) -> bool:
    return any(entry.user == user and is_write(entry) for entry in plane.pending)


def _leader_of(plane: ControlPlane) -> str:
    asked = plane.audit.select(verb="create", resource="leases")
    return next(entry.user for entry in asked if entry.code == 201)
