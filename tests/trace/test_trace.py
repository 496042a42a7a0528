"""`lean-sandbox trace` over the wire: the embedded control plane, the controller, its listener."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from lean_sandbox.cli import main
from lean_sandbox.config.options import Settings
from lean_sandbox.config.sources import EXIT_CONFIG, EXIT_FAILED, EXIT_OK
from lean_sandbox.errors import ConfigError
from lean_sandbox.model.shard import Shard
from lean_sandbox.trace.client import ask
from lean_sandbox.trace.life import TraceEntry
from lean_sandbox.watch.kind import Key
from tests.kube import certificates
from tests.metrics.scrape import serving
from tests.support.builders import claim
from tests.support.extensions import bound_name, open_claims
from tests.support.names import CLAIMS
from tests.support.volumes import WHOLE
from tests.support.world import NS, World, open_world, sandbox

Json = dict[str, Any]
ON: Json = {"sandbox_status_window": 1.0, "sandbox_status_step_window": 0.0, "trace_entries": 1000}


async def life_of(world: World, kind: str, name: str) -> list[TraceEntry]:
    """Return what the listener answers about an object."""
    async with serving(world) as scraper:
        path = f"/debug/trace?kind={kind}&namespace={NS}&name={name}&output=json"
        answer = await scraper.get(path)
    assert answer.status_code == 200
    return msgspec.json.decode(answer.content, type=list[TraceEntry])


async def command(world: World, *words: str) -> tuple[int, str, str]:
    """Run `lean-sandbox trace` against the listener of a world; return code and what it said.

    A failure names the address that was asked.
    """
    said = io.StringIO()
    complained = io.StringIO()

    def run(url: str) -> int:
        with redirect_stdout(said), redirect_stderr(complained):
            return main(["trace", *words, "-n", NS, "--url", url])

    async with serving(world) as scraper:
        # The listener says in the log that it is there.
        await scraper.get("/metrics")
        code = await anyio.to_thread.run_sync(run, scraper.url(""))
        assert code != EXIT_FAILED or scraper.url("") in complained.getvalue()
    return code, said.getvalue(), complained.getvalue()


def told(entries: Sequence[TraceEntry]) -> list[str]:
    """Return entries in words, without the reasons of events and the times of reconciles."""
    words = []
    for one in entries:
        brief = one.detail.partition(":")[0].partition(";")[0].replace(",", "")
        if one.what == "request":
            verb, resource, code = one.detail.split()
            brief = f"{verb} {resource.partition('.')[0]} {code}"
        words.append(f"{one.plural} {brief}")
    return words


def in_order(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Tell whether some things are found one after the other, whatever is in between."""
    rest = iter(found)
    return all(one in rest for one in wanted)


async def test_the_life_of_a_sandbox_from_added_to_ready() -> None:
    """Its events and those of its Pod with their verdicts, its reconciles, each request it took.

    The watch that its first volume starts is nobody's.
    """
    async with open_world(Settings(**ON)) as world:
        await world.ready_sandbox(sandbox(spec=WHOLE))
        life = await life_of(world, "sandbox", "sb-1")
        asked = world.asked()
    found = told(life)
    for one in (
        "sandboxes ADDED passed",
        "pods MODIFIED passed",
        # The echo of its own write.
        "sandboxes MODIFIED dropped",
        "sandboxes sandbox success",
        "sandboxes create pods 201",
    ):
        assert one in found
    # The label of subresources is kept whole, and every request of the controller belongs to it.
    labels = [one.detail.rpartition(" ")[0] for one in life if one.what == "request"]
    assert "patch sandboxes.agents.x-k8s.io/status" in labels
    assert len(labels) == sum(n for what, n in asked.items() if not what.startswith("list"))
    assert {one.key.name for one in life} == {"sb-1"}
    assert "ADDED, passed: first sight" in {one.detail for one in life}
    reconciles = " ".join(one.detail for one in life if one.what == "reconcile")
    assert "for sandbox" in reconciles
    assert "pod ready" in reconciles


async def test_the_life_of_a_claim_follows_the_binding_to_sandbox_and_pod() -> None:
    """One sees the whole bind: the claim's event, both patches, the member and its Pod."""
    async with open_claims("m1", "m2", **ON) as world:
        await world.create(claim())
        name = bound_name(world)
        life = await life_of(world, "claim", "c")
    other = ({"m1", "m2"} - {name}).pop()
    assert in_order(
        ["sandboxclaims patch sandboxes 200", "sandboxclaims patch sandboxclaims 200"],
        told(life),
    )
    assert "sandboxclaims ADDED passed" in told(life)
    assert "sandboxclaims sandboxclaim success" in told(life)
    objects = {(one.plural, one.key.name) for one in life}
    assert objects == {("sandboxclaims", "c"), ("sandboxes", name), ("pods", name)}
    assert other not in {name for _, name in objects}


async def test_what_has_ended_is_still_told() -> None:
    """A claim that is gone leads to its Sandbox by the owner that the Sandbox's events showed."""
    async with open_claims("m1", **ON) as world:
        await world.create(claim())
        await world.delete(CLAIMS, "c")
        assert world.find(CLAIMS, "c") is None
        assert world.find("sandboxes", "m1") is None
        life = await life_of(world, "claim", "c")
    found = told(life)
    for one in ("sandboxclaims DELETED passed", "sandboxes DELETED passed", "pods ADDED dropped"):
        assert one in found


async def test_a_binding_whose_events_are_overwritten_is_known_from_the_caches() -> None:
    """Only the Pod's last event is left in the ring: the claim leads to it all the same."""
    async with open_claims("m1", **ON) as world:
        await world.create(claim())
        assert world.trace is not None
        world.trace.entries.clear()
        await world.patch("pods", "m1", {"metadata": {"annotations": {"a": "b"}}})
        life = await life_of(world, "claim", "c")
    assert told(life) == ["pods MODIFIED dropped"]


async def test_a_deletion_that_only_a_relist_showed_is_told() -> None:
    """What the gap has swallowed is an event like any other."""
    async with open_world(Settings(**ON)) as world:
        # Without a Pod, whose end would lead to a request that finds the Sandbox gone.
        await world.create(sandbox(spec={"operatingMode": "Suspended"}))
        await world.cut_watches()
        world.plane.store.delete("sandboxes.agents.x-k8s.io", NS, "sb-1", grace_s=0)
        world.plane.compact()
        await world.recover()
        life = await life_of(world, "sandbox", "sb-1")
    assert "sandboxes DELETED passed" in told(life)


async def test_a_refused_request_and_a_failed_reconcile_are_told() -> None:
    """Code of the request, outcome and error of the reconcile, and when it is tried again."""
    async with open_world(Settings(**ON)) as world:
        long = {"kind": "Status", "message": "x" * 500}
        world.plane.fail_next("create", "pods", 500, body=long)
        await world.create(sandbox())
        await world.advance(2.0)
        life = await life_of(world, "sandbox", "sb-1")
    found = told(life)
    assert in_order(["sandboxes create pods 500", "sandboxes create pods 201"], found)
    (failed,) = (one.detail for one in life if one.detail.startswith("sandbox error; "))
    *_, again, error = failed.split("; ")
    assert re.fullmatch(r"again in \d\.\d{3} s", again)
    assert "500" in error
    assert len(error) == 200
    assert sum("failed 1 times before" in one.detail for one in life) == 1


async def test_a_reconcile_tells_how_long_it_has_waited_for_a_worker() -> None:
    """From when it was due."""
    async with open_world(Settings(**ON, sandbox_concurrent_workers=1)) as world:
        held = world.plane.hold("create", "pods", times=1)
        world.plane.store.create(sandbox())
        await world.until(lambda: held.waiting)
        world.plane.store.create(sandbox("sb-2"))
        await world.settle()
        await world.clock.advance(2.0)
        held.release()
        await world.settle()
        life = await life_of(world, "sandbox", "sb-2")
    waited = [one.detail for one in life if "waited" in one.detail]
    assert "waited 2000.000 ms" in waited[0]


async def test_off_nothing_is_kept_and_the_way_to_switch_it_on_is_told() -> None:
    """The default keeps no entry, hooks in nowhere, and serves no path."""
    async with open_world() as world:
        controller = world.whole
        await world.ready_sandbox(sandbox())
        assert world.trace is None
        assert controller.caches.pods.observer is None
        # The safety net's alone.
        assert len(controller.sandboxes.workers.on_begin) == 1
        async with serving(world) as scraper:
            assert (await scraper.get("/debug/trace")).status_code == 404
        code, said, told = await command(world, "sandbox", "sb-1")
    assert (code, said) == (EXIT_CONFIG, "")
    assert "no controller with a trace is there" in told
    assert "--trace-entries=" in told


async def test_what_was_never_seen_and_what_was_overwritten_is_told_apart() -> None:
    """A wrong name, and a ring that is too small, have other ways out."""
    async with open_world(Settings(**ON)) as world:
        code, said, told = await command(world, "sandbox", "nobody")
        assert (code, said) == (EXIT_FAILED, "")
        assert "nothing has happened since it started" in told
        await world.ready_sandbox(sandbox())
        assert "look at name and namespace" in (await command(world, "sandbox", "nobody"))[2]
        assert (await command(world, "claim", "sb-1"))[0] == EXIT_FAILED
    async with open_world(Settings(**{**ON, "trace_entries": 3})) as world:
        await world.ready_sandbox(sandbox("a"))
        await world.ready_sandbox(sandbox("b"))
        code, _, told = await command(world, "sandbox", "a")
        assert code == EXIT_FAILED
        assert "--trace-entries keeps more" in told


async def test_the_table_has_a_line_for_each_entry() -> None:
    """Under what it took by the names of the metric; programs get the entries themselves."""
    async with open_claims("m1", **ON) as world:
        await world.create(claim())
        code, said, _ = await command(world, "claim", "c")
        life = await life_of(world, "claim", "c")
        _, listed, _ = await command(world, "claim", "c", "--output", "json")
    assert code == EXIT_OK
    assert len(json.loads(listed)) == len(life)
    took, head, columns, *lines = said.splitlines()
    steps = "adopt 0.0, pod_metadata 0.0, status 0.0, "
    assert took.startswith(f"claim {NS}/c: Ready after 0.0 ms: {steps}")
    assert took.endswith("; warm")
    assert head.startswith(f"{len(life)} entries, 0 is 2026-")
    assert columns.split() == ["AT", "MS", "OBJECT", "WHAT", "TOOK", "MS", "DETAIL"]
    assert len(lines) == len(life)
    first = next(line for line in lines if "claim c" in line and "event" in line)
    assert first.split()[0] == "0.000"
    assert "ADDED, passed: first sight" in first
    assert any("patch sandboxclaims.extensions.agents.x-k8s.io/status 200" in one for one in lines)


async def test_a_sandbox_takes_as_long_as_its_pod() -> None:
    """Before and after it is Ready; a later loss of the Pod does not count."""
    async with open_world(Settings(**ON)) as world:
        await world.create(sandbox())
        await world.advance(2.5)
        _, said, _ = await command(world, "sandbox", "sb-1")
        assert said.startswith(f"sandbox {NS}/sb-1: not Ready 2500.0 ms after its first event\n")
        await world.run_pod()
        await world.pod_status(phase="Failed")
        _, said, _ = await command(world, "sandbox", "sb-1")
    assert said.startswith(
        f"sandbox {NS}/sb-1: Ready after 2500.0 ms: get sandboxes 0.0, create pods 0.0, "
    )
    assert "; cold" not in said
    assert "Ready is False" in said


async def test_what_was_ready_before_the_controller_is_said_to_be() -> None:
    """A start over healthy objects tells nothing of how long they took."""
    async with open_world(Settings(**ON)) as before:
        await before.ready_sandbox(sandbox())
        async with open_world(Settings(**ON), plane=before.plane) as world:
            _, said, _ = await command(world, "sandbox", "sb-1")
    assert said.startswith(f"sandbox {NS}/sb-1: was Ready when it was first seen\n")
    assert "ADDED, passed: first sight; Ready" in said


async def test_what_is_told_to_people_has_no_digests_and_fits_on_their_screens() -> None:
    """Whatever changed: columns that are kept as digests are only said to have changed."""
    async with open_claims("m1", **ON) as world:
        await world.create(claim())
        _, said, _ = await command(world, "claim", "c")
        assert (await command(world, "pod", "m1"))[0] == EXIT_OK
    assert "reconcile" in said
    assert not re.search(r"\d{12,}", said)
    assert max(map(len, said.splitlines())) < 160


async def test_a_kind_is_named_in_short_or_as_kubectl_names_it() -> None:
    """In the singular or the plural, with its group or without; the namespace may come first."""
    words = {
        "claim": ("c", "claim", "claims", "sandboxclaim", CLAIMS),
        "pool": ("pool", "pools", "sandboxwarmpool", "sandboxwarmpools", "swp"),
        "sandbox": ("m1", "sandboxes"),
        "pod": ("m1", "pods", "po"),
    }
    async with open_claims("m1", **ON) as world:
        await world.create(claim())
        assert (await command(world, "claim", f"{NS}/c", "-n", "other"))[0] == EXIT_OK
        code, _, told = await command(world, "claim", "")
        assert (code, "and name of an object" in told) == (EXIT_FAILED, True)
        for kind, (name, *forms) in words.items():
            for word in forms:
                code, said, _ = await command(world, word, name)
                assert (code, said.split(":")[0]) == (EXIT_OK, f"{kind} {NS}/{name}")


def test_a_name_behind_a_slash_is_told_where_it_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    """Kubectl prints objects so."""
    with pytest.raises(SystemExit):
        main(["trace", "sandboxclaim/mine", "-n", "team-a"])
    assert "a space stands between kind and name: claim mine" in capsys.readouterr().err


async def test_the_life_of_a_pool_is_kept() -> None:
    """Its events and reconciles, and the requests of these."""
    async with open_claims(replicas=1, **ON) as world:
        await world.advance(1.0)
        life = await life_of(world, "pool", "pool")
    assert {one.plural for one in life} == {"sandboxwarmpools"}
    assert "sandboxwarmpools create sandboxes 201" in told(life)


async def test_a_question_without_kind_namespace_or_name_is_refused() -> None:
    """400 says what is missing; other paths below it lead nowhere."""
    queries = "", "kind=node&namespace=a&name=b", "kind=claim&name=b", "kind=claim&namespace=a"
    async with open_world(Settings(**ON)) as world, serving(world) as scraper:
        for query in queries:
            answer = await scraper.get(f"/debug/trace?{query}")
            assert answer.status_code == 400, query
            assert "namespace and name" in answer.text
        assert (await scraper.get("/debug/trace/more?kind=claim")).status_code == 404
        assert (await scraper.get("/debug/pprof/profile")).status_code == 404
        assert (await scraper.get("/metrics")).status_code == 200


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:9", "cannot be reached"),
        ("ftp://x", "give one such as http://127.0.0.1:8080"),
        ("127.0.0.1:8080", "give one such as http://127.0.0.1:8080"),
        ("http://[::1", "give one such as http://127.0.0.1:8080"),
        ("http://.a", "cannot be reached"),
    ],
)
def test_a_controller_that_cannot_be_asked(
    url: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the address."""
    assert main(["trace", "claim", "c", "--url", url]) == EXIT_CONFIG
    answer = capsys.readouterr().err
    assert words in answer
    assert url in answer


async def test_a_controller_that_serves_over_tls_is_asked_over_tls(tmp_path: Path) -> None:
    """Its authority is named by `--ca-file`; without, or over plain HTTP, nothing is shown.

    The address may be copied from a browser.
    """
    certificates.make(tmp_path)
    shutil.copy(tmp_path / "server.crt", tmp_path / "tls.crt")
    shutil.copy(tmp_path / "server.key", tmp_path / "tls.key")
    secure = {"metrics_secure_serving": True, "metrics_cert_dir": str(tmp_path)}
    async with open_world(Settings(**ON)) as world:
        await world.ready_sandbox(sandbox())
        async with serving(world, **secure) as scraper:
            plain = scraper.url("")
            key = Key(NS, "sb-1")

            async def asked(url: str, file: Path | None) -> str:
                return await ask(url, "sandbox", key, "table", ca_file=file)

            url = plain.replace("http:", "https:")
            for same in (url, url.replace("https", "HTTPS"), f"{url}/metrics"):
                assert "ADDED, passed: first sight" in await asked(same, tmp_path / "ca.crt")
            with pytest.raises(ConfigError, match=r"certificate of .* was refused"):
                await asked(url, None)
            with pytest.raises(ConfigError, match=r"cannot be reached: .* try https://"):
                await asked(plain, None)
            with pytest.raises(ConfigError, match=r"--ca-file: .*missing.crt is not a certificate"):
                await asked(url, tmp_path / "missing.crt")


async def test_what_is_of_another_shard_takes_no_room() -> None:
    """It is dropped before anything is remembered of it."""
    other = next(one for one in (Shard(0, 2), Shard(1, 2)) if not one.admits(NS))
    async with open_world(Settings(**ON, shard=other)) as world:
        await world.create(sandbox())
        assert world.whole.caches.sandboxes.dropped_elsewhere == 1
        assert world.trace is not None
        assert not world.trace.entries


async def test_tracing_costs_no_request() -> None:
    """Law (design, budgets): what is asked is the same with and without."""

    async def bill(settings: Settings) -> dict[str, int]:
        async with open_world(settings) as world:
            await world.ready_sandbox(sandbox())
            return dict(world.asked(events=True))

    assert await bill(Settings(**ON)) == await bill(Settings(**{**ON, "trace_entries": 0}))
