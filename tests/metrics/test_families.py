"""The families on the wire are those that are declared, with the reference's names and buckets."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given
from prometheus_client.parser import text_string_to_metric_families

from lean_sandbox.metrics.families import FAMILIES
from lean_sandbox.metrics.registry import Exposition, Family, render
from tests.metrics.scrape import Scraped, scraping, serving
from tests.support.builders import claim
from tests.support.extensions import open_claims
from tests.support.suspension import resume, suspend
from tests.support.world import open_world, sandbox

# What users of the reference controller have dashboards for: labels and the bounds of buckets.
_LAUNCH = {"launch_type", "sandbox_template"}
_LIFE = {"namespace", "sandbox_template", "owned_by"}
_STARTUP = "100 250 500 750 1000 1250 1500 2000 2500 5000 10000 30000 60000 120000 240000 +Inf"
_LIFETIME = "50 100 250 500 1000 2500 5000 10000 30000 60000 120000 240000 300000 600000 +Inf"
_WORKQUEUE = (
    "1e-08 1e-07 1e-06 9.999999999999999e-06 9.999999999999999e-05 0.001 0.01 0.1 1 10 100 1000"
    " +Inf"
)
_RECONCILE = (
    "0.005 0.01 0.025 0.05 0.1 0.15 0.2 0.25 0.3 0.35 0.4 0.45 0.5 0.6 0.7 0.8 0.9 1 1.25 1.5 1.75"
    " 2 2.5 3 3.5 4 4.5 5 6 7 8 9 10 15 20 25 30 40 50 60 +Inf"
)
_REFERENCE: dict[str, tuple[str, set[str], str]] = {
    "agent_sandboxes": (
        "gauge",
        {
            *("namespace", "ready_condition", "expired", "launch_type"),
            *("sandbox_template", "owned_by", "created_by", "operating_mode"),
        },
        "",
    ),
    "agent_sandbox_warmpool_size": (
        "gauge",
        {"namespace", "warmpool_name", "sandbox_template", "sandbox_status"},
        "",
    ),
    "agent_sandbox_build_info": (
        "gauge",
        {"git_version", "git_commit", "build_date", "go_version", "compiler", "platform"},
        "",
    ),
    "agent_sandbox_suspend_total": ("counter", {*_LIFE, "result"}, ""),
    "agent_sandbox_resume_total": ("counter", {*_LIFE, "result"}, ""),
    "agent_sandbox_finished_total": ("counter", {*_LIFE, "reason"}, ""),
    "agent_sandbox_expired_total": ("counter", {*_LIFE, "shutdown_policy"}, ""),
    "agent_sandbox_suspend_latency_ms": ("histogram", _LIFE, _LIFETIME),
    "agent_sandbox_resume_latency_ms": ("histogram", _LIFE, _LIFETIME),
    "agent_sandbox_creation_latency_ms": ("histogram", {*_LAUNCH, "namespace"}, _LIFETIME),
    "agent_sandbox_claim_startup_latency_ms": ("histogram", _LAUNCH, _STARTUP),
    "agent_sandbox_claim_controller_startup_latency_ms": ("histogram", _LAUNCH, _STARTUP),
    "agent_sandbox_client_claim_startup_latency_ms": ("histogram", _LAUNCH, _STARTUP),
    "agent_sandbox_claim_creation_total": (
        "counter",
        {*_LAUNCH, "namespace", "warmpool_name", "pod_condition", "created_by"},
        "",
    ),
    "controller_runtime_reconcile_total": ("counter", {"controller", "result"}, ""),
    "controller_runtime_reconcile_errors_total": ("counter", {"controller"}, ""),
    "controller_runtime_terminal_reconcile_errors_total": ("counter", {"controller"}, ""),
    "controller_runtime_reconcile_panics_total": ("counter", {"controller"}, ""),
    "controller_runtime_reconcile_timeouts_total": ("counter", {"controller"}, ""),
    "controller_runtime_reconcile_time_seconds": ("histogram", {"controller"}, _RECONCILE),
    "controller_runtime_max_concurrent_reconciles": ("gauge", {"controller"}, ""),
    "controller_runtime_active_workers": ("gauge", {"controller"}, ""),
    "workqueue_depth": ("gauge", {"name", "controller", "priority"}, ""),
    "workqueue_adds_total": ("counter", {"name", "controller"}, ""),
    "workqueue_queue_duration_seconds": ("histogram", {"name", "controller"}, _WORKQUEUE),
    "workqueue_work_duration_seconds": ("histogram", {"name", "controller"}, _WORKQUEUE),
    "workqueue_unfinished_work_seconds": ("gauge", {"name", "controller"}, ""),
    "workqueue_longest_running_processor_seconds": ("gauge", {"name", "controller"}, ""),
    "workqueue_retries_total": ("counter", {"name", "controller"}, ""),
    "rest_client_requests_total": ("counter", {"code", "method", "host"}, ""),
    "leader_election_master_status": ("gauge", {"name"}, ""),
}


@pytest.mark.parametrize("name", sorted(_REFERENCE))
def test_the_references_families_are_declared_as_there(name: str) -> None:
    """Name, type and labels of a family are the reference's."""
    kind, labels, _ = _REFERENCE[name]
    family = FAMILIES[name]
    assert (family.kind, set(family.labels)) == (kind, labels)


def test_every_family_says_what_it_means() -> None:
    """Each declaration has a name of its own and words, and no counter has buckets."""
    for name, family in FAMILIES.items():
        assert family.name == name
        assert len(family.help.split()) >= 2, name
        assert family.help.endswith("."), name
        assert not (family.buckets and name.endswith("_total")), name
        assert len(set(family.labels)) == len(family.labels), name


def _assert_declared(found: Scraped) -> None:
    by_base = {_base(family): family for family in FAMILIES.values()}
    for name, metric in found.families.items():
        family = by_base[name]
        assert metric.type == family.kind, name
        assert metric.documentation == family.help, name
        for sample in metric.samples:
            assert sample.labels.keys() - {"le"} == set(family.labels), sample


def _base(family: Family) -> str:
    # The parser names a counter without its suffix.
    return family.name.removesuffix("_total") if family.kind == "counter" else family.name


@given(st.text('\\"n\n\r{},= é') | st.text(st.characters(codec="utf-8")), st.text('\\"n é'))
def test_whatever_a_label_or_a_help_says_is_read_as_it_was(text: str, words: str) -> None:
    """Backslashes, quotes and line breaks neither end a value nor change it."""
    found = Exposition()
    found.one(Family("odd", ("first", "last"), f"Of {words}."), 1, text, "end")
    (family,) = text_string_to_metric_families("".join(render(found)))
    (sample,) = family.samples
    assert sample.labels == {"first": text, "last": "end"}
    assert family.documentation == f"Of {words}."


async def test_every_family_on_the_wire_is_declared() -> None:
    """A whole life with claims exposes nothing undeclared, and the buckets of the reference."""
    async with open_claims("m1") as world:
        await world.create(claim())
        await world.advance(3.0)
        found = await scraping(world)
    _assert_declared(found)
    for name, (_, _, bounds) in _REFERENCE.items():
        if bounds and name in found.families:
            assert found.bounds(name) == bounds.split(), name
    missing = {
        *("agent_sandbox_expired_total", "agent_sandbox_finished_total"),
        *("agent_sandbox_suspend_total", "agent_sandbox_suspend_latency_ms"),
        *("agent_sandbox_resume_total", "agent_sandbox_resume_latency_ms"),
        *("agent_sandbox_claim_startup_latency_ms", "leader_election_master_status"),
        "agent_sandbox_client_claim_startup_latency_ms",
    }
    shown = {name for name in _REFERENCE if _base(FAMILIES[name]) in found.families}
    assert shown == _REFERENCE.keys() - missing


async def test_the_lifecycle_histograms_have_the_references_buckets() -> None:
    """A suspend and a resume show the families that nothing else does."""
    async with open_world() as world:
        await world.ready_sandbox()
        await suspend(world)
        await world.delete("pods", "sb-1")
        await resume(world)
        await world.run_pod()
        found = await scraping(world)
    _assert_declared(found)
    for name in ("agent_sandbox_suspend_latency_ms", "agent_sandbox_resume_latency_ms"):
        assert found.bounds(name) == _LIFETIME.split()


async def test_nothing_is_missing_before_anything_has_happened() -> None:
    """A scrape of an empty cluster works, and what starts at zero is there with zero."""
    async with open_world() as world:
        found = await scraping(world)
    _assert_declared(found)
    assert "agent_sandboxes" not in found.families
    assert "agent_sandbox_warmpool_size" not in found.families
    for result in ("success", "error", "requeue", "requeue_after"):
        name = "controller_runtime_reconcile_total"
        assert found.value(name, controller="sandbox", result=result) == 0
    assert found.value("workqueue_depth", name="sandbox", controller="sandbox", priority="0") == 0
    for what in ("errors", "panics", "timeouts"):
        assert found.value(f"controller_runtime_reconcile_{what}_total", controller="sandbox") == 0
    assert found.value("lean_sandbox_cache_objects", resource="sandboxes") == 0


async def test_all_controllers_have_their_queue_and_workers() -> None:
    """With the extensions every controller of the reference is told of by its name."""
    async with open_claims("m1") as world:
        found = await scraping(world)
    for name in ("sandbox", "sandboxclaim", "sandboxwarmpool", "sandboxtemplate"):
        assert found.value("workqueue_adds_total", name=name, controller=name) >= 0
        assert found.value("controller_runtime_max_concurrent_reconciles", controller=name) >= 1


@pytest.mark.parametrize(
    "accept",
    [
        "*/*",
        "application/openmetrics-text;version=1.0.0",
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4",
    ],
)
async def test_every_scraper_gets_the_classic_text(accept: str) -> None:
    """It is the reference's one form: queries made for it name bounds as that writes them."""
    async with open_world() as world, serving(world) as scraper:
        await world.create(sandbox())
        page = await scraper.get("/metrics", accept=accept)
    assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = Scraped(text_string_to_metric_families(page.text))
    assert found.value("lean_sandbox_cache_objects", resource="sandboxes") == 1
    assert 'le="1"' in page.text
    assert "# EOF" not in page.text
