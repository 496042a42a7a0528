"""What a page of metrics says of a controller."""

from __future__ import annotations

import pytest

from lean_sandbox.top import scrape
from lean_sandbox.top.figures import ControllerFigures, Scraped
from lean_sandbox.top.scrape import MetricsReader, scraped
from lean_sandbox.watch.kind import Key
from tests.kube.server import Answer, in_turn, reply, serve
from tests.support.clock import FakeClock

URL = "http://127.0.0.1:8080"


def test_a_page_is_summed_up() -> None:
    """Launches and queues are added over all series; other families are passed over."""
    found = scraped(
        URL,
        "# HELP agent_sandbox_claim_creation_total x\n"
        'agent_sandbox_claim_creation_total{namespace="a",launch_type="warm"} 3\n'
        'agent_sandbox_claim_creation_total{namespace="b",launch_type="warm"} 4\n'
        'agent_sandbox_claim_creation_total{namespace="b",launch_type="cold"} 1\n'
        'workqueue_depth{name="x",priority=""} 2\n'
        'workqueue_depth{name="y",priority=""} 5\n'
        "process_resident_memory_bytes 6.1865984e+07\n"
        "process_cpu_seconds_total 12.5 1700000000000\n"
        'lean_sandbox_watch_failing{resource="pods"} 1\n'
        'lean_sandbox_watch_failing{resource="events"} 1\n'
        'lean_sandbox_watch_failing{resource="services"} 0\n'
        'leader_election_master_status{name="x"} 0\n'
        'lean_sandbox_warmpool_not_progressing{namespace="a",warmpool_name="p",cause="create"} 1\n'
        'lean_sandbox_warmpool_not_progressing{namespace="a",warmpool_name="q",cause="stuck"} 0\n'
        'workqueue_depth_of_others{name="y"} 500\n',
    )
    said = found.controller
    assert (said.warm, said.cold, said.queued) == (7.0, 1.0, 7.0)
    assert (said.memory_bytes, said.cpu_seconds) == (61865984.0, 12.5)
    assert said.failing_watches == ("events", "pods")
    assert said.is_leading is False
    assert found.causes == {Key("a", "p"): "create"}


def test_what_is_not_on_the_page_is_not_known() -> None:
    """A page of something else leaves everything open."""
    found = scraped(URL, "go_goroutines 7\n<html>\n")
    assert found == Scraped(ControllerFigures(url=URL), {})


def test_a_series_without_its_labels_is_one_without_a_name() -> None:
    """Another release may have none: it is no error, and nothing is made up for them."""
    found = scraped(
        URL,
        "lean_sandbox_watch_failing 1\n"
        "lean_sandbox_warmpool_not_progressing 1\n"
        "agent_sandbox_claim_creation_total 5\n",
    )
    assert found.controller.failing_watches == ("",)
    assert found.causes == {Key("", ""): ""}
    assert (found.controller.warm, found.controller.cold) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("line", "wrong"), [("workqueue_depth many", "'many'"), ('workqueue_depth{name="x" 2', "name")]
)
def test_a_line_that_breaks_the_format_is_no_figure(line: str, wrong: str) -> None:
    """It is an error, not passed over: a sum without it would be wrong."""
    with pytest.raises(ValueError, match=wrong):
        scraped(URL, f"{line}\n")


def test_labels_are_read_as_they_are_written() -> None:
    """Quotes, braces and line breaks of any kind in the value of a label do not end it."""
    label = r'namespace="a\"b}",warmpool_name="p\\n\n",cause="x' + '\u2028y"'
    found = scraped(URL, f"lean_sandbox_warmpool_not_progressing{{{label}}} 1\n")
    assert found.causes == {Key('a"b}', "p\\n\n"): "x\u2028y"}


async def test_the_cores_are_those_between_two_pages() -> None:
    """None of the first, nor after a restart, nor of a page without CPU, nor within a moment."""

    def page(cpu_s: float | None) -> bytes:
        lines = "" if cpu_s is None else f"process_cpu_seconds_total {cpu_s}\n"
        return f"workqueue_depth 1\n{lines}".encode()

    clock = FakeClock()
    steps: list[tuple[float, float | None, float | None]] = [
        (1.0, 10.0, None),
        (5.0, 12.5, 0.5),
        (5.0, 12.5, 0.0),
        (5.0, 1.0, None),
        (5.0, None, None),
        (5.0, 3.0, 0.2),
        (0.0, 3.0, None),
    ]
    async with serve(in_turn(*(reply(body=page(cpu_s)) for _, cpu_s, _ in steps))) as server:
        reader = MetricsReader(server.url, None, clock)
        for pause_s, cpu_s, cores in steps:
            await clock.advance(pause_s)
            found = await reader.read()
            assert isinstance(found, Scraped)
            assert (found.controller.cpu_seconds, found.controller.cores) == (cpu_s, cores)
        await reader.aclose()


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [(204, b"", "it answers 204"), (200, b"workqueue_depth x\n", "it is no page of metrics: ")],
)
async def test_an_answer_that_is_no_page_is_told(status: int, body: bytes, why: str) -> None:
    """With the address that was asked."""
    async with serve(in_turn(reply(status, body))) as server:
        reader = MetricsReader(server.url, None, FakeClock())
        found = await reader.read()
        assert isinstance(found, str)
        assert found.startswith(f"{server.url}/metrics cannot be read: {why}")
        await reader.aclose()


async def test_a_page_that_does_not_come_in_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks does not wait for it for long."""
    monkeypatch.setattr(scrape, "_TIMEOUT_S", 0.05)
    async with serve(in_turn(Answer(hang=True))) as server:
        reader = MetricsReader(server.url, None, FakeClock())
        found = await reader.read()
        await reader.aclose()
    assert isinstance(found, str)
    assert "cannot be read: " in found
