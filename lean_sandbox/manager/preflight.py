"""A run from outside of the cluster first looks for a controller that works in it already.

Two controllers come to the same end, but pay twice for it and undo what the other has just done.
In a cluster the Lease decides; a run without one, from a laptop, has only this look.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.kube.asking import ask
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import ConfigError
from lean_sandbox.kube.resources import DEPLOYMENTS, LEASES
from lean_sandbox.manager.lease import LEASE_NAME
from lean_sandbox.model.times import parse_rfc3339

FLAG: Final = "--allow-second-controller"
# Where the manifests, ours and the reference's, put it (spec, 7.11).
HOME: Final = "agent-sandbox-system"
DEPLOYMENT: Final = "agent-sandbox-controller"
# A holder that died is believed for this long. Its clock is another one, that of a virtual machine
# perhaps which slept, so it may be right about nothing: then its Deployment tells.
_BELIEVED: Final = timedelta(seconds=60)
_UNKNOWN: Final = "second_controller_unknown"


class _LeaseSpec(msgspec.Struct):
    holderIdentity: str | None = None
    renewTime: str | None = None


class _Lease(msgspec.Struct):
    spec: _LeaseSpec | None = None


class _DeploymentStatus(msgspec.Struct):
    availableReplicas: int = 0


class _Deployment(msgspec.Struct):
    status: _DeploymentStatus | None = None


async def refusal(client: Client, clock: Clock, *, namespace: str = "") -> ConfigError | None:
    """Return why not to begin beside the controller that works, ``None`` where there is none.

    ``namespace`` is where the Lease and the Deployment are, by default that of the manifests. A
    server that does not answer is asked again until it does; one that does not tell, for lack of a
    permission, is taken for one with nothing to tell. One or two GETs.
    """
    home = namespace or HOME
    lease = await ask(client, clock, LEASES, home, LEASE_NAME, _Lease, unknown=_UNKNOWN)
    holder = _holder(lease, clock.now()) if lease is not None else ""
    if holder:
        return _refused(home, f"{holder!r} holds its Lease {home}/{LEASE_NAME}")
    deployment = await ask(
        client, clock, DEPLOYMENTS, home, DEPLOYMENT, _Deployment, unknown=_UNKNOWN
    )
    status = deployment.status if deployment is not None else None
    if status is not None and status.availableReplicas > 0:
        count = status.availableReplicas
        return _refused(home, f"Deployment {home}/{DEPLOYMENT} has {count} available")
    return None


def _holder(lease: _Lease, now: datetime) -> str:
    """Return who holds a Lease and has renewed it lately, "" for nobody."""
    spec = lease.spec
    if spec is None or not spec.holderIdentity or not spec.renewTime:
        return ""
    try:
        renewed = parse_rfc3339(spec.renewTime)
    except ValueError:
        return ""
    return spec.holderIdentity if now - renewed < _BELIEVED else ""


def _refused(home: str, found: str) -> ConfigError:
    return ConfigError(
        f"a controller works in this cluster already: {found}",
        way_out=(
            f"end it (kubectl -n {home} scale deployment {DEPLOYMENT} --replicas=0),"
            f" contend for its Lease (--leader-elect --leader-election-namespace={home}),"
            f" or run beside it all the same with {FLAG}"
        ),
    )
