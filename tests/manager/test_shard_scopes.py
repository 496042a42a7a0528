"""Which namespaces a shard serves, which Lease it takes, and what it asks of the server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.config.options import Settings
from lean_sandbox.manager.preflight import LEASE_NAME, lease_of, scope_of
from lean_sandbox.model.names import shard_hash
from lean_sandbox.model.shard import Shard, parse_shard
from tests.manager.shards import MIDDLE, ODD, TEAMS


@given(st.text(alphabet="abcz09-", min_size=1, max_size=63), st.integers(1, 64))
def test_every_namespace_has_exactly_one_shard(namespace: str, count: int) -> None:
    """Whatever it is called and however many they are."""
    assert sum(Shard(index, count).admits(namespace) for index in range(count)) == 1


def test_a_namespace_never_changes_its_shard() -> None:
    """CRC-32 and not Python's hash: two versions of the program must agree."""
    assert [Shard(1, 2).admits(team) for team in TEAMS] == [team in ODD for team in TEAMS]
    assert [Shard(0, 3).admits(name) for name in ("default", "kube-system", "a")] == [
        False,
        False,
        True,
    ]


@given(
    st.text(alphabet="abcz09-", min_size=1, max_size=63),
    st.sets(st.integers(1, 2**64 - 1), min_size=1, max_size=20),
)
def test_ranges_ask_the_server_for_what_they_serve(namespace: str, bounds: set[int]) -> None:
    """Every namespace is in exactly one range, the same here and there."""
    text = ",".join(f"{bound:#018x}" for bound in sorted(bounds))
    serving_it = []
    edges = []
    for index in range(len(bounds) + 1):
        shard = parse_shard(f"{index}/{text}")
        found = re.fullmatch(
            r"shardRange\(object\.metadata\.namespace, '(0x\w{16})', '(0x\w{16,17})'\)",
            shard.selector,
        )
        assert found is not None
        low = int(found[1], 16)
        high = int(found[2], 16)
        edges += [low, high]
        assert shard.admits(namespace) == (low <= shard_hash(namespace) < high)
        serving_it += [index] if shard.admits(namespace) else []
    assert len(serving_it) == 1
    assert (edges[0], edges[-1]) == (0, 2**64)


def test_without_bounds_nothing_is_asked_of_the_server() -> None:
    """CRC-32 is no hash of its."""
    assert Shard(0, 2).selector == ""


@pytest.mark.parametrize(
    ("name", "hashed"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_the_servers_hash_is_fnv(name: str, hashed: int) -> None:
    """FNV-1a of 64 bits, by its published vectors."""
    assert shard_hash(name) == hashed


def test_the_bounds_of_the_page_divide_what_there_is() -> None:
    """The command of docs/scale.md prints bounds that --shard takes, and that divide evenly."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "scale.md").read_text()
    found = re.search(r"python -c '\n(.*?)' (\d)", page, re.DOTALL)
    assert found is not None
    names = [f"team-{number % 40}" for number in range(400)]
    done = subprocess.run(  # noqa: S603 -- the page's own words
        [sys.executable, "-c", found[1], "4"],
        input="\n".join([*names, *["team-7"] * 300]),  # one namespace has most of the Sandboxes
        capture_output=True,
        text=True,
        check=True,
    )
    bounds = done.stdout.strip()
    parts = [sum(map(parse_shard(f"{index}/{bounds}").admits, names)) for index in range(4)]
    assert parts == [100, 100, 100, 100]


@given(st.integers(0, 99), st.integers(1, 20), st.sampled_from(["count", "bounds"]))
def test_an_index_counts_modulo_the_count(index: int, count: int, form: str) -> None:
    """So the ordinals of a StatefulSet with twice as many Pods as shards give each a standby."""
    bounds = ",".join(f"{number << 58:#018x}" for number in range(1, count))
    rest = bounds if form == "bounds" and bounds else count
    assert parse_shard(f"{index + count}/{rest}") == parse_shard(f"{index}/{rest}")


NAMESPACES = st.lists(
    st.text(alphabet="abc", min_size=1, max_size=30), min_size=1, max_size=12, unique=True
)


@given(NAMESPACES, NAMESPACES)
def test_scopes_are_equal_exactly_where_the_same_is_served(one: list[str], two: list[str]) -> None:
    """In any order, and also where the text is cut; short and in one line."""
    first = scope_of(Settings(namespaces=tuple(one)))
    second = scope_of(Settings(namespaces=tuple(two)))
    assert (first == second) == (set(one) == set(two))
    assert scope_of(Settings(namespaces=tuple(one))) != scope_of(
        Settings(exclude_namespaces=tuple(one))
    )
    assert 0 < len(first) <= 120
    assert first.isprintable()


def test_without_a_shard_the_lease_is_the_references() -> None:
    """So the two never work at the same time; a name that is given wins."""
    assert lease_of(Settings()) == LEASE_NAME == lease_of(Settings(namespaces=("a",)))
    assert scope_of(Settings()) == ""
    assert lease_of(Settings(shard=Shard(3, 4))) == f"{LEASE_NAME}-3-of-4"
    assert lease_of(Settings(shard=parse_shard(f"1/{MIDDLE}"))) == f"{LEASE_NAME}-1-of-2"
    assert lease_of(Settings(shard=Shard(3, 4), leader_election_lease="mine")) == "mine"


@pytest.mark.parametrize(
    "text", ["0/2", "1/3", "0/0x8000000000000000", "1/0x4000000000000000,0x8000000000000000"]
)
def test_a_shard_is_told_as_it_is_written(text: str) -> None:
    """In the report of the settings, from where it may be taken."""
    assert str(parse_shard(text)) == text
