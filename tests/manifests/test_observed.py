"""The alerts and the dashboard ask for what the controller shows."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest

from lean_sandbox.metrics.families import BUILD_INFO, FAMILIES, POOL_SIZE, SANDBOXES
from lean_sandbox.metrics.registry import Family
from tests.manifests.files import ROOT, documents, kustomizations
from tests.metrics.scrape import scraping
from tests.support.builders import claim
from tests.support.extensions import open_claims

(RULE,) = documents(ROOT / "components/alerts/prometheusrule.yaml")
(GROUP,) = RULE["spec"]["groups"]
ALERTS = {one["alert"]: one for one in GROUP["rules"]}
BOARD = json.loads((ROOT / "components/dashboard/agent-sandbox.json").read_text())
PANELS = {one["title"]: one for one in BOARD["panels"] if one["type"] != "row"}
QUERIES = {name: [one["expr"]] for name, one in ALERTS.items()}
QUERIES |= {name: [t["expr"] for t in one["targets"]] for name, one in PANELS.items()}
WORDS = {
    *("absent", "and", "by", "histogram_quantile", "increase", "label_replace", "max", "or"),
    *("last_over_time", "on", "rate", "sum", "unless"),
}
# The labels that Prometheus adds to what it scrapes.
ADDED = {"job", "namespace", "instance", "pod", "le"}
# Only a controller that contends for a Lease shows it.
ELSEWHERE = {"leader_election_master_status"}


def without_labels(query: str) -> str:
    """Return a query without selectors, ranges, texts and lists of labels."""
    return re.sub(r"\{[^}]*\}|\[[^]]*\]|\"[^\"]*\"|\b(by|on) \([^)]*\)", " ", query)


def metrics(query: str) -> set[str]:
    """Return the names of the metrics that a query asks for."""
    return set(re.findall(r"[a-z_]\w*", without_labels(query))) - WORDS


def labels(query: str) -> set[str]:
    """Return the labels that a query selects or groups by."""
    listed = re.findall(r"\b(?:by|on) \(([^)]*)\)", query)
    selected = re.findall(r"(\w+)\s*[=!]~?\s*\"", query)
    return {name.strip() for each in listed for name in each.split(",")} | set(selected)


def family_of(metric: str) -> str:
    """Return the family of a metric: histograms are asked for by their buckets."""
    return metric.removesuffix("_bucket")


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_queries_ask_for_labels_that_the_metrics_have(name: str) -> None:
    """Brackets are closed, histograms asked for by buckets, each label one of the metrics'."""
    for query in QUERIES[name]:
        assert [query.count(one) for one in "([{"] == [query.count(one) for one in ")]}"]
        asked = metrics(query)
        for metric in asked:
            has_buckets = FAMILIES[family_of(metric)].kind == "histogram"
            assert metric.endswith("_bucket") == has_buckets, metric
        known = {label for metric in asked for label in FAMILIES[family_of(metric)].labels}
        assert labels(query) <= known | ADDED


def test_who_leads_one_installation_hides_no_other_without_a_leader() -> None:
    """Leases of one name in two namespaces, as beside a canary, are told apart by the scrape."""
    (query,) = QUERIES["AgentSandboxNoLeader"]
    assert "by (job, namespace, name)" in query


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_alerts_know_the_controller_by_what_it_alone_shows(name: str) -> None:
    """Others show the framework's metrics, too; the names of Lease and job are the operator's."""
    query = ALERTS[name]["expr"]
    assert not re.search(r"\b(job|name|controller)=", query)
    shared = [one for one in metrics(query) if "_sandbox" not in one]
    marked = re.findall(
        rf"\band on \(job, instance\) (?:last_over_time\()?{BUILD_INFO.name}", query
    )
    assert len(marked) == len(shared)


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_the_namespace_of_an_object_is_not_that_of_the_controller(name: str) -> None:
    """A ServiceMonitor sets the label for all that it scrapes, and renames what was there."""
    for query in QUERIES[name]:
        own = sum("namespace" in FAMILIES[family_of(one)].labels for one in metrics(query))
        grouped = query.count("by (namespace") if own else 0
        assert query.count('"namespace", "$1", "exported_namespace", "(.+)"') == grouped


@pytest.mark.parametrize("family", [SANDBOXES, POOL_SIZE], ids=lambda family: family.name)
def test_what_a_standby_knows_too_is_counted_once(family: Family) -> None:
    """It has the same objects in its caches, and shows them: no sum takes them from both."""
    asked = [one for each in QUERIES.values() for one in each if family.name in metrics(one)]
    assert asked
    for query in asked:
        assert (
            f"{family.name} unless on (job, instance) leader_election_master_status == 0" in query
        )


async def test_every_metric_that_is_asked_for_is_on_the_wire() -> None:
    """A controller that serves warm and cold claims shows all of them."""
    async with open_claims("m1") as world:
        await world.create(claim("warm"))
        await world.create(claim("cold"))
        await world.run_pod("cold")
        await world.advance(5.0)
        found = await scraping(world)
    shown = {sample.name for one in found.families.values() for sample in one.samples}
    asked = {metric for each in QUERIES.values() for query in each for metric in metrics(query)}
    assert asked >= {"agent_sandbox_warmpool_size", "lean_sandbox_requests_total"}
    assert asked - shown == ELSEWHERE


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    """Summary, runbook sentence, severity; what the summary names is a label; a page has it."""
    page = (ROOT.parent / "docs" / "observability.md").read_text()
    for name, one in ALERTS.items():
        assert f"`{name}`" in page
        assert {"summary", "runbook"} == one["annotations"].keys(), name
        assert one["annotations"]["runbook"].endswith("."), name
        assert one["labels"]["severity"] in ("warning", "critical"), name
        asked = set(re.findall(r"\$labels\.(\w+)", one["annotations"]["summary"]))
        assert asked <= labels(one["expr"]), name


def test_what_is_never_right_raises_an_alert() -> None:
    """Whatever counts what only a bug of the controller can bring about is asked for."""
    bugs = {family.name for family in FAMILIES.values() if "is a bug" in family.help}
    assert bugs >= {"lean_sandbox_watch_handler_failures_total", "lean_sandbox_safety_net_total"}
    bugs.add("controller_runtime_reconcile_panics_total")
    assert metrics(ALERTS["AgentSandboxControllerBug"]["expr"]) == bugs | {BUILD_INFO.name}


def test_panels_stand_side_by_side() -> None:
    """No two panels overlap, each has a unit and a line on what it shows, ids are unique."""
    rows: dict[int, list[tuple[int, int]]] = {}
    for one in BOARD["panels"]:
        place = one["gridPos"]
        rows.setdefault(place["y"], []).append((place["x"], place["x"] + place["w"]))
    for spans in rows.values():
        assert all(left[1] <= right[0] for left, right in pairwise(sorted(spans)))
        assert max(end for _, end in spans) == 24
    assert len({one["id"] for one in BOARD["panels"]}) == len(BOARD["panels"])
    for one in PANELS.values():
        assert one["description"].endswith(".")
        assert one["fieldConfig"]["defaults"]["unit"]


def test_the_dashboard_is_a_config_map_that_grafana_finds() -> None:
    """The component makes a ConfigMap of the file, with the label and a name that stays."""
    (made,) = kustomizations()[ROOT / "components/dashboard"]["configMapGenerator"]
    assert made["files"] == ["agent-sandbox.json"]
    assert made["options"]["labels"] == {"grafana_dashboard": "1"}
    assert made["options"]["disableNameSuffixHash"] is True
