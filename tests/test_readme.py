"""The pages say what is so: flags, defaults, commands and paths are those of the program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lean_sandbox.config.options import OPTIONS, flag_of

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
FRONT = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in FRONT), *sorted((ROOT / "docs").glob("*.md"))]


def test_every_flag_stands_in_its_page_with_its_default_and_meaning() -> None:
    """The table of flags is made of the settings; a change of one without the other fails."""
    page = (ROOT / "docs" / "configuration.md").read_text()
    listed = dict(re.findall(r"^\| `(--[a-z-]+)` \| (.*) \|$", page, flags=re.MULTILINE))
    wanted = {
        flag_of(option.name): f"{option.shown(option.default)} | {option.help}"
        for option in OPTIONS.values()
    }
    assert listed == wanted


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_a_page_links_exists(page: Path) -> None:
    """Links into the project lead somewhere, and so do the paths that are named."""
    text = page.read_text()
    for path in re.findall(r"\]\((?!https?://|#)([^)#]+)(?:#[^)]*)?\)", text):
        assert (page.parent / path).exists(), path
    for path in re.findall(r"`((?:lean_sandbox|tests|filters|manifests)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path


def test_the_front_page_fits_on_two_screens() -> None:
    """Whoever opens the project reads what it is and how to begin; the rest has its pages."""
    assert len(README.splitlines()) <= 130


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
    folders = {path.name for path in tests.iterdir() if any(path.glob("*.py"))} - {"support"}
    assert set(re.findall(r"`(\w+)/`", map_)) == folders


async def test_the_example_for_tests_is_one() -> None:
    """What the page on the tests shows runs and passes."""
    page = (ROOT / "tests" / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    made: dict[str, Any] = {}
    exec(example, made)  # noqa: S102 -- our own page
    (law,) = (value for name, value in made.items() if name.startswith("test_"))
    await law()
