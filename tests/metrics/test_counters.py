"""What the controller's parts count reaches the wire, and adds up with what the server saw."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given
from prometheus_client.parser import text_string_to_metric_families as read_classic

from lean_sandbox.kube.telemetry import RequestCounters, RequestRecord
from lean_sandbox.metrics.registry import Exposition, Family, Histograms, _Shares, render
from tests.metrics.scrape import Scraped, scraping
from tests.support.world import World, open_world, sandbox

HISTOGRAM = Family("h", ("x",), "Times.", (0.5, 1.0, 100.0))


async def test_requests_are_those_the_server_saw() -> None:
    """By verb, resource and code, and by method for the framework's family."""
    async with open_world() as world:
        await world.ready_sandbox()
        found = await scraping(world)
        asked = world.asked(events=True)
    counted: dict[str, float] = {}
    for labels, value in found.find("lean_sandbox_requests_total"):
        plain, _, sub = labels["resource"].partition("/")
        name = "/".join(filter(None, (plain.partition(".")[0], sub)))
        key = f"{labels['verb']} {name}"
        counted[key] = counted.get(key, 0) + value
    assert counted == dict(asked)
    methods = found.find("rest_client_requests_total")
    assert sum(value for _, value in methods) == sum(asked.values())
    assert {labels["host"] for labels, _ in methods} == {world.whole._client.transport.counted.host}
    posts = found.find("rest_client_requests_total", method="POST", code="201")
    assert posts[0][1] == sum(n for what, n in asked.items() if what.startswith("create "))


def test_request_times_leave_watches_out() -> None:
    """Times are told by method and host; the life of a watch is none."""
    times = RequestCounters(with_times=True)
    times.host = "api:443"
    for verb, method in (("get", "GET"), ("watch", "GET"), ("patch", "PATCH")):
        times.count(RequestRecord(method, verb, "pods", 200, 0.003))
    found = Exposition()
    times.collect(found)
    scraped = Scraped(read_classic("".join(render(found))))
    name = "rest_client_request_duration_seconds"
    assert scraped.value(f"{name}_count", verb="GET", host="api:443") == 1
    assert scraped.value(f"{name}_bucket", verb="PATCH", host="api:443", le="0.002") == 0
    assert scraped.value(f"{name}_bucket", verb="PATCH", host="api:443", le="0.005") == 1


async def test_bytes_are_counted_in_both_directions() -> None:
    """Each request adds what it has sent, and what came back."""
    async with open_world() as world:
        counts = [await bytes_of(world)]
        for name in ("a", "b"):
            await world.create(sandbox(name))
            counts.append(await bytes_of(world))
    for direction in range(2):
        amounts = [both[direction] for both in counts]
        assert 0 < amounts[0] < amounts[1] < amounts[2]


async def bytes_of(world: World) -> list[float]:
    """Return the bytes that the controller has sent, and those that it has received."""
    found = await scraping(world)
    name = "lean_sandbox_client_bytes_total"
    return [found.value(name, direction=one) for one in ("sent", "received")]


def test_requests_sent_again_are_counted_as_client_go_counts_them() -> None:
    """By the code of the answer before, the method and the host; nothing before the first one."""
    times = RequestCounters(with_times=True)
    times.host = "api:443"
    name = "rest_client_request_retries_total"

    def scraped() -> Scraped:
        found = Exposition()
        times.collect(found)
        return Scraped(read_classic("".join(render(found))))

    assert not scraped().find(name)
    for method, code in (("GET", 0), ("GET", 0), ("POST", 401)):
        times.retries[method, code] += 1
    assert scraped().value(name, code="<error>", verb="GET", host="api:443") == 2
    assert scraped().value(name, code="401", verb="POST", host="api:443") == 1


async def test_echoes_and_drops_are_counted_apart() -> None:
    """The echo of an own status write is known; a change nobody reads is unchanged."""
    async with open_world() as world:
        await world.ready_sandbox()
        before = await scraping(world)
        await world.patch("sandboxes", "sb-1", {"metadata": {"labels": {"mine": "x"}}})
        after = await scraping(world)
    name = "lean_sandbox_watch_events_total"
    assert before.value(name, resource="sandboxes", outcome="dropped_known") >= 1
    for outcome, more in {"passed": 0, "dropped_unchanged": 1, "dropped_known": 0}.items():
        labels = {"resource": "sandboxes", "outcome": outcome}
        assert after.value(name, **labels) - before.value(name, **labels) == more
    assert after.value("lean_sandbox_watch_received_bytes_total", resource="pods") > 0


async def test_how_long_a_watch_was_silent_is_shown() -> None:
    """The time since the server was last heard of a kind grows, and an event ends it."""
    name = "lean_sandbox_watch_silence_seconds"
    async with open_world() as world:
        await world.advance(20.0)
        before = (await scraping(world)).value(name, resource="sandboxes")
        await world.create(sandbox())
        after = (await scraping(world)).value(name, resource="sandboxes")
    assert before >= 20.0
    assert after == 0.0


async def test_scraping_makes_no_request() -> None:
    """A scrape reads what is here: nothing reaches the server, and no reconcile runs."""
    async with open_world() as world:
        await world.ready_sandbox()
        world.forget_requests()
        first = await scraping(world)
        second = await scraping(world)
        assert world.asked(events=True) == {}
        assert world.reports == []
    name = "controller_runtime_reconcile_total"
    assert first.find(name) == second.find(name)


# -- the small parts -------------------------------------------------------------------------------


def test_nothing_is_kept_of_a_tenant_that_has_nothing_left() -> None:
    """There may be a namespace for each user, day after day."""
    shares = _Shares()
    for number in range(5000):
        shares.add(f"tenant-{number}", 10)
        shares.add(f"tenant-{number}", -10)
    shares.add("large", 7)
    assert shares.largest() == "large"
    assert len(shares._of) == 1
    assert len(shares._heap) < 100


@given(st.lists(st.integers(0, 1000)))
def test_a_histogram_reads_back_as_it_was_filled(values: list[int]) -> None:
    """Buckets are cumulative, the last holds all, sum and count agree."""
    histograms = Histograms(HISTOGRAM)
    for value in values:
        histograms.observe(value, "v")
    found = Exposition()
    histograms.collect(found)
    read = read_classic("".join(render(found)))
    samples = [sample for family in read for sample in family.samples]
    if not values:
        assert samples == []
        return
    counts = [one.value for one in samples if one.name == "h_bucket"]
    bounds = (0.5, 1.0, 100.0, float("inf"))
    assert counts == [sum(value <= bound for value in values) for bound in bounds]
    totals = {one.name: one.value for one in samples if one.name != "h_bucket"}
    assert totals == {"h_sum": sum(values), "h_count": len(values)}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((1, "1"), (2.0, "2"), (0.25, "0.25"), (1e-08, "1e-08"), (float("inf"), "+Inf")),
        *((1e15, "1000000000000000"), (-2.0, "-2")),
    ],
)
def test_numbers_are_written_as_the_reference_does(value: float, shown: str) -> None:
    """Whole numbers have no point: queries name the bounds of buckets as text."""
    found = Exposition()
    found.one(Family("g", (), "Is."), value)
    assert "".join(render(found)).splitlines()[-1] == f"g {shown}"
