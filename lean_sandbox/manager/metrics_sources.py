"""From the statistics that every part keeps anyway to the series of a scrape."""

from __future__ import annotations

from collections.abc import Iterable

from lean_sandbox.metrics import families
from lean_sandbox.metrics.registry import Exposition
from lean_sandbox.runtime.absent import AbsenceStatistics
from lean_sandbox.watch.cache import CacheStatistics
from lean_sandbox.watch.reflector import WatchStatistics


def watches(
    into: Exposition,
    resource: str,
    seen: CacheStatistics,
    passed_by_leaf: dict[str, int],
    informers: Iterable[WatchStatistics],
) -> None:
    """Add what lists and watches of a kind showed, and what became of it."""
    outcomes = {
        "passed": seen.passed,
        "dropped_unchanged": seen.dropped_unchanged,
        "dropped_known": seen.dropped_known,
        "dropped_elsewhere": seen.dropped_elsewhere,
    }
    into.add(
        families.EVENTS, [((resource, outcome), number) for outcome, number in outcomes.items()]
    )
    into.add(
        families.PREDICATES,
        [((resource, leaf), number) for leaf, number in sorted(passed_by_leaf.items())],
    )
    into.one(families.SYNTHESISED, seen.deletes_synthesised, resource)
    into.one(families.HANDLER_FAILURES, seen.handler_failures, resource)
    totals = dict.fromkeys(_STEPS, 0)
    received = 0
    for informer in informers:
        received += informer.received_bytes
        for step, field in _STEPS.items():
            totals[step] += getattr(informer, field)
    into.one(families.WATCH_BYTES, received, resource)
    into.add(families.WATCH_STEPS, [((resource, step), number) for step, number in totals.items()])


_STEPS = {
    "list": "lists",
    "page": "pages",
    "watch": "watches",
    "bookmark": "bookmarks",
    "relist": "relists",
    "fallback": "fallbacks",
    "failure": "failures",
    "undecodable": "undecodable",
}


def absence(into: Exposition, counted: AbsenceStatistics) -> None:
    """Add what knowing that objects do not exist has saved."""
    into.one(families.ABSENCE, counted.saved, "saved")
    into.one(families.ABSENCE, counted.asked - counted.saved, "asked")
    into.one(families.ABSENCE, counted.outdated, "outdated")
    into.one(families.ABSENCE_ENTRIES, counted.entries)
