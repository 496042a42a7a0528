"""Settings shared by all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

# The program is started dozens of times, and only the first start has to compile it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import pytest  # noqa: E402
import structlog  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402
from structlog.typing import Processor  # noqa: E402

from tests.support.patience import PATIENCE_S  # noqa: E402

pytest_plugins = [
    "tests.controlplane.plugin",
    "tests.failures",
    "tests.tiers",
    "tests.totals",
    "tests.workers",
]

# A loaded machine is no reason to fail: the time limit of each test is the guard. The run that
# decides over a change is repeatable; a run by hand looks for examples that nobody has tried.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", PATIENT, derandomize="CI" in os.environ)
# `--hypothesis-profile=thorough`, for a look at many more examples.
settings.register_profile("thorough", PATIENT, max_examples=5000)
settings.load_profile("steady")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """End a test that hangs, once its own waits have had the time to say what they wait for."""
    if config.getoption("timeout") is None:
        config.option.timeout = 2 * PATIENCE_S


def pytest_collection_finish() -> None:
    """Spare every garbage collection the modules and tests, which stay until the end."""
    gc.collect()
    gc.freeze()
    # Every world is some ten thousand objects that are all still in use: looking through them for
    # cycles after each seven hundred finds nothing, and costs a twentieth of the run.
    gc.set_threshold(20_000, 20, 20)


# The default, in colours and columns, takes three times as long.
_PLAIN_LOG: list[Processor] = [
    structlog.processors.add_log_level,
    structlog.processors.format_exc_info,
    structlog.processors.KeyValueRenderer(key_order=["level", "event"]),
]


@pytest.fixture(autouse=True)
def _plain_log() -> Iterator[None]:
    """Log plainly, and undo the set-up that each command which a test runs begins with."""
    structlog.configure(processors=_PLAIN_LOG)
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session", autouse=True)
def _nothing_stays_open() -> Iterator[None]:
    """Find what was left open before the last test ends: after it, a worker fails no run."""
    yield
    gc.collect()


@pytest.fixture(params=["ours", "lightkube"])
def each_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with a controller on our client, and with one on lightkube's."""
    if request.param == "lightkube":
        from tests.support import lightkube_client, world  # noqa: PLC0415 -- few tests need them

        monkeypatch.setattr(world, "CLIENT", lightkube_client.LightkubeClient)
