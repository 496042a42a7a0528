"""The page at ``/`` of the metrics listener, as a client and a browser see it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from lean_sandbox.http.page import FILE, content_policy
from lean_sandbox.metrics.families import FAMILIES
from tests.metrics.scrape import serving
from tests.support.builders import claim
from tests.support.extensions import open_claims
from tests.support.patience import PATIENCE_S
from tests.support.world import open_world

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


async def test_the_page_is_served_with_what_a_browser_may_do_with_it() -> None:
    """HTML of this origin alone: scripts and styles by their digest, requests to nobody else."""
    async with open_world() as world, serving(world) as scraper:
        answer = await scraper.get("/")
        head = await scraper.client.head(scraper.url("/"))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert policy == content_policy(answer.text)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "connect-src 'self'; base-uri 'none'" in policy
    assert head.content == b""
    assert head.headers["content-security-policy"] == policy


def test_the_page_needs_nothing_from_elsewhere() -> None:
    """No address of another host, no file besides it, and one script and style, which it holds."""
    text = FILE.read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"\bsrc=|<link|@import|url\(|\bon\w+=|style=|innerHTML|eval\(", text)
    assert (text.count("<script"), text.count("<style")) == (1, 1)
    assert set(re.findall(r'href="([^"]*)"', text)) == {"/metrics", "/debug/trace", "/debug/pprof/"}


def test_the_page_reads_families_that_exist() -> None:
    """What it names is what the controller counts."""
    text = FILE.read_text(encoding="utf-8")
    pattern = r'"((?:agent_sandbox|lean_sandbox|process|workqueue|leader|controller_r)\w*)"'
    named = set(re.findall(pattern, text))
    assert len(named) >= 9
    assert named <= FAMILIES.keys()


def test_a_controller_does_not_load_the_page_before_somebody_asks() -> None:
    """It costs the process nothing."""
    code = "import sys, lean_sandbox.manager.server; print('lean_sandbox.http.page' in sys.modules)"
    done = subprocess.run(  # noqa: S603 -- the command stands here
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium")
async def test_a_browser_shows_the_figures(tmp_path: Path) -> None:
    """The script runs under its policy, and fills in pools, claims and what is in the way."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        async with serving(world) as scraper:
            shown = await anyio.to_thread.run_sync(dom, scraper.url("/"), tmp_path)
    told = re.sub(r"<script>.*</script>", "", shown, flags=re.DOTALL)
    assert "<td>ns/pool</td>" in told, told
    assert "<dt>Claims since its start</dt><dd>1</dd>" in told
    assert "<dt>of these warm</dt><dd>100 %</dd>" in told
    assert "Nothing that it knows of" in told
    assert "what this replica says of itself" in told


def dom(url: str, folder: Path) -> str:
    """Return what a page has become after a few seconds of a browser's own time."""
    assert BROWSER is not None
    done = subprocess.run(  # noqa: S603 -- a browser of this machine, on a page of ours
        [
            BROWSER,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={folder}",
            "--virtual-time-budget=5000",
            "--dump-dom",
            url,
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return done.stdout
