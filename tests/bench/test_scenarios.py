"""Each scenario end to end in small: real processes, counts asserted and never times.

Some rest more briefly: what they count is awaited by itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from math import ceil
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from lean_sandbox.bench.command import measure
from lean_sandbox.bench.environment import open_environment
from lean_sandbox.bench.load import MARK
from lean_sandbox.bench.options import BenchError, BenchOptions
from lean_sandbox.bench.report import FIGURES, Report, ScenarioReport, Screen
from lean_sandbox.clock import SystemClock
from lean_sandbox.config.sources import UsageError
from lean_sandbox.kube.resources import NODES
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from tests.support.patience import PATIENCE_S

_SMALL: dict[str, Any] = {
    "count": 5,
    "pool": 6,
    "sandboxes": 6,
    "sizes": (0, 6),
    "search_seconds": 2.0,
    "rounds": 2,
    "rates": (3.0,),
    "seconds": 2.0,
    "dwell": 0.2,
    "idle_seconds": 0.5,
    # Longer than refilling is ever held back for claims.
    "quiet": 2.5,
    "wait": float(PATIENCE_S),
}

_BRIEF: Final = 1.0


_QUIET = Screen(quiet=True)


async def run(*scenarios: str, **changes: Any) -> Report:
    """Run scenarios in small."""
    options = BenchOptions(scenarios=scenarios, **(_SMALL | changes))
    return await measure(options, SystemClock(), _QUIET)


def by_name(report: Report) -> dict[str, ScenarioReport]:
    """Return the scenarios of a report."""
    assert not report.notes
    for scenario in report.scenarios:
        assert set(scenario.figures) <= set(FIGURES)
    return {scenario.name: scenario for scenario in report.scenarios}


async def test_one_claim_and_a_burst_stand_beside_their_floor() -> None:
    """All are Ready, by requests that the controller and the server count alike."""
    report = await run("one", "burst")
    found = by_name(report)
    assert list(found) == ["floor", "one", "burst"]
    assert report.server is not None
    assert report.server.kind == "embedded"
    floor, one, burst = found.values()
    assert floor.figures["ready"] == 5
    assert len(floor.usable_ms) == len(floor.ready_ms) == 5
    assert floor.figures["not_usable"] == 0
    assert (one.figures["ready"], one.figures["conflicts"]) == (2, 0)
    assert (burst.figures["ready"], burst.figures["doubly_bound"]) == (5, 0)
    assert (burst.figures["conflicts"], burst.figures["replacements"]) == (0, 5)
    for kind in ("patch sandboxes", "patch sandboxclaims/status", "create pods"):
        assert burst.requests[kind] == 5
    assert burst.failures == {}
    judged = {(one.scenario, one.figure): one for one in report.bounds}
    assert judged["burst", "conflicts"].is_met
    assert judged["burst", "usable_p50_ms"].multiple is not None


async def test_launches_stand_beside_bare_pods_and_a_restart_writes_nothing() -> None:
    """The Sandboxes of the launch stay for idle and restart, which ask for nothing they have."""
    found = by_name(await run("cold", "idle", "restart"))
    assert list(found) == ["pods", "cold", "idle", "restart"]
    pods, cold, idle, restart = found.values()
    assert (pods.figures["ready"], pods.requests) == (6, {})
    assert cold.figures["ready"] == cold.requests["create pods"] == 6
    # A launch that a busy machine stretches beyond the window of a status costs a second one.
    assert cold.requests["patch sandboxes/status"] in range(6, 13)
    assert idle.figures["requests"] == 0
    figures = restart.figures
    assert (figures["sandboxes"], figures["writes"], figures["gets"]) == (6, 0, 0)
    assert sum(restart.requests.values()) == figures["lists"]


async def test_sustained_load_leaves_nothing_behind() -> None:
    """Every claim is Ready and deleted; of Sandboxes and Pods those of the pool are left.

    Filling that pool costs a Sandbox and a Pod for each of its members.
    """
    fill, load = by_name(await run("fill", "sustained", quiet=_BRIEF)).values()
    assert fill.requests["create sandboxes"] == fill.requests["create pods"] == 6
    assert load.figures["ready"] == load.figures["claims"]
    assert load.figures["not_usable"] == 0
    assert load.figures["claims"] == sum(window.claims for window in load.windows)
    assert load.figures["left_over"] == 0
    assert load.requests["create sandboxes"] == load.figures["claims"]


async def test_the_search_ends_at_the_highest_rate_it_may_try() -> None:
    """Rates grow until one is not flat, or may not be exceeded; each is a report of its own.

    Each rate has a pool of 10 s of its arrivals, in whole members. Half a claim a second is the
    lowest rate there is, so that a busy machine tries no others.
    """
    found = (await run("search", rates=(0.5,), most_rate=0.5, quiet=_BRIEF)).scenarios
    assert [load.figures["rate"] for load in found] == [0.5]
    assert len({load.figures["highest_flat_rate"] for load in found}) == 1
    assert all(load.figures["left_over"] == 0 for load in found)
    for load in found:
        assert load.figures["pool"] == ceil(10 * (load.figures["rate"] or 0))


async def test_memory_is_that_of_starts_over_sandboxes_that_were_launched() -> None:
    """Each start lists what is there and writes nothing; KiB each is the growth between two."""
    empty, six = (await run("memory", quiet=_BRIEF)).scenarios
    assert [one.figures["sandboxes"] for one in (empty, six)] == [0, 6]
    for one in (empty, six):
        assert (one.figures["writes"], one.figures["gets"], one.failures) == (0, 0, {})
        assert 0 < (one.figures["rss_mib"] or 0) <= (one.figures["peak_mib"] or 0)
    grown = (six.figures["rss_mib"] or 0) - (empty.figures["rss_mib"] or 0)
    assert six.figures["each_kib"] == pytest.approx(grown * 1024 / 6, abs=0.01)
    assert (six.figures["empty_mib"], six.figures["most_mib"]) == (empty.figures["rss_mib"], None)


async def test_a_soak_leaves_nothing_behind_and_tells_of_each_measure() -> None:
    """Namespaces come and go with all that happens in one; every measure has both thirds."""
    (soak,) = by_name(await run("soak", seconds=6.0, quiet=_BRIEF)).values()
    assert (soak.figures["lives"] or 0) >= 3
    assert (soak.figures["left_cached"], soak.figures["caught_by_net"]) == (0, 0)
    assert soak.requests["create networkpolicies"] == soak.figures["lives"]
    assert None not in {soak.figures[f"{name}_last"] for name in ("queued", "cached")}
    assert all((soak.figures[f"{name}_middle"] or 0) > 0 for name in ("rss_mib", "fds", "series"))


async def test_a_server_of_a_kubeconfig_is_left_as_it_was(tmp_path: Path) -> None:
    """The bench brings its own Nodes, and takes them and its namespaces with it."""
    async with ControlPlane(LocalSettings()) as plane:
        file = plane.kubeconfig(tmp_path / "admin.kubeconfig")
        before = {obj["metadata"]["name"] for obj in plane.store.list("namespaces")}
        report = await run("burst", kubeconfig=str(file), kubelet=True, quiet=_BRIEF)
        floor, burst = by_name(report).values()
        assert floor.figures["ready"] == burst.figures["ready"] == 5
        assert report.server is not None
        assert report.server.kind == "kubeconfig"
        assert {obj["metadata"]["name"] for obj in plane.store.list("namespaces")} == before
        assert plane.store.list(NODES.qualified) == []


async def test_a_controller_that_runs_already_is_measured_by_its_process_and_metrics(
    tmp_path: Path,
) -> None:
    """It is found to be there, measured with --against, and by its process alone in part."""
    async with ControlPlane(LocalSettings()) as plane:
        file = str(plane.kubeconfig(tmp_path / "admin.kubeconfig"))
        options = BenchOptions(kubeconfig=file, **_SMALL)
        async with (
            open_environment(options, SystemClock(), _QUIET) as env,
            env.starting("--extensions") as worker,
        ):
            line = await worker.until_logged("listening")
            await worker.until_logged("caches_synced")
            url = f"http://127.0.0.1:{line['metrics']}/metrics"
            with pytest.raises(UsageError, match="--against"):
                await run("one", kubeconfig=file, kubelet=True)
            process = str(worker.pid)
            given: dict[str, Any] = {"kubeconfig": file, "kubelet": True, "quiet": _BRIEF}
            both = await run("one", **given, against=(process, url))
            (one,) = both.scenarios
            assert one.figures["ready"] == 2
            assert one.requests["patch sandboxclaims/status"] == 2
            assert any("floor" in note for note in both.notes)
            alone = await run("one", **given, against=(process,))
            (one,) = alone.scenarios
            assert (one.figures["ready"], one.figures["requests_each"]) == (2, None)
            assert one.figures["cpu_ms_each"] is not None
            assert any("no requests" in note for note in alone.notes)
        with pytest.raises(UsageError, match=f"--against {worker.pid}: .*ended"):
            await run("one", kubeconfig=file, kubelet=True, against=(process,))


async def test_a_wait_that_is_in_vain_says_what_it_waited_for(tmp_path: Path) -> None:
    """Where nothing runs Pods the pool is never full; the message names the way out."""
    async with ControlPlane(LocalSettings()) as plane:
        file = str(plane.kubeconfig(tmp_path / "admin.kubeconfig"))
        with pytest.raises(BenchError, match=r"pool of 6, of which 0 became Ready.*--kubelet"):
            await run("fill", kubeconfig=file, wait=1.5)
        left = plane.store.list("namespaces")
        assert not [obj for obj in left if MARK in obj["metadata"].get("labels", {})]


async def test_ctrl_c_deletes_what_was_made_and_ends_every_process(tmp_path: Path) -> None:
    """The run ends with 130; its namespace and the processes it started are gone.

    What it had measured by then is shown.
    """
    shown = tmp_path / "shown"
    async with ControlPlane(LocalSettings()) as plane:
        file = plane.kubeconfig(tmp_path / "admin.kubeconfig")
        words = ["floor", "fill", "--count", "2", "--rounds", "1", "--quiet", "1"]
        words += ["--wait", str(PATIENCE_S), "--kubeconfig", str(file), "--kubelet"]
        with shown.open("wb") as stdout:
            bench = await anyio.open_process(
                [sys.executable, "-m", "lean_sandbox", "bench", *words],
                stdout=stdout,
                stderr=subprocess.PIPE,
            )
        try:
            with anyio.fail_after(PATIENCE_S):
                while not any("-fill-" in o["metadata"]["name"] for o in _marked(plane)):  # noqa: ASYNC110
                    await anyio.sleep(0.05)
                children = _children(bench.pid)
                assert children
                bench.send_signal(signal.SIGINT)
                assert await bench.wait() == 130
                await plane.settled()
        finally:
            if bench.returncode is None:
                bench.kill()
            await bench.aclose()
        assert not _marked(plane)
        assert not _alive(children)
    assert "usable after, median" in shown.read_text()


def _alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}/status").exists()]


def _marked(plane: ControlPlane) -> list[dict[str, Any]]:
    return [
        obj for obj in plane.store.list("namespaces") if MARK in obj["metadata"].get("labels", {})
    ]


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    assert os.getpid() not in map(int, text.split())
    return [int(word) for word in text.split()]
