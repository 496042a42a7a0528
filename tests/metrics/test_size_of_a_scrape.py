"""What tenants write cannot make a scrape large, and readers do not decide how often it is made."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import hypothesis.strategies as st
import pytest
from hypothesis import given
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from lean_sandbox.config.options import Settings
from lean_sandbox.manager import server
from lean_sandbox.manager.server import Listeners
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import (
    MOST_BYTES,
    Counters,
    Exposition,
    Family,
    Histograms,
    line_bytes,
    render,
)
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


async def test_a_large_page_is_made_once_for_all_its_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands of templates, sixteen readers at once: one page, whole; a second later another."""
    made = 0
    draw = render

    def counted(found: Exposition) -> Iterator[str]:
        nonlocal made
        made += 1
        return draw(found)

    monkeypatch.setattr(server, "render", counted)
    async with open_world() as world:
        counter = world.whole.sandboxes._context.metrics._expired
        for number in range(8_000):
            counter.add(NS, f"{number}-" + "x" * 200, "None", "Retain")
        pages: list[bytes] = []
        async with serving(world) as served:

            async def read() -> None:
                pages.append((await served.get("/metrics")).content)

            async with anyio.create_task_group() as group:
                for _ in range(16):
                    group.start_soon(read)
            assert made == 1
            assert served.listeners._scraper._page is not None
            await world.clock.advance(1.0)
            assert served.listeners._scraper._page is None
            await read()
            assert made == 2
    assert len(pages) == 17
    assert len(set(pages[:16])) == 1
    assert len(pages[0]) > 1024 * 1024
    read_page = text_string_to_metric_families(pages[0].decode())
    found = {one.name: one for one in read_page}
    assert len(found[families.EXPIRED.name.removesuffix("_total")].samples) == 8_000


LONG = "x" * 240
LIFE = Family("life_ms", ("namespace", "sandbox_template"), "Times.", (1.0,) * 14)
SHARED = Family("start_ms", ("launch_type", "sandbox_template"), "Times.", (1.0,) * 15)


@pytest.mark.parametrize("family", [LIFE, SHARED], ids=lambda family: family.name)
def test_one_tenants_templates_drop_no_series_of_others(family: Family) -> None:
    """Beyond the limit the namespace with the most loses its oldest; the bytes are bounded."""
    histograms = Histograms(family)

    def observe(namespace: str, template: str) -> None:
        first = namespace if family is LIFE else "warm"
        histograms.observe(1.0, first, template, tenant=namespace)

    for number in range(50):
        observe(f"quiet-{number}", f"python-{number}")
    for number in range(5_000):
        observe("loud", f"{number}-{LONG}")
    found = Exposition()
    histograms.collect(found)
    kept = [labels[1] for labels, _ in found.families[family.name][1]]
    assert {f"python-{number}" for number in range(50)} <= set(kept)
    assert f"4999-{LONG}" in kept
    assert f"0-{LONG}" not in kept
    page = "".join(render(found)).encode()
    assert MOST_BYTES / 2 < len(page) < 1.1 * MOST_BYTES


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 6), st.integers(0, 40))))
def test_series_are_never_more_than_they_may_be(counted: list[tuple[str, int, int]]) -> None:
    """Whatever is counted: within the limit, the newest is there, and who has the fewest keeps."""
    family = Family("a_total", ("namespace", "x"), "Counts.")
    counters = Counters(family)
    counters.__class__ = type("Few", (Counters,), {"__slots__": (), "most": 5})
    for namespace, number, length in counted:
        counters.add(namespace, f"{number}{'y' * length}")
        held = list(counters._values)
        assert held.count((namespace, f"{number}{'y' * length}")) == 1
        assert len(held) <= 5
        assert counters._shares.total == sum(line_bytes(family, labels) for labels in held)
        by_tenant = {labels for own in counters._tenants.values() for labels in own}
        assert by_tenant == set(held) == set(counters._of)


@pytest.mark.parametrize(
    ("limit", "most", "is_above"),
    [("MOST_SERIES", 2, True), ("MOST_SERIES", 31, False), ("MOST_BYTES", 600, True)],
)
async def test_gauges_of_a_tenant_with_many_templates_lose_their_names_not_their_numbers(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int, *, is_above: bool
) -> None:
    """Above the limit the namespace with the most says unknown; the others say what they did."""
    monkeypatch.setattr(f"lean_sandbox.controllers.metrics.{limit}", most)
    async with open_world(Settings(sandbox_status_window=1.0)) as world:
        for number in range(30):
            note = {"annotations": {TEMPLATE_REF: f"t-{number}"}}
            body = sandbox(f"loud-{number}", spec={"operatingMode": "Suspended"}, metadata=note)
            world.plane.store.create(body)
        world.plane.store.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quiet"}}
        )
        quiet = {"annotations": {TEMPLATE_REF: "python"}}
        world.plane.store.create(
            sandbox("q", spec={"operatingMode": "Suspended"}, metadata=quiet, namespace="quiet")
        )
        await world.settle()
        found = await scraping(world)
    ((labels, value),) = found.find("agent_sandboxes", namespace="quiet")
    assert (labels["sandbox_template"], value) == ("python", 1)
    loud = found.find("agent_sandboxes", namespace=NS)
    assert ({labels["sandbox_template"] for labels, _ in loud} == {"unknown"}) is is_above
    assert sum(value for _, value in loud) == 30


async def test_gauges_of_more_namespaces_than_series_keep_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All names of templates are gone by then; a namespace never is."""
    monkeypatch.setattr("lean_sandbox.controllers.metrics.MOST_SERIES", 2)
    async with open_world(Settings(sandbox_status_window=1.0)) as world:
        for number in range(4):
            name = f"of-{number}"
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            world.plane.store.create(namespace)
            note = {"annotations": {TEMPLATE_REF: f"t-{number}"}}
            spec = {"operatingMode": "Suspended"}
            body = sandbox("one", spec=spec, metadata=note, namespace=name)
            world.plane.store.create(body)
        await world.settle()
        found = await scraping(world)
    for number in range(4):
        ((labels, value),) = found.find("agent_sandboxes", namespace=f"of-{number}")
        assert (labels["sandbox_template"], value) == ("unknown", 1)


async def test_a_page_whose_objects_take_too_long_to_count_has_all_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is answered without these gauges, and a line of the log names what is missing."""

    async def give_up(*_: object) -> bool:
        return False

    monkeypatch.setattr("lean_sandbox.manager.server.survey", give_up)
    with capture_logs() as lines:
        async with open_world() as world:
            await world.ready_sandbox()
            found = await scraping(world)
    assert not found.find("agent_sandboxes")
    assert found.value("process_cpu_seconds_total") > 0
    told = [one for one in lines if one["event"] == "scrape_incomplete"]
    assert [(one["log_level"], one["missing"]) for one in told] == [("error", "agent_sandboxes")]


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
    given = Settings(metrics_bind_address="0.0.0.0:1", health_probe_bind_address=":2")
    async with open_world() as world:
        Listeners(world.whole, Settings(), FakeClock())
        Listeners(world.whole, Settings(metrics_bind_address=":8080"), FakeClock())
        Listeners(world.whole, given, FakeClock())
    assert bound == [*(f"{host}:8080", f"{host}:8081") * 2, "0.0.0.0:1", ":2"]
