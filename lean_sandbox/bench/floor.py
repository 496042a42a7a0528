"""The floor: a process that binds claims by the three requests a bind needs, and does no more.

GET claim, PATCH Sandbox (guarded by the uid of the pool that owns it), PATCH claim status. It sees
new claims on a metadata watch and has at most IN_FLIGHT binds under way. What is between its
latencies and the controller's is what the controller adds.

Started as ``python -m lean_sandbox.bench.floor KUBECONFIG CONTEXT NAMESPACE POOL_UID IN_FLIGHT``.
Says one line once it watches, and answers each line of its input with what it has done so far.
"""

from __future__ import annotations

import sys
from urllib.parse import urlencode

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from lean_sandbox.bench.connecting import open_client
from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.kube.client import METADATA_ACCEPT, Client
from lean_sandbox.kube.limits import Lane
from lean_sandbox.kube.resources import SANDBOXCLAIMS, SANDBOXES, path
from lean_sandbox.kube.wire import Page
from lean_sandbox.model import names
from lean_sandbox.model.times import format_rfc3339
from lean_sandbox.watch.lines import LineSplitter

_ROOM = 100_000


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    uid: str = ""


class _Object(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta = _Meta()


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    object: _Object = _Object()


class Done(msgspec.Struct, frozen=True):
    """How many Sandboxes were free at the start and how many claims were bound since."""

    free: int
    bound: int
    requests: int


class _Binder:
    def __init__(self, client: Client, clock: Clock, namespace: str, pool_uid: str) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._pool_uid = pool_uid
        self._free: list[str] = []
        self._first_free = 0
        self._bound = 0

    async def prepare(self) -> str:
        """List the free Sandboxes; return the version to watch claims from."""
        token = ""
        while True:
            page = await self._client.list_page(
                SANDBOXES, self._namespace, Page[_Object], continue_=token or None
            )
            self._free += [item.metadata.name for item in page.items]
            token = page.metadata.continue_
            if not token:
                break
        self._first_free = len(self._free)
        claims = await self._client.list_page(SANDBOXCLAIMS, self._namespace, Page[_Object])
        return claims.metadata.resourceVersion

    def done(self) -> Done:
        requests = sum(
            number
            for (_, verb, _, _), number in self._client.transport.statistics().requests.items()
            if verb in ("get", "patch")
        )
        return Done(self._first_free, self._bound, requests)

    async def watch(self, version: str, found: MemoryObjectSendStream[str]) -> None:
        """Hand on the name of each new claim until the watch ends."""
        query = urlencode({"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600"})
        decode = msgspec.json.Decoder(_Event).decode
        splitter = LineSplitter()
        async with self._client.transport.stream(
            f"{path(SANDBOXCLAIMS, self._namespace)}?{query}", headers={"Accept": METADATA_ACCEPT}
        ) as stream:
            while True:
                # The load that waits for its claims has the deadline.
                for line in splitter.feed(await stream.receive()):
                    event = decode(line)
                    if event.type == "ADDED":
                        found.send_nowait(event.object.metadata.name)

    async def bind(self, claims: MemoryObjectReceiveStream[str]) -> None:
        """Bind claims one after another."""
        async for name in claims:
            await self._bind(name)

    async def _bind(self, name: str) -> None:
        client, namespace = self._client, self._namespace
        claim = await client.get(SANDBOXCLAIMS, namespace, name, _Object, lane=Lane.CLIENT)
        member = self._free.pop()
        owner = {
            "apiVersion": SANDBOXCLAIMS.api_version,
            "kind": SANDBOXCLAIMS.kind,
            "name": name,
            "uid": claim.metadata.uid,
            "controller": True,
        }
        operations = [
            {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": self._pool_uid},
            {"op": "replace", "path": "/metadata/ownerReferences/0", "value": owner},
        ]
        await client.json_patch(SANDBOXES, namespace, member, operations, bytes, lane=Lane.CLIENT)
        ready = {
            "type": names.READY,
            "status": names.TRUE,
            "reason": "Ready",
            "message": "",
            "lastTransitionTime": format_rfc3339(self._clock.now()),
        }
        status = {"status": {"sandbox": {"name": member}, "conditions": [ready]}}
        await client.merge_patch(
            SANDBOXCLAIMS, namespace, name, status, bytes, subresource="status", lane=Lane.CLIENT
        )
        self._bound += 1


async def main(
    kubeconfig: str, context: str, namespace: str, pool_uid: str, in_flight: int
) -> None:
    """Bind the namespace's claims until standard input ends."""
    clock = SystemClock()
    send, receive = anyio.create_memory_object_stream[str](_ROOM)
    async with (
        send,
        receive,
        open_client(kubeconfig, context, clock, agent="bench-floor", in_flight=in_flight) as client,
        anyio.create_task_group() as group,
    ):
        binder = _Binder(client, clock, namespace, pool_uid)
        version = await binder.prepare()
        group.start_soon(binder.watch, version, send)
        for _ in range(in_flight):
            group.start_soon(binder.bind, receive)
        _say(binder.done())
        async for _ in anyio.wrap_file(sys.stdin):
            _say(binder.done())
        group.cancel_scope.cancel()


def _say(what: msgspec.Struct) -> None:
    sys.stdout.write(msgspec.json.encode(what).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
