"""The README says what is so: its flags, defaults and commands are those of the program."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from lean_sandbox.config.options import Settings, flag_of, shown_default

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_every_flag_stands_in_the_readme_with_its_default_and_meaning() -> None:
    """The table of flags is made of the settings; a change of one without the other fails."""
    listed = dict(re.findall(r"^\| `(--[a-z-]+)` \| (.*) \|$", README, flags=re.MULTILINE))
    wanted = {
        flag_of(option.name): f"{shown_default(option)} | {option.metadata['help']}"
        for option in fields(Settings)
    }
    assert listed == wanted


def test_every_file_the_readme_links_exists() -> None:
    """Links into the project lead somewhere."""
    linked = re.findall(r"\]\((?!https?://)([^)#]+)\)", README)
    named = re.findall(r"`((?:lean_sandbox|tests|filters|manifests)/[\w./-]+)`", README)
    assert linked
    assert named
    for path in (*linked, *named):
        assert (ROOT / path).exists(), path


def test_the_test_command_stands_where_the_pipeline_reads_it() -> None:
    """Exactly one command stands between the marks, and it runs pytest."""
    between = README.split("<!-- test-command -->")[1].split("<!-- /test-command -->")[0]
    commands = [line for line in between.splitlines() if line and not line.startswith("```")]
    assert len(commands) == 1
    assert commands[0].endswith("python -m pytest")
