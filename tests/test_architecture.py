"""Imports point downwards only: proven from the syntax trees."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Room -> the rooms of this project that it may import. Everything may import the LEAVES,
# which import nothing of the project.
ALLOWED: dict[str, set[str]] = {
    "filters": set(),
    "model": set(),
    "metrics": set(),
    "kube": {"metrics", "model"},
    "watch": {"kube", "filters", "metrics", "model"},
    "runtime": {"watch", "kube", "metrics"},
    "config": {"filters", "model", "watch"},
    "controllers": {"config", "runtime", "watch", "filters", "kube", "metrics", "model"},
    "companions": {
        "config",
        "controllers",
        "filters",
        "kube",
        "metrics",
        "model",
        "runtime",
        "watch",
    },
    "http": {"metrics"},
    "local": {"filters", "model", "kube", "watch"},
    "manager": {
        "companions",
        "config",
        "controllers",
        "filters",
        "http",
        "kube",
        "metrics",
        "model",
        "runtime",
        "trace",
        "watch",
    },
    "top": {"filters", "kube", "model", "watch"},
    "trace": {"filters", "http", "kube", "model", "runtime", "watch"},
    "bench": {"config", "kube", "local", "model"},
    "demo": {"bench", "client", "config", "kube", "local", "manager", "metrics", "model"},
}
# The folders of the embedded control plane, and its store, likewise: the modules outside them that
# are below them all are LOCAL_LEAVES, the others may import everything.
LOCAL: dict[str, set[str]] = {
    "schema": set(),
    "store": set(),
    "write": {"schema", "store"},
    "read": {"schema", "store"},
    "access": {"schema", "store", "write"},
    "http": {"schema", "store", "write", "read", "access"},
    "kubelet": set(),
}
LOCAL_LEAVES = {"errors", "files", "kinds", "recorded", "request"}
LEAVES = {
    "clock",
    "errors",
    "log",
    "program",
    "rates",
    "signals",
    "threads",
    "turns",
    "version",
    "words",
}
# Third-party packages a room may use besides the standard library; None is any.
LIBRARIES: dict[str, set[str] | None] = {
    "filters": set(),
    "model": {"msgspec"},
    "controllers": {"cachetools", "msgspec", "structlog", "anyio"},
    "watch": {"msgspec", "structlog", "anyio"},
}


def modules(room: str) -> Iterator[Path]:
    """Yield the modules of a room."""
    base = ROOT / "filters" if room == "filters" else ROOT / "lean_sandbox" / room
    module = base.with_suffix(".py")
    paths = [module] if module.is_file() else sorted(base.rglob("*.py"))
    assert paths, f"{room}: no modules; renamed?"
    yield from paths


def imported(path: Path) -> Iterator[str]:
    """Yield every module name that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            if node.module == "lean_sandbox":
                yield from (f"lean_sandbox.{alias.name}" for alias in node.names)


def room_of(name: str) -> str | None:
    """Return the room of an imported module, ``None`` for other people's."""
    parts = name.split(".")
    if parts[0] == "filters":
        return "filters"
    if parts[0] == "lean_sandbox":
        return parts[1] if len(parts) > 1 else ""
    return None


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_a_room_imports_only_rooms_below_it(room: str) -> None:
    """A room imports itself, the rooms below it and nothing else of the project."""
    paths = list(modules(room))
    assert paths, f"the room {room} is gone"
    for path in paths:
        for name in imported(path):
            target = room_of(name)
            if target in (None, "", room) or target in LEAVES:
                continue
            assert target in ALLOWED[room], f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("folder", sorted(LOCAL))
def test_a_folder_of_the_embedded_control_plane_imports_only_folders_below_it(folder: str) -> None:
    """Its server is read from below: kinds, schemas, store, writes and reads, then the listener."""
    for path in modules(f"local/{folder}"):
        for name in imported(path):
            parts = name.split(".")
            if parts[:2] != ["lean_sandbox", "local"] or len(parts) == 2:
                continue
            below = LOCAL[folder] | LOCAL_LEAVES | {folder}
            assert parts[2] in below, f"{path.relative_to(ROOT)} imports {name}"


def test_every_folder_of_the_embedded_control_plane_has_its_place() -> None:
    """A new folder is entered above."""
    base = ROOT / "lean_sandbox" / "local"
    assert {path.parent.name for path in base.glob("*/__init__.py")} == set(LOCAL) - {"store"}


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_a_room_uses_what_it_may_import(room: str) -> None:
    """An arrow that nothing uses is no rule: it goes."""
    used = {room_of(name) for path in modules(room) for name in imported(path)}
    assert ALLOWED[room] - used == set()


@pytest.mark.parametrize("room", sorted(LIBRARIES))
def test_a_room_uses_only_the_libraries_it_declares(room: str) -> None:
    """The inner rooms depend on few libraries; filters on none at all."""
    allowed = LIBRARIES[room]
    assert allowed is not None
    for path in modules(room):
        for name in imported(path):
            top = name.split(".")[0]
            if room_of(name) is not None or top in sys.stdlib_module_names:
                continue
            assert top in allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_no_modules_import_each_other() -> None:
    """No circle, not even one that a late import or one for types alone would hide."""
    paths = [path for base in ("filters", "lean_sandbox") for path in (ROOT / base).rglob("*.py")]
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }
    graph = {
        name: {one for one in _modules_imported(path) if one in names} - {name}
        for name, path in names.items()
    }
    assert len(graph) > 50
    TopologicalSorter(graph).prepare()


def _modules_imported(path: Path) -> Iterator[str]:
    """Yield the imported modules, and what may be one: a name imported from a package."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_reconcilers_do_not_import_each_other() -> None:
    """What reconcilers share goes through the cache and the queues."""
    base = ROOT / "lean_sandbox" / "controllers"
    kinds = {path.name for path in base.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert len(kinds) > 1
    for kind in kinds:
        for path in sorted((base / kind).rglob("*.py")):
            for name in imported(path):
                parts = name.split(".")
                if parts[:2] == ["lean_sandbox", "controllers"] and len(parts) > 2:
                    assert parts[2] not in kinds - {kind}, f"{path}: {name}"


def test_nothing_below_the_application_uses_asyncio() -> None:
    """Structured concurrency only: asyncio stays with the embedded server's HTTP library.

    The one other user is told by the event loop that a socket can be read, or that a deadline has
    come, and starts no task.
    """
    told = ROOT / "lean_sandbox" / "kube" / "sockets.py"
    for room in set(ALLOWED) - {"local"}:
        for path in set(modules(room)) - {told}:
            assert "asyncio" not in {name.split(".")[0] for name in imported(path)}, path
    text = told.read_text()
    used = re.findall(r"asyncio\.(\w+)|_loop\.(\w+)", text)
    assert {one for found in used for one in found if one} == {
        "get_running_loop",
        "add_reader",
        "remove_reader",
        "create_future",
        "Future",
        "call_at",
        "time",
        "TimerHandle",
    }


@pytest.mark.parametrize("base", ["filters", "lean_sandbox", "tests"])
def test_no_module_is_longer_than_four_hundred_and_twenty_lines(base: str) -> None:
    """Nobody has to read more than that at a time, of the product or of its tests."""
    paths = list((ROOT / base).rglob("*.py"))
    assert len(paths) > 5
    lengths = {path: len(path.read_text().splitlines()) for path in paths}
    assert not {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > 420}


def test_no_test_is_imported() -> None:
    """What tests share is in ``tests/support`` or beside them, under a name that says what it is.

    The one that compares pages with what tests count has to ask the tests.
    """
    tests = ROOT / "tests"
    paths = sorted({*tests.rglob("*.py")} - {tests / "docs" / "test_numbers.py"})
    assert len(paths) > 100
    for path in paths:
        for name in _modules_imported(path):
            parts = name.split(".")
            if parts[0] == "tests":
                files = [tests.joinpath(*parts[1:end]).with_suffix(".py") for end in (-1, None)]
                found = [one.name for one in files if one.name.startswith("test_") and one.exists()]
                assert not found, f"{path.relative_to(ROOT)} imports {name}"


# What runs text as a program: exec, eval, a shell; what makes any object of bytes: pickle, marshal,
# a YAML loader that is not safe; and a temporary name that somebody else may take first.
FORBIDDEN = "S102,S301,S302,S306,S307,S506,S602,S604,S605,S609"


def calls(*paths: Path) -> set[str]:
    """Return the rules of FORBIDDEN that files break, whatever their comments ask to overlook."""
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--ignore-noqa", "--no-cache"]
    options = ["--select", FORBIDDEN, "--output-format", "json"]
    done = subprocess.run(  # noqa: S603 -- the command stands here
        [*ruff, *options, *map(str, paths)], capture_output=True, text=True, check=False
    )
    assert not done.stderr, done.stderr
    return {one["code"] for one in json.loads(done.stdout)}


def test_no_text_becomes_a_program_and_no_bytes_any_object() -> None:
    """Neither the controller nor the commands make code, a shell or an object of what they read."""
    assert calls(ROOT / "filters", ROOT / "lean_sandbox") == set()


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("exec(text)", "S102"),
        ("eval(text)", "S307"),
        ("import os; os.system(text)", "S605"),
        ("import subprocess; subprocess.run(text, shell=True)", "S602"),
        ("import pickle; pickle.loads(text)", "S301"),
        ("import marshal; marshal.loads(text)", "S302"),
        ("import yaml; yaml.load(text, yaml.Loader)", "S506"),
        ("import tempfile; tempfile.mktemp()", "S306"),
    ],
)
def test_such_a_call_would_be_found(line: str, rule: str, tmp_path: Path) -> None:
    """The check sees each of them, also where a comment says that it should not."""
    path = tmp_path / "module.py"
    path.write_text(f'text = "1"\n{line}  # noqa\n')
    assert calls(path) == {rule}
