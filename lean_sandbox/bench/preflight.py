"""What is asked of a server before anything is made on it."""

from __future__ import annotations

import msgspec

from lean_sandbox.bench.options import UsageError
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import ControlPlaneError, NotFound
from lean_sandbox.kube.resources import SANDBOXCLAIMS, SANDBOXES
from lean_sandbox.kube.wire import Page, PartialObject

_CRD_HELP = "lean-sandbox crds | kubectl apply --server-side -f -"


class _Version(msgspec.Struct, frozen=True):
    gitVersion: str = ""


async def version_of(client: Client) -> str:
    """Return the version a server tells, "" where it tells none. Raises UsageError."""
    try:
        answer = await client.transport.request("GET", "/version", timeout_s=10.0)
    except ControlPlaneError as error:
        raise UsageError(
            f"the server {client.transport.connection.server} cannot be reached: {error}"
        ) from error
    try:
        return msgspec.json.decode(answer.body, type=_Version).gitVersion
    except msgspec.MsgspecError:
        return ""


async def require_kinds(client: Client) -> None:
    """Raise UsageError when the server lacks the kinds of this project, or does not show them."""
    for resource in (SANDBOXES, SANDBOXCLAIMS):
        try:
            await client.list_page(resource, None, Page[PartialObject], limit=1)
        except NotFound as error:
            raise UsageError(
                f"the server does not know {resource.qualified}: {_CRD_HELP}"
            ) from error
        except ControlPlaneError as error:
            raise UsageError(f"{resource.qualified} cannot be listed: {error}") from error
