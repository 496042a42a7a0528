"""Which tests run which parts of the product, recorded in a copy that notes where it has been.

Each block of each function begins with a call that notes its name. As a plugin of pytest, this
module writes down after each test what has been noted, into a file for each file of tests, which
is named by the hash of that file: what has changed is recorded again.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.mutants.copies import ROOT, copy_project, environment, heed_signals
from tests.mutants.sites import Site, blocks, defined, modules

__all__ = ["LEFT_OUT", "Reach", "folders_of", "forget_computed", "record", "unrecorded"]

# What tests other things than the core, or takes long for what shorter tests notice.
LEFT_OUT = {
    "bench",
    "client",
    "conformance",
    "controlplane",
    "demo",
    "docs",
    "integrations",
    "local",
    "mutants",
    "test_crashes.py",
    "test_edits_behind_writes.py",
    "test_overload.py",
    "test_relays.py",
    "test_stories.py",
}
# How much more a test is worth that is in the folder of the module's package.
_OF_PACKAGE = 10.0
_FOLDER = "SANDBOX_TESTS_REACHED"
# Processes that tests start write it down when they end.
_NOTES = f"""
import atexit, os
seen = set()
folder = os.environ.get("{_FOLDER}")
if folder is not None:
    pid = os.getpid()
    @atexit.register
    def _write():
        if os.getpid() == pid and seen:
            with open(os.path.join(folder, f"process-{{pid}}"), "w") as file:
                file.write("\\n".join(seen))
"""


def files_of_tests() -> list[str]:
    """Return the files whose tests are asked, as paths below the root."""
    found = (one.relative_to(ROOT) for one in (ROOT / "tests").glob("*/**/test_*.py"))
    return sorted(one.as_posix() for one in found if not LEFT_OUT.intersection(one.parts))


def _key(root: Path, file: str) -> str:
    # Records without this word have times of the wall clock.
    return hashlib.sha256(b"cpu " + (root / file).read_bytes()).hexdigest()


# In the copy.


def instrument(root: Path) -> None:
    """Let the product below a root note which of its blocks are run."""
    (root / "reached.py").write_text(_NOTES, encoding="utf-8")
    for path in modules(root):
        tree = ast.parse((root / path).read_text(encoding="utf-8"))
        for name, statements in list(blocks(path, tree)):
            note = ast.Expr(ast.Call(ast.Name("_reached"), [ast.Constant(name)], []))
            statements.insert(1 if _is_text(statements[0]) else 0, note)
        place = 1 if tree.body and _is_text(tree.body[0]) else 0
        if len(tree.body) > place and getattr(tree.body[place], "module", "") == "__future__":
            place += 1
        tree.body[place:place] = ast.parse("from reached import seen\n_reached = seen.add").body
        text = ast.unparse(ast.fix_missing_locations(tree))
        (root / path).write_text(text, encoding="utf-8")


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


_lines: list[str] = []


def pytest_configure() -> None:
    """Let tests send signals."""
    heed_signals()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, Any, Any]:
    """Write down what a test has run, and how much CPU it took."""
    import reached  # type: ignore[import-not-found]  # noqa: PLC0415 - written by `instrument`

    folder = Path(os.environ[_FOLDER])
    reached.seen.clear()
    began_s = _cpu_s()
    result = yield
    took_s = _cpu_s() - began_s
    seen = set(reached.seen)
    for file in folder.glob("process-*"):
        seen.update(file.read_text(encoding="utf-8").split("\n"))
        file.unlink()
    path, _, name = item.nodeid.partition("::")
    _lines.append(json.dumps([name, round(took_s, 3), sorted(seen)]))
    if nextitem is None or not nextitem.nodeid.startswith(f"{path}::"):
        (folder / _key(item.config.rootpath, path)).write_text("\n".join(_lines), "utf-8")
        _lines.clear()
        # What one file of tests has computed, the next runs as well.
        forget_computed("_reached")
    return result


def _cpu_s() -> float:
    """Return the seconds of CPU so far: other work beside a test does not change what it takes."""
    return sum(os.times()[:4])


def forget_computed(mark: str) -> None:
    """Empty the memories of modules that have a name: all is computed again."""
    for module in [*sys.modules.values()]:
        names = getattr(module, "__dict__", {})
        for one in [*names.values()] if mark in names else ():
            if hasattr(one, "cache_clear"):
                one.cache_clear()


# By the caller.


def unrecorded(folder: Path) -> list[str]:
    """Return the files of tests of which it is not recorded yet what they run."""
    return [file for file in files_of_tests() if not (folder / _key(ROOT, file)).exists()]


def record(folder: Path, most_s: float | None = None, first: Sequence[str] = ()) -> list[str]:
    """Record what is not recorded yet, for so many seconds; return the files that are left.

    Those in the folders that come ``first`` are recorded before all others, in that order.
    RuntimeError if tests cannot even be begun.
    """

    def turn(file: str) -> int:
        return next((at for at, one in enumerate(first) if file.startswith(one)), len(first))

    folder.mkdir(parents=True, exist_ok=True)
    missing = sorted(unrecorded(folder), key=turn)
    began = time.monotonic()
    with TemporaryDirectory() as copy:
        root = Path(copy)
        copy_project(root)
        instrument(root)
        while missing and (most_s is None or time.monotonic() - began < most_s):
            some = missing[:10]
            missing = missing[10:]
            command = [sys.executable, "-m", "pytest", "-q", "--tb=no"]
            command += ["-p", "no:cacheprovider", "-p", "tests.mutants.reach", *some]
            done = subprocess.run(  # noqa: S603 - our own tests
                command,
                cwd=root,
                env={**environment(root), _FOLDER: str(folder)},
                stdout=subprocess.DEVNULL,
                check=False,
            )
            # Tests may fail here: what they ran is known all the same.
            if done.returncode not in (0, 1, 5):
                raise RuntimeError(f"exit code {done.returncode} of pytest {' '.join(some)}")
            for file in some:
                (folder / _key(ROOT, file)).touch()
    return missing


class Reach:
    """Answers which tests run a place."""

    def __init__(self, folder: Path) -> None:
        """Take what is recorded in a folder, and the source as it is now."""
        self._seconds: dict[str, float] = {}
        self._tests: dict[str, set[str]] = defaultdict(set)
        for file in files_of_tests():
            notes = folder / _key(ROOT, file)
            for line in notes.read_text("utf-8").splitlines() if notes.exists() else ():
                name, took_s, seen = json.loads(line)
                test = f"{file}::{name}"
                self._seconds[test] = took_s
                for block in seen:
                    self._tests[block].add(test)
        self._uses = _uses()
        # How much of what a test runs is in a module: the more, the fewer other tests run it.
        self._focus: dict[tuple[str, str], float] = defaultdict(float)
        for block, tests in self._tests.items():
            path = block.partition(":")[0]
            for test in tests:
                self._focus[test, path] += 1.0 / len(tests)

    def tests(self, site: Site, most_s: float) -> tuple[list[str], float]:
        """Return the tests that run a place, those first that say most about its module.

        What is outside of functions is run by those that use what it defines. As many tests as
        have taken ``most_s`` of CPU together, and how much that is.
        """
        found: set[str] = set(self._tests.get(site.block, ()))
        if not found:
            for block in self._users(site.defines):
                found |= self._tests.get(block, set())
        if not found:
            for block, tests in self._tests.items():
                if block.startswith(f"{site.path}:"):
                    found |= tests
        chosen: list[str] = []
        sum_s = 0.0
        for test in self._sorted(found, site.path):
            sum_s += self._seconds[test]
            if chosen and sum_s > most_s:
                break
            chosen.append(test)
        return chosen, min(sum_s, most_s)

    def _users(self, names: Iterable[str]) -> set[str]:
        """Return the blocks that use names, or what is defined by them."""
        known = set(names)
        left = list(names)
        found = set()
        while left:
            for user in self._uses.get(left.pop(), ()):
                if ":" in user:
                    found.add(user)
                elif user not in known:
                    known.add(user)
                    left.append(user)
        return found

    def _sorted(self, tests: Iterable[str], path: str) -> list[str]:
        """Return tests, those first that say most about a module, and not all of one file first."""
        of_file: Counter[str] = Counter()
        worth = {}
        for test in sorted(tests, key=lambda one: (-self._worth(one, path), one)):
            file = test.partition("::")[0]
            of_file[file] += 1
            worth[test] = self._worth(test, path) / of_file[file]
        return sorted(worth, key=lambda one: (-worth[one], one))

    def _worth(self, test: str, path: str) -> float:
        of_package = _OF_PACKAGE if test.startswith(folders_of(path)) else 1.0
        # A module without functions is run by none.
        focus = 0.01 + self._focus[test, path]
        return of_package * focus / (0.2 + self._seconds[test])


def folders_of(path: str) -> tuple[str, ...]:
    """Return where a module's own tests are: in the folder of its package, or one of its name."""
    *packages, module = path.removeprefix("lean_sandbox/").split("/")
    own = module.removesuffix(".py")
    parts = packages or [own]
    while len(parts) > 1 and not (ROOT / "tests" / "/".join(parts)).is_dir():
        parts.pop()
    return tuple(dict.fromkeys(("/".join(["tests", *parts, ""]), f"tests/{own}/")))


def _uses() -> dict[str, set[str]]:
    """Return for each name the blocks that use it, and the names outside of functions that do."""
    uses: dict[str, set[str]] = defaultdict(set)
    for path in modules(ROOT):
        tree = ast.parse((ROOT / path).read_bytes())
        inside = {id(statements): block for block, statements in blocks(path, tree)}
        for node in ast.walk(tree):
            for part in ("body", "orelse", "finalbody"):
                if block := inside.get(id(getattr(node, part, None))):
                    defaults = getattr(node, "args", None)
                    for word in _words([*getattr(node, part), *([defaults] if defaults else ())]):
                        uses[word].add(block)
        for node in [*tree.body, *(one for top in tree.body for one in ast.iter_child_nodes(top))]:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                for name in defined(node):
                    for word in _words([node]) - {name}:
                        uses[word].add(name)
    return uses


def _words(nodes: Iterable[ast.AST]) -> set[str]:
    inside = [node for one in nodes for node in ast.walk(one)]
    names = {node.id for node in inside if isinstance(node, ast.Name)}
    return names | {node.attr for node in inside if isinstance(node, ast.Attribute)}
