"""How long one tenant's single claim takes while another tenant's burst is being served.

Run as ``python -m tests.bench.fairness_bench [kubeconfig]``: on an embedded server, or on the one
of the kubeconfig, where a node has to run Pods and nothing may serve Sandboxes yet. One tenant
makes claims one at a time on a pool of its own, first alone, then while 3,000 objects of another
tenant wait to be served: claims of a pool with members, claims of a pool that does not exist, and
Sandboxes. What is printed are milliseconds from the create to Ready as a watching client sees it,
and how many times the median of the quiet time they are.

Measured on two cores that other work shared, an embedded server, CPython 3.11::

                                     p50     p90     max x quiet
    quiet                            9.3    11.3    17.3    1.00
    claims, pool of 300            228.2   278.0   395.2   24.60
    quiet                           14.2    20.1    22.3    1.00
    claims, no such pool            17.5    51.5    56.4    1.24
    quiet                            9.2    12.2    16.0    1.00
    Sandboxes                      112.6   176.1   181.8   12.19

Without turns for requests the second line was 2378.2, the last 345.7. What is left is the server's
own line: a claim's create, which no controller takes part in, took 2 ms in the quiet time and 20 to
70 ms beside the claims. With two requests in flight instead of 16 the second line was 1.5 x quiet.
"""

from __future__ import annotations

import secrets
import sys
from statistics import median

import anyio

from lean_sandbox.bench import load
from lean_sandbox.bench.environment import Environment, open_environment
from lean_sandbox.bench.load import Load
from lean_sandbox.bench.options import BenchOptions
from lean_sandbox.bench.report import Screen
from lean_sandbox.clock import SystemClock
from lean_sandbox.kube.resources import NAMESPACES, SANDBOXCLAIMS, SANDBOXES, Resource

MANY = 3000
ROUNDS = 25
MEMBERS = 60
# Between two single claims: what follows the last one is done by then.
PAUSE_S = 0.25


async def namespace(env: Environment) -> str:
    """Make a namespace, which goes with the server."""
    name = f"fairness-{secrets.token_hex(3)}"
    made = load.manifest(NAMESPACES, name, labels={load.MARK: "bench"})
    await env.client.create(NAMESPACES, None, made, bytes)
    return name


async def singles(env: Environment, where: str) -> list[float]:
    """Make claims one at a time; return the milliseconds until each was Ready."""
    async with env.load(SANDBOXCLAIMS, where) as claims:
        for number in range(ROUNDS):
            await claims.send_one(number)
            await claims.until_ready()
            await env.clock.sleep(PAUSE_S)
        return list(claims.latencies_ms().values())


async def tenant(env: Environment, members: int) -> str:
    """Make a namespace with a template and a full pool; no pool without members."""
    where = await namespace(env)
    await load.make_template(env.client, where)
    if members:
        await load.make_pool(env.client, where, members)
        await env.until_full(where, members)
    return where


def row(name: str, found: list[float], quiet: list[float]) -> str:
    """Return a line of the table."""
    middle, most = median(found), sorted(found)[int(0.9 * len(found))]
    times = middle / median(quiet)
    return f"{name:28}{middle:8.1f}{most:8.1f}{max(found):8.1f}{times:8.2f}"


async def beside(env: Environment, resource: Resource, members: int) -> list[float]:
    """Return the latencies of single claims while a burst of another tenant waits."""
    mine, theirs = await tenant(env, MEMBERS), await tenant(env, members)
    await env.measured.until_idle("filling the pools")
    burst = Load(env.client, env.clock, env.options, resource, theirs, {})
    async with anyio.create_task_group() as group:
        group.start_soon(burst.send, range(MANY))
        # Not before all are there: what is measured is the controller, not who makes them.
        while len(burst.answered_ms) < MANY:
            await env.clock.sleep(PAUSE_S)
    return await singles(env, mine)


async def main() -> None:
    """Measure and print."""
    kubeconfig = sys.argv[1] if len(sys.argv) > 1 else ""
    options = BenchOptions(kubeconfig=kubeconfig, controller_flags=tuple(sys.argv[2:]))
    print(f"{'':28}{'p50':>8}{'p90':>8}{'max':>8}{'x quiet':>8}")  # noqa: T201
    screen = Screen(quiet=True)
    cases = (
        ("claims, pool of 300", SANDBOXCLAIMS, 300),
        ("claims, no such pool", SANDBOXCLAIMS, 0),
        ("Sandboxes", SANDBOXES, 0),
    )
    for name, resource, members in cases:
        async with (
            open_environment(options, SystemClock(), screen) as env,
            env.controller(),
        ):
            mine = await tenant(env, MEMBERS)
            await env.measured.until_idle("its start")
            quiet = await singles(env, mine)
            found = await beside(env, resource, members)
            print(row("quiet", quiet, quiet), row(name, found, quiet), sep="\n", flush=True)  # noqa: T201


if __name__ == "__main__":
    anyio.run(main)
