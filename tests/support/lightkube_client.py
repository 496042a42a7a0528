"""The verbs of our client on lightkube's, over our transport.

What lightkube cannot say is added below it: the form of the answer, the deadline, and what a delete
is guarded by. Watches are the transport's own.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextvars import ContextVar
from functools import cache
from typing import Any

import httpx2
import lightkube
from lightkube import KubeConfig
from lightkube.config.models import Cluster, User
from lightkube.core.resource import ApiInfo
from lightkube.generic_resource import (
    GenericGlobalResource,
    GenericGlobalStatus,
    GenericNamespacedResource,
    GenericNamespacedStatus,
    create_api_info,
)
from lightkube.types import PatchType as LightkubePatch
from msgspec import json

from lean_sandbox.kube.client import Body, Client, PatchType
from lean_sandbox.kube.errors import Asked, NotFound, from_response
from lean_sandbox.kube.resources import JSON_ACCEPT, Resource
from lean_sandbox.kube.telemetry import WRITES
from lean_sandbox.kube.transport import Transport

__all__ = ["LightkubeClient"]

Json = dict[str, Any]
# What is asked, and the options that lightkube does not know.
_REQUEST: ContextVar[tuple[Asked, Json]] = ContextVar("request")
_GUARDS = {"uid": "uid", "resource_version": "resourceVersion"}


class _OverOurs(httpx2.AsyncBaseTransport):
    """Sends lightkube's requests by our transport."""

    def __init__(self, transport: Transport, timeout_s: float) -> None:
        self._transport = transport
        self._timeout_s = timeout_s

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request and return the whole answer."""
        asked, more = _REQUEST.get()
        body = await request.aread()
        guards = {name: more[ours] for ours, name in _GUARDS.items() if more.get(ours) is not None}
        if guards:
            body = json.encode({"preconditions": guards})
        headers = {"Accept": more.get("accept", JSON_ACCEPT)}
        if body:
            headers["Content-Type"] = request.headers.get("content-type", JSON_ACCEPT)
        answer = await self._transport.request(
            request.method,
            request.url.raw_path.decode(),
            body=body,
            headers=headers,
            timeout_s=more.get("timeout_s", self._timeout_s),
            asked=asked,
        )
        found = list(answer.headers.items())
        return httpx2.Response(answer.status, headers=found, content=answer.body, request=request)


class LightkubeClient(Client):
    """A client whose requests lightkube makes. It replaces nothing; a list reads all pages."""

    def __init__(self, transport: Transport, *, timeout_s: float = 10.0) -> None:
        super().__init__(transport, timeout_s=timeout_s)
        cluster = Cluster(server=transport.connection.server)
        self._lightkube: Any = lightkube.AsyncClient(
            KubeConfig.from_one(cluster=cluster, user=User()),
            transport=_OverOurs(transport, timeout_s),
        )

    async def get(
        self, res: Resource, name: str, type_: Any, *, namespace: str | None = None, **more: Any
    ) -> Any:
        """Read one object."""
        ask = self._lightkube.get(_class(res), name, namespace=namespace)
        try:
            return await _answer(ask, type_, _asked("get", res, namespace, name), more)
        except NotFound:
            return None

    async def list(
        self, res: Resource, type_: Any, *, namespace: str | None = None, **more: Any
    ) -> Any:
        """Read all pages, as one."""
        key, _, value = (more.get("labels") or "").partition("=")
        found = self._lightkube.list(
            _class(res),
            namespace=namespace or "*",
            chunk_size=more.get("chunk_size"),
            labels={key: value or None} if key else None,
        )

        async def pages() -> Json:
            items = [item async for item in found]
            return {"metadata": {"resourceVersion": found.resourceVersion}, "items": items}

        return await _answer(pages(), type_, _asked("list", res, namespace), more)

    async def create(
        self, res: Resource, obj: Body, type_: Any, *, namespace: str | None = None, **more: Any
    ) -> Any:
        """Create an object."""
        made = _class(res)(_decoded(obj))
        manager = more.get("field_manager")
        ask = self._lightkube.create(made, namespace=namespace, field_manager=manager)
        return await _answer(ask, type_, _asked("create", res, namespace), more)

    async def patch(
        self,
        res: Resource,
        name: str,
        obj: Body,
        type_: Any,
        *,
        namespace: str | None = None,
        patch_type: PatchType = PatchType.MERGE,
        **more: Any,
    ) -> Any:
        """Change an object."""
        ask = self._lightkube.patch(
            _class(res, more.get("subresource")),
            name,
            _decoded(obj),
            namespace=namespace,
            patch_type=LightkubePatch(patch_type.value),
            field_manager=more.get("field_manager"),
        )
        return await _answer(ask, type_, _asked("patch", res, namespace, name), more)

    async def delete(
        self, res: Resource, name: str, *, namespace: str | None = None, **more: Any
    ) -> None:
        """Delete an object."""
        ask = self._lightkube.delete(_class(res), name, namespace=namespace)
        await _answer(ask, bytes, _asked("delete", res, namespace, name), more)


def _asked(verb: str, res: Resource, namespace: str | None, name: str = "") -> Asked:
    return Asked(verb, res.qualified, namespace or "", name)


def _decoded(obj: Body) -> Any:
    return json.decode(obj if isinstance(obj, bytes) else json.encode(obj))


async def _answer(ask: Awaitable[Any], type_: Any, asked: Asked, more: Json) -> Any:
    """Wait for lightkube's answer; return or raise it as our client does."""
    _REQUEST.set((asked, more))
    try:
        found = await ask
    except lightkube.ApiError as error:
        headers = {name.lower(): value for name, value in error.response.headers.raw}
        status = error.response.status_code
        body = error.response.content
        raise from_response(status, body, headers, asked) from error
    if (writes := WRITES.get()) is not None and asked.verb not in ("get", "list"):
        writes.append(f"{asked.verb} {asked.resource.partition('.')[0]}")
    return json.encode(found) if type_ is bytes else json.decode(json.encode(found), type=type_)


@cache
def _class(res: Resource, subresource: str | None = None) -> Any:
    """Return the class by which lightkube knows a resource, or its status."""
    info = create_api_info(res.group, res.version, res.kind, res.plural)
    if subresource is None:
        base: Any = GenericNamespacedResource if res.namespaced else GenericGlobalResource
    else:
        base = GenericNamespacedStatus if res.namespaced else GenericGlobalStatus
        info = ApiInfo(info.resource, res.plural, ["get", "patch"], info.resource, subresource)
    return type(res.kind, (base,), {"_api_info": info})
