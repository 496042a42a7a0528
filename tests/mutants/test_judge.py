"""What is said of a change, whether a fork tries it or a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mutants.judge import Judge
from tests.mutants.sites import Site, sites_of

_TESTS = ["tests/runtime/test_queue.py"]
_SECONDS = 5.0


def _site(name: str) -> Site:
    return next(one for one in sites_of("lean_sandbox/runtime/queue.py") if name in one.name)


_NOTICED = _site("WorkQueue.add: drop self._admit(")
_AT_IMPORT = _site("MAX_REASONS: constant")
_UNNOTICED = _site("_AFTER_EDIT_S: constant")


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """Return one that has collected the tests of the queue."""
    some = (_NOTICED, _AT_IMPORT, _UNNOTICED)
    with Judge(dict.fromkeys(some, (_TESTS, _SECONDS))) as it:
        yield it


@pytest.mark.parametrize("site", [_NOTICED, _AT_IMPORT], ids=["in a function", "at import"])
def test_the_test_that_fails_is_named(judge: Judge, site: Site) -> None:
    """A module that is imported has its constants already: another process is asked."""
    assert judge.judge(site, _TESTS, _SECONDS).by.startswith(f"{_TESTS[0]}::")


def test_tests_pass_without_a_change_and_after_others(judge: Judge) -> None:
    """No change outlives its own run."""
    judge.judge(_NOTICED, _TESTS, _SECONDS)
    assert not judge.judge(None, _TESTS, _SECONDS).is_caught


def test_a_change_that_no_test_notices_lives(judge: Judge) -> None:
    """The checker of types has nothing to say of it either."""
    assert not judge.judge(_UNNOTICED, _TESTS, _SECONDS).is_caught
