"""From the settings to an elector: which namespace, which identity, and a connection of its own."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from lean_sandbox.clock import SystemClock
from lean_sandbox.config.options import Settings
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.config import own_namespace
from lean_sandbox.kube.errors import ConfigError
from lean_sandbox.kube.events import EventRecorder
from lean_sandbox.kube.kubeconfig import SERVICE_ACCOUNT
from lean_sandbox.kube.limits import Limits
from lean_sandbox.kube.telemetry import Observer
from lean_sandbox.kube.transport import Transport
from lean_sandbox.manager.leader import Elector
from lean_sandbox.manager.lease import LeaseTimes
from lean_sandbox.manager.manager import hostname
from lean_sandbox.manager.sharding import lease_of, scope_of

_REPORTING_CONTROLLER = "agent-sandbox-controller"


class AwakeClock(SystemClock):
    """The clock of the machine, whose monotonic time goes on while the machine is suspended.

    Other replicas do not wait for a machine that sleeps.
    """

    def monotonic(self) -> float:
        """Return seconds since the start of the machine, with suspensions if it counts them."""
        return time.clock_gettime(_AWAKE)


_AWAKE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def open_elector(
    settings: Settings,
    client: Client,
    observer: Observer | None = None,
    *,
    service_account: Path = SERVICE_ACCOUNT,
) -> Elector:
    """Build an elector for the server of ``client``.

    It has one connection of its own, so that a renewal never waits behind the work that it allows.
    Raises ConfigError; makes no request.
    """
    namespace = settings.leader_election_namespace or own_namespace(service_account)
    if not namespace:
        raise ConfigError(
            "--leader-elect outside a cluster needs a namespace for the Lease",
            way_out="name it with --leader-election-namespace, or give --no-leader-elect",
        )
    clock = AwakeClock()
    limits = Limits(max_in_flight=2, reserved_for_client=1)
    connection = client.transport.connection
    transport = Transport(connection, clock=clock, limits=limits, observer=observer)
    own = Client(transport, timeout_s=LeaseTimes().attempt_s)
    identity = f"{hostname()}_{uuid.uuid4()}"
    return Elector(
        own,
        namespace=namespace,
        identity=identity,
        clock=clock,
        recorder=EventRecorder(own, clock, _REPORTING_CONTROLLER, identity),
        lease=lease_of(settings),
        scope=scope_of(settings),
    )
