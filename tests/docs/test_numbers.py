"""Numbers of pages that stand elsewhere too: rights, alerts, stories, targets, sizes, versions."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from lean_sandbox.bench.report import BOUNDS
from lean_sandbox.version import __version__
from tests.budgets import test_overload as overload
from tests.docs.pages import PAGES, ROOT
from tests.faults import test_edits_behind_writes as edits
from tests.faults import test_late_writes as late_writes
from tests.faults.anything import MADE
from tests.faults.flows import FLOWS
from tests.manager import test_two_controllers_at_once as two_at_once
from tests.manager.test_never_two_leaders import TestElections
from tests.manager.test_relays import ACTS
from tests.manifests.files import containers, grants
from tests.manifests.roles import CORE, EXTENSIONS, LEADER, REFERENCE, REFERENCE_EXTENSIONS
from tests.manifests.test_observed import ALERTS, PANELS
from tests.tenancy import test_fairness as fairness
from tests.tenancy.test_attacks import rows as attacks


def page(name: str) -> str:
    """Return the text of a page on one line."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def rows(name: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading."""
    text = (ROOT / name).read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    table = re.search(r"^\|.*(?:\n\|.*)*", text, re.MULTILINE)
    assert table is not None
    return [re.split(r" ?\| ?", line)[1:-1] for line in table[0].splitlines()[2:]]


@pytest.mark.parametrize("name", ["docs/install.md", "docs/faq.md", "docs/comparison.md"])
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
    """Those that decide over a change; by hand there are more."""
    told = page("docs/reliability.md")
    machine = (ROOT / "tests/faults/test_stories.py").read_text(encoding="utf-8")
    stories = re.search(r'Stories\("SANDBOX_TESTS_STORIES", (\d+)\)', machine)
    acts = re.search(r"acts=(\d+)\)", machine)
    relays = re.search(
        r'Stories\("SANDBOX_TESTS_RELAYS", (\d+)\)',
        (ROOT / "tests/manager/test_relays.py").read_text(encoding="utf-8"),
    )
    more = re.search(r"SANDBOX_TESTS_STORIES=(\d+)", (ROOT / ".ci/run").read_text(encoding="utf-8"))
    assert stories is not None
    assert acts is not None
    assert relays is not None
    assert more is not None
    count = int(stories[1]) + int(more[1])
    assert f"{count} stories of {acts[1]} acts in `.ci/run`" in told
    assert f"{relays[1]} stories of {ACTS} acts in `.ci/run`" in told
    elections = TestElections.settings
    assert f"{elections.max_examples} stories of {elections.stateful_step_count} acts" in told


# By the scenario that a row names, or else that of the row above: the figures of its targets.
TARGETS = [
    ("(`burst`): usable after, median", "burst", ("usable_p50_ms",)),
    ("99th percentile", "burst", ("usable_p99_ms",)),
    ("lag from Ready to usable", "burst", ("not_usable",)),
    ("requests a claim", "burst", ("requests_each",)),
    ("answers 409", "burst", ("conflicts", "doubly_bound")),
    ("CPU of the controller a claim", "burst", ("cpu_ms_each",)),
    ("received a claim", "burst", ("received_kib_each",)),
    ("(`one`)", "one", ("usable_p50_ms",)),
    ("(`fill`)", "fill", ("writes_each",)),
    ("(`sustained`)", "sustained", ("last_usable_p50_ms",)),
    ("(`sustained --rate 20", "sustained", ("last_usable_p50_ms",)),
    ("(`burst --count 3600", "burst", ("usable_p99_ms",)),
    ("(`cold`)", "cold", ("seconds",)),
    ("writes each", "cold", ("writes_each", "cpu_ms_each")),
    ("received each", "cold", ("received_kib_each",)),
    ("(`idle`)", "idle", ("cpu_ms_per_s",)),
    ("(`restart`)", "restart", ("quiet_s",)),
]


def test_the_targets_of_the_page_are_those_that_a_run_is_judged_by() -> None:
    """Each row with a target, and each number of it."""
    bounds: dict[tuple[str, str], float] = {}
    for one in BOUNDS:
        # Of two bounds of one figure the multiple comes first.
        bounds.setdefault((one.scenario, one.figure), one.most)
    told = [(row[0], row[3]) for row in rows("docs/performance.md", "All figures") if row[3]]
    assert len(told) == len(TARGETS)
    for (what, target), (begin, scenario, figures) in zip(told, TARGETS, strict=True):
        assert begin in what
        numbers = [float(each) for each in re.findall(r"\d+(?:\.\d+)?", target)]
        assert numbers == [bounds[scenario, figure] for figure in figures], what


def test_the_rate_of_the_answers_is_the_highest_that_was_measured() -> None:
    """With a latency that stays flat, by the table of all figures."""
    rate = re.compile(r"(\d+) claims a second")
    measured = [rate.findall(row[0]) for row in rows("docs/performance.md", "All figures")]
    assert rate.findall(page("docs/faq.md")) == [max((n for row in measured for n in row), key=int)]


def test_the_sizes_of_the_page_are_those_of_the_manifests() -> None:
    """Requests and limits; and the Sandboxes that are enough for them, by the rule of the page."""
    told = page("manifests/README.md")
    rule = re.search(r"is (\d+) MiB with nothing to do, and grows by (\d+) KiB per Sandbox", told)
    assert rule is not None
    empty, each = map(int, rule.groups())
    found = {
        one["name"]: [one["resources"][what]["memory"] for what in ("requests", "limits")]
        for _, one in containers()
        if "image" in one
    }
    names = {"drop-in": "agent-sandbox-controller", "sidecar": "lean-sandbox"}
    listed = rows("manifests/README.md", "Sizes")
    assert {row[0] for row in listed} == names.keys()
    for name, request, limit, enough in listed:
        said = [one.removesuffix("B").replace(" ", "") for one in (request, limit)]
        assert said == found[names[name]], name
        count = int(re.sub(r"\D", "", enough))
        # A start takes a tenth more. The number is rounded down.
        needed = (empty + each * count / 1024) * 1.1
        assert 0.85 * int(limit.split()[0]) <= needed <= int(limit.split()[0]), name


def test_the_ports_of_the_sidecar_are_those_of_the_page() -> None:
    """Whoever writes a policy of their own reads them there."""
    (ports,) = (
        one["ports"] for _, one in containers() if one["name"] == "lean-sandbox" and "ports" in one
    )
    first, second = (one["containerPort"] for one in ports)
    assert f"Treat its ports, {first} and {second}," in page("manifests/README.md")


def test_pages_name_this_version_and_the_pythons_that_it_supports() -> None:
    """A release changes them together."""
    named = (
        r"(?:lean-sandbox|\$IMAGE):(\d[\w.]*\w)|image\.tag=(\d[\w.]*\w)|newTag: (\d[\w.]*\w)"
        r"|It is version ([\d.]+)\."
    )
    told = [one for one in PAGES for match in re.findall(named, one.read_text()) for one in match]
    assert {one for one in told if one} == {__version__}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    span = f"{pythons[0]} to {pythons[-1]}"
    assert f"You need Python {span}" in page("README.md")
    assert f"You need Python {span}" in page("CONTRIBUTING.md")
    assert f"| Python | {span};" in page("docs/compatibility.md")
    dockerfile = (ROOT / "manifests/image/Dockerfile").read_text()
    (image,) = re.findall(r"^ARG PYTHON=(3\.\d+)-slim-bookworm", dockerfile, re.MULTILINE)
    assert f"| image | Python {image} with libraries of Debian 12;" in page("docs/compatibility.md")
    assert f"The image has {image}," in page("docs/performance.md")


def test_what_is_tested_is_as_much_as_the_page_says() -> None:
    """Flows, edits, orders, attacks and the sizes of bursts, by the tests that have them."""
    told = page("docs/reliability.md")
    opened = [proof for proof in attacks().values() if proof[0].startswith("open:")]
    orders = len(two_at_once.SEEDS) * len(two_at_once.ELECTED)
    for count in (
        f"dies at a request of {len(FLOWS)} flows",
        f"{len(edits.EDITS)} edits, each write of these flows | one in {edits.STEP} in `.ci/run`",
        f"| {orders} orders in `.ci/run`",
        f"each write of {len(late_writes.NAMES)} flows",
        f"| 1 day, {len(MADE)} kinds |",
        f"| {overload.MANY:,} claims at a server that takes {overload.SLOW_S:g} s for each request",
        f"| {fairness.MANY:,} claims or Sandboxes of one tenant, or {fairness.MANY_THAT_HANG} of",
        f"| {len(attacks())}; {('none is', 'one is', 'two are')[len(opened)]} open and say why |",
    ):
        assert count in told
