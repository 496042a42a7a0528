"""The simulated kubelet of the bench, in a process of its own, for a server that has none.

Started as ``python -m lean_sandbox.bench.nodes KUBECONFIG CONTEXT NODES``; says one line once it
serves, and ends with its standard input.
"""

from __future__ import annotations

import random
import sys

import anyio
import msgspec

from lean_sandbox.bench.connecting import open_client
from lean_sandbox.clock import SystemClock
from lean_sandbox.local.kubelet import Kubelet, KubeletSettings

NODE_PREFIX = "lean-sandbox-bench"
_IN_FLIGHT = 16


class Serving(msgspec.Struct, frozen=True):
    """The Nodes that Pods can be bound to."""

    nodes: int


async def main(kubeconfig: str, context: str, nodes: int) -> None:
    """Move Pods until standard input ends."""
    clock = SystemClock()
    settings = KubeletSettings(nodes=nodes, node_prefix=NODE_PREFIX, max_in_flight=_IN_FLIGHT)
    async with open_client(
        kubeconfig, context, clock, agent="bench-kubelet", in_flight=_IN_FLIGHT
    ) as client:
        kubelet = Kubelet(client, settings, clock=clock, chance=random.Random())  # noqa: S311
        async with anyio.create_task_group() as group:
            await group.start(kubelet.run)
            sys.stdout.write(msgspec.json.encode(Serving(nodes)).decode() + "\n")
            sys.stdout.flush()
            async for _ in anyio.wrap_file(sys.stdin):
                pass
            group.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
