"""Fixtures of the tests that speak to a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kube.certificates import Certificates, make
from tests.kube.homes import Home


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Return a CA, a server and client certificates signed by it."""
    return make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return an empty home."""
    return Home(tmp_path)
