"""What the log says of Sandboxes, claims and pools, and of each reconcile."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from lean_sandbox import log
from lean_sandbox.config.options import Settings
from lean_sandbox.local.http.faults import Loss
from lean_sandbox.model.times import format_rfc3339
from tests.docs.pages import ROOT
from tests.support.builders import claim, pool
from tests.support.extensions import (
    change_pool,
    change_template,
    fill,
    members,
    open_claims,
    open_pools,
    refuse_to_claims,
    rest,
    run_all,
)
from tests.support.names import CLAIMS
from tests.support.refusals import BY_SCHEMA
from tests.support.suspension import resume, suspend
from tests.support.world import condition, open_world, sandbox, write_pod_status

Line = MutableMapping[str, Any]


def told(lines: Iterable[Line], what: str) -> list[dict[str, Any]]:
    """Return the lines of one name without it."""
    return [{**line, "event": ""} for line in lines if line["event"] == what]


def of_level(lines: Iterable[Line], *levels: str) -> list[str]:
    """Return the names of the lines of some levels, in their order."""
    return [line["event"] for line in lines if line["log_level"] in levels]


async def test_a_warm_claim_says_how_long_it_took_and_what_it_got() -> None:
    """Two lines at info: which member was adopted; and the Sandbox, from where, in how many ms."""
    with capture_logs() as lines:
        async with open_claims("m1") as world:
            await world.create(claim("mine"))
    (ready,) = told(lines, "claim_ready")
    assert isinstance(ready.pop("took_ms"), int)
    assert ready == {
        "event": "",
        "log_level": "info",
        "controller": "sandboxclaim",
        "key": "ns/mine",
        "sandbox": "m1",
        "launch": "warm",
    }
    (adopted,) = told(lines, "sandbox_adopted")
    assert (adopted["key"], adopted["log_level"]) == ("ns/mine", "info")
    assert "m1" in adopted["note"]


async def test_a_claim_that_is_not_served_says_why_once() -> None:
    """However often it is reconciled, one warning names the reason and the message."""
    with capture_logs() as lines:
        async with open_claims() as world:
            await world.create(claim("mine", pool="nowhere"))
            await world.advance(120.0)
    (line,) = told(lines, "claim_not_served")
    assert (line["key"], line["log_level"]) == ("ns/mine", "warning")
    assert line["reason"] == "WarmPoolNotFound"
    assert line["message"]


async def test_a_claim_that_is_not_served_for_another_reason_says_so_again() -> None:
    """It names another pool; that comes, and lacks its template: a warning each, whatever lasts."""
    with capture_logs() as lines:
        async with open_claims(templates=()) as world:
            await world.create(claim("mine", pool="never"))
            await world.advance(120.0)
            await world.patch(CLAIMS, "mine", {"spec": {"warmPoolRef": {"name": "late"}}})
            await world.advance(120.0)
            await world.create(pool("late", template="nowhere"))
            await world.advance(120.0)
    reasons = [(line["reason"], line["message"]) for line in told(lines, "claim_not_served")]
    assert reasons == [
        ("WarmPoolNotFound", 'SandboxWarmPool "never" not found'),
        ("WarmPoolNotFound", 'SandboxWarmPool "late" not found'),
        ("TemplateNotFound", 'SandboxTemplate "nowhere" not found'),
    ]


async def test_the_life_of_a_sandbox_is_told() -> None:
    """Created, ready, suspended: a line each at info; a step of the launch is none."""
    with capture_logs() as lines:
        async with open_world() as world:
            await world.create(sandbox())
            await world.advance(3.0)
            await world.run_pod()
            await suspend(world)
            await world.delete("pods", "sb-1")
    about = [line["event"] for line in lines if line.get("note") and line["key"] == "ns/sb-1"]
    assert about == ["sandbox_pod_created", "sandbox_ready", "sandbox_suspended"]
    assert of_level(lines, "warning", "error") == []


async def test_a_sandbox_that_fails_says_why_once() -> None:
    """A refused Pod, and readiness that is lost: a warning with reason and message."""
    with capture_logs() as lines:
        async with open_world() as world:
            world.plane.fail_next("create", "pods", 422, body=BY_SCHEMA)
            await world.create(sandbox("refused"))
            await world.ready_sandbox()
            await world.run_pod(ready=False)
            await world.advance(120.0)
    refused, lost = told(lines, "sandbox_not_ready")
    assert (refused["key"], refused["reason"]) == ("ns/refused", "InvalidConfiguration")
    assert (lost["key"], lost["reason"]) == ("ns/sb-1", "DependenciesNotReady")
    assert lost["message"] == "Pod is Running but not Ready"


async def test_a_member_that_is_replaced_says_why() -> None:
    """A stale member and one too many: the pool's lines name the member and the reason."""
    with capture_logs() as lines:
        async with open_claims("m1", "m2", pool_spec={"updateStrategy": {"type": "Recreate"}}) as w:
            await change_pool(w, {"replicas": 1})
            await rest(w)
            spec = {"containers": [{"name": "main", "image": "another"}]}
            await change_template(w, {"podTemplate": {"spec": spec}})
            await rest(w)
    deleted = told(lines, "member_deleted")
    assert [one["why"] for one in deleted] == ["surplus", "stale"]
    assert {one["sandbox"] for one in deleted} == {"m1", "m2"}
    assert {one["key"] for one in deleted} == {"ns/pool"}


async def test_a_member_of_no_use_says_why() -> None:
    """One that is not ready in time, one that has ended, one that claims cannot take."""
    with capture_logs() as lines:
        async with open_pools(sandbox_warm_pool_readiness_grace_period=30.0) as world:
            await fill(world, pool(replicas=2))
            first, second = members(world)
            refuse_to_claims(world, first)
            await rest(world)
            await run_all(world)
            await world.advance(600.0)
            write_pod_status(world.plane, second["metadata"]["name"], {"phase": "Failed"})
            await rest(world)
            await world.advance(60.0)
    whys = [one["why"] for one in told(lines, "member_deleted")]
    assert whys[:3] == ["claims cannot take it", "ended", "not ready in time"]
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| `member_deleted`"))
    assert all(why in row for why in (*whys, "stale", "surplus"))


async def test_a_pool_that_is_stuck_says_so() -> None:
    """A pool without its template: one warning, however often it is reconciled."""
    with capture_logs() as lines:
        async with open_claims(templates=(), replicas=2) as world:
            await world.advance(300.0)
    (line,) = told(lines, "warm_pool_not_progressing")
    assert (line["key"], line["log_level"]) == ("ns/pool", "warning")
    assert "not found" in line["note"]


async def test_events_that_are_switched_off_are_logged_all_the_same() -> None:
    """The log does not depend on who wants Events in the cluster."""
    with capture_logs() as lines:
        async with open_world(Settings(disable_sandbox_events=True)) as world:
            await world.ready_sandbox()
            assert world.events() == []
    assert len(told(lines, "sandbox_ready")) == 1


async def test_every_reconcile_has_a_line_at_debug() -> None:
    """Which controller and key, why, how it ended, how long it took, and what it wrote."""
    with capture_logs() as lines:
        async with open_world() as world:
            world.plane.fail_next("patch", "sandboxes/status", Loss.RESET)
            await world.ready_sandbox()
            count = sum(world.whole.sandboxes.workers.outcomes.values())
    seen = told(lines, "reconciled")
    assert len(seen) == count
    assert {one["log_level"] for one in seen} == {"debug"}
    first = seen[0]
    assert (first["controller"], first["key"], first["why"]) == ("sandbox", "ns/sb-1", ("sandbox",))
    assert first["writes"] == ["create pods"]
    assert first["took_ms"] >= 0.0
    assert any(one["outcome"] == "error" and one["next_s"] > 0 for one in seen)


async def test_a_level_above_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    """A whole life at the level warning writes not one line, from created to deleted."""
    log.configure("warning", "json")
    async with open_pools() as world:
        await world.ready_sandbox()
        await suspend(world)
        await world.delete("pods", "sb-1")
        assert condition(world.get(), "Suspended")["status"] == "True"
        await resume(world)
        await world.run_pod()
        ends = {"shutdownTime": format_rfc3339(world.clock.now()), "shutdownPolicy": "Delete"}
        await world.patch("sandboxes", "sb-1", {"spec": ends})
        await world.advance(5.0)
        assert world.find("sandboxes") is None
    assert capsys.readouterr().err == ""
