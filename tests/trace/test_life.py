"""How long an object took, from what is remembered of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.config.options import Settings
from lean_sandbox.errors import ConfigError
from lean_sandbox.http.server import Request
from lean_sandbox.trace import client
from lean_sandbox.trace.client import ask
from lean_sandbox.trace.life import (
    CLAIMS,
    NOT_READY,
    NOTHING,
    PATH,
    PODS,
    READY,
    SANDBOXES,
    TraceEntry,
    summary,
)
from lean_sandbox.watch.kind import Key
from tests.kube.server import Answer, in_turn, reply, serve
from tests.support.world import NS, open_world, sandbox

KEY = Key("ns", "c")
CLAIM = (CLAIMS, KEY)
ADDED = "ADDED, passed: first sight"
ADOPT = "patch sandboxes.agents.x-k8s.io"
STATUS = "patch sandboxclaims.extensions.agents.x-k8s.io/status"


def event(at: float, detail: str = ADDED) -> TraceEntry:
    """Return an event of the claim."""
    return TraceEntry(at, CLAIMS, KEY, "event", detail)


def request(at: float, detail: str, took_s: float, plural: str = CLAIMS) -> TraceEntry:
    """Return a request of a reconcile."""
    return TraceEntry(at, plural, KEY, "request", detail, took_s)


def condition(at: float, detail: str = READY) -> TraceEntry:
    """Return a change of the claim's condition."""
    return TraceEntry(at, CLAIMS, KEY, "condition", detail)


def test_each_step_is_named_and_the_rest_is_between_them() -> None:
    """A refused try shows its code; what came after Ready does not count."""
    entries = [
        event(1.0),
        request(1.001, f"{ADOPT} 409", 0.002),
        request(1.004, f"{ADOPT} 200", 0.010),
        request(1.014, "patch pods 200", 0.008),
        request(1.022, f"{STATUS} 200", 0.007),
        condition(1.030),
        request(1.029, "patch sandboxclaims.extensions.agents.x-k8s.io 200", 0.050),
    ]
    assert summary(CLAIM, entries, 9.0) == (
        "Ready after 30.0 ms: adopt (409) 2.0, adopt 10.0, pod_metadata 8.0, status 7.0,"
        " between them 3.0; warm"
    )


def test_requests_of_a_cold_claims_sandbox_count_too() -> None:
    """By their own names: the names of the metric are those of a claim's requests."""
    entries = [
        event(0.0),
        request(0.0, "create sandboxes.agents.x-k8s.io 201", 0.010),
        request(0.010, "create pods 201", 0.005, SANDBOXES),
        request(2.0, "patch sandboxes.agents.x-k8s.io/status 200", 0.005, SANDBOXES),
        condition(2.010),
    ]
    assert summary(CLAIM, entries, 9.0) == (
        "Ready after 2010.0 ms: create sandboxes 10.0, create pods 5.0, patch sandboxes/status 5.0,"
        " between them 1990.0; cold"
    )


def test_nothing_is_said_without_the_beginning_or_the_condition() -> None:
    """Its first event is overwritten, or its kind has no condition Ready."""
    assert summary(CLAIM, [condition(1.0)], 2.0) == ""
    assert summary((PODS, KEY), [TraceEntry(0.0, PODS, KEY, "event", ADDED)], 2.0) == ""


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), min_size=1, max_size=6),
    st.floats(2.0, 9.0),
)
def test_requests_at_the_same_time_count_once(spans: list[tuple[float, float]], end: float) -> None:
    """What is between requests is never more than the whole time, nor less than nothing."""
    entries = [event(0.0), *(request(at, f"{ADOPT} 200", took) for at, took in sorted(spans))]
    told = summary(CLAIM, [*entries, condition(end)], end)
    found = re.search(r"Ready after ([-\d.]+) ms: .*between them ([-\d.]+)", told)
    assert found is not None
    whole = float(found[1])
    between = float(found[2])
    assert -0.05 <= between <= whole + 0.05
    steps = 32
    covered = sum(
        any(at <= end * step / steps < at + took for at, took in spans) for step in range(steps)
    )
    assert between <= whole * (1 - (covered - len(spans) - 1) / steps) + 0.1


def test_a_ready_that_was_lost_later_is_still_when_it_came() -> None:
    """The first one counts. A standby sees it, too, and has asked for nothing."""
    entries = [event(0.0), condition(0.5), condition(0.7, NOT_READY), condition(0.9)]
    assert summary(CLAIM, entries, 2.0) == "Ready after 500.0 ms, by no request of this controller"


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, b"a life", None),
        (404, b"", "no controller with a trace is there"),
        (404, NOTHING.encode() + b" x\n", NOTHING),
        (403, b"no", "answered 403"),
        (500, b"", "answered 500"),
    ],
)
async def test_an_answer_that_is_no_life_is_told(
    status: int, body: bytes, told: str | None
) -> None:
    """With the address that was asked."""
    async with serve(in_turn(reply(status, body))) as server:
        asked = ask(server.url, "sandbox", Key("ns", "a"), "text")
        if told is None:
            assert await asked == body.decode()
            return
        with pytest.raises(ConfigError, match=re.escape(told)) as raised:
            await asked
    assert server.url in str(raised.value)


@pytest.mark.parametrize(
    ("events", "began"),
    [
        ([(1.0, ADDED)], 1.0),
        ([(1.0, ADDED), (2.0, "ADDED, dropped: known already; Ready")], 1.0),
        ([(1.0, ADDED), (2.0, "DELETED, passed")], 1.0),
        ([(1.0, ADDED), (2.0, "DELETED, passed"), (3.0, ADDED)], 3.0),
        ([(1.0, ADDED), (2.0, "DELETED, passed"), (3.0, "MODIFIED, passed"), (4.0, ADDED)], 4.0),
        ([(1.0, "MODIFIED, passed"), (2.0, ADDED)], 2.0),
        ([(1.0, ADDED), (2.0, "MODIFIED, passed: re-created: uid a -> b"), (3.0, ADDED)], 2.0),
    ],
)
def test_a_life_begins_with_the_last_object_of_the_name(
    events: list[tuple[float, str]], began: float
) -> None:
    """A list shows an object again as ADDED; only after an end it is another one."""
    own = [event(at, detail) for at, detail in events]
    # What is no event may be told in the same words; the first Ready is of an object before.
    others = [request(0.5, ADDED, 0.0), request(2.5, "DELETED", 0.0), condition(0.9)]
    others.append(condition(10.0))
    told = summary(CLAIM, sorted([*own, *others], key=lambda one: one.at), 20.0)
    assert told.startswith(f"Ready after {(10.0 - began) * 1000.0:.1f} ms")


async def test_a_sandbox_made_anew_behind_a_gap_begins_a_life() -> None:
    """Its own time counts, not that of the one before, whose end nothing has shown."""
    async with open_world(Settings(trace_entries=100)) as world:
        await world.ready_sandbox()
        await world.cut_watches()
        world.plane.store.delete("sandboxes.agents.x-k8s.io", NS, "sb-1", grace_s=0)
        world.plane.store.create(sandbox())
        world.plane.compact()
        await world.recover()
        assert world.trace is not None
        query = {"kind": "sandbox", "namespace": NS, "name": "sb-1"}
        said = (await world.trace.handle(Request(PATH, query))).body.decode()
    assert said.startswith(f"sandbox {NS}/sb-1: not Ready ")
    assert "passed: re-created" in said


async def test_a_life_that_does_not_come_in_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the way out, as where nobody answers."""
    monkeypatch.setattr(client, "_TIMEOUT_S", 0.05)
    async with serve(in_turn(Answer(hang=True))) as server:
        with pytest.raises(ConfigError, match="cannot be reached: "):
            await ask(server.url, "sandbox", Key("ns", "a"), "text")
