"""Takes the pictures of `lean-sandbox top` and of the page at ``/``: `.ci/tasks pictures`.

Of a local cluster with some pools, on which claims arrive. The page needs chromium.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import httpx
from lightkube import Client, KubeConfig
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from lean_sandbox.client import SandboxClaim, SandboxTemplate, SandboxWarmPool
from lean_sandbox.clock import SystemClock
from lean_sandbox.kube.kubeconfig import load
from lean_sandbox.top.figures import Figures
from lean_sandbox.top.look import Wanted, opened
from lean_sandbox.top.screen import draw
from tests.support.patience import PATIENCE_S

IMAGES: Final = Path(__file__).resolve().parents[2] / "docs" / "img"
NAMESPACE: Final = "default"
POOLS: Final = {"browser": 12, "node": 8, "python": 40}
CLAIMS: Final = (("node", 4), ("python", 30), ("browser", 9), ("pyhton", 1))
COLUMNS: Final = 112
# Until the pools are full; how long claims are watched before some come; from the last of them to
# the picture; from one to the next.
FILL_S: Final = 12.0
WATCHED_S: Final = 5.5
BEFORE_REFILL_S: Final = 0.4
PACE_S: Final = 0.08
# Fonts that the picture would load from elsewhere.
_FONTS: Final = re.compile(r"@font-face \{\{.*?\}\}", re.DOTALL)


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[Path, str]]:
    """Run a local cluster; gives its kubeconfig, and where its controller serves metrics."""
    kubeconfig, port = folder / "kubeconfig", 18987
    command = [sys.executable, "-m", "lean_sandbox", "local", "up", "--port", "0"]
    flags = ["--kubeconfig", str(kubeconfig), "--", f"--metrics-bind-address=127.0.0.1:{port}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, *flags], stdout=log, stderr=log)  # noqa: S603
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(100):
            try:
                httpx.get(url)
                break
            except httpx.TransportError:
                time.sleep(0.3)
        yield kubeconfig, url
    finally:
        process.terminate()
        process.wait()


def make(client: Client, kind: type[Any], name: str, spec: dict[str, Any]) -> None:
    """Create an object of a kind."""
    client.create(kind.from_dict({"metadata": {"name": name}, "spec": spec}), namespace=NAMESPACE)


def fill(client: Client) -> None:
    """Make the pools, of one template that leaves its claims no variables."""
    pod = {"spec": {"containers": [{"name": "main", "image": "python:3.12-slim"}]}}
    make(client, SandboxTemplate, "base", {"podTemplate": pod})
    for name, replicas in POOLS.items():
        spec = {"replicas": replicas, "sandboxTemplateRef": {"name": "base"}}
        make(client, SandboxWarmPool, name, spec)


def claim(client: Client) -> None:
    """Make claims, of which two are refused."""
    for pool, count in CLAIMS:
        for number in range(count):
            _claim(client, f"{pool}-user-{number}", pool)
    _claim(client, "with-a-secret", "python", env=[{"name": "KEY", "value": "x"}])


def _claim(client: Client, name: str, pool: str, **spec: Any) -> None:
    make(client, SandboxClaim, name, {"warmPoolRef": {"name": pool}, **spec})
    time.sleep(PACE_S)


async def look(kubeconfig: Path, url: str, client: Client) -> Figures:
    """Return what is to be seen a moment after claims have come."""
    clock = SystemClock()
    async with opened(load(str(kubeconfig)), clock, Wanted(url=url)) as seen:
        await clock.sleep(WATCHED_S)
        await anyio.to_thread.run_sync(partial(claim, client))
        await clock.sleep(BEFORE_REFILL_S)
        return seen.figures()


def as_svg(figures: Figures) -> str:
    """Return the screen as a picture that loads nothing from elsewhere."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False
    )
    console.print(draw(figures, width=COLUMNS, height=30))
    form = _FONTS.sub("", CONSOLE_SVG_FORMAT)
    return console.export_svg(title="lean-sandbox top", code_format=form, unique_id="top")


def photograph(url: str, folder: Path, to: Path) -> None:
    """Write what a browser shows."""
    browser = shutil.which("chromium")
    assert browser is not None, "there is no chromium"
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/browser"]
    what = ["--window-size=1000,800", "--virtual-time-budget=7000", f"--screenshot={to}", url]
    subprocess.run([browser, *flags, *what], check=True, capture_output=True, timeout=PATIENCE_S)  # noqa: S603


def main() -> None:
    """Write both pictures."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with cluster(folder) as (kubeconfig, url):
            client = Client(config=KubeConfig.from_file(kubeconfig), namespace=NAMESPACE)
            fill(client)
            time.sleep(FILL_S)
            figures = anyio.run(look, kubeconfig, url, client)
            (IMAGES / "top.svg").write_text(as_svg(figures), encoding="utf-8")
            photograph(f"{url}/", folder, IMAGES / "page.png")


if __name__ == "__main__":
    main()
