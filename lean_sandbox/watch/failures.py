"""For reflectors after a failure: how long to pause, and why a kind may not be served."""

from __future__ import annotations

import math

import msgspec

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import Asked, ControlPlaneError, DecodeFault, from_response
from lean_sandbox.kube.resources import JSON_ACCEPT, Resource
from lean_sandbox.model.wire import ODD

_APPLY = "lean-sandbox crds | kubectl apply --server-side -f -"
_BASE_S = 0.8
_CAP_S = 30.0
_TIMEOUT_S = 30.0


def pause_s(
    failures: int, jitter: float, *, at_least_s: float = 0.0, at_most_s: float = math.inf
) -> float:
    """Return how long to wait after so many failures in a row: 0.8 s, doubling to 30 s.

    ``jitter``, from 0 to 1, spreads the reconnects of many clients after a server restart.
    ``at_least_s`` is what the server asked for (Retry-After).
    """
    whole_s = min(_CAP_S, at_most_s, _BASE_S * 2.0 ** min(failures - 1, 16))
    return max(whole_s * (0.5 + jitter * 0.5), at_least_s)


class _Kind(msgspec.Struct):
    name: str = ""


class _Version(msgspec.Struct):
    """The discovery document of one version of a group."""

    resources: list[_Kind] = []


async def why_unserved(client: Client, resource: Resource) -> str:
    """Return why requests for a resource get 404, and the remedy; "" if neither is known.

    Only custom resources are checked: built-in ones are always served. Costs one GET, of the
    discovery document of the group's version.
    """
    if not resource.group.endswith("agents.x-k8s.io"):
        return ""
    name = resource.qualified
    try:
        served = await _read(client, f"/apis/{resource.api_version}")
    except ControlPlaneError as error:
        # Not every account may read discovery documents.
        return f"{name} is not served in version {resource.version}, and why is unknown: {error}"
    if any(kind.name == resource.plural for kind in served.resources):
        return ""
    return (
        f"the CustomResourceDefinition {name} is missing, or serves other versions than"
        f" {resource.version}, the only one this controller speaks: apply it with `{_APPLY}`; the"
        " controller waits for it. If the server refuses it because of status.storedVersions,"
        " migrate the stored objects with v0.5 of the reference first"
    )


async def _read(client: Client, target: str) -> _Version:
    response = await client.transport.request(
        "GET", target, headers={"Accept": JSON_ACCEPT}, timeout_s=_TIMEOUT_S
    )
    if response.status == 404:
        return _Version()
    if response.status >= 300:
        asked = Asked("get")
        raise from_response(response.status, response.body, response.headers, asked)
    try:
        return msgspec.json.decode(response.body, type=_Version)
    except ODD as problem:
        raise DecodeFault(f"get {target}: not a discovery document: {problem}") from problem
