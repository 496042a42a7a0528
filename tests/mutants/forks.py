"""A plugin of pytest: a session that has collected its tests, and tries changes in forks of itself.

Nothing has to be started or imported for a change. It reads a line for each (its number, the tests,
seconds of CPU) and answers with one: what noticed it, "" if nothing did. The first line that it
writes lists the changes that importing and collecting have already met: those no fork can try.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.mutants.chosen import limit
from tests.mutants.reach import forget_computed
from tests.mutants.switches import CHANGE

__all__ = ["CHANNEL"]

CHANNEL = "SANDBOX_TESTS_CHANNEL"
_SUBREAPER = 36
_failed: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what fails."""
    if report.failed:
        _failed.append(report.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Answer until nobody asks any more."""
    import changed  # type: ignore[import-not-found]  # noqa: PLC0415 - written by `write_switches`

    # What a test leaves behind when its fork ends becomes a child of this process, which ends it.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    items: dict[str, list[pytest.Item]] = {}
    for item in session.items:
        items[item.nodeid] = [item]
        items.setdefault(item.nodeid.partition("::")[0], []).append(item)
    with socket.socket(fileno=int(os.environ[CHANNEL])) as channel, channel.makefile("rw") as lines:

        def answer(value: object) -> None:
            lines.write(f"{json.dumps(value)}\n")
            lines.flush()

        answer(sorted(changed.met))
        for line in lines:
            number, tests, seconds = json.loads(line)
            chosen = [item for test in tests for item in items.get(test, ())]
            answer(_tried(session, number, chosen, seconds))
    return True


def _tried(session: pytest.Session, number: int, items: Sequence[pytest.Item], cpu_s: int) -> str:
    """Return the first test that fails with a change, or how their process ended."""
    reading, writing = os.pipe()
    forked = os.fork()
    if forked == 0:
        try:
            os.setsid()
            os.close(reading)
            limit(cpu_s)
            os.write(writing, _first_failed(session, number, items).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        is_ended = bool(select.select([answers], [], [], 4 * cpu_s)[0])
        by = os.read(answers.fileno(), 4096).decode() if is_ended else "it did not end"
    with suppress(ProcessLookupError):
        os.killpg(forked, signal.SIGKILL)
    _, status = os.waitpid(forked, 0)
    _end_children()
    if is_ended and not by and os.waitstatus_to_exitcode(status) != 0:
        return f"exit code {os.waitstatus_to_exitcode(status)}"
    return by


def _first_failed(session: pytest.Session, number: int, items: Sequence[pytest.Item]) -> str:
    sys.modules["changed"].on = number  # type: ignore[attr-defined]
    os.environ[CHANGE] = str(number)
    forget_computed("_is_on")
    hook = session.config.hook
    for item, after in zip(items, [*items[1:], None], strict=True):
        hook.pytest_runtest_protocol(item=item, nextitem=after)
        if _failed:
            break
    # Ends what fixtures have begun.
    hook.pytest_sessionfinish(session=session, exitstatus=0)
    return _failed[0] if _failed else ""


def _end_children() -> None:
    with suppress(ChildProcessError):
        while True:
            children = Path("/proc/self/task", str(os.getpid()), "children").read_text("utf-8")
            for one in children.split():
                os.kill(int(one), signal.SIGKILL)
            os.waitpid(-1, 0)
