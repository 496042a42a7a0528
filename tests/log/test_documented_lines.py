"""The lines of the log that docs/observability.md lists, each with its level."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from structlog.testing import capture_logs

from tests.docs.pages import ROOT
from tests.manager.onlooker import cluster
from tests.support.builders import claim, placed, pool
from tests.support.expiry import at, dying
from tests.support.extensions import change_pool, fill, open_claims, open_pools, rest
from tests.support.names import CLAIMS
from tests.support.suspension import suspend
from tests.support.world import (
    controlled_by,
    open_world,
    pod_body,
    pod_conditions,
    sandbox,
    tracking,
)

# Told by the process: tests/manager/test_process.py; and before there is a manager: below.
ELSEWHERE = {"extensions_off", "rights_missing", "server_not_answering"}


def listed() -> dict[str, set[str]]:
    """Return the levels that a line of the page may have, by the name of the line."""
    text = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    text = text.partition("## Log\n")[2].partition("\n## ")[0]
    found: dict[str, set[str]] = {}
    for names, levels in re.findall(r"^\| (`[a-z_`, ]+) \| ([a-z, ]+) \| ", text, re.MULTILINE):
        each_name = re.findall(r"`([a-z_]+)`", names)
        each_level = levels.split(", ")
        if len(each_level) == 1:
            each_level *= len(each_name)
        for name, level in zip(each_name, each_level, strict=True):
            # Of the failures of a reconcile, those in between.
            found[name] = {level, "debug"} if name == "reconcile_failed" else {level}
    return found


@contextmanager
def noted(into: dict[str, set[str]]) -> Iterator[None]:
    """Add the levels of the lines that are logged meanwhile, by name."""
    with capture_logs() as lines:
        yield
    for line in lines:
        into.setdefault(line["event"], set()).add(line["log_level"])


async def lives_of_sandboxes() -> None:
    """Take Sandboxes through what is told of them."""
    async with open_world() as world:
        await world.ready_sandbox()
        await suspend(world)
        await world.delete("pods", "sb-1")
        world.plane.fail_next("create", "pods", 500, times=2)
        await world.create(sandbox("sb-2"))
        await world.advance(5.0)
        await world.pod_status("sb-2", phase="Failed", conditions=pod_conditions(ready=False))
        await world.ready_sandbox({**dying(60.0), "metadata": sandbox("sb-3")["metadata"]})
        await world.advance(60.0)
        made = await world.ready_sandbox(sandbox("sb-4"))
        owners = (controlled_by(made),)
        world.plane.store.create(pod_body("other", labels=tracking("sb-4"), owners=owners))
        await world.advance(5.0)
        await world.patch("sandboxes", "sb-4", {"spec": {"service": True}})
        world.plane.fail_next("watch", "pods", 500)
        await world.cut_watches()
        await world.recover()
        await world.advance(60.0)


async def lives_of_claims() -> None:
    """Take claims and pools through what is told of them."""
    async with open_pools() as world:
        await world.create(pool("early", replicas=1, template="late"))
        await world.advance(5.0)
        await world.create(placed("late"))
        await rest(world)
        await fill(world, pool(replicas=2))
        await world.create(claim(lifecycle={"shutdownTime": at(300.0)}))
        await world.advance(300.0)
        await world.create(claim("lost", pool="nowhere"))
    async with open_claims() as world:
        await world.create(claim())
        await world.advance(5.0)
        assert world.find(CLAIMS, "c") is not None
    async with open_claims("m1", "m2") as world:
        await change_pool(world, {"replicas": 1})
        await rest(world)
    async with open_claims("m1", "m2") as world:
        world.plane.fail_next("patch", "sandboxes", 403, match=lambda target: target.name == "m1")
        await world.create(claim())
    wrong = {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/33"}}]}]}
    async with open_pools(placed(networkPolicy=wrong)) as world:
        await rest(world)


async def test_every_line_of_the_page_is_logged_at_its_level() -> None:
    """A line that is renamed, or that changes its level, is noticed."""
    found: dict[str, set[str]] = {}
    with noted(found):
        await lives_of_sandboxes()
        await lives_of_claims()
    wanted = listed()
    assert len(wanted) > 20
    for name in wanted.keys() - ELSEWHERE:
        assert found.get(name) == wanted[name], name


async def test_a_server_in_trouble_is_told_of_before_anything_is_watched() -> None:
    """At the level of the page, with the problem and when it is asked again."""
    with capture_logs() as lines:
        async with cluster() as here, anyio.create_task_group() as group:
            here.plane.faults.fail_next("list", "leases", 503)
            group.start_soon(here.look)
            while here.clock.next_s is None:
                await anyio.lowlevel.checkpoint()
            await here.clock.advance(1.0)
    (line,) = (one for one in lines if one["event"] == "server_not_answering")
    assert {line["log_level"]} == listed()["server_not_answering"]
    assert "503" in line["problem"]
    assert line["next_s"] == 1.0


async def test_the_first_failure_and_those_with_long_pauses_are_warnings() -> None:
    """Those in between are lines at debug; each names error, attempts and the pause."""
    with capture_logs() as lines:
        async with open_world() as world:
            world.plane.fail_next("create", "pods", 500, times=11)
            await world.create(sandbox())
            await world.advance(30.0)
            assert world.find("pods") is not None
    told = [one for one in lines if one["event"] == "reconcile_failed"]
    assert len(told) == 11
    assert all("injected failure" in one["error"] for one in told)
    assert [one["attempts"] for one in told] == list(range(1, 12))
    assert [one["log_level"] for one in told] == [
        "warning" if number == 0 or one["next_s"] >= 1.0 else "debug"
        for number, one in enumerate(told)
    ]
    assert {one["log_level"] for one in told[1:]} == {"warning", "debug"}
