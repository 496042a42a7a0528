"""`lean-sandbox top` over the wire: the embedded control plane, the controller, its listener."""

from __future__ import annotations

import importlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import anyio
import pytest

from lean_sandbox.cli import main
from lean_sandbox.config.sources import EXIT_CONFIG, EXIT_OK, EXIT_USAGE
from lean_sandbox.local.controlplane import ControlPlane
from tests.metrics.scrape import serving
from tests.model.crds.definitions import definitions
from tests.support.builders import claim
from tests.support.clients import cluster_admin
from tests.support.extensions import bound_name, open_claims, open_pools
from tests.support.names import CLAIMS
from tests.support.patience import PATIENCE_S
from tests.support.world import NS, sandbox

Json = dict[str, Any]
USER = "onlooker"


@pytest.fixture(autouse=True)
def _rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have rich, which a controller that ran in this process has hidden from it."""
    monkeypatch.setitem(sys.modules, "rich", importlib.import_module("rich"))


@asynccontextmanager
async def bare(*objects: Json, crds: list[Json] | None = None) -> AsyncIterator[ControlPlane]:
    """Open a server with these objects and no controller."""
    async with ControlPlane(crds=crds) as plane:
        name = {"metadata": {"name": NS}}
        plane.store.create({"apiVersion": "v1", "kind": "Namespace", **name})
        for one in objects:
            plane.store.create(one)
        yield plane


def typed(*words: str) -> tuple[int, str, str]:
    """Run a command line; return the exit code, and what it said on both outputs."""
    said, complained = io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(complained):
        code = main(["top", *words])
    return code, said.getvalue(), complained.getvalue()


async def look(plane: ControlPlane, folder: Path, *words: str) -> tuple[int, str, str]:
    """Look at a server as a user who may do everything."""
    plane.store.create(cluster_admin(USER, name=USER))
    return await look_as(plane, folder, *words)


async def look_as(plane: ControlPlane, folder: Path, *words: str) -> tuple[int, str, str]:
    """Look at a server with the rights that the user has."""
    path = str(plane.kubeconfig(folder / "kubeconfig", USER))
    return await anyio.to_thread.run_sync(lambda: typed("--kubeconfig", path, *words))


async def figures(plane: ControlPlane, folder: Path, *words: str) -> Json:
    """Return the JSON of a look."""
    code, said, complained = await look(plane, folder, "-o", "json", *words)
    assert (code, complained) == (EXIT_OK, "")
    found: Json = json.loads(said)
    return found


async def test_it_shows_the_pool_its_claims_and_what_is_refused(tmp_path: Path) -> None:
    """Free members, warm claims with the time they took, a refused one with its reason."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        name = bound_name(world)
        await world.advance(2.0)
        await world.create(claim("lost", pool="nowhere"))
        found = await figures(world.plane, tmp_path)
    (pool,) = found["pools"]
    counts = {key: pool[key] for key in ("desired", "free", "claimed", "warm", "waiting")}
    assert counts == {"desired": 2, "free": 1, "claimed": 1, "warm": 1, "waiting": 0}
    assert pool["free"] + pool["starting"] + pool["stuck"] == 2
    refused = found["not_ready"][0]
    assert (refused["reason"], refused["is_refused"]) == ("WarmPoolNotFound", True)
    assert (refused["example_name"], refused["count"]) == ("lost", 1)
    last, first = found["last_claims"]
    assert (last["name"], last["is_ready"], last["launch"]) == ("lost", False, "")
    assert (first["name"], first["sandbox"], first["launch"]) == ("c", name, "warm")
    assert first["took_ms"] is not None
    assert found["claims"]["until_ready"]["claims"] == 1
    assert found["claims"]["per_second"] is None
    assert found["controller"] is None
    assert found["problems"] == []


async def test_a_cold_claim_is_told_from_a_warm_one(tmp_path: Path) -> None:
    """A claim of an empty pool has a Sandbox of its own."""
    async with open_claims(replicas=0) as world:
        await world.create(claim())
        await world.run_pod("c")
        found = await figures(world.plane, tmp_path)
    (pool,) = found["pools"]
    assert (pool["claimed"], pool["warm"]) == (1, 0)
    assert found["last_claims"][0]["launch"] == "cold"


async def test_it_needs_no_controller(tmp_path: Path) -> None:
    """Objects that nobody serves are counted as they are."""
    async with bare(sandbox(), claim()) as plane:
        found = await figures(plane, tmp_path)
    assert found["sandboxes"] == {"total": 1, "ready": 0}
    assert {one["reason"] for one in found["not_ready"]} == {""}
    assert found["claims"]["until_ready"]["p50_ms"] is None


async def test_a_namespace_is_looked_at_alone(tmp_path: Path) -> None:
    """With -n neither objects of others are asked for nor shown."""
    async with bare(sandbox()) as plane:
        found = await figures(plane, tmp_path, "-n", "elsewhere")
        asked = {entry.path for entry in plane.audit.select(user=USER)}
    assert found["sandboxes"]["total"] == 0
    assert all("/namespaces/elsewhere/" in path for path in asked)


async def test_it_lists_and_watches_and_asks_for_nothing_else(tmp_path: Path) -> None:
    """Two lists of each kind, the first of one object, and at most one watch; nothing written."""
    async with open_claims("m1", "m2") as world:
        await world.create(claim())
        await figures(world.plane, tmp_path)
        asked = Counter(
            (entry.verb, entry.path.rpartition("/")[2].partition("?")[0])
            for entry in world.plane.audit.select(user=USER)
        )
    for kind in ("sandboxes", CLAIMS.partition(".")[0], "sandboxwarmpools"):
        assert asked.pop(("list", kind)) == 2
        assert asked.pop(("watch", kind), 0) <= 1
    assert not asked


@pytest.mark.parametrize("path", ["", "/", "/metrics"])
async def test_a_controller_says_of_itself_what_objects_do_not(tmp_path: Path, path: str) -> None:
    """With --url, of the listener or of its page: memory, and why a pool does not get on."""
    async with open_pools() as world, serving(world) as scraper:
        await scraper.get("/metrics")
        found = await figures(world.plane, tmp_path, "--url", scraper.url(path))
    said = found["controller"]
    assert said["memory_bytes"] > 1_000_000
    assert said["cores"] is None
    assert said["failing_watches"] == []
    assert found["problems"] == []


async def test_metrics_that_cannot_be_read_are_a_problem_not_an_end(tmp_path: Path) -> None:
    """The objects are shown all the same."""
    async with bare() as plane:
        found = await figures(plane, tmp_path, "--url", "http://127.0.0.1:9")
    (problem,) = found["problems"]
    assert problem.startswith("http://127.0.0.1:9/metrics cannot be read: ")
    assert found["controller"] is None


async def test_a_pipe_gets_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In plain text, cut at no height or width of a window, and by itself without a terminal."""
    monkeypatch.setenv("COLUMNS", "0")
    async with open_claims("m1") as world:
        for number in range(60):
            world.plane.store.create(claim(f"c{number}"))
        code, said, _ = await look(world.plane, tmp_path)
    assert code == EXIT_OK
    assert "\x1b" not in said
    assert said.count(f"{NS}/c") >= 50
    assert f"{NS}/pool" in said


# -- what can be wrong -----------------------------------------------------------------------------


def one_sentence(outcome: tuple[int, str, str]) -> str:
    """Return what a command that could not begin has complained of."""
    code, said, complained = outcome
    assert (code, said, complained.count("\n")) == (EXIT_CONFIG, "", 1)
    assert complained.startswith("lean-sandbox: ")
    return complained


async def test_no_rights_are_told_with_the_rights_that_are_missing(tmp_path: Path) -> None:
    """Verbs, resource and place; and the way to look at one namespace."""
    async with bare() as plane:
        told = one_sentence(await look_as(plane, tmp_path))
        within = one_sentence(await look_as(plane, tmp_path, "-n", "team-a"))
    assert "does not let you list sandboxes in all namespaces" in told
    assert "list and watch on sandboxes.agents.x-k8s.io" in told
    assert "-n NAMESPACE" in told
    assert "does not let you list sandboxes in namespace team-a" in within


@pytest.mark.parametrize(
    ("status", "said", "way_out"),
    [
        (401, "does not accept the credential of the kubeconfig", "log in again"),
        (429, ": list sandboxes.agents.x-k8s.io: 429", ""),
        (500, ": list sandboxes.agents.x-k8s.io: 500", ""),
    ],
)
async def test_a_server_that_refuses_is_told_with_its_answer(
    tmp_path: Path, status: int, said: str, way_out: str
) -> None:
    """And with the way out, where there is one."""
    async with bare() as plane:
        plane.fail_next("list", "sandboxes", status, times=100)
        told = one_sentence(await look(plane, tmp_path))
    assert said in told
    assert way_out in told


async def test_no_definitions_are_told_with_the_way_to_them(tmp_path: Path) -> None:
    """Without the kind Sandbox there is nothing to look at."""
    async with bare(crds=[]) as plane:
        told = one_sentence(await look(plane, tmp_path))
    assert "does not serve sandboxes.agents.x-k8s.io/v1beta1" in told
    assert "lean-sandbox crds | kubectl apply" in told


async def test_sandboxes_are_shown_where_claims_and_pools_are_not_served(tmp_path: Path) -> None:
    """And it is said that those are not."""
    core = [one for one in definitions().values() if one["spec"]["names"]["kind"] == "Sandbox"]
    async with bare(sandbox(), crds=core) as plane:
        found = await figures(plane, tmp_path)
    assert found["sandboxes"]["total"] == 1
    assert [one.partition(" ")[0].partition(".")[0] for one in found["problems"]] == [
        "sandboxclaims",
        "sandboxwarmpools",
    ]


@pytest.fixture
def nowhere(tmp_path: Path) -> str:
    """Return a kubeconfig of a server that does not answer."""
    path = tmp_path / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "clusters: [{name: k, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "users: [{name: u, user: {}}]\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
    )
    return str(path)


def test_no_cluster_is_told_with_its_address(nowhere: str) -> None:
    """At once, whether it is looked at once or live."""
    told = one_sentence(typed("--kubeconfig", nowhere, "--interval", "3600"))
    assert "no cluster answers at http://127.0.0.1:9" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        *((f"--url {url}", "--url: ") for url in ("foo", "ftp://x", "http://", "http://x:99999")),
        ("--url https://x --ca-file nowhere.crt", "--ca-file: nowhere.crt is not a certificate"),
        ("--context other", "there is no context 'other'"),
    ],
)
def test_a_flag_that_leads_nowhere_is_told(nowhere: str, words: str, told: str) -> None:
    """Before anything is asked."""
    assert told in one_sentence(typed("--kubeconfig", nowhere, *words.split()))


@pytest.mark.parametrize(
    "words",
    [*(f"--interval {text}" for text in ("0", "0.4", "3600.5", "x")), "-o yaml", "-n A_B"],
)
def test_wrong_usage_names_the_flag(words: str) -> None:
    """With the bounds, or the choices."""
    complained = io.StringIO()
    with pytest.raises(SystemExit) as end, redirect_stderr(complained):
        main(["top", *words.split()])
    assert end.value.code == EXIT_USAGE
    assert f"argument {words[:2]}" in complained.getvalue()


async def test_json_needs_no_library_for_terminals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen names the extra that brings it; JSON is printed without."""
    for name in [name for name in sys.modules if name.startswith("lean_sandbox.top.s")]:
        monkeypatch.delitem(sys.modules, name)
    async with bare() as plane:
        # The embedded server has read its rules with a library that needs it.
        monkeypatch.setitem(sys.modules, "rich", None)
        monkeypatch.setitem(sys.modules, "rich.console", None)
        await figures(plane, tmp_path)
        told = one_sentence(await look_as(plane, tmp_path))
    assert "lean-sandbox top needs rich" in told
    assert "pip install '.[top]'" in told


# -- on a terminal ---------------------------------------------------------------------------------


class Terminal:
    """A terminal in which the command runs."""

    def __init__(self, *words: str, **more: str) -> None:
        self._ours, theirs = pty.openpty()
        variables = {**os.environ, "TERM": "xterm", "COLUMNS": "90", "LINES": "30", **more}
        self.process = subprocess.Popen(  # noqa: S603 -- the command stands here
            [sys.executable, "-m", "lean_sandbox", "top", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={name: value for name, value in variables.items() if name != "NO_COLOR"},
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def read_until(self, words: str) -> None:
        """Read until something is shown, or the command has ended."""
        while words not in self.shown and (more := self._read()):
            self.shown += more
        assert words in self.shown, self.shown

    def end(self, by: signal.Signals) -> int:
        """Send a signal, read the rest, and return the exit code."""
        self.process.send_signal(by)
        while more := self._read():
            self.shown += more
        return self.process.wait()

    def _read(self) -> str:
        try:
            return os.read(self._ours, 65536).decode("utf-8", "replace")
        except OSError:
            # How a terminal ends when nobody has it open any more.
            return ""

    def close(self) -> None:
        """End the command, if it has not ended."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """Return a list of terminals, which are closed at the end."""
    opened: list[Terminal] = []
    yield opened
    for one in opened:
        one.close()


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
async def test_on_a_terminal_it_follows_what_happens_and_leaves_it_as_it_was(
    tmp_path: Path, terminals: list[Terminal], by: signal.Signals
) -> None:
    """A claim shows up without another look; at the end the screen and the cursor are back."""

    def play() -> int:
        terminals.append(Terminal("--kubeconfig", path, "--interval", "0.5"))
        (terminal,) = terminals
        terminal.read_until("0 of 1 Ready")
        anyio.from_thread.run_sync(lambda: world.plane.store.create(claim("another")))
        terminal.read_until(f"{NS}/another")
        return terminal.end(by)

    async with open_claims("m1") as world:
        world.plane.store.create(cluster_admin(USER, name=USER))
        world.plane.store.create(claim("first", pool="nowhere"))
        path = str(world.plane.kubeconfig(tmp_path / "kubeconfig", USER))
        code = await anyio.to_thread.run_sync(play)
    shown = terminals[0].shown
    assert code == EXIT_OK
    assert shown.index("\x1b[?1049h") < shown.index("another") < shown.rindex("\x1b[?1049l")
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert "Traceback" not in shown


async def test_a_terminal_that_can_replace_no_lines_gets_them_once(
    tmp_path: Path, terminals: list[Terminal]
) -> None:
    """Such as one inside of an editor: it is looked at once, here in ASCII alone."""

    def play() -> int:
        terminals.append(Terminal("--kubeconfig", path, TERM="dumb", PYTHONIOENCODING="ascii"))
        (terminal,) = terminals
        code = terminal.process.wait(PATIENCE_S)
        terminal.read_until("0 of 1 Ready")
        return code

    async with open_claims("m1") as world:
        world.plane.store.create(cluster_admin(USER, name=USER))
        world.plane.store.create(claim("first", pool="nowhere"))
        path = str(world.plane.kubeconfig(tmp_path / "kubeconfig", USER))
        code = await anyio.to_thread.run_sync(play)
    assert code == EXIT_OK
    assert "\x1b" not in terminals[0].shown
    assert "######" in terminals[0].shown


def test_what_is_wrong_at_the_start_is_told_on_the_normal_screen(
    nowhere: str, terminals: list[Terminal]
) -> None:
    """One line; the screen is not taken for it."""
    terminals.append(Terminal("--kubeconfig", nowhere))
    terminals[0].read_until("no cluster answers at http://127.0.0.1:9")
    assert terminals[0].process.wait() == EXIT_CONFIG
    assert "\x1b[?1049h" not in terminals[0].shown
