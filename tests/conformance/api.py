"""A small client for the laws of the API: it only speaks HTTP, so any API server will do."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp

from tests.conformance.objects import WIDGETS, config, pod, widget
from tests.support.patience import PATIENCE_S

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the decoded body."""
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        """Return the reason of a Status."""
        return str(self.json.get("reason", ""))

    @property
    def message(self) -> str:
        """Return the message of a Status."""
        return str(self.json.get("message", ""))

    @property
    def version(self) -> str:
        """Return the resourceVersion of the object or list."""
        return str(self.json["metadata"]["resourceVersion"])

    def ok(self) -> Any:
        """Return the decoded body of a success."""
        assert 200 <= self.status < 300, self.body
        return self.json

    def refused(self, status: int, reason: str) -> Json:
        """Return the Status of a refusal of that code and reason."""
        assert (self.status, self.reason) == (status, reason), self.body
        found: Json = self.json
        assert found["kind"] == "Status"
        assert found["apiVersion"] == "v1"
        assert found["status"] == "Failure"
        assert found["code"] == status
        return found


class Stream:
    """The events of one watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status

    async def next(self) -> Json | None:
        """Return the next event, None at the end of the stream."""
        line = await self._response.content.readline()
        return json.loads(line) if line else None

    async def rest(self) -> list[Json]:
        """Return all events up to the end of the stream."""
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found

    async def take(self, count: int) -> list[Json]:
        """Return the next ``count`` events."""
        found: list[Json] = []
        for _ in range(count):
            event = await self.next()
            assert event is not None, found
            found.append(event)
        return found


class Api:
    """An API server, asked as one user."""

    def __init__(self, url: str, token: str | None, *, ca: str | None = None) -> None:
        self.url = url
        self._token = token
        self._tls: ssl.SSLContext | bool = ssl.create_default_context(cadata=ca) if ca else True
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, read_bufsize=1 << 22, timeout=aiohttp.ClientTimeout(PATIENCE_S)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    def as_user(self, token: str | None) -> Api:
        """Return the same server asked with another token; it shares the connections."""
        other = Api(self.url, token)
        other._session = self._session
        return other

    def _headers(self, **more: str) -> dict[str, str]:
        headers = {key.replace("_", "-"): value for key, value in more.items() if value}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    @staticmethod
    def _target(path: str, query: Mapping[str, Any]) -> str:
        return path + ("?" + urlencode(query) if query else "")

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = "",
        accept: str = "",
        agent: str = "",
        headers: Sequence[tuple[str, str]] = (),
        **query: Any,
    ) -> Reply:
        """Make one request; keywords become query parameters (``continue_`` for ``continue``)."""
        assert self._session is not None
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = content or ("application/json" if data is not None else "")
        params = {key.rstrip("_"): value for key, value in query.items()}
        async with self._session.request(
            method,
            self.url + self._target(path, params),
            data=io.BytesIO(data) if data and len(data) > 1 << 20 else data,
            headers=[
                *self._headers(Content_Type=kind, Accept=accept, User_Agent=agent).items(),
                *headers,
            ],
            skip_auto_headers=("Content-Type",),
        ) as response:
            return Reply(response.status, response.headers, await response.read())

    async def get(self, path: str, **more: Any) -> Reply:
        """GET."""
        return await self.ask("GET", path, **more)

    async def post(self, path: str, body: Any, **more: Any) -> Reply:
        """POST."""
        return await self.ask("POST", path, body, **more)

    async def put(self, path: str, body: Any, **more: Any) -> Reply:
        """PUT."""
        return await self.ask("PUT", path, body, **more)

    async def patch(self, path: str, body: Any, content: str = MERGE, **more: Any) -> Reply:
        """PATCH, as a merge patch unless told otherwise."""
        return await self.ask("PATCH", path, body, content=content, **more)

    async def delete(self, path: str, body: Any = None, **more: Any) -> Reply:
        """DELETE."""
        return await self.ask("DELETE", path, body, **more)

    @asynccontextmanager
    async def watch(self, path: str, *, accept: str = "", **query: Any) -> AsyncIterator[Stream]:
        """Open a watch."""
        assert self._session is not None
        query = {"watch": "1", "timeoutSeconds": "10", **query}
        async with self._session.get(
            self.url + self._target(path, query), headers=self._headers(Accept=accept)
        ) as response:
            yield Stream(response)

    async def events(self, path: str, count: int, **query: Any) -> list[Json]:
        """Return the first ``count`` events of a watch."""
        async with self.watch(path, **query) as stream:
            return await stream.take(count)

    async def events_to_the_end(self, path: str, **query: Any) -> list[Json]:
        """Return all events of a watch that the server ends."""
        async with self.watch(path, **query) as stream:
            return await stream.rest()


@dataclass(frozen=True, slots=True)
class Room:
    """A namespace of one test, and the paths in it."""

    api: Api
    name: str

    @property
    def core(self) -> str:
        """Return the path of core kinds in it."""
        return f"/api/v1/namespaces/{self.name}"

    @property
    def pods(self) -> str:
        """Return the path of its Pods."""
        return f"{self.core}/pods"

    @property
    def maps(self) -> str:
        """Return the path of its ConfigMaps."""
        return f"{self.core}/configmaps"

    @property
    def widgets(self) -> str:
        """Return the path of its Widgets."""
        return f"{WIDGETS}/namespaces/{self.name}/widgets"

    async def widget(self, name: str, **spec: Any) -> Json:
        """Create a Widget; ``metadata`` goes there, everything else into its spec."""
        return dict((await self.api.post(self.widgets, widget(name, **spec))).ok())

    async def widget_events(self, labels: Json | None = None, **query: Any) -> list[Json]:
        """Return what a watch of Widgets shows before a Widget that is created after its start.

        Events come in order, so what has not come before this marker does not come: no test has to
        wait for silence. ``labels`` are those that a selector of the watch demands of the marker.
        """
        found = []
        async with self.api.watch(self.widgets, **query) as stream:
            await self.widget("marker", metadata={"labels": labels or {}})
            while (event := (await stream.take(1))[0])["object"]["metadata"]["name"] != "marker":
                found.append(event)
        return found

    async def config(self, name: str, **data: str) -> Json:
        """Create a ConfigMap."""
        return dict((await self.api.post(self.maps, config(name, data))).ok())

    async def pod(self, name: str, **metadata: Any) -> Json:
        """Create a Pod."""
        return dict((await self.api.post(self.pods, pod(name, **metadata))).ok())


_rooms = itertools.count(1)


@asynccontextmanager
async def open_room(api: Api) -> AsyncIterator[Room]:
    """Make a namespace of one's own and take it away."""
    name = f"laws-{os.getpid()}-{next(_rooms)}"
    (await api.post("/api/v1/namespaces", {"metadata": {"name": name}})).ok()
    await answers(api, f"/api/v1/namespaces/{name}/serviceaccounts/default")
    yield Room(api, name)
    await api.delete(f"/api/v1/namespaces/{name}")


async def until(check: Callable[[], Awaitable[bool]], *, every_s: float = 0.02) -> None:
    """Ask until it is so; the time limit of the test is the limit of patience."""
    while not await check():  # noqa: ASYNC110 - a server over HTTP has no event to wait for
        await asyncio.sleep(every_s)


async def answers(api: Api, path: str, status: int = 200) -> None:
    """Wait until a path answers with a status."""

    async def check() -> bool:
        return (await api.get(path)).status == status

    await until(check)


async def is_deleting(api: Api, path: str) -> bool:
    """Say whether an object has been deleted but is held."""
    return "deletionTimestamp" in (await api.get(path)).ok()["metadata"]


RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def token(room: Room, name: str = "default", **spec: Any) -> str:
    """Return a token of a service account."""
    path = f"{room.core}/serviceaccounts/{name}/token"
    return str((await room.api.post(path, {"spec": spec})).ok()["status"]["token"])


async def bound(room: Room, account: str, *rules: Json, cluster: bool = False) -> Api:
    """Return the API as a service account that has some rules."""
    base = RBAC if cluster else f"{RBAC}/namespaces/{room.name}"
    kind = "ClusterRole" if cluster else "Role"
    name = f"{room.name}-{account}"
    accounts = f"{room.core}/serviceaccounts"
    (await room.api.post(accounts, {"metadata": {"name": account}})).ok()
    role = {"metadata": {"name": name}, "rules": list(rules)}
    (await room.api.post(f"{base}/{kind.lower()}s", role)).ok()
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": room.name}],
    }
    (await room.api.post(f"{base}/{kind.lower()}bindings", binding)).ok()
    return room.api.as_user(await token(room, account))


def warnings(reply: Reply) -> str:
    """Return the warnings of an answer."""
    return " ".join(reply.headers.getall("Warning", []))  # type: ignore[attr-defined]


def cause(reply: Reply) -> tuple[str, str]:
    """Return field and message of the first cause."""
    found = reply.json["details"]["causes"][0]
    return found["field"], found["message"]
