"""Fixtures of the tests that speak to a server."""

from __future__ import annotations

import pytest

from tests.kube.certificates import Certificates, make


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Return a CA, a server and client certificates signed by it."""
    return make(tmp_path_factory.mktemp("certificates"))
