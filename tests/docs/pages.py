"""The pages of the project, and what stands in them: blocks, headings, links, code."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "EXAMPLES",
    "MARK",
    "PAGES",
    "ROOT",
    "Block",
    "anchors",
    "blocks",
    "code",
    "links",
    "name",
]

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / one for one in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "manifests").rglob("*.md")),
]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
MARK = re.compile(r"<!-- (run by|not run): (.+) -->|<!-- (test-command) -->")
_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page, and the comment on the line before it, if it is one."""

    language: str
    text: str
    mark: str


def name(page: Path) -> str:
    """Return the path of a page from the project's root: how tests and messages call it."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[Block]:
    """Return the fenced blocks of a page that are of one of these languages."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        if match["language"] in languages:
            before = text[: match.start()].rstrip("\n").rpartition("\n")[2].strip()
            mark = before if before.startswith("<!--") else ""
            found.append(Block(match["language"], textwrap.dedent(match["text"]), mark))
    return found


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def code(page: Path) -> list[str]:
    """Return what stands between backticks in the prose of a page."""
    return [one.replace("\n", " ") for one in re.findall(r"`([^`]+)`", prose(page))]


def links(page: Path) -> list[str]:
    """Return where a page links to within the project: a path, an anchor, or both."""
    return re.findall(r"\]\((?!https?://)([^)\s]+)\)", prose(page)) + re.findall(
        r'(?:src|srcset|href)="(?!https?://)([^"]+)"', prose(page)
    )


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
