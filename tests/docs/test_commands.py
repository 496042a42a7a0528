"""What the pages tell people to type is typed here, or the page says why it is not.

A ``sh`` block is run unless the line before it is a comment: ``<!-- not run: why -->``, or
``<!-- run by: tests/... -->`` where another test carries it out. The blocks of one page are one
script. It runs in a folder with the examples and the manifests, against an embedded control plane
with the controller, which ``lean-sandbox local up -d`` of the page then does not start again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.client.embedded import open_embedded
from tests.docs.pages import MARK, PAGES, ROOT, Block, blocks, name
from tests.support.patience import PATIENCE_S

Json = dict[str, Any]
# The cluster is there, and its kubeconfig lies where the page's reader finds it.
_SHELL = """
lean-sandbox() { case "$*" in "local up"*|"local down"*) ;; *) command lean-sandbox "$@" ;; esac; }
"""
EVERY = [(page, block) for page in PAGES for block in blocks(page, "sh", "bash", "shell")]
RUN = [page for page in PAGES if any(not one.mark for one in blocks(page, "sh"))]


def test_every_block_is_of_a_language_that_is_looked_at() -> None:
    """A command in a block without a language, or of another shell, would never be run."""
    known = {"sh", "yaml", "python", "promql", "text", "json", "mermaid"}
    for page in PAGES:
        found = {line[3:] for line in page.read_text().splitlines() if line.startswith("```")}
        assert found <= known | {""}, name(page)
        assert len(blocks(page, *known)) == len(blocks(page, *known, "")), name(page)


@pytest.mark.parametrize(("page", "block"), EVERY, ids=lambda one: getattr(one, "stem", ""))
def test_every_mark_gives_a_reason_or_a_test_of_the_page(page: Path, block: Block) -> None:
    """A block that is not run here says why, or which test runs it; that test names the page."""
    if not block.mark:
        return
    mark = MARK.fullmatch(block.mark)
    assert mark is not None, f"{block.mark} stands before: {block.text}"
    if mark[1] == "run by":
        test = ROOT / mark[2]
        sources = test.rglob("*.py") if test.is_dir() else [test]
        assert any(page.name in source.read_text() for source in sources), mark[2]


def test_the_python_of_every_page_is_run_by_a_test_that_names_the_page() -> None:
    """How, each of these tests knows: as one program, as several, with another name or port."""
    tests = [one for one in (ROOT / "tests").rglob("test_*.py") if one.parent.name != "docs"]
    tests += [ROOT / "tests/docs" / one for one in ("test_first_test.py", "test_run_code.py")]
    sources = [one.read_text() for one in tests]
    for page in PAGES:
        if page != ROOT / "tests" / "README.md" and blocks(page, "python"):
            assert any(f'"{page.name}"' in source for source in sources), name(page)


@pytest.mark.parametrize("page", RUN, ids=name)
def test_the_commands_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    """Every command of the page succeeds, one after the other, in one shell."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    work = tmp_path / "work"
    work.mkdir()
    for folder in ("examples", "manifests"):
        (work / folder).symlink_to(ROOT / folder)
    script = _SHELL + "\n".join(block.text for block in blocks(page, "sh") if not block.mark)
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with open_embedded(tmp_path) as cluster:
        shutil.copy(cluster.kubeconfig, work / "lean-sandbox.kubeconfig")
        done = subprocess.run(  # noqa: S603 -- our own page
            ["bash", "-euxo", "pipefail", "-c", script],  # noqa: S607 -- as a reader's shell
            env={"PATH": tools, "HOME": str(tmp_path), "KUBECONFIG": cluster.kubeconfig},
            cwd=work,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def _documents() -> list[Any]:
    return [
        pytest.param(document, id=f"{name(page)}-{document['kind']}")
        for page in PAGES
        for block in blocks(page, "yaml")
        for document in yaml.safe_load_all(block.text)
        if str(document.get("apiVersion", "")).endswith("agents.x-k8s.io/v1beta1")
    ]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the address of a server that knows all kinds."""
    with open_embedded(tmp_path_factory.mktemp("plane")) as cluster:
        config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
        yield config["clusters"][0]["cluster"]["server"]


@pytest.mark.parametrize("document", _documents())
def test_every_object_of_a_page_is_valid(url: str, document: Json) -> None:
    """The server takes it, and no field is unknown to the definitions."""
    plural = {"Sandbox": "sandboxes"}.get(document["kind"], f"{document['kind'].lower()}s")
    path = f"/apis/{document['apiVersion']}/namespaces/default/{plural}"
    strictly = {"dryRun": "All", "fieldValidation": "Strict"}
    answer = httpx.post(url + path, params=strictly, json=document)
    assert answer.status_code == 201, answer.text
