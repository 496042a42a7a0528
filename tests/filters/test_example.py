"""The operator of ``docs/filters.md`` does what the page says."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio
from lightkube import AsyncClient, KubeConfig
from lightkube.resources.core_v1 import ConfigMap, Pod

from lean_sandbox.local.controlplane import ControlPlane
from tests.support.patience import PATIENCE_S

PAGE = Path(__file__).parents[2] / "docs" / "filters.md"
OPERATOR, REPLAY = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
BOOK = "address-book"


def body(name: str) -> Any:
    """Return a Pod that belongs into the book."""
    return Pod.from_dict(
        {
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "x"}]},
        }
    )


def status(ready: str, ip: str) -> dict[str, Any]:
    """Return a patch of a status as the kubelet writes it."""
    condition = {"type": "Ready", "status": ready}
    state = {"name": "main", "ready": ready == "True", "state": {"running": {}}, "image": "x"}
    found = {**state, "imageID": "", "restartCount": 0}
    return {
        "status": {
            "phase": "Running",
            "conditions": [condition],
            "containerStatuses": [found],
            "podIP": ip,
            "podIPs": [{"ip": ip}],
        }
    }


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    """Give a client of an embedded API server."""
    async with ControlPlane() as plane:
        config = KubeConfig.from_file(str(plane.kubeconfig(tmp_path / "kubeconfig")))
        client = AsyncClient(config=config.get())
        try:
            yield client
        finally:
            await client.close()


def operator() -> dict[str, Any]:
    """Return what the first program of the page defines."""
    made: dict[str, Any] = {"__name__": "operator"}
    exec(compile(OPERATOR, str(PAGE), "exec"), made)  # noqa: S102 -- the page is ours
    return made


async def until(client: AsyncClient, expected: dict[str, str]) -> None:
    """Wait until the book has these addresses."""
    async for _, book in client.watch(ConfigMap, namespace="default"):
        assert book.metadata is not None
        if book.metadata.name == BOOK and (book.data or {}) == expected:
            return


async def test_the_book_has_the_ready_pods(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Pods come in when they are ready and go when they end; an annotation is nobody's business."""
    caplog.set_level(logging.DEBUG, logger=BOOK)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(operator()["AddressBook"](client).run)
            for name, ip in (("a", "10.0.0.1"), ("b", "10.0.0.2")):
                await client.create(body(name))
                await client.patch(Pod.Status, name, status("True", ip), namespace="default")
            await until(client, {"a": "10.0.0.1", "b": "10.0.0.2"})
            note = {"metadata": {"annotations": {"note": "x"}}}
            await client.patch(Pod, "a", note, namespace="default")
            await client.patch(Pod.Status, "a", status("False", "10.0.0.1"), namespace="default")
            await until(client, {"b": "10.0.0.2"})
            await client.delete(Pod, "b", namespace="default", grace_period=0)
            await until(client, {})
            group.cancel_scope.cancel()
    assert "MODIFIED a: nothing of [deletion, label app, column Ready, column IP] changed" in (
        caplog.messages
    )
    assert "MODIFIED a: column Ready 1/1 -> 0/1" in caplog.messages


async def test_the_operator_ends_when_its_watch_fails(tmp_path: Path) -> None:
    """It sees every Pod anew once it is restarted, so it must not go on behind a gap."""
    async with ControlPlane() as plane:
        plane.fail_next("watch", "pods", 410)
        client = AsyncClient(
            config=KubeConfig.from_file(str(plane.kubeconfig(tmp_path / "kubeconfig"))).get()
        )
        with anyio.fail_after(PATIENCE_S), pytest.RaisesGroup(pytest.RaisesExc(match="410 Gone")):
            await operator()["AddressBook"](client).run()
        await client.close()


async def test_changes_that_come_together_are_one_reconcile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A namespace is reconciled ten times a second at most, and never misses a change."""
    book = operator()["AddressBook"](client=None)
    done: list[str] = []
    pauses: list[float] = []

    async def reconcile(namespace: str) -> None:
        done.append(namespace)
        if len(done) == 1:
            change(namespace)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            change("one")
            change("two")

    def change(namespace: str) -> None:
        book.pending.add(namespace)
        book.changed.set()

    book.reconcile = reconcile
    monkeypatch.setattr("asyncio.sleep", sleep)
    change("one")
    change("one")
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(book.work)
            while len(done) < 3:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
    assert done == ["one", "two", "one"]
    assert pauses == [0.1, 0.1]


def test_a_recorded_watch_is_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second program of the page explains a log line by line."""
    pod = {**body("a").to_dict(), "kind": "Pod", **status("True", "10.0.0.1")}
    pod["metadata"]["uid"] = "u"
    lines = [json.dumps({"type": kind, "object": pod}) for kind in ("ADDED", "MODIFIED")]
    (tmp_path / "pods.log").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    exec(compile(REPLAY, str(PAGE), "exec"), {"__name__": "replay"})  # noqa: S102 -- as above
    assert "default/a  nothing of [deletion, column Ready] changed" in out.getvalue()
