"""How long one tenant's single claim takes while another tenant's burst is being served.

Run as ``python -m tests.bench.fairness_bench [kubeconfig]``: on an embedded server, or on the one
of the kubeconfig, where a node has to run Pods and nothing may serve Sandboxes yet. One tenant
makes claims one at a time on a pool of its own, first alone, then while 3,000 objects of another
tenant wait to be served: claims of a pool with members, claims of a pool that does not exist, and
Sandboxes. What is printed are milliseconds from the create to Ready as a watching client sees it,
how many times the median of the quiet time they are, and the median of the create alone, in which
no controller takes part.

Measured on two cores that the server shared, CPython 3.11.2, 2026-11-26::

    embedded server                  p50     p90     max x quiet  create
    quiet                            4.5     6.6     7.8    1.00     0.9
    claims, pool of 300             54.9    80.3    84.7   12.20    14.2
    quiet                            4.1     5.0     6.1    1.00     0.6
    claims, no such pool             4.8    25.2    35.7    1.17     1.0
    quiet                            4.8     5.9     6.6    1.00     0.9
    Sandboxes                       34.8    43.6    52.0    7.25     8.8

    kube-apiserver, MANY = 1500
    quiet                           11.5    13.6    17.0    1.00     3.1
    claims, pool of 300            146.4   279.0   441.7   12.73    54.4
    quiet                           14.7    21.7    29.0    1.00     3.7
    claims, no such pool            17.3    94.8   420.5    1.18     4.4
    quiet                           12.0    14.8    17.0    1.00     3.2
    Sandboxes                       38.8   109.9   193.6    3.23     6.8

The create is slower beside a burst as well: by its measure a claim takes 2.7 to 5.7 creates there,
and 3.7 to 6.8 when all is quiet.
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
    await env.client.create(NAMESPACES, made, bytes)
    return name


async def singles(env: Environment, where: str) -> tuple[list[float], list[float]]:
    """Make claims one at a time; return the milliseconds until each was Ready, and was created."""
    async with env.load(SANDBOXCLAIMS, where) as claims:
        for number in range(ROUNDS):
            await claims.send_one(number)
            await claims.until_ready()
            await env.clock.sleep(PAUSE_S)
        made = claims.made.values()
        return [one.ready_ms or 0.0 for one in made], [one.answered_ms or 0.0 for one in made]


async def tenant(env: Environment, members: int) -> str:
    """Make a namespace with a template and a full pool; no pool without members."""
    where = await namespace(env)
    await load.make_template(env.client, where)
    if members:
        await load.make_pool(env.client, where, members)
        await env.until_full(where, members)
    return where


def row(name: str, found: list[float], created: list[float], quiet: list[float]) -> str:
    """Return a line of the table."""
    middle = median(found)
    most = sorted(found)[int(0.9 * len(found))]
    times = middle / median(quiet)
    return f"{name:28}{middle:8.1f}{most:8.1f}{max(found):8.1f}{times:8.2f}{median(created):8.1f}"


async def beside(
    env: Environment, resource: Resource, members: int
) -> tuple[list[float], list[float]]:
    """Do as :func:`singles` while a burst of another tenant waits."""
    mine = await tenant(env, MEMBERS)
    theirs = await tenant(env, members)
    await env.measured.until_idle("filling the pools")
    burst = Load(env.client, env.clock, env.options, resource, theirs, {})
    async with anyio.create_task_group() as group:
        group.start_soon(burst.send, range(MANY))
        # Not before all are there: what is measured is the controller, not who makes them.
        while sum(one.answered_ms is not None for one in burst.made.values()) < MANY:
            await env.clock.sleep(PAUSE_S)
    return await singles(env, mine)


async def main() -> None:
    """Measure and print."""
    kubeconfig = sys.argv[1] if len(sys.argv) > 1 else ""
    options = BenchOptions(kubeconfig=kubeconfig, controller_flags=tuple(sys.argv[2:]))
    print(f"{'':28}{'p50':>8}{'p90':>8}{'max':>8}{'x quiet':>8}{'create':>8}")  # noqa: T201
    screen = Screen(quiet=True)
    cases = (
        ("claims, pool of 300", SANDBOXCLAIMS, 300),
        ("claims, no such pool", SANDBOXCLAIMS, 0),
        ("Sandboxes", SANDBOXES, 0),
    )
    for name, resource, members in cases:
        async with open_environment(options, SystemClock(), screen) as env, env.controller():
            mine = await tenant(env, MEMBERS)
            await env.measured.until_idle("its start")
            quiet, created = await singles(env, mine)
            print(row("quiet", quiet, created, quiet))  # noqa: T201
            found, created = await beside(env, resource, members)
            print(row(name, found, created, quiet), flush=True)  # noqa: T201


if __name__ == "__main__":
    anyio.run(main)
