"""Secrets that tenants write into their objects: found nowhere but in objects.

They stand wherever a secret can: environments, arguments, annotations and what tools keep in them.
Then everything happens to these objects that a day brings, and all that the controller says of
itself is searched: its log, metrics, traces, profiles and Events, the conditions it writes, and
what ``lean-sandbox explain`` and ``trace`` print.
"""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lean_sandbox import log
from lean_sandbox.cli import main
from lean_sandbox.config.sources import EXIT_OK
from lean_sandbox.kube.errors import ProtocolFault
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.local.http.faults import Loss
from lean_sandbox.runtime.tracing import Tracing
from tests.faults.anything import MADE, hand_for
from tests.metrics.scrape import serving
from tests.support.builders import claim, pool, template
from tests.support.clock import FakeClock
from tests.support.extensions import bound_name, ready_of, run_all, settings
from tests.support.names import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from tests.support.odd import KINDS
from tests.support.world import NS, World, open_world, sandbox

Json = dict[str, Any]

APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MARK = "pl4nted"
STORED = (SANDBOXES, CLAIMS, TEMPLATES, POOLS, "pods")
ON: Json = {
    "trace_entries": 100_000,
    "enable_pprof_debug": True,
    "enable_pprof": True,
    "enable_rest_client_metrics": True,
}


class Planted:
    """Secrets, each of which tells where it was planted."""

    def __init__(self) -> None:
        self._places: set[str] = set()

    def secret(self, place: str) -> str:
        """Return the secret of a place."""
        self._places.add(place)
        return f"{MARK}:{place}"

    def env(self, place: str, name: str = "TOKEN") -> list[Json]:
        """Return an environment with a secret."""
        return [{"name": name, "value": self.secret(place)}]

    def container(self, place: str) -> Json:
        """Return a container with secrets in all that may hold one."""
        return {
            "name": "main",
            "image": "busybox",
            "env": self.env(f"{place} env"),
            "command": ["serve", f"--token={self.secret(f'{place} command')}"],
            "args": [self.secret(f"{place} args")],
            "readinessProbe": {
                "httpGet": {
                    "port": 80,
                    "httpHeaders": [
                        {"name": "Authorization", "value": self.secret(f"{place} probe")}
                    ],
                }
            },
        }

    def notes(self, place: str) -> Json:
        """Return metadata with what kubectl keeps, and an annotation of a tool."""
        applied = json.dumps({"spec": {"env": self.env(f"{place} applied")}})
        notes = {"key": self.secret(f"{place} key"), APPLIED: applied}
        return {"annotations": {**notes, "tool.example.com/key": self.secret(place)}}

    def all_over(self, text: str) -> set[str]:
        """Return the places whose secrets stand in a text that should have them."""
        return {place for place in self._places if f"{MARK}:{place}" in text}


@pytest.fixture
def logged(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    """Log everything, as JSON lines, into what is returned."""
    log.configure("debug", "json")
    return capsys


def recorded(world: World) -> list[str]:
    """Return the state of all objects as events of a watch."""
    found = [one for kind in STORED for one in world.plane.store.list(kind, NS)]
    return [json.dumps({"type": "MODIFIED", "object": one}) for one in found]


def statuses(world: World) -> str:
    """Return the statuses of everything that the controller reports on."""
    kinds = (SANDBOXES, CLAIMS, TEMPLATES, POOLS)
    return "\n".join(
        json.dumps(one.get("status", {}))
        for kind in kinds
        for one in world.plane.store.list(kind, NS)
        # Nobody wrote a status of what no schema let in.
        if not one["metadata"]["name"].startswith("odd-")
    )


def explain(journal: list[str], kind: str, folder: Path) -> str:
    """Return what `lean-sandbox explain` prints of a journal."""
    file = folder / "journal"
    said = io.StringIO()
    file.write_text("\n".join(line for line in journal if f'"kind": "{kind}"' in line))
    with redirect_stdout(said), redirect_stderr(said):
        assert main(["explain", str(file), f"--kind={kind}"]) == EXIT_OK
    return said.getvalue()


def excerpts(text: str) -> list[str]:
    """Return a few of the places where a secret stands in a text, with what is before them."""
    found = {text[max(0, at.start() - 150) : at.end() + 30] for at in re.finditer(MARK, text)}
    return sorted(found)[:3]


async def told(world: World) -> str:
    """Return all that the controller's listeners serve."""
    pages = ["/metrics", *(f"/debug/pprof/{name}" for name in ("cmdline", "heap", "goroutine"))]
    said = []
    async with serving(world, **ON) as scraper:
        for page in pages:
            answer = await scraper.get(page)
            assert answer.status_code == 200, page
            said.append(answer.text)
        for kind, resource in (("sandbox", SANDBOXES), ("claim", CLAIMS)):
            for one in world.plane.store.list(resource, NS):
                name = one["metadata"]["name"]
                answer = await scraper.get(f"/debug/trace?kind={kind}&namespace={NS}&name={name}")
                assert answer.status_code in (200, 404)
                said.append(answer.text)
    return "\n".join(said)


async def a_day(world: World, planted: Planted, journal: list[str]) -> None:
    """Let everything happen to objects that are full of secrets."""
    body = sandbox(
        "direct",
        metadata=planted.notes("sandbox"),
        template={"metadata": planted.notes("pod template")},
        pod_spec={"containers": [planted.container("sandbox")]},
    )
    await world.ready_sandbox(body)
    source = template(
        pod_spec={"containers": [planted.container("template")], "nodeName": "node-1"},
        metadata=planted.notes("template pod"),
        envVarsInjectionPolicy="Overrides",
    )
    source["metadata"].update(planted.notes("template"))
    await world.create(source)
    lent = pool(replicas=2)
    lent["metadata"].update(planted.notes("pool"))
    await world.create(lent)
    await world.advance(3.0)
    await run_all(world)
    journal += recorded(world)
    # A warm claim, a claim with an environment of its own, and claims that are refused.
    more = {"annotations": {"tool.example.com/more": planted.secret("claim pod")}}
    await world.create(
        claim("warm", metadata=planted.notes("warm claim"), additionalPodMetadata=more)
    )
    assert bound_name(world, "warm")
    await world.create(claim("cold", metadata=planted.notes("cold"), env=planted.env("claim")))
    await world.advance(3.0)
    await world.run_pod(bound_name(world, "cold"))
    clash = {"annotations": {"tool.example.com/key": planted.secret("claim override")}}
    await world.create(claim("clash", additionalPodMetadata=clash))
    odd = {"labels": {"example.com/key": planted.secret("claim label")}}
    await world.create(claim("odd", additionalPodMetadata=odd))
    await world.patch(TEMPLATES, "tpl", {"spec": {"envVarsInjectionPolicy": "Disallowed"}})
    await world.create(claim("refused", env=planted.env("refused claim")))
    await world.create(claim("lost", pool="nowhere", env=planted.env("lost claim")))
    await world.advance(10.0)
    for name in ("clash", "odd", "refused", "lost"):
        assert ready_of(world, name)[0] == "False"
    # Changes of what holds secrets, a rollout, suspends, expiry; each of them meets failures.
    for verb, resource, fault in (
        ("create", "pods", 500),
        ("create", "pods", 422),
        ("create", "pods", Loss.RESET),
        ("create", "sandboxes", 403),
        ("patch", "sandboxes/status", 422),
        ("patch", "sandboxclaims/status", 500),
        ("patch", "sandboxes", 409),
        ("patch", "pods", 500),
        ("get", "sandboxes", 503),
        ("get", "pods", Loss.RESET),
        ("delete", "pods", 500),
    ):
        world.plane.fail_next(verb, resource, fault, times=2)
    for number in range(3):
        notes = {"metadata": planted.notes(f"change {number}")}
        changed = [planted.container(f"change {number}")]
        for resource, name in (("sandboxes", "direct"), (CLAIMS, "warm")):
            await world.patch(resource, name, notes)
        spec = {"podTemplate": {**notes, "spec": {"containers": changed}}}
        await world.patch(TEMPLATES, "tpl", {**notes, "spec": spec})
        await world.patch("sandboxes", "direct", {"spec": spec})
        for mode in ("Suspended", "Running"):
            await world.patch("sandboxes", "direct", {"spec": {"operatingMode": mode}})
            await world.advance(5.0)
        journal += recorded(world)
        await world.create(claim(f"more-{number}", metadata=planted.notes("more")))
        await world.advance(30.0)
        await run_all(world)
    # What came by another definition: none of these fits the schema.
    for number, change in enumerate(
        (
            {"podTemplate": {"spec": {"containers": planted.secret("odd containers")}}},
            {"podTemplate": {"metadata": {"annotations": planted.secret("odd notes")}}},
            {"podTemplate": planted.secret("odd template"), "operatingMode": []},
            {"operatingMode": planted.secret("odd mode")},
            {"shutdownTime": planted.secret("odd time"), "volumeClaimTemplates": planted.env("x")},
        )
    ):
        for kind in ("sandboxes", "templates", "claims"):
            made = deepcopy(KINDS[kind])
            made["spec"] |= change
            named = {"name": f"odd-{kind}-{number}", "uid": f"uid-{kind}-{number}"}
            made["metadata"] = {**planted.notes("odd"), **made["metadata"], **named}
            made["metadata"] |= planted.notes("odd")
            world.plane.store.plant(made)
    await world.settle()
    journal += recorded(world)
    await world.delete(CLAIMS, "warm")
    await world.patch(CLAIMS, "cold", {"spec": {"lifecycle": {"ttlSecondsAfterFinished": 1}}})
    await world.advance(60.0)


async def test_what_tenants_keep_secret_is_told_nowhere(
    logged: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Through flows, refusals, lost answers and objects that no schema let in: not one secret."""
    planted = Planted()
    journal = list[str]()
    spans = InMemorySpanExporter()
    tracing = Tracing(spans)
    clock = FakeClock()
    async with (
        ControlPlane(LocalSettings(), clock=clock) as plane,
        open_world(settings(**ON), plane=plane, clock=clock, tracing=tracing) as world,
    ):
        await a_day(world, planted, journal)
        served = await told(world)
        conditions = statuses(world)
        events = json.dumps(world.events())
        stored = json.dumps([world.plane.store.list(kind, NS) for kind in STORED])
    await tracing.aclose()
    traced = "\n".join(span.to_json() for span in spans.get_finished_spans())
    explained = {kind: explain(journal, kind, tmp_path) for kind in ("Sandbox", "SandboxClaim")}
    # The secrets were there, and what could have told them has spoken.
    assert len(planted.all_over("\n".join(journal))) >= 20
    assert MARK in stored
    log_lines = logged.readouterr().err
    assert "object_not_understood" in log_lines
    assert "reconcile_failed" in log_lines
    assert '"note"' in events
    assert traced
    said = {"log": log_lines, "served": served, "events": events, "spans": traced}
    said |= {"conditions": conditions, **explained}
    assert {where: excerpts(text) for where, text in said.items() if MARK in text} == {}


@pytest.mark.parametrize("kind", sorted(MADE))
def test_of_an_object_that_is_not_understood_nothing_is_quoted(
    kind: str, logged: pytest.CaptureFixture[str]
) -> None:
    """In a list or an event, a wrong type, half an object or no JSON: its name and size at most."""
    planted = Planted()
    hand = hand_for(kind)
    metadata = {**planted.notes(kind), "name": "odd", "namespace": NS, "uid": "u"}
    metadata |= {"resourceVersion": "7", "creationTimestamp": planted.secret("time")}
    # A server that knows a kind by its definition writes fields by their names.
    body = json.dumps({"metadata": metadata, "spec": planted.secret("spec")}, sort_keys=True)
    for raw in (body, body.replace(f'"{NS}"', "7"), body[:-9] + "\x00" * 9):
        hand.cache.begin_list(None)
        with suppress(ProtocolFault):
            hand.feed.page(b'{"metadata":{},"items":[%s]}' % raw.encode(), initial=False)
        for take in (hand.feed.line, hand.feed.full_line):
            with suppress(ProtocolFault):
                take(b'{"type":"ADDED","object":%s}' % raw.encode())
    log_lines = logged.readouterr().err
    assert "object_not_understood" in log_lines
    assert excerpts(log_lines) == []
