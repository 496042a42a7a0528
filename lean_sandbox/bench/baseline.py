"""The floor scenario: claims bound by three bare requests each, one at a time and in a burst."""

from __future__ import annotations

from lean_sandbox.bench import bodies
from lean_sandbox.bench.figures import in_ms, per_item
from lean_sandbox.bench.floor import Done
from lean_sandbox.bench.load import (
    Sent,
    in_milliseconds,
    latencies_of,
    latency_figures,
    make_pool,
    make_template,
    send,
    send_one,
    until_ready,
    watching,
)
from lean_sandbox.bench.process import BenchError, Worker, process
from lean_sandbox.bench.report import ScenarioReport
from lean_sandbox.bench.stage import Stage
from lean_sandbox.bench.subject import process_usage
from lean_sandbox.kube.resources import SANDBOXCLAIMS, SANDBOXES

_POLL_S = 0.05


async def run_floor(stage: Stage) -> ScenarioReport:
    """Bind ``count`` claims at once by bare requests, after a few one at a time.

    Each of those comes after a rest like that of the scenario ``one``: a server and a processor
    that have rested answer later, and that is no fault of a controller.
    No controller may run. Raises BenchError when the binding process fails.
    """
    options = stage.options
    count, alone = options.count, options.rounds
    async with stage.namespace("floor") as namespace:
        await make_template(stage.client, namespace)
        uid = await make_pool(stage.client, namespace, count + alone)
        members = [f"w{number}" for number in range(count + alone)]
        await send(
            stage,
            SANDBOXES,
            namespace,
            members,
            lambda name: bodies.sandbox(name, owner_uid=uid),
        )
        arguments = (*stage.connection_arguments, namespace, uid, str(options.floor_in_flight))
        log = stage.folder / "floor.log"
        async with (
            process("lean_sandbox.bench.floor", *arguments, log=log) as binder,
            watching(stage, SANDBOXCLAIMS, namespace) as seen,
        ):
            prepared = await binder.read(Done)
            if prepared.free != len(members):
                raise BenchError(
                    f"{prepared.free} Sandboxes are free instead of {len(members)}: does another"
                    " controller serve this server?"
                )
            single = Sent({}, {})
            for number in range(alone):
                await stage.clock.sleep(options.quiet)
                await send_one(stage, SANDBOXCLAIMS, namespace, f"a{number}", bodies.claim, single)
                await until_ready(stage, seen, number + 1, "claims of the floor, one at a time,")
            before = process_usage(binder.pid)
            began = stage.clock.monotonic()
            names = [f"c{number}" for number in range(count)]
            sent = await send(stage, SANDBOXCLAIMS, namespace, names, bodies.claim)
            await until_ready(stage, seen, count + alone, "claims of the floor")
            seconds = stage.clock.monotonic() - began
            after = process_usage(binder.pid)
            done = await _finished(stage, binder, count + alone)
        latencies_s = latencies_of(sent, seen)
        cpu_ms = (
            None
            if after.cpu_s is None or before.cpu_s is None
            else 1000 * (after.cpu_s - before.cpu_s)
        )
        figures: dict[str, float | None] = {"claims": count}
        return ScenarioReport(
            name="floor",
            figures=figures
            | latency_figures(sent, latencies_s)
            | {
                "one_p50_ms": in_ms(latencies_of(single, seen), 50),
                "seconds": round(seconds, 2),
                "requests_each": per_item(done.requests, count + alone),
                "cpu_ms_each": per_item(cpu_ms, count),
            },
            latencies_ms=in_milliseconds(latencies_s),
        )


async def _finished(stage: Stage, binder: Worker, claims: int) -> Done:
    """Wait until the last answers are there: a watch may show a claim Ready before them.

    Raises BenchError.
    """
    deadline = stage.clock.monotonic() + stage.options.wait
    while (done := await binder.ask(Done)).bound < claims:
        if stage.clock.monotonic() > deadline:
            raise binder.failed(f"bound {done.bound} claims of {claims}")
        await stage.clock.sleep(_POLL_S)
    return done
