"""When a claim counts as usable: its client has seen it Ready, and its Pod no longer looks free.

The controller is a stub here: the test makes its writes, in every order. The load goes by a clock
that stands still until the test moves it, so that a lag is what the test made it.
"""

from __future__ import annotations

import dataclasses
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.bench import load
from lean_sandbox.bench.command import exit_code, measure
from lean_sandbox.bench.environment import Environment, add_latencies
from lean_sandbox.bench.load import FREE, Load, Seen, following, looks_free
from lean_sandbox.bench.options import BenchOptions
from lean_sandbox.bench.report import Report, ScenarioReport, Screen
from lean_sandbox.bench.workers import open_client
from lean_sandbox.clock import SystemClock
from lean_sandbox.config.sources import EXIT_FAILED, EXIT_OK
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.kubeconfig import load as load_connection
from lean_sandbox.kube.resources import PODS, SANDBOXCLAIMS, SANDBOXWARMPOOLS
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.model import names
from lean_sandbox.model.conditions import Condition
from lean_sandbox.model.meta import ObjectMeta
from tests.controlplane.plugin import REAL
from tests.controlplane.server import RealServer
from tests.support.clock import FakeClock
from tests.support.patience import patient

Json = dict[str, Any]

_QUIET = Screen(quiet=True)
_AT = "2026-01-02T03:04:05Z"
_LABEL: Json = {"labels": {names.WARM_POOL_LABEL: None}}
_ANNOTATION: Json = {"annotations": {names.SAFE_TO_EVICT_ANNOTATION: None}}


@dataclasses.dataclass
class Stub:
    """Does what a controller would, when the test says so; members are Pods without Sandboxes."""

    client: Client
    where: str

    async def member(self, name: str, **metadata: Any) -> None:
        """Make the Pod of a member."""
        await self.client.create(
            PODS, load.manifest(PODS, name, **metadata), bytes, namespace=self.where
        )

    async def take(self, name: str, metadata: Json) -> None:
        """Change the metadata of a Pod."""
        await self.client.patch(PODS, name, {"metadata": metadata}, bytes, namespace=self.where)

    async def report_ready(self, claim: str, sandbox: str) -> None:
        """Say in the status of a claim that it is Ready."""
        ready = Condition(names.READY, names.TRUE, "Ready", lastTransitionTime=_AT)
        status = {"conditions": [ready], **({"sandbox": {"name": sandbox}} if sandbox else {})}
        body = {"status": status}
        await self.client.patch(
            SANDBOXCLAIMS, claim, body, bytes, namespace=self.where, subresource="status"
        )


@dataclasses.dataclass
class Bench:
    """A load of claims that goes by a clock of the test, with what plays the controller."""

    env: Environment
    clock: FakeClock
    stub: Stub
    claims: Load

    async def until(self, event: anyio.Event) -> None:
        """Wait until a watch has shown something."""
        with patient("seen", lambda: str(self.claims.made)):
            await event.wait()

    async def report(self) -> ScenarioReport:
        """Return the report of a scenario that made these claims."""
        made = len(self.claims.made)
        report = ScenarioReport(name="burst", figures={"claims": made})
        await add_latencies(report, self.claims)
        self.env.add(report)
        return report


@pytest_asyncio.fixture(params=["embedded", pytest.param("kube-apiserver", marks=REAL)])
async def kubeconfig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Give the kubeconfig of a server."""
    file = tmp_path / "admin.kubeconfig"
    if request.param == "embedded":
        async with ControlPlane(LocalSettings()) as plane:
            yield str(plane.kubeconfig(file))
    else:
        real: RealServer = request.getfixturevalue("real_server")
        yield str(real.kubeconfig(file, real.token))


@asynccontextmanager
async def open_bench(kubeconfig: str) -> AsyncIterator[Bench]:
    """Open a load of claims in a namespace of its own."""
    options = BenchOptions(kubeconfig=kubeconfig)
    clock = SystemClock()
    report = Report()
    connection = load_connection(kubeconfig, None, clock=clock)
    async with (
        open_client(connection, clock, agent="bench", in_flight=4) as client,
        AsyncExitStack() as kept,
    ):
        env = Environment(options, clock, client, report, kubeconfig, Path(), _QUIET, kept)
        fake = FakeClock()
        by_hand = dataclasses.replace(env, clock=fake)
        async with env.namespace("usable") as where, by_hand.load(SANDBOXCLAIMS, where) as claims:
            yield Bench(env, fake, Stub(client, where), claims)


async def test_a_pod_that_is_taken_late_makes_its_claim_usable_late(kubeconfig: str) -> None:
    """The lag is the time from Ready to the last of the two marks that is taken away."""
    async with open_bench(kubeconfig) as bench:
        clock = bench.clock
        stub = bench.stub
        claims = bench.claims
        await stub.member("m", **FREE)
        claim = await claims.send_one(0)
        await clock.advance(0.5)
        await stub.report_ready(claim, "m")
        await bench.until(bench.claims.made[claim].ready)
        await clock.advance(0.25)
        await stub.take("m", _LABEL)
        await stub.take("m", {"labels": {"seen": "true"}})
        await all_seen(bench)
        assert not claims.made[claim].usable.is_set()
        await clock.advance(1.0)
        await stub.take("m", _ANNOTATION)
        await bench.until(bench.claims.made[claim].usable)
        figures = (await bench.report()).figures
        assert (figures["not_usable"], figures["ready"]) == (0, 1)
        assert (figures["p50_ms"], figures["usable_p50_ms"]) == (500.0, 1750.0)
        assert (figures["lag_p50_ms"], figures["lag_max_ms"]) == (1250.0, 1250.0)
        assert not bench.env.report.notes


async def all_seen(bench: Bench) -> None:
    """Wait until the load has been shown all Pods as they are: watches show changes in order."""
    claims = bench.claims
    await bench.stub.member("last")
    last = await claims.send_one(99)
    await bench.stub.report_ready(last, "last")
    await bench.until(claims.made[last].usable)
    del claims.made[last]


async def test_a_pod_that_is_taken_before_ready_costs_its_claim_nothing(kubeconfig: str) -> None:
    """Whichever of the two watches is first: usable is Ready, and there is no lag."""
    async with open_bench(kubeconfig) as bench:
        await bench.stub.member("m", **FREE)
        claim = await bench.claims.send_one(0)
        await bench.clock.advance(0.5)
        await bench.stub.take("m", _LABEL | _ANNOTATION)
        await bench.stub.report_ready(claim, "m")
        await bench.until(bench.claims.made[claim].usable)
        figures = (await bench.report()).figures
        assert (figures["not_usable"], figures["lag_max_ms"]) == (0, 0.0)
        assert figures["usable_p50_ms"] == figures["p50_ms"] == 500.0


async def test_a_pod_that_never_looked_free_is_no_members(kubeconfig: str) -> None:
    """A cold claim is usable as soon as it is Ready."""
    async with open_bench(kubeconfig) as bench:
        claim = await bench.claims.send_one(0)
        await bench.stub.member(claim, labels={names.LAUNCH_TYPE_LABEL: names.LAUNCH_TYPE_COLD})
        await bench.clock.advance(2.0)
        await bench.stub.report_ready(claim, claim)
        await bench.until(bench.claims.made[claim].usable)
        figures = (await bench.report()).figures
        assert (figures["usable_p50_ms"], figures["lag_max_ms"]) == (2000.0, 0.0)


@pytest.mark.parametrize(
    "left", [FREE, {"labels": FREE["labels"]}, {"annotations": FREE["annotations"]}]
)
async def test_a_pod_that_is_never_taken_makes_its_claim_none_that_counts(
    kubeconfig: str, left: Json
) -> None:
    """Either mark is enough. The wait ends, the claim is counted, and the report says so."""
    async with open_bench(kubeconfig) as bench:
        claims = bench.claims
        found = list[ScenarioReport]()
        await bench.stub.member("m", **left)
        await bench.stub.member("other")
        for number, sandbox in enumerate(("m", "other", "")):
            claim = await claims.send_one(number)
            await bench.stub.report_ready(claim, sandbox)
        for one in claims.made.values():
            await bench.until(one.ready)
        await bench.until(claims.made["n1"].usable)

        async def report() -> None:
            found.append(await bench.report())

        async with anyio.create_task_group() as group:
            group.start_soon(report)
            await bench.clock.advance(600.0)
        (burst,) = found
        assert (burst.figures["claims"], burst.figures["ready"]) == (3, 3)
        assert burst.figures["not_usable"] == 2
        assert (len(burst.usable_ms), len(burst.ready_ms)) == (1, 3)
        assert "2 of 3 claims were never usable, 0 of them never Ready" in bench.env.report.notes[0]


async def test_a_claim_that_is_deleted_before_it_is_usable_never_was(kubeconfig: str) -> None:
    """Nobody waits for it, and what becomes of its Pod afterwards is of no use to anybody."""
    async with open_bench(kubeconfig) as bench:
        await bench.stub.member("m", **FREE)
        claim = await bench.claims.send_one(0)
        await bench.stub.report_ready(claim, "m")
        await bench.until(bench.claims.made[claim].ready)
        await bench.claims.delete(claim)
        await bench.stub.take("m", _LABEL | _ANNOTATION)
        await all_seen(bench)
        figures = (await bench.report()).figures
        assert (figures["ready"], figures["not_usable"]) == (1, 1)
        assert figures["usable_p50_ms"] is None


_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.sampled_from(["a", "b"]), st.booleans()),
        st.tuples(st.just("ready"), st.sampled_from(["n0", "n1"]), st.sampled_from(["", "a", "b"])),
        st.tuples(st.just("unready"), st.sampled_from(["n0", "n1"]), st.sampled_from(["a", "b"])),
    ),
    max_size=14,
)


@given(_EVENTS)
def test_a_claim_is_usable_from_the_first_moment_at_which_both_hold(events: list[Any]) -> None:
    """In every order of events: it has been Ready with a Sandbox, and that one's Pod is taken."""
    clock = FakeClock()
    claims = Load(cast("Client", None), clock, BenchOptions(), SANDBOXCLAIMS, "ns", {})
    claims.made = {name: load.Made(0.0) for name in ("n0", "n1")}
    taken = dict[str, bool]()
    bound = dict[str, str]()
    ready = dict[str, float]()
    usable = dict[str, float]()
    for at, (what, name, how) in enumerate(events, 1):
        clock.leap(1.0)
        if what == "pod":
            taken[name] = how
            marks = {} if how else FREE
            claims.see_pod(Seen(ObjectMeta(name=name, **cast("Json", marks))))
        else:
            status = names.TRUE if what == "ready" else names.FALSE
            conditions = [{"type": names.READY, "status": status}]
            said: Json = {"conditions": conditions, **({"sandbox": {"name": how}} if how else {})}
            claims.see(msgspec.convert({"metadata": {"name": name}, "status": said}, Seen))
            if what == "ready":
                ready.setdefault(name, at)
                if how:
                    bound.setdefault(name, how)
        for claim, sandbox_name in bound.items():
            if taken.get(sandbox_name):
                usable.setdefault(claim, at)
    assert {n: one.ready_at for n, one in claims.made.items() if one.ready_at} == ready
    assert {n: one.usable_at for n, one in claims.made.items() if one.usable_at} == usable
    assert all((one.lag_ms or 0.0) >= 0.0 for one in claims.made.values())


@pytest.mark.parametrize(
    ("labels", "annotations", "free"),
    [
        (None, None, False),
        ({"app": "x"}, {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, False),
        ({"agents.x-k8s.io/warm-pool-sandbox": ""}, None, True),
        ({"agents.x-k8s.io/warm-pool-sandbox": "hash"}, {}, True),
        ({}, {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, True),
    ],
)
def test_a_pod_looks_free_by_the_label_or_the_annotation_of_its_pool(
    labels: dict[str, str] | None, annotations: dict[str, str] | None, *, free: bool
) -> None:
    """The label by being there, whatever its value; the annotation by being true."""
    assert looks_free(labels, annotations) is free


# -- whole scenarios -------------------------------------------------------------------------------


@contextmanager
def at_rest() -> Iterator[str]:
    """Give the number of a process that does nothing, and so has always come to rest."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield str(process.pid)
        process.kill()


@asynccontextmanager
async def stub_controller(kubeconfig: str, within: str, *, takes: bool) -> AsyncIterator[None]:
    """Call every pool full, and give every claim a member; ``takes`` says whether its Pod too.

    Other tests may use the same server, so it serves only namespaces whose names begin so.
    """
    clock = SystemClock()
    served = set[str]()
    connection = load_connection(kubeconfig, None, clock=clock)

    async def fill(pool: ObjectMeta) -> None:
        status = {"status": {"replicas": 9, "readyReplicas": 9}}
        await client.patch(
            SANDBOXWARMPOOLS,
            pool.name,
            status,
            bytes,
            namespace=pool.namespace,
            subresource="status",
        )

    async def bind(claim: ObjectMeta) -> None:
        stub = Stub(client, claim.namespace)
        await stub.member(claim.name, **FREE)
        if takes:
            await stub.take(claim.name, _LABEL | _ANNOTATION)
        await stub.report_ready(claim.name, claim.name)

    def once(serve: Callable[[ObjectMeta], Coroutine[Any, Any, None]]) -> Callable[[Seen], None]:
        def see(seen: Seen) -> None:
            metadata = seen.metadata
            if metadata.namespace.startswith(within) and metadata.uid not in served:
                served.add(metadata.uid)
                group.start_soon(serve, metadata)

        return see

    async with (
        open_client(connection, clock, agent="stub", in_flight=4) as client,
        anyio.create_task_group() as group,
        following(client, clock, SANDBOXWARMPOOLS, None, Seen, once(fill)),
        following(client, clock, SANDBOXCLAIMS, None, Seen, once(bind)),
    ):
        yield
        group.cancel_scope.cancel()


@pytest.mark.parametrize(("takes", "not_usable"), [(True, 0), (False, 5)])
async def test_a_burst_of_claims_that_are_ready_and_not_usable_is_measured_and_misses_its_bound(
    kubeconfig: str, *, takes: bool, not_usable: int
) -> None:
    """With --check such a run fails, however fast the claims became Ready."""
    within = f"usable-{secrets.token_hex(3)}"
    with at_rest() as process:
        options = BenchOptions(
            scenarios=("burst",),
            kubeconfig=kubeconfig,
            namespace=within,
            against=(process,),
            count=5,
            pool=6,
            quiet=0.2,
            usable_wait=60.0 if takes else 0.1,
        )
        async with stub_controller(kubeconfig, within, takes=takes):
            report = await measure(options, SystemClock(), _QUIET)
    (burst,) = report.scenarios
    assert (burst.figures["ready"], burst.figures["not_usable"]) == (5, not_usable)
    assert (burst.figures["usable_p50_ms"] is None) is (not takes)
    assert any("5 of 5 claims were never usable" in note for note in report.notes) is (not takes)
    judged = {one.figure: one.is_met for one in report.bounds}
    assert (judged["not_usable"], judged["usable_p50_ms"]) == (takes, None)
    assert exit_code(report, is_check=True) == (EXIT_OK if takes else EXIT_FAILED)


async def test_the_floor_binds_by_four_requests_of_which_the_claims_status_is_the_last(
    tmp_path: Path,
) -> None:
    """GET claim, PATCH Sandbox, PATCH Pod, PATCH claim status: no claim is Ready before usable."""
    async with ControlPlane(LocalSettings()) as plane:
        file = str(plane.kubeconfig(tmp_path / "admin.kubeconfig"))
        options = BenchOptions(
            scenarios=("floor",), kubeconfig=file, kubelet=True, count=3, rounds=1, quiet=0.2
        )
        report = await measure(options, SystemClock(), _QUIET)
        asked = [one.what for one in plane.audit.entries if "bench-floor" in one.user_agent]
    (floor,) = report.scenarios
    assert (floor.figures["ready"], floor.figures["not_usable"], report.notes) == (3, 0, [])
    a_bind = ["get sandboxclaims", "patch sandboxes", "patch pods", "patch sandboxclaims/status"]
    binds = [what for what in asked if what.split()[0] not in ("list", "watch")]
    assert Counter(binds) == dict.fromkeys(a_bind, 4)
    # The first claim comes alone.
    assert binds[:4] == a_bind
