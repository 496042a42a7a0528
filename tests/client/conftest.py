"""The clusters that the laws are asked of, and a namespace for each test.

The embedded server always; kube-apiserver under ``-m controlplane``.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
import structlog
from k8s_agent_sandbox.async_sandbox import AsyncSandbox
from k8s_agent_sandbox.async_sandbox_client import AsyncSandboxClient
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig
from k8s_agent_sandbox.sandbox import Sandbox
from k8s_agent_sandbox.sandbox_client import SandboxClient
from kubernetes.client import ApiClient
from kubernetes.config import new_client_from_config
from kubernetes_asyncio import config as asyncio_config

from lean_sandbox import log
from tests.client.cluster import Cluster, Room
from tests.client.embedded import open_embedded
from tests.client.real import open_real
from tests.controlplane.plugin import REAL

# Nothing is ever sent to a Sandbox: there is none behind a simulated Pod.
_NOWHERE = SandboxDirectConnectionConfig(api_url="http://127.0.0.1:9")


_EMBEDDED = "embedded"
_REAL = "kube-apiserver"


@pytest.fixture(scope="package", params=[_EMBEDDED, pytest.param(_REAL, marks=REAL)])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Give the running cluster."""
    folder = tmp_path_factory.mktemp("cluster")
    # Its controller runs in this process, and must not write where the tests of programs read.
    log.configure("error")
    if request.param == _REAL:
        opened = open_real(request.getfixturevalue("real_server"), folder)
    else:
        opened = open_embedded(folder)
    with opened as started:
        yield started
    structlog.reset_defaults()


@pytest.fixture
def room(cluster: Cluster) -> Room:
    """Give a namespace of this test's own, with a template in it and no pool."""
    made = cluster.room()
    made.template()
    return made


@pytest.fixture
def api(cluster: Cluster) -> Iterator[ApiClient]:
    """Give the connection of the official clients."""
    client = new_client_from_config(config_file=cluster.kubeconfig)  # type: ignore[no-untyped-call]
    yield client
    client.close()
    # Its pool keeps sockets that only an explicit clear closes; see LEFT_OPEN for the others.
    client.rest_client.pool_manager.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def client(api: ApiClient) -> SandboxClient[Sandbox]:
    """Give the official client."""
    return SandboxClient(_NOWHERE, api_client=api)


@pytest_asyncio.fixture
async def async_client(cluster: Cluster) -> AsyncIterator[AsyncSandboxClient[AsyncSandbox]]:
    """Give the official client for asyncio."""
    api = await asyncio_config.new_client_from_config(config_file=cluster.kubeconfig)
    client = AsyncSandboxClient[AsyncSandbox](_NOWHERE, cleanup=False, api_client=api)
    yield client
    await client.close()
    await api.close()
