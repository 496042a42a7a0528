"""A cluster, and what stands in for the containers of its Pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lean_sandbox import log
from tests.client.cluster import Cluster, Room
from tests.client.embedded import open_embedded
from tests.integrations.standin import StandIn, standing_in


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Give a running cluster."""
    # Its controller runs in this process, beside programs whose output a failure shows.
    log.configure("error")
    with open_embedded(tmp_path) as opened:
        yield opened


@pytest.fixture
def room(cluster: Cluster) -> Room:
    """Give a namespace."""
    return cluster.room()


@pytest.fixture
def standin(cluster: Cluster, tmp_path: Path) -> Iterator[StandIn]:
    """Give what answers for the Sandboxes."""
    folder = tmp_path / "sandboxes"
    folder.mkdir()
    with standing_in(cluster, folder) as answering:
        yield answering
