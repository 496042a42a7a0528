"""A bug in the code of a watch: it ends neither the other watches nor its own."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.decode import EventDecoder
from lean_sandbox.watch.kind import Entry
from tests.support.world import NS, condition, open_world, sandbox, watched


async def test_a_bug_in_one_watch_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is logged with its traceback and told as a problem; the watch begins again by itself."""
    line = EventDecoder.line
    is_broken = True

    def broken(decoder: EventDecoder[Entry], raw: bytes) -> None:
        if is_broken and b'"name":"odd-service"' in raw:
            raise RuntimeError("a bug" * 100)
        line(decoder, raw)

    monkeypatch.setattr(EventDecoder, "line", broken)
    with capture_logs() as lines:
        async with open_world() as world:
            metadata = {"name": "odd-service", "namespace": NS}
            service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
            world.plane.store.create({**service, "spec": {"ports": [{"port": 80}]}})
            await world.pass_time(0.25)
            assert world.controller.problems == {"services": f"RuntimeError: {'a bug' * 100}"[:200]}
            # Sandboxes and Pods are watched as before: this one starts, and is told of.
            world.plane.store.create(sandbox())
            await world.pass_time(2.0)
            assert world.find("pods") is not None
            is_broken = False
            await world.recover()
            await world.advance(60.0)
            assert not world.controller.problems
            await world.run_pod()
            assert condition(world.get(), "Ready")["status"] == "True"
    told = [one for one in lines if one["event"] == "watch_panicked"]
    assert told
    assert {(one["log_level"], one["kind"], one["exc_info"]) for one in told} == {
        ("error", "services", True)
    }


@pytest.mark.parametrize("form", ["table", "metadata", "full"])
async def test_a_bug_over_one_object_costs_that_object_alone(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged, the watch goes on, and the object's next event is taken as ever."""
    take = Cache._take
    is_broken = False

    def taking(
        cache: Cache[Entry], event_type: Any, row: ObjectMeta, item: Any, **how: Any
    ) -> None:
        if is_broken and row.name == "odd":
            raise RuntimeError("a bug")
        take(cache, event_type, row, item, **how)

    monkeypatch.setattr(Cache, "_take", taking)
    with capture_logs() as lines:
        async with open_world(watched(form)) as world:
            await world.ready_sandbox(sandbox("odd"))
            is_broken = True
            await world.patch("sandboxes", "odd", {"spec": {"service": True}})
            assert world.find("services", "odd") is None
            await world.ready_sandbox(sandbox("good"))
            assert condition(world.get("good"), "Ready")["status"] == "True"
            assert not world.controller.problems
            is_broken = False
            await world.patch("sandboxes", "odd", {"metadata": {"labels": {"a": "b"}}})
            assert world.find("services", "odd") is not None
    told = [one for one in lines if one["event"] == "object_not_understood"]
    assert {one["object"] for one in told} == {"ns/odd"}
