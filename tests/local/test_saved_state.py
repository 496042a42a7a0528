"""The state of the embedded control plane in files: when it is saved, and what a restart finds."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
import structlog

from lean_sandbox.local import files, store
from tests.conformance.api import until
from tests.conformance.objects import config, widget
from tests.local.servers import LIVE, MAPS, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_private_files_cannot_be_prepared(tmp_path: Path) -> None:
    """Links and files that others put beside the state neither get it nor give it their mode."""
    state = tmp_path / "state.json"
    elsewhere = tmp_path / "elsewhere"
    for name in ("state.json.new", f".state.json.{os.getpid()}"):
        (tmp_path / name).symlink_to(elsewhere)
    elsewhere.write_text("")
    elsewhere.chmod(0o666)
    async with running(state_file=state):
        pass
    assert state.stat().st_mode & 0o077 == 0
    assert not state.is_symlink()
    assert elsewhere.read_text() == ""
    assert files_of(tmp_path) == ["elsewhere", "state.json"]


def files_of(folder: Path) -> list[str]:
    """Return the names of what is no link."""
    return sorted(path.name for path in folder.iterdir() if not path.is_symlink())


async def test_state_survives_a_restart(tmp_path: Path) -> None:
    """Objects, kinds, versions and tokens outlive the process; history does not."""
    state = tmp_path / "state.json"
    async with running(state_file=state) as (plane, api):
        made = (await api.post(LIVE, widget("a"))).ok()
        token = plane.create_token("system:serviceaccount:default:default")
        version = int((await api.get(LIVE)).version)
        (await api.post(MAPS, config("gone"))).ok()
        await api.delete(f"{MAPS}/gone")
    assert state.stat().st_mode & 0o077 == 0
    async with running(state_file=state) as (_, api):
        assert (await api.get(f"{LIVE}/a")).ok() == made
        again = await api.post(LIVE, widget("b"))
        assert int(again.version) > version
        assert (await api.as_user(token).get(LIVE)).status == 403
        assert (await api.get(f"{MAPS}/gone")).status == 404
        (event,) = await api.events_to_the_end(LIVE, resourceVersion=str(version - 1))
        assert event["object"]["code"] == 410
        changed = await api.patch(f"{LIVE}/a", {"spec": {"size": 5}})
        assert changed.ok()["metadata"]["generation"] == 2


async def test_state_is_saved_now_and_then(tmp_path: Path) -> None:
    """A crash loses no more than an interval."""
    state = tmp_path / "state.json"
    async with running(state_file=state, save_interval_s=0.02) as (_, api):
        (await api.post(LIVE, widget("kept"))).ok()

        async def is_saved() -> bool:
            return state.exists() and b'"kept"' in state.read_bytes()

        await until(is_saved)
        saved = tmp_path / "as-a-crash-leaves-it.json"
        saved.write_bytes(state.read_bytes())
    async with running(state_file=saved) as (_, api):
        assert (await api.get(f"{LIVE}/kept")).status == 200


async def test_a_save_that_fails_is_tried_again(tmp_path: Path) -> None:
    """A disk that is full for a while costs nothing but the interval."""
    state = tmp_path / "state.json"
    async with running(state_file=state, save_interval_s=0.02) as (_, api):
        state.unlink()
        state.mkdir()
        (await api.post(LIVE, widget("kept"))).ok()

        async def was_tried() -> bool:
            return "the state was not saved" in "".join(map(str, told))

        with structlog.testing.capture_logs() as told:
            await until(was_tried)
        state.rmdir()

        async def is_saved() -> bool:
            return state.exists() and b'"kept"' in state.read_bytes()

        await until(is_saved)


async def test_the_server_answers_while_it_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are written beside the loop; what is written last is the newest state."""
    state = tmp_path / "state.json"
    written = threading.Event()
    is_writing = threading.Event()

    def slowly(path: Path, data: bytes) -> None:
        is_writing.set()
        assert written.wait(10)
        files.replace_private(path, data)

    async with running(state_file=state, save_interval_s=0.02) as (_, api):
        monkeypatch.setattr(store, "replace_private", slowly)
        (await api.post(LIVE, widget("first"))).ok()
        await asyncio.to_thread(is_writing.wait, 10)
        (await api.post(LIVE, widget("second"))).ok()
        written.set()
    async with running(state_file=state) as (_, api):
        assert (await api.get(f"{LIVE}/second")).status == 200


async def test_owners_are_remembered_over_a_restart(tmp_path: Path) -> None:
    """Dependents of an owner deleted after a restart are collected."""
    state = tmp_path / "state.json"
    async with running(state_file=state) as (plane, _):
        made = plane.store.create(widget("o"))
        keys = ("apiVersion", "kind")
        reference = {key: made[key] for key in keys} | {
            key: made["metadata"][key] for key in ("name", "uid")
        }
        plane.store.create(widget("d", metadata={"ownerReferences": [reference]}))
    async with running(state_file=state) as (plane, api):
        (await api.delete(f"{LIVE}/o")).ok()
        await plane.settled()
        assert (await api.get(f"{LIVE}/d")).status == 404
