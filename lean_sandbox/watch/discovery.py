"""Finds out why a resource is not served: no definition, or one of another version."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import Asked, ControlPlaneError, DecodeFault, from_response
from lean_sandbox.kube.resources import Resource
from lean_sandbox.kube.wire import JSON_ACCEPT

T = TypeVar("T")

_APPLY = "lean-sandbox crds | kubectl apply --server-side -f -"


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    versions: list[_Version] = []


class _Name(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Name] = []


async def why_unserved(client: Client, resource: Resource, timeout_s: float) -> str:
    """Return why requests for a resource get 404, and the remedy; "" if neither is known.

    Only custom resources are asked for: built-in ones are always served. Costs one GET of the
    discovery document of the group, and one for each other version that the group has.
    """
    if not resource.is_custom:
        return ""
    name = resource.qualified
    try:
        others = await _other_versions(client, resource, timeout_s)
    except ControlPlaneError as error:
        # Not every account may read discovery documents.
        return f"{name} is not served in version {resource.version}, and why is unknown: {error}"
    if others is None:
        return ""
    if not others:
        return (
            f"the CustomResourceDefinition {name} is missing: apply it with `{_APPLY}`;"
            " the controller waits for it"
        )
    return (
        f"the CustomResourceDefinition {name} serves {', '.join(others)}, and not"
        f" {resource.version}, the only version this controller speaks: apply that of this release"
        f" with `{_APPLY}`; if the server refuses it because of status.storedVersions, migrate the"
        " stored objects with v0.5 of the reference first"
    )


async def _other_versions(client: Client, resource: Resource, timeout_s: float) -> list[str] | None:
    """Return the versions in which a resource is served; None when ours is among them."""
    group = await _read(client, f"/apis/{resource.group}", _Group, timeout_s)
    found = []
    for one in group.versions if group is not None else ():
        root = f"/apis/{resource.group}/{one.version}"
        listed = await _read(client, root, _Resources, timeout_s)
        if listed is None or all(known.name != resource.plural for known in listed.resources):
            continue
        if one.version == resource.version:
            return None
        found.append(one.version)
    return found


async def _read(client: Client, target: str, type_: type[T], timeout_s: float) -> T | None:
    """Read a discovery document; None when there is none."""
    response = await client.transport.request(
        "GET", target, headers={"Accept": JSON_ACCEPT}, timeout_s=timeout_s
    )
    if response.status == 404:
        return None
    if response.status >= 300:
        asked = Asked("get", path=target)
        raise from_response(response.status, response.body, response.headers, asked)
    try:
        return msgspec.json.decode(response.body, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise DecodeFault(f"get {target}: the answer is no discovery: {problem}") from problem
