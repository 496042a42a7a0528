"""A module in which numbers choose the changes does what the module with each change does."""

from __future__ import annotations

import sys
from textwrap import dedent
from types import ModuleType, SimpleNamespace

import pytest

from tests.mutants.copies import ROOT
from tests.mutants.sites import Site, modules, sites, sites_of
from tests.mutants.switches import switched

_MODULE = dedent(
    '''\
    """A text."""
    from __future__ import annotations
    LIMIT = 3
    def sized(some, most=LIMIT, *, least=0):
        # A statement and its call end at the same place.
        found.append(
            max(len(some), least)
        )
        if not some or (
            len(some) > most  # more than one line
        ):
            raise ValueError(some)
        elif len(some) == 1 and least < 1:
            return [some[0]] if least else {"one": some[0], "most": most}
        found[0] += 1
        return sorted([each for each in some[1:] if each not in (1, 2)])
    found = []
    '''
)
_INPUTS: tuple[list[int], ...] = ([], [1], [4, 3], [2, 1, 5], [1, 2, 3, 4])


def _runs(module: str, number: int = 0) -> list[object]:
    """Return what a module makes of all inputs, and what it has stored."""
    changed = SimpleNamespace(is_on=lambda one: one == number)
    sys.modules["changed"] = changed  # type: ignore[assignment]
    names = vars(ModuleType("m"))
    try:
        exec(compile(module, "m.py", "exec"), names)  # noqa: S102 - the code stands here
        results: list[object] = []
        for one in _INPUTS:
            for options in ({}, {"least": 1}):
                try:
                    results.append(names["sized"](one, **options))
                except Exception as exception:  # noqa: BLE001 - a change may do anything
                    results.append(repr(exception))
    except Exception as exception:  # noqa: BLE001
        return [repr(exception)]
    finally:
        del sys.modules["changed"]
    return [*results, names["found"]]


_SITES = dict(enumerate(sites("m.py", _MODULE), 1))


@pytest.mark.parametrize("number", _SITES, ids=lambda one: _SITES[one].name)
def test_a_number_chooses_a_change(number: int) -> None:
    """As if it stood there alone, wherever it is: in another one, in a default, in a condition."""
    module = switched(_MODULE.encode(), _SITES).decode()
    alone = _SITES[number].apply(_MODULE.encode()).decode()
    assert _runs(module, number) == _runs(alone)


def test_without_a_number_nothing_is_changed() -> None:
    """And the lines stay where they are."""
    module = switched(_MODULE.encode(), _SITES).decode()
    assert _runs(module) == _runs(_MODULE)
    assert len(module.splitlines()) == len(_MODULE.splitlines())


@pytest.mark.parametrize("path", modules(ROOT))
def test_every_module_can_be_switched(path: str) -> None:
    """All its changes at once: the result is Python."""
    numbered = enumerate((site for site in sites_of(path) if not site.is_pattern), 1)
    compile(switched((ROOT / path).read_bytes(), dict(numbered)), path, "exec")


def test_a_pattern_cannot_be_switched() -> None:
    """Python does not compute it."""

    def found(old: str) -> Site:
        return next(one for one in sites_of("lean_sandbox/http/pprof.py") if one.old == old)

    assert found('"cmdline"').is_pattern
    assert not found("200").is_pattern
