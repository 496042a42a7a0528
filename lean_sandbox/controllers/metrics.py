"""Metrics of Sandboxes, pools and claims, as the reference controller has them since v1.0.5.

Transitions are counted when they happen. The contents of the caches are counted at each scrape: one
walk over the Sandboxes gives both gauges. It lets others run every thousand entries, about a
millisecond of work, and gives up when it has taken too long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import anyio.lowlevel

from lean_sandbox.clock import Clock
from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import (
    MOST_BYTES,
    MOST_SERIES,
    Counters,
    Exposition,
    Family,
    Histograms,
    Labels,
    Living,
    line_bytes,
)
from lean_sandbox.model import names
from lean_sandbox.model.conditions import find, has_reason, is_true
from lean_sandbox.model.sandbox import SandboxStatus
from lean_sandbox.model.times import no_earlier, parse_rfc3339
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.extensions import ClaimEntry, PoolEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# Values of the label for the template where there is none.
_UNKNOWN_TEMPLATE: Final = "unknown"
# On metrics of claims, as in the reference controller; they cannot be joined with the others then.
_UNKNOWN_TEMPLATE_OF_CLAIM: Final = "__unknown__"
_NO_TEMPLATE: Final = frozenset({_UNKNOWN_TEMPLATE, _UNKNOWN_TEMPLATE_OF_CLAIM})
_OWNERS: Final = frozenset({names.SANDBOX_CLAIM_KIND, names.SANDBOX_WARM_POOL_KIND})

_STATUSES = ("ready", "pending", "succeeded", "failed")
_BY_OUTCOME = {names.REASON_POD_SUCCEEDED: "succeeded", names.REASON_POD_FAILED: "failed"}


def _owned_by(entry: SandboxEntry) -> str:
    # The kind of the owner, if it is an extension.
    owner = entry.owner
    if owner is not None and owner.group == names.EXTENSIONS_GROUP and owner.kind in _OWNERS:
        return owner.kind
    return "None"


def _template_of(entry: SandboxEntry) -> str:
    # Empty when the Sandbox names no template, or one that cannot be.
    named = (entry.notes or {}).get(names.TEMPLATE_REF_ANNOTATION, "")
    return named if names.is_object_name(named) else ""


def _creator_of(entry: SandboxEntry | ClaimEntry) -> str:
    creator = (entry.labels or {}).get(names.CREATED_BY_LABEL)
    return names.normalise_created_by(creator) or names.CREATED_BY_UNKNOWN


def launch_of(entry: SandboxEntry) -> str:
    """Return how a Sandbox came to its claim: warm or cold."""
    is_warm = (entry.labels or {}).get(names.LAUNCH_TYPE_LABEL) == names.LAUNCH_TYPE_WARM
    return names.LAUNCH_TYPE_WARM if is_warm else names.LAUNCH_TYPE_COLD


class Metrics:
    """Counts transitions of Sandboxes and outcomes of claims; remembers only those in progress."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The transitions in progress: uid, whether it is a suspension, and since when.
        self._under_way: dict[Key, tuple[str, bool, float]] = {}
        self._suspends = Counters(families.SUSPENDS)
        self._resumes = Counters(families.RESUMES)
        self._finished = Counters(families.FINISHED)
        self._expired = Counters(families.EXPIRED)
        self._suspend_latency = Histograms(families.SUSPEND_LATENCY)
        self._resume_latency = Histograms(families.RESUME_LATENCY)
        self._creations = Counters(families.CLAIM_CREATIONS)
        self._startup = Histograms(families.CLAIM_STARTUP)
        self._controller_startup = Histograms(families.CLAIM_CONTROLLER_STARTUP)
        self._client_startup = Histograms(families.CLAIM_CLIENT_STARTUP)
        self._creation = Histograms(families.CREATION_LATENCY)
        self._stages = Histograms(families.CLAIM_STAGES)

    def collect(self, into: Exposition) -> None:
        """Add all series."""
        for each in vars(self).values():
            if isinstance(each, Counters | Histograms):
                each.collect(into)

    # -- Sandboxes -------------------------------------------------------------------------------

    def looked(self, entry: SandboxEntry, old: SandboxStatus) -> None:
        """Note the mode that the spec asks for, and the published status."""
        assert entry.view is not None
        is_suspend = entry.view.is_suspended
        suspended = find(old.conditions, names.SUSPENDED)
        if is_suspend:
            begins = suspended is None or suspended.reason == names.REASON_NOT_SUSPENDED
        else:
            begins = suspended is not None and suspended.status == names.TRUE
        if self._began(entry, is_suspend=is_suspend) is not None:
            return
        self._under_way.pop(entry.key, None)
        if begins:
            self._under_way[entry.key] = (entry.uid, is_suspend, self._clock.monotonic())
            counters = self._suspends if is_suspend else self._resumes
            counters.add(*_life_labels(entry), "requested")

    def failed(self, entry: SandboxEntry) -> None:
        """Note that a reconcile met errors."""
        assert entry.view is not None
        if entry.view.is_suspended and not _is_true(entry.status, names.SUSPENDED):
            self._suspends.add(*_life_labels(entry), "error")
        elif self._began(entry, is_suspend=False) is not None:
            self._resumes.add(*_life_labels(entry), "error")

    def status_written(self, entry: SandboxEntry, old: SandboxStatus, new: SandboxStatus) -> None:
        """Note which transitions a written status has ended or begun."""
        labels = _life_labels(entry)
        if _is_true(new, names.SUSPENDED) and not _is_true(old, names.SUSPENDED):
            self._suspends.add(*labels, "pod_terminated")
            self._end(self._suspend_latency, entry, self._began(entry, is_suspend=True))
        resuming_since = self._began(entry, is_suspend=False)
        if resuming_since is not None and _is_true(new, names.READY):
            self._resumes.add(*labels, "ready")
            self._end(self._resume_latency, entry, resuming_since)
        finished = find(new.conditions, names.FINISHED)
        if finished and finished.status == names.TRUE and not _is_true(old, names.FINISHED):
            self._finished.add(*labels, finished.reason)
        mark = names.READY, names.REASON_SANDBOX_EXPIRED
        if has_reason(new.conditions, *mark) and not has_reason(old.conditions, *mark):
            assert entry.view is not None
            is_deleted = entry.view.is_deleted_at_expiry
            policy = names.SHUTDOWN_POLICY_DELETE if is_deleted else names.SHUTDOWN_POLICY_RETAIN
            self._expired.add(*labels, policy)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a Sandbox that is gone or going."""
        self._under_way.pop(key, None)

    def _began(self, entry: SandboxEntry, *, is_suspend: bool) -> float | None:
        """Return since when this transition is in progress, ``None`` if it is not."""
        uid, was_suspend, began = self._under_way.get(entry.key) or (None, None, None)
        return began if (uid, was_suspend) == (entry.uid, is_suspend) else None

    def _end(self, histograms: Histograms, entry: SandboxEntry, began: float | None) -> None:
        if began is not None:
            del self._under_way[entry.key]
            # Whole milliseconds, as in all these families; differences of floats fall short.
            took_ms = int((self._clock.monotonic() - began) * 1000.0 + 1e-6)
            histograms.observe(took_ms, *_life_labels(entry))

    # -- claims ----------------------------------------------------------------------------------

    def stage(self, name: str, began: float) -> None:
        """Observe the duration of a step of a claim that ends now."""
        self._stages.observe(self._clock.monotonic() - began, name)

    def bound(self, entry: ClaimEntry, sandbox: SandboxEntry, launch: str) -> None:
        """Count a member that a claim took from its pool, or a Sandbox that was created for it."""
        assert entry.view is not None
        self._creations.add(
            entry.key.namespace,
            _template_of(sandbox) or _UNKNOWN_TEMPLATE_OF_CLAIM,
            launch,
            # Neither a member nor the template of a new Sandbox comes from another pool.
            entry.view.pool,
            "ready" if sandbox.is_ready else "not_ready",
            _creator_of(entry),
        )

    def first_ready(
        self, entry: ClaimEntry, sandbox: SandboxEntry, first_observed: str, now: datetime
    ) -> int | None:
        """Observe how long a claim took, after the status that says Ready was written.

        ``first_observed`` is when the controller saw the claim first; empty when it is not known.
        Returns the milliseconds since then. All times are the server's, or as if they were.
        """
        namespace = entry.key.namespace
        annotations = entry.annotations or {}
        launch = launch_of(sandbox)
        template = _template_of(sandbox) or _UNKNOWN_TEMPLATE_OF_CLAIM
        # All tenants share these: none can have waited for longer than there has been its claim.
        for histograms, stamp in (
            (self._startup, names.WEBHOOK_FIRST_OBSERVED_AT_ANNOTATION),
            (self._client_startup, names.CLIENT_FIRST_REQUESTED_AT_ANNOTATION),
        ):
            took_ms = _between_ms(annotations.get(stamp), now, earliest=entry.created_at)
            if took_ms is not None:
                histograms.observe(took_ms, launch, template, tenant=namespace)
        seen_ms = _between_ms(first_observed, now)
        if seen_ms is not None:
            self._controller_startup.observe(seen_ms, launch, template, tenant=namespace)
        ready = sandbox.ready if sandbox.is_ready else None
        took_ms = _made_in_ms(sandbox.created_at, ready.lastTransitionTime, now) if ready else None
        if took_ms is not None:
            self._creation.observe(took_ms, namespace, launch, template)
        return seen_ms


def _life_labels(entry: SandboxEntry) -> Labels:
    return (entry.key.namespace, _template_of(entry) or _UNKNOWN_TEMPLATE, _owned_by(entry))


def _is_true(status: SandboxStatus | None, kind: str) -> bool:
    return status is not None and is_true(status.conditions, kind)


def _between_ms(began: str | None, end: datetime, *, earliest: str = "") -> int | None:
    """Return whole milliseconds; ``None`` if the beginning is missing, unreadable or later.

    A beginning before ``earliest`` counts as that.
    """
    if not began:
        return None
    try:
        took_s = (end - no_earlier(began, earliest)).total_seconds()
    except ValueError:
        return None
    return int(took_s * 1000.0 + 1e-6) if took_s >= 0.0 else None


def _made_in_ms(created_at: str, ready_at: str, now: datetime) -> int | None:
    try:
        ended = parse_rfc3339(ready_at)
    except ValueError:
        return None
    # Anybody who may write a status may write any time into it.
    return _between_ms(created_at, min(ended, now))


async def survey(
    into: Exposition,
    sandboxes: Cache[SandboxEntry],
    pools: Iterable[PoolEntry],
    clock: Clock,
) -> bool:
    """Count Sandboxes and the members of pools; return false, and add nothing, if it takes 5 s."""
    deadline = clock.monotonic() + 5.0
    counts: dict[Labels, int] = {}
    sizes: dict[Labels, int] = {}
    # By namespace and uid of a pool: its name and its template.
    alive: dict[tuple[str, str], tuple[str, str]] = {}
    for pool in pools:
        if not pool.is_deleting and pool.view is not None:
            named = pool.view.template
            template = named if names.is_object_name(named) else _UNKNOWN_TEMPLATE
            alive[pool.key.namespace, pool.uid] = (pool.key.name, template)
            for status in _STATUSES:
                sizes[pool.key.namespace, pool.key.name, template, status] = 0
    for number, entry in enumerate(list(sandboxes), 1):
        labels = _labels(entry)
        counts[labels] = counts.get(labels, 0) + 1
        if alive and entry.owner is not None and not entry.is_deleting:
            held = alive.get((entry.key.namespace, entry.owner.uid))
            if held is not None and _owned_by(entry) == names.SANDBOX_WARM_POOL_KIND:
                name, template = held
                template = _template_of(entry) or template
                member = (entry.key.namespace, name, template, _member_status(entry.status))
                sizes[member] = sizes.get(member, 0) + 1
        if number % 1000 == 0:
            await anyio.lowlevel.checkpoint()
            if clock.monotonic() >= deadline:
                return False
    into.living = Living(
        now_s=clock.monotonic(),
        namespaces=frozenset(labels[0] for labels in counts),
        templates=frozenset(labels[4] for labels in counts) | _NO_TEMPLATE,
    )
    for family, found in ((families.SANDBOXES, counts), (families.POOL_SIZE, sizes)):
        into.add(family, list(_bounded(family, found).items()))
        await anyio.lowlevel.checkpoint()
    return True


def _bounded(family: Family, found: dict[Labels, int]) -> dict[Labels, int]:
    """Return the counts by labels, few enough for a page.

    When there are too many, the namespaces with the most lose the names of their templates, then
    those of their pools; the sums stay right.
    """
    total = sum(line_bytes(family, labels) for labels in found)
    for name in ("sandbox_template", "warmpool_name"):
        if len(found) <= MOST_SERIES and total <= MOST_BYTES:
            return found
        if name in family.labels:
            found, total = _folded(family, found, total, family.labels.index(name))
    return found


def _folded(
    family: Family, found: dict[Labels, int], total: int, place: int
) -> tuple[dict[Labels, int], int]:
    """Return the counts, and the bytes of their lines, without one name of some namespaces."""
    of: dict[str, list[Labels]] = {}
    sizes: Counter[str] = Counter()
    for labels in found:
        of.setdefault(labels[0], []).append(labels)
        sizes[labels[0]] += line_bytes(family, labels)
    kept = dict(found)
    for namespace, _ in sizes.most_common():
        if len(kept) <= MOST_SERIES and total <= MOST_BYTES:
            break
        for labels in of[namespace]:
            folded = (*labels[:place], _UNKNOWN_TEMPLATE, *labels[place + 1 :])
            count = kept.pop(labels)
            total -= line_bytes(family, labels)
            if folded not in kept:
                total += line_bytes(family, folded)
            kept[folded] = kept.get(folded, 0) + count
    return kept, total


def _labels(entry: SandboxEntry) -> Labels:
    ready = entry.ready
    return (
        entry.key.namespace,
        "true" if entry.is_ready else "false",
        "true" if ready is not None and ready.reason == names.REASON_SANDBOX_EXPIRED else "false",
        launch_of(entry),
        _template_of(entry) or _UNKNOWN_TEMPLATE,
        _owned_by(entry),
        _creator_of(entry),
        # An absent or unknown operating mode is Running.
        "Suspended" if entry.view is not None and entry.view.is_suspended else "Running",
    )


def _member_status(status: SandboxStatus | None) -> str:
    conditions = status.conditions if status is not None else ()
    finished = find(conditions, names.FINISHED)
    if finished is not None and finished.status == names.TRUE and finished.reason in _BY_OUTCOME:
        return _BY_OUTCOME[finished.reason]
    return "ready" if is_true(conditions, names.READY) else "pending"
