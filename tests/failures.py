"""A test that fails is told in a few lines: where it stood, what it asserted, what was instead.

In ``.ci/run`` nothing is left out: what fails there may not fail again.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Generator

import pytest

_IS_CI = "CI" in os.environ


def pytest_configure(config: pytest.Config) -> None:
    """Show the lines that a failure came by, and neither the log nor the whole test."""
    if not _IS_CI:
        if config.option.tbstyle == "auto":
            config.option.tbstyle = "short"
        if config.option.showcapture == "all":
            config.option.showcapture = "no"


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Let a test fail by its own error, not by the groups that hold that of each task."""
    try:
        return (yield)
    except BaseExceptionGroup as group:
        error = _sole_error(group)
        if not _is_raised_in(error, pyfuncitem):
            raise
    # Out here the groups are not shown as what it was raised in.
    raise error


def _sole_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        [error] = error.exceptions
    return error


def _is_raised_in(error: BaseException, test: pytest.Function) -> bool:
    """Tell whether an error passed through the lines of the test: else the groups say where."""
    # The function itself is wrapped, by what runs coroutines or finds examples.
    lines = traceback.extract_tb(error.__traceback__)
    return any((one.filename, one.name) == (str(test.path), test.originalname) for one in lines)
