"""Two processes during a rolling upgrade: one works after the other, never both at once."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

from lean_sandbox.config.sources import EXIT_OK
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.manager.preflight import LEASE_NAME
from tests.support.clients import cluster_admin
from tests.support.names import LEASES
from tests.support.process import controller_process
from tests.support.world import sandbox

Json = dict[str, Any]
NS = "default"
OLD, NEW = f"system:serviceaccount:{NS}:old", f"system:serviceaccount:{NS}:new"
_PATIENCE_S = 25.0
_READS = ("get", "list", "watch")


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
        with anyio.fail_after(_PATIENCE_S):
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
            for entry in plane.audit
            if entry.user in (OLD, NEW)
            and entry.verb not in _READS
            and entry.resource not in ("leases", "events")
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


def _leader_of(plane: ControlPlane) -> str:
    asked = plane.audit.select(verb="create", resource="leases")
    return next(entry.user for entry in asked if entry.code == 201)
