"""docs/design.md names functions that exist, words that can be found, and who wakes whom."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.kube.auth import Auth
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.transport import Transport
from lean_sandbox.manager.manager import Manager
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.watch.kind import Representation
from lean_sandbox.watch.resources import build_caches
from tests.support.clock import FakeClock

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "design.md").read_text()
HOPS = re.findall(r"`((?:lean_sandbox|filters)/[\w/]+\.py):([\w.]+)`", PAGE)
TO_THE_QUEUE = PAGE.split("### One Pod event", 1)[-1].split("### ", 1)[0].split("**queue**")[0]

IDEAS = {
    room: (int(number), text.split(";"))
    for room, number, text in re.findall(
        r"^- \*\*(\w+)\*\*, (\d+): (.*?)(?=\n- |\n\n)",
        PAGE.partition("## Ideas, by room")[2].partition("\n## ")[0],
        re.DOTALL | re.MULTILINE,
    )
}
# The API's own kinds, and statuses of HTTP: most of their classes stand for no idea of ours.
_NAMED_AFTER_THE_API = ("lean_sandbox/model/", "lean_sandbox/kube/errors.py")


def defined(path: Path) -> dict[str, str]:
    """Return the text of each function, class, method (``Class.method``) and constant of a module.

    Comments that begin with ``#:`` belong to the constant below them.
    """
    text = path.read_text()
    found: dict[str, str] = {}
    for node in ast.parse(text).body:
        code = ast.get_source_segment(text, node) or ""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = code
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above = "\n".join(text.splitlines()[: node.lineno - 1])
            found[node.target.id] = re.findall(r"(?:^#:.*\n?)*\Z", above, re.MULTILINE)[0] + code
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    found[f"{node.name}.{inner.name}"] = ast.get_source_segment(text, inner) or ""
    return found


def rows_of(head: str) -> list[list[str]]:
    """Return the rows of the table with this head."""
    table = PAGE.split(f"{head}\n|", 1)[1].split("\n\n", 1)[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[1:]]


@pytest.mark.parametrize(("path", "name"), sorted(set(HOPS)))
def test_every_function_on_the_way_exists(path: str, name: str) -> None:
    """A function that is renamed or moved is renamed on the page too."""
    assert name in defined(ROOT / path)


def test_an_event_reaches_its_queue_in_few_steps() -> None:
    """From bytes to queue: at most 14 functions in 8 modules."""
    hops = re.findall(r"`((?:lean_sandbox|filters)/[\w/]+\.py):([\w.]+)`", TO_THE_QUEUE)
    assert hops
    assert len(set(hops)) <= 14
    assert len({path for path, _ in hops}) <= 8


@pytest.mark.parametrize(("word", "_", "place"), rows_of("| word | what it means here | place |"))
def test_each_word_stands_in_the_text_of_its_place(word: str, _: str, place: str) -> None:
    """Whoever searches the code for a word of the project finds what it means."""
    path, name = place.strip("`").split(":")
    assert word.lower() in defined(ROOT / path)[name].lower()


def test_the_page_says_in_which_form_each_kind_is_watched() -> None:
    """The table names every kind, and the form that its watch prefers."""
    said = {
        kind: form.split(":")[0].split(" of ")[0]
        for kinds, form, _ in rows_of("| kind | events are | the full object is fetched |")
        for kind in kinds.split(", ")
    }
    forms = {
        Representation.TABLE: "Table rows",
        Representation.METADATA: "metadata",
        Representation.FULL: "full objects",
    }
    kinds = [cache.kind for cache in msgspec.structs.asdict(build_caches()).values()]
    assert said == {kind.resource.kind: forms[kind.watch_as] for kind in kinds}


@pytest.fixture(scope="module")
def manager() -> Manager:
    """Return a manager with all controllers, which has asked no server anything."""
    connection = Connection("http://127.0.0.1:1", None, Auth())
    client = Client(Transport(connection, clock=FakeClock()))
    return Manager(client, Settings(extensions=True), clock=FakeClock())


def names_of(handlers: Iterable[Any]) -> list[str]:
    """Return ``Class.method`` of those that are methods of controllers."""
    return [
        f"{type(one.__self__).__name__}.{one.__name__}"
        for one in handlers
        if isinstance(one.__self__, Controller)
    ]


def methods_of(head: str) -> list[tuple[str, str]]:
    """Return what the first two cells of each row of a table name."""
    return sorted((first.strip("`"), method.strip("`")) for first, method, _ in rows_of(head))


def test_the_page_says_which_event_wakes_whom(manager: Manager) -> None:
    """Each method that is called with the changes of a kind has its row, and no other has one."""
    watched = [
        (cache.kind.resource.plural, name)
        for cache in manager.all_caches
        for name in names_of(cache.handlers)
    ]
    assert len(watched) > 10
    assert methods_of("| kind | method that is called | wakes |") == sorted(watched)


def test_the_page_says_which_write_wakes_whom(manager: Manager) -> None:
    """Each method that listens to a signal has its row, and each signal has a listener."""
    signals = msgspec.structs.asdict(manager.wakes)
    heard = [
        (signal, name) for signal, listeners in signals.items() for name in names_of(listeners)
    ]
    assert {signal for signal, _ in heard} == set(signals)
    assert methods_of("| signal | method that is called | called after |") == sorted(heard)


def classes_of(room: str) -> dict[str, Path]:
    """Return the public classes of a room, and where each is."""
    base = ROOT / ("filters" if room == "filters" else f"lean_sandbox/{room}")
    paths = sorted(base.rglob("*.py"))
    if room == "lean_sandbox":
        paths = [path for path in (ROOT / room).glob("*.py") if path.name != "client.py"]
    assert paths, f"{room}: no modules; renamed?"
    return {
        node.name: path.relative_to(ROOT)
        for path in paths
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }


@pytest.mark.parametrize("room", sorted(IDEAS))
def test_each_class_stands_beside_an_idea_of_its_room(room: str) -> None:
    """Whoever adds a class or takes one away says in docs/design.md, "Ideas", what it is."""
    found = classes_of(room)
    named = set(re.findall(r"`([A-Z]\w*)`", ";".join(IDEAS[room][1])))
    wanted = {
        name for name, path in found.items() if not str(path).startswith(_NAMED_AFTER_THE_API)
    }
    assert named - found.keys() == set(), "these are gone"
    assert wanted - named == set(), "these are missing on the page"


def test_every_room_of_the_core_has_its_ideas_and_they_are_counted() -> None:
    """What stands beside the core is left out."""
    folders = {path.parent.name for path in (ROOT / "lean_sandbox").glob("*/__init__.py")}
    others = {"local", "bench", "demo", "companions", "top"}
    assert set(IDEAS) == (folders - others) | {"filters", "lean_sandbox"}
    assert {room: number for room, (number, _) in IDEAS.items()} == {
        room: len(ideas) for room, (_, ideas) in IDEAS.items()
    }
    assert f"These are {sum(number for number, _ in IDEAS.values())}." in PAGE


def test_no_two_classes_of_the_core_have_one_name() -> None:
    """A name says which class it is; the entries of companions and of top have their own, too."""
    rooms = [
        ROOT / "filters",
        *(ROOT / "lean_sandbox" / room for room in {*IDEAS, "companions", "top"}),
    ]
    paths = [
        *(ROOT / "lean_sandbox").glob("*.py"),
        *(one for room in rooms for one in room.rglob("*.py")),
    ]
    places = Counter(
        node.name
        for path in paths
        # Its classes are those of the model, for users of lightkube.
        if path != ROOT / "lean_sandbox" / "client.py"
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert len(places) > 100
    assert [name for name, count in places.items() if count > 1] == []
