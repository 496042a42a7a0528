"""Filters for Kubernetes watch events: drop events that change nothing before they cost anything.

Usable alone, with nothing but the standard library. A :class:`Filter` remembers a fingerprint for
each object and lets an event pass only when something the predicate names has changed::

    wanted = Filter(any_of(generation(), labels("app"), column("Ready")))
    decision = wanted.admit(event["type"], from_json(event["object"]))
    if decision:
        enqueue(decision.change)
    else:
        log.debug(decision.reason)

First sights, re-creations and deletes always pass, and so do events a predicate cannot judge.
"""

from filters.detector import ChangeDetector, Decision, Filter
from filters.events import Change, EventType, from_json, keep
from filters.predicates import (
    NO_OPINION,
    Predicate,
    annotation,
    any_of,
    column,
    computed,
    condition,
    deletion,
    generation,
    if_known,
    labels,
    owners,
    resource_version,
)
from filters.selectors import (
    EVERYTHING,
    LabelSelector,
    SelectorError,
    exclude_namespaces,
    parse_labels,
)

__all__ = [
    "EVERYTHING",
    "NO_OPINION",
    "Change",
    "ChangeDetector",
    "Decision",
    "EventType",
    "Filter",
    "LabelSelector",
    "Predicate",
    "SelectorError",
    "annotation",
    "any_of",
    "column",
    "computed",
    "condition",
    "deletion",
    "exclude_namespaces",
    "from_json",
    "generation",
    "if_known",
    "keep",
    "labels",
    "owners",
    "parse_labels",
    "resource_version",
]
