"""Numbers that stand on pages and can be counted: rights, alerts, panels, stories."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.leading.test_never_two import TestElections
from tests.leading.test_relays import ACTS
from tests.manifests.files import grants
from tests.manifests.test_observed import ALERTS, PANELS
from tests.manifests.test_permissions import (
    CORE,
    EXTENSIONS,
    LEADER,
    REFERENCE,
    REFERENCE_EXTENSIONS,
)


def page(name: str) -> str:
    """Return the text of a page on one line."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def rows(name: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading."""
    text = (ROOT / name).read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    table = re.search(r"^\|.*(?:\n\|.*)*", text, re.MULTILINE)
    assert table is not None
    return [re.split(r" ?\| ?", line)[1:-1] for line in table[0].splitlines()[2:]]


@pytest.mark.parametrize("name", ["docs/install.md", "docs/faq.md"])
def test_the_rights_are_as_many_as_a_page_says(name: str) -> None:
    """Verbs on resources: those of our roles, and those of the reference's."""
    ours = {right for one in (CORE, EXTENSIONS, LEADER) for right in grants(one["rules"])}
    theirs = REFERENCE | REFERENCE_EXTENSIONS
    assert f"{len(ours)} rights where the reference has {len(theirs)}" in page(name)


def test_every_alert_has_a_row_with_its_numbers() -> None:
    """How long, how much and of what: minutes are those of the rule, the rest stands in it."""
    listed = {row[0].strip("`"): row[1] for row in rows("docs/observability.md", "Alerts")}
    assert listed.keys() == ALERTS.keys()
    for name, when in listed.items():
        rule: dict[str, Any] = ALERTS[name]
        for minutes in re.findall(r"for (\d+) minutes", when):
            assert rule.get("for") == f"{minutes}m", name
        wanted = [f"{float(each) / 100:g}" for each in re.findall(r"(\d+) %", when)]
        wanted += [f"{float(each) * 1000:g}" for each in re.findall(r"([\d.]+) s\b", when)]
        wanted += re.findall(r"over (\d+) objects", when)
        for number in wanted:
            assert re.search(rf"> {re.escape(number)}\b", rule["expr"]), (name, number)
    assert "one warm claim in a hundred" in listed["AgentSandboxClaimsSlow"]
    assert "histogram_quantile(0.99" in ALERTS["AgentSandboxClaimsSlow"]["expr"]


def test_alerts_and_panels_are_counted() -> None:
    """In words, on two pages."""
    words = {8: "eight", 9: "nine", 10: "ten", 12: "twelve", 13: "thirteen", 14: "fourteen"}
    assert f"{words[len(ALERTS)]} alerts" in page("manifests/README.md")
    assert f"four questions in {words[len(PANELS)]} panels" in page("docs/observability.md")


def test_stories_are_as_many_and_as_long_as_the_page_says() -> None:
    """Those of one run; by hand there are more."""
    told = page("docs/reliability.md")
    machine = (ROOT / "tests/faults/test_machine.py").read_text(encoding="utf-8")
    stories = re.search(r'Stories\("SANDBOX_TESTS_STORIES", (\d+)\)', machine)
    acts = re.search(r"acts=(\d+)\)", machine)
    relays = re.search(
        r'Stories\("SANDBOX_TESTS_RELAYS", (\d+)\)',
        (ROOT / "tests/leading/test_relays.py").read_text(encoding="utf-8"),
    )
    assert stories is not None
    assert acts is not None
    assert relays is not None
    assert f"{stories[1]} stories of {acts[1]} acts in each run, 300 in `.ci/run`" in told
    assert f"{relays[1]} stories of {ACTS} acts in each run" in told
    elections = TestElections.settings
    assert f"{elections.max_examples} stories of {elections.stateful_step_count} acts" in told
    assert "SANDBOX_TESTS_STORIES=200" in (ROOT / ".ci/run").read_text(encoding="utf-8")
