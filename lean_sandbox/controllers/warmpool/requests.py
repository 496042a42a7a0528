"""The requests of one reconcile of a pool: members are created, adopted, labelled and deleted.

Errors are collected in the run, so that a member that cannot be changed does not stop the others.
A delete is guarded by uid and version: a Sandbox that a claim took a moment ago has another
version, so the claim keeps it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, NamedTuple

import anyio

from lean_sandbox.controllers.warmpool.members import has_labels
from lean_sandbox.controllers.warmpool.run import PoolRun
from lean_sandbox.kube.errors import Conflict, ControlPlaneError, Invalid, Status
from lean_sandbox.model import names
from lean_sandbox.model.meta import is_controlled_by, with_controller_reference
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.model.warmpool import Freshness, slow_start_groups
from lean_sandbox.runtime.workers import UNSEEN_S
from lean_sandbox.watch.kind import key_of
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# How many members are acted on at a time, and how many are created or deleted at a time.
_AT_ONCE = 8
_MOST_AT_ONCE = 32


class Tries(NamedTuple):
    """How often something was tried in groups, how often with success, and what may follow."""

    tried: int
    succeeded: int
    next_size: int


async def for_each(
    run: PoolRun, members: list[SandboxEntry], act: Callable[[SandboxEntry], Awaitable[object]]
) -> None:
    """Act on each of some Sandboxes: first on one, then on a few at a time.

    The response for the first may hold for all others. They are not handled one after the other,
    because a rollout of thousands would keep other pools waiting.
    """
    waiting = iter(members)

    async def work(most: int | None = None) -> None:
        for member in islice(waiting, most):
            await _attempt(run, act, member)

    await work(1)
    if len(members) > 1:
        async with anyio.create_task_group() as group:
            for _ in range(min(_AT_ONCE, len(members) - 1)):
                group.start_soon(work)


async def _attempt(run: PoolRun, act: Callable[..., Awaitable[object]], *arguments: Any) -> None:
    """Act on one Sandbox; an error is collected and does not stop the others."""
    try:
        await act(*arguments)
    except ControlPlaneError as error:
        run.errors.append(error)


async def in_groups(
    run: PoolRun,
    total: int,
    act: Callable[[], Awaitable[None]],
    *,
    first: int = 1,
    is_over: Callable[[], bool] = lambda: False,
) -> Tries:
    """Act up to ``total`` times, in groups that grow; ``first`` is the size of the first.

    A group begins when the one before has ended. After an error, or once it ``is_over``, no further
    group begins, and a group that is larger than what is acted on at once stops.
    """
    errors = run.errors
    tried = 0
    failed = len(errors)

    def is_stopped() -> bool:
        return len(errors) > failed or is_over()

    async def work(turns: int) -> None:
        nonlocal tried
        for turn in range(turns):
            if turn and is_stopped():
                return
            tried += 1
            await _attempt(run, act)

    size = 0
    for size in slow_start_groups(total, first):
        workers = min(size, _MOST_AT_ONCE)
        async with anyio.create_task_group() as group:
            for begin in range(workers):
                group.start_soon(work, len(range(begin, size, workers)))
        if is_stopped():
            break
    new = len(errors) - failed
    return Tries(tried, tried - new, next_size=1 if new else min(2 * size, _MOST_AT_ONCE))


async def create_member(run: PoolRun, body: bytes) -> SandboxEntry:
    """Create a member. One POST, and a DELETE if the server has taken its owner away.

    Raises Invalid then: a mutating policy or a webhook does so with each member.
    """
    run.has_acted = True
    context = run.context
    written = await context.writer.create(
        run.sandboxes, run.view.namespace, body, owner=run.view.uid
    )
    meta = written.item.metadata
    if meta.creation_timestamp:
        context.server_time.made_now(meta.creation_timestamp)
    if not is_controlled_by(meta.controller, run.view.uid):
        await context.writer.delete(run.sandboxes, written.entry)
        text = f'sandbox "{meta.name}" was accepted without its pool as owner'
        raise Invalid(422, Status(reason="Invalid", message=text))
    if run.staleness is not None:
        run.staleness.note_made(written.entry.metadata)
    context.wakes.launch(key_of(meta.namespace, meta.name), written.item)
    return written.entry


async def take_in(run: PoolRun, orphan: SandboxEntry) -> None:
    """Adopt an orphan that fits the template, delete it otherwise.

    With the template missing all are adopted. One GET and one PATCH, or one DELETE (after a GET if
    the labels do not decide), or nothing at all where the adoption was undone just so.
    """
    undone = run.context.undone
    staleness = run.staleness
    blueprint = staleness.template.blueprint_hash if staleness is not None else ""
    if undone.is_in_vain(orphan.uid, (orphan.generation, blueprint)):
        return
    if staleness is not None and staleness.is_of_another(orphan.metadata):
        await delete_member(run, orphan, "stale")
        return
    whole = await _peek(run, orphan)
    if whole is None:
        return
    # Anybody may write its hash, so what is found of it says nothing of members.
    if staleness is not None and staleness.compare(whole.spec) is Freshness.STALE:
        await delete_member(run, orphan, "stale")
        return
    meta = whole.metadata
    is_free = meta.controller is None and not meta.deletion_timestamp
    label = (meta.labels or {}).get(names.WARM_POOL_LABEL)
    if not is_free or label != run.view.pool_hash:
        # The watch is late; its event leads to another reconcile.
        return
    owners = with_controller_reference(meta.owners, run.view.reference)
    patch = {
        "resourceVersion": meta.resource_version,
        "ownerReferences": owners,
        "labels": {names.LAUNCH_TYPE_LABEL: names.LAUNCH_TYPE_WARM},
    }
    made = await _patch(run, orphan, patch)
    if made.owner is None:
        undone.note(made.uid, (made.generation, blueprint))
    run.context.wakes.launch(orphan.key, None)


async def drop_if_stale(run: PoolRun, member: SandboxEntry, *, gets_on: bool) -> None:
    """Delete a member that does not fit the template, or only relabelled does not get on.

    At most one DELETE, and one GET if the labels do not decide.
    """
    staleness = run.staleness
    assert staleness is not None
    verdict = staleness.by_labels(member.metadata)
    if verdict is Freshness.UNDECIDED:
        whole = await _peek(run, member)
        if whole is None:
            return
        verdict = staleness.by_spec(whole.metadata, whole.spec)
    if verdict is Freshness.STALE or (verdict is Freshness.RELABELLED and not gets_on):
        await delete_member(run, member, "stale")


async def _peek(run: PoolRun, sandbox: SandboxEntry) -> Sandbox | None:
    run.has_acted = True
    whole: Sandbox | None = await run.context.writer.peek(run.sandboxes, sandbox.key)
    return whole


async def give_labels(run: PoolRun, member: SandboxEntry) -> None:
    """Give a member the labels that it lacks. One PATCH, unless one was undone just so."""
    undone = run.context.undone
    if undone.is_in_vain(member.uid, member.labels):
        return
    labels = {
        names.WARM_POOL_LABEL: run.view.pool_hash,
        names.LAUNCH_TYPE_LABEL: names.LAUNCH_TYPE_WARM,
    }
    if names.TEMPLATE_REF_HASH_LABEL not in (member.labels or {}):
        made_from = (member.notes or {}).get(names.TEMPLATE_REF_ANNOTATION)
        template = made_from or run.view.template
        labels[names.TEMPLATE_REF_HASH_LABEL] = names.name_hash(template)
    version = await run.context.writer.guard(run.sandboxes, member)
    now = await _patch(run, member, {"resourceVersion": version, "labels": labels})
    if not has_labels(now, run.view.pool_hash):
        undone.note(now.uid, now.labels)
    # Its Pod has the same labels.
    run.context.wakes.launch(member.key, None)


async def _patch(run: PoolRun, member: SandboxEntry, metadata: dict[str, Any]) -> SandboxEntry:
    run.has_acted = True
    body = {"metadata": metadata}
    return (await run.context.writer.patch(run.sandboxes, member, body)).entry


async def delete_member(run: PoolRun, member: SandboxEntry, why: str) -> None:
    """Delete a Sandbox unless it changed meanwhile; until it is gone, claims cannot take it."""
    context = run.context
    run.has_acted = True
    is_reserved = context.warm.reserve(member)
    try:
        await context.writer.delete(run.sandboxes, member, is_guarded=True)
    except Conflict:
        run.requeue.within(UNSEEN_S)
    else:
        # No event of a later version can say otherwise.
        run.sandboxes.mark(member, is_deleting=True)
        context.events.log(run.entry, "Normal", "MemberDeleted", sandbox=member.key.name, why=why)
    finally:
        if is_reserved:
            context.warm.release(member)
