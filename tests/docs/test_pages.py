"""The pages say what is so: flags, defaults, commands, metrics and paths are the program's."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from lean_sandbox import cli
from lean_sandbox.config.declare import flag_of
from lean_sandbox.config.options import OPTIONS
from lean_sandbox.metrics.families import FAMILIES
from lean_sandbox.model import names
from tests.docs import api
from tests.docs.pages import PAGES, ROOT, anchors, blocks, code, links, name

FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
README = (ROOT / "README.md").read_text()
# Flags of kubectl, helm, docker, velero, pytest and pip that the prose names by themselves.
_FOREIGN = {
    "--cascade",
    "--exclude-resources",
    "--force-conflicts",
    "--require-hashes",
    "--server-side",
}
_FOREIGN |= {"--platform", "--set", "--show-managed-fields", "--take-ownership", "--upgrade"}
# Of the reference, accepted and without effect; and the form of any flag.
_FOREIGN |= {"--enable-webhook", "--manage-webhook-certs", "--webhook-*", "--x"}
# Of log lines and metrics, and of reasons and kinds.
_SIGN = re.compile(r"[a-z]+(?:_[a-z]+)+|[A-Z][a-z]+(?:[A-Z][a-z]+)+")
_METRIC = re.compile(
    r"\b(?:lean_sandbox|agent_sandbox(?:es)?|controller_runtime|workqueue|rest_client)_[a-z_]+\b"
)
_SERIES = re.compile(r"_(?:bucket|sum|count)$")


def test_every_flag_stands_in_its_page_with_its_default_and_meaning() -> None:
    """The table of flags is made of the settings; a change of one without the other fails."""
    page = (ROOT / "docs" / "configuration.md").read_text()
    listed = dict(re.findall(r"^\| `(--[a-z-]+)` \| (.*) \|$", page, flags=re.MULTILINE))
    wanted = {
        flag_of(option.name): f"{option.shown(option.default)} | {option.help}"
        for option in OPTIONS.values()
    }
    assert listed == wanted


def test_every_metric_stands_in_its_page_with_its_labels_type_and_meaning() -> None:
    """The table of metrics is made of the families; a change of one without the other fails."""
    page = (ROOT / "docs" / "observability.md").read_text()
    listed = page.partition("\n## All metrics\n")[2].partition("|---|---|---|\n")[2]
    wanted = ""
    for family in FAMILIES.values():
        assert family.help
        labels = f"{{{', '.join(family.labels)}}}" if family.labels else ""
        bounds = ", ".join(f"{bound:g}" for bound in family.buckets)
        meaning = f"{family.help} Buckets: {bounds}." if bounds else family.help
        wanted += f"| `{family.name}{labels}` | {family.kind} | {meaning} |\n"
    assert listed == wanted


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_within_the_project_leads_somewhere(page: Path) -> None:
    """To a file, and to a heading of it; the paths that are named are there as well."""
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
    for path in code(page):
        if re.fullmatch(r"(?:lean_sandbox|tests|filters|manifests|docs)/[\w./-]+", path):
            assert (ROOT / path).exists(), path


def test_every_page_is_in_the_index() -> None:
    """Whoever looks for an answer finds its page."""
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert {page for page in PAGES if page != index} <= listed


@functools.cache
def help_of(*words: str) -> str:
    """Return the help of a command, empty if there is no such command."""
    said = io.StringIO()
    code: str | int | None
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = cli.main([*words, "--help"])
        except SystemExit as end:
            code = end.code
    return said.getvalue() if not code else ""


def flags(text: str) -> set[str]:
    """Return the long flags that a text names."""
    return set(re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", text))


def calls(page: Path) -> list[str]:
    """Return every call of the program on a page, in blocks and in the text."""
    typed = [line for block in blocks(page, "sh") for line in block.text.splitlines()]
    return [
        re.split(r" \\?[|&#>;]|\)", call)[0]
        for line in [*typed, *code(page)]
        for call in re.findall(r"(?:^|[|&;(/] ?)lean-sandbox (.*)", line)
    ]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_of_the_program_exists_with_its_flags(page: Path) -> None:
    """What the page calls has a help, and each flag stands in it."""
    for call in calls(page):
        verb = re.match(r"local [a-z]+|[a-z]*", call)
        assert verb is not None
        told = help_of(*verb[0].split())
        assert told, call
        assert flags(call) <= flags(told), call


@pytest.mark.parametrize("page", [*PAGES, *FORMS], ids=name)
def test_every_command_of_the_program_is_understood(page: Path) -> None:
    """With its words in their order, as whoever copies it types them."""
    for call in calls(page):
        words = shlex.split(call.partition(" -- ")[0])
        assert help_of(*words), call


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_flag_exists_that_is_named_by_itself(page: Path) -> None:
    """It is one of `run`, or of another command."""
    known = _FOREIGN | {flag_of(option) for option in OPTIONS}
    known |= {flag for call in calls(page) for flag in flags(help_of(call.split()[0]))}
    known |= flags(help_of("bench")) | flags(help_of("local", "up")) | flags(help_of("trace"))
    named = {word.partition("=")[0] for word in code(page) if word.startswith("--")}
    assert {one.split()[0] for one in named} <= known


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_nothing_is_installed_by_a_name_that_nobody_has_published(page: Path) -> None:
    """There is no release: whatever a registry gives by our name is not ours."""
    assert not re.search(r"pip\s+install\s+(-\S+ )*'?lean-sandbox", page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_metric_exists(page: Path) -> None:
    """A query that is copied from a page finds series."""
    named = {_SERIES.sub("", one) for one in _METRIC.findall(page.read_text())}
    assert named <= FAMILIES.keys()


@pytest.mark.parametrize("page", ["troubleshooting.md", "observability.md"])
def test_every_sign_that_a_page_tells_to_look_for_is_given(page: str) -> None:
    """Log lines, reasons, Events and alerts are the controller's; lines are named as Events are."""
    named = {one for one in code(ROOT / "docs" / page) if _SIGN.fullmatch(one)}
    sources = "".join(one.read_text() for one in (ROOT / "lean_sandbox").rglob("*.py"))
    alerts = (ROOT / "manifests/components/alerts/prometheusrule.yaml").read_text()
    given = {*re.findall(r'"(\w+)"|\b(\w+)=', sources), *re.findall(r"alert: ((\w+))", alerts)}
    words = {word for pair in given for word in pair}
    words |= {re.sub(r"(?<!^)(?=[A-Z])", "_", one).lower() for one in words}
    assert named - FAMILIES.keys() - words == set()


def test_every_reason_why_something_is_not_ready_stands_in_its_page() -> None:
    """Whoever looks one up finds the cause, and what to do; those of what is well are left out."""
    fine = {
        names.REASON_DEPENDENCIES_READY,
        names.REASON_NOT_SUSPENDED,
        names.REASON_POD_SCHEDULED,
        names.REASON_POD_SCHEDULING_UNKNOWN,
        names.REASON_POD_TERMINATED,
    }
    reasons = {value for name, value in vars(names).items() if name.startswith("REASON_")}
    assert reasons.difference(code(ROOT / "docs/troubleshooting.md")) <= fine


def test_other_pages_show_the_figures_of_the_page_on_performance() -> None:
    """No table and no picture is left behind when something is measured anew."""
    page = (ROOT / "docs" / "performance.md").read_text()
    picture = (ROOT / "docs" / "img" / "claims.svg").read_text()
    axis = re.compile(r"<text[^>]*middle[^>]*>.*?</text>")
    compared = (ROOT / "docs" / "comparison.md").read_text().split("## OpenKruise")[0]
    for text in (README.split("## Try")[0], axis.sub("", picture), compared):
        figures = set(re.findall(r"\d+\.?\d* (?:s|ms|MiB)\b", text))
        assert figures
        assert {figure for figure in figures if figure not in page} == set()


_FIGURE = re.compile(r"(?:[\d.]+ to )?[\d.]+(?:,\d+)* (?:s|ms|milliseconds)\b")


@pytest.mark.parametrize(
    ("page", "begin", "end"),
    [
        ("comparison.md", "## The reference", "## OpenKruise"),
        ("faq.md", "**Is it faster,", "**Why Python?**"),
    ],
)
def test_pages_compare_by_the_times_of_the_front_page(page: str, begin: str, end: str) -> None:
    """Whoever reads two pages finds one figure for one thing, not one of each day."""
    text = (ROOT / "docs" / page).read_text().split(begin)[1].split(end)[0]
    front = README.split("## Try")[0]
    found = set(_FIGURE.findall(" ".join(text.split())))
    assert found
    assert found <= set(_FIGURE.findall(" ".join(front.split())))


def test_the_front_page_fits_on_two_screens() -> None:
    """Whoever opens the project reads what it is and how to begin; the rest has its pages."""
    assert len(README.splitlines()) <= 115


def test_no_code_of_the_front_page_is_wider_than_the_page() -> None:
    """A line that has to be scrolled is not read, and hides what is at its end."""
    front = ROOT / "README.md"
    lines = [one for block in blocks(front, "sh", "yaml") for one in block.text.splitlines()]
    assert max(map(len, lines)) <= 107


def test_the_test_command_stands_where_the_pipeline_reads_it() -> None:
    """Exactly one command stands between the marks, and it runs pytest."""
    between = README.split("<!-- test-command -->")[1].split("<!-- /test-command -->")[0]
    commands = [line for line in between.splitlines() if line and not line.startswith("```")]
    assert len(commands) == 1
    assert commands[0].endswith("python -m pytest -n auto")


def test_every_folder_of_tests_stands_in_the_map_of_the_tests() -> None:
    """Who changes something finds where it is tested."""
    tests = ROOT / "tests"
    map_ = (tests / "README.md").read_text().split("## Which folder")[1].split("\n## ")[0]
    folders = {one.parent.relative_to(tests).as_posix() for one in tests.rglob("test_*.py")} - {"."}
    assert folders <= set(re.findall(r"`([\w/]+)/`", map_))


def test_the_tests_of_a_package_are_in_the_folder_of_its_name() -> None:
    """The map has a row for every package and every command's module, and names its folder."""
    map_ = (ROOT / "tests" / "README.md").read_text().split("## Which folder")[1]
    rows = dict(re.findall(r"^\| `([\w/.]+?)/` \|.*\|(.+?)\|$", map_, re.MULTILINE))
    product = ROOT / "lean_sandbox"
    rooms = {
        one.relative_to(product).as_posix()
        for one in [*product.iterdir(), *(product / "controllers").iterdir()]
        if (one / "__init__.py").exists()
    }
    assert rooms <= set(rows)
    for room, folders in rows.items():
        assert (product / room).is_dir(), room
        assert f"`{room.removeprefix('../')}/`" in folders, room


def test_every_module_of_support_has_its_row() -> None:
    """And every row its module: who needs a helper finds it before he writes it again."""
    page = (ROOT / "tests" / "README.md").read_text()
    rows = page.split("## What is in `support/`")[1].split("```")[0]
    named = re.findall(r"^\| `(\w+\.py)` \|", rows, re.MULTILINE)
    there = {one.name for one in (ROOT / "tests" / "support").glob("*.py")} - {"__init__.py"}
    assert sorted(named) == sorted(there)


async def test_the_example_for_tests_is_one() -> None:
    """What the page on the tests shows runs and passes."""
    page = (ROOT / "tests" / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    made: dict[str, Any] = {}
    exec(example, made)  # noqa: S102 -- our own page
    (law,) = (value for name, value in made.items() if name.startswith("test_"))
    await law()


def test_the_page_on_the_api_is_made_of_the_definitions() -> None:
    """`python -m tests.docs.api` writes it; a field without a meaning would show as one."""
    assert api.PAGE.read_text(encoding="utf-8") == api.written()
    assert not re.findall(r"^\| `(?:spec|status)\S*` \|.*\|  \|$", api.written(), re.MULTILINE)
