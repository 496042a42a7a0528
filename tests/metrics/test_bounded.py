"""What tenants write cannot make a scrape large, and readers do not decide how often it is made."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lean_sandbox.config.options import Settings
from lean_sandbox.manager.server import Listeners
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition
from tests.metrics.scrape import scraping, serving
from tests.support.clock import FakeClock
from tests.support.names import TEMPLATE_REF
from tests.support.world import NS, open_world, sandbox


@pytest.mark.parametrize("odd", ["x" * 250_000, "a\nb", "Upper", "a/b", '"', "a" * 254])
async def test_a_template_that_cannot_be_is_unknown(odd: str) -> None:
    """Gauges and counters alike say unknown, and the page stays small."""
    async with open_world() as world:
        annotations = {"annotations": {TEMPLATE_REF: odd}}
        await world.create(sandbox(spec={"operatingMode": "Suspended"}, metadata=annotations))
        async with serving(world) as served:
            assert len((await served.get("/metrics")).content) < 200_000
        found = await scraping(world)
    for name in ("agent_sandboxes", "agent_sandbox_suspend_total"):
        labels = [labels["sandbox_template"] for labels, _ in found.find(name, namespace=NS)]
        assert set(labels) == {"unknown"}, name


async def test_a_name_of_a_template_is_a_label() -> None:
    """What an object can be called is shown, whether there is such a template or not."""
    async with open_world() as world:
        await world.create(sandbox(metadata={"annotations": {TEMPLATE_REF: "py.3-11"}}))
        found = await scraping(world)
    assert [value for _, value in found.find("agent_sandboxes", sandbox_template="py.3-11")] == [1]


async def test_a_page_serves_everybody_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scrapes within a second get the same page; the next one after that is made anew."""
    made = 0
    begin = Exposition.__init__

    def counted(self: Exposition) -> None:
        nonlocal made
        made += 1
        begin(self)

    monkeypatch.setattr(Exposition, "__init__", counted)
    async with open_world() as world, serving(world) as served:
        pages = {(await served.get("/metrics")).content for _ in range(5)}
        assert (len(pages), made) == (1, 1)
        await world.clock.advance(1.0)
        await served.get("/metrics")
        assert made == 2


async def test_a_large_page_is_written_as_it_is_made() -> None:
    """Thousands of templates: the page comes in chunks, whole, and is read as any other."""
    async with open_world() as world:
        counter = world.whole.sandboxes._parts.metrics._expired
        for number in range(8_000):
            counter.add(NS, f"{number}-" + "x" * 200, "None", "Retain")
        async with serving(world) as served:
            answer = await served.get("/metrics")
    assert answer.headers["transfer-encoding"] == "chunked"
    read = {one.name: one for one in text_string_to_metric_families(answer.text)}
    assert len(read[families.EXPIRED.name.removesuffix("_total")].samples) == 8_000


@pytest.mark.parametrize(("is_in_a_pod", "host"), [(True, ""), (False, "127.0.0.1")])
async def test_a_laptop_listens_for_itself_alone(
    monkeypatch: pytest.MonkeyPatch, *, is_in_a_pod: bool, host: str
) -> None:
    """The defaults, given or not: all addresses in a Pod, where kubelets probe; else loopback."""
    bound: list[str] = []
    monkeypatch.setattr(
        "lean_sandbox.manager.server.bind", lambda _flag, address: bound.append(address)
    )
    if is_in_a_pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    else:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    Listeners(Settings(), FakeClock())
    Listeners(Settings(metrics_bind_address=":8080"), FakeClock())
    given = Settings(metrics_bind_address="0.0.0.0:1", health_probe_bind_address=":2")
    Listeners(given, FakeClock())
    assert bound == [*(f"{host}:8080", f"{host}:8081") * 2, "0.0.0.0:1", ":2"]
