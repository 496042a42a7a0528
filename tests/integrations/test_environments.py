"""A program that cannot be installed fails its tests, and says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrations.environments import MissingProgramError, environment

PROGRAM = "k8s-agent-sandbox"


def test_a_package_that_pip_does_not_get_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What failed counts as missing the next time as well."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    for _ in range(2):
        with pytest.raises(MissingProgramError, match=f"{PROGRAM} could not be .*\n(.*\n)*ERROR: "):
            environment(PROGRAM)


def test_a_python_that_is_missing_is_named() -> None:
    """None of the machine is new enough."""
    with pytest.raises(MissingProgramError, match=r"k8s-agent-sandbox needs Python 9\.9 or newer"):
        environment(PROGRAM, at_least=(9, 9))
