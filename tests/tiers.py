"""Two tiers: the core, which every run takes, and the extended tests, which are asked for.

The core tests what the controller does, in two minutes on two cores. Extended are the tests of the
embedded server, the bench and the demo, and what takes long: processes, random stories, a death at
every request, crowds, memory. ``pytest -m extended`` runs them, and so does a command line that
names one of these files or folders, or a file within. The programs of others, which have to be
installed first, run only where the command line names them.

What a run leaves out it does not even import.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

MARKER = "extended"
EXTENDED = (
    "tests/bench",
    "tests/budgets/test_overload.py",
    "tests/budgets/test_restart_at_scale.py",
    "tests/budgets/test_what_is_gone.py",
    "tests/client",
    "tests/commands/test_mistakes.py",
    "tests/companions/test_page.py",
    "tests/conformance",
    "tests/controllers/claim/test_crowd.py",
    "tests/controllers/claim/test_pools_beside_a_crowd.py",
    "tests/controllers/sandbox/test_turns_of_launches.py",
    "tests/controlplane",
    "tests/demo",
    "tests/docs/test_commands.py",
    "tests/docs/test_restore.py",
    "tests/docs/test_run_code.py",
    "tests/faults/test_companions.py",
    "tests/faults/test_crashes.py",
    "tests/faults/test_edits_behind_writes.py",
    "tests/faults/test_late_writes.py",
    "tests/faults/test_stories.py",
    "tests/faults/test_stories_by_seed.py",
    "tests/footprint",
    "tests/local",
    "tests/manager/test_handover_in_a_burst.py",
    "tests/manager/test_process.py",
    "tests/manager/test_process_surroundings.py",
    "tests/manager/test_relays.py",
    "tests/manager/test_rolling_upgrade.py",
    "tests/manager/test_two_controllers_at_once.py",
    "tests/manifests/test_image.py",
    "tests/mutants/test_judge.py",
    "tests/mutants/test_switches.py",
    "tests/tenancy/test_fairness.py",
)
"""The files and folders whose tests have the marker."""
NAMED = ("tests/integrations",)
"""The folders that no marker selects."""
_PREFIXES = tuple(one if one.endswith(".py") else f"{one}/" for one in EXTENDED)


def left_out(config: pytest.Config) -> list[Path]:
    """Return the files and folders that a run neither selects by ``-m`` nor names."""
    named = [config.invocation_params.dir / one.partition("::")[0] for one in config.args]
    asked_for = NAMED if config.getoption("markexpr") else (*EXTENDED, *NAMED)
    return [path for one in asked_for if not _any_within(named, path := config.rootpath / one)]


def _any_within(paths: Iterable[Path], folder: Path) -> bool:
    return any(path.is_relative_to(folder) for path in paths)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over what the run leaves out; None lets others decide."""
    name = str(collection_path).removeprefix(f"{config.rootpath}/")
    return (name in (*EXTENDED, *NAMED) and collection_path in left_out(config)) or None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of the extended files and folders."""
    if item.nodeid.partition("::")[0].startswith(_PREFIXES):
        item.add_marker(MARKER)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what else there is, if it lies where the run looked."""
    config = terminalreporter.config
    looked = [config.invocation_params.dir / one for one in config.args]
    long = set(left_out(config)) - {config.rootpath / one for one in NAMED}
    count = sum(any(path.is_relative_to(one) for one in looked) for path in long)
    if count:
        terminalreporter.write_line(
            f"left out {count} files and folders of long tests: python -m pytest -m {MARKER}"
        )
