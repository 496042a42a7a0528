"""Filters for Kubernetes watch events: drop what changes nothing before it costs anything.

Usable alone, with nothing but the standard library. A :class:`Filter` remembers a fingerprint for
each object and lets an event pass only when something the predicate names has changed::

    wanted = Filter(any_of(generation(), labels("app"), column("Ready")), max_objects=50_000)
    verdict = wanted.admit(EventType.MODIFIED, from_table_row(definitions, row))
    if verdict:
        enqueue(verdict.change)
    else:
        log.debug(verdict.reason)

First sights, re-creations and deletes always pass, and so does what a predicate cannot judge.
"""

import typing

from filters.columns import condition_columns, derive_columns, pod_columns, pod_status_class
from filters.combine import (
    Predicate,
    all_of,
    any_of,
    first_known,
    if_known,
    named,
    not_,
)
from filters.debounce import Debounce
from filters.detector import ChangeDetector, FilterStatistics, Fingerprints
from filters.events import (
    Change,
    EventType,
    Observed,
    ObservedObject,
    Owner,
    OwnerLike,
    from_json,
    from_table_row,
)
from filters.memory import Filter
from filters.predicates import (
    NO_OPINION,
    Leaf,
    NoOpinion,
    annotation,
    column,
    computed,
    deletion,
    finalizers,
    generation,
    labels,
    owner,
    resource_version,
)
from filters.pruning import (
    LAST_APPLIED,
    Pruner,
    Writer,
    allow_keys,
    drop_annotations,
    drop_finalizers,
    drop_managed_fields,
    drop_spec,
    drop_status,
    keep_annotations,
    keep_labels,
    latest_write,
    prune,
    prune_mapping,
    writers,
)
from filters.selectors import (
    FieldTerm,
    LabelTerm,
    SelectorError,
    any_semantic,
    exclude_namespaces,
    field_equals,
    field_not_equals,
    field_selector,
    label_equals,
    label_exists,
    label_in,
    label_not_equals,
    label_not_exists,
    label_not_in,
    label_selector,
    streaming_initial_list,
)
from filters.verdicts import Decision

if typing.TYPE_CHECKING:
    from filters.explaining import (
        Explained,
        Outcome,
        Summary,
        default_predicate_for,
        explain,
        replay,
    )

annotations = annotation
"""The plural, like the other predicates. A module with ``from __future__ import annotations`` says
``filters.annotations`` or imports ``annotation``, because the plain name is taken there."""

__all__ = [
    "LAST_APPLIED",
    "NO_OPINION",
    "Change",
    "ChangeDetector",
    "Debounce",
    "Decision",
    "EventType",
    "Explained",
    "FieldTerm",
    "Filter",
    "FilterStatistics",
    "Fingerprints",
    "LabelTerm",
    "Leaf",
    "NoOpinion",
    "Observed",
    "ObservedObject",
    "Outcome",
    "Owner",
    "OwnerLike",
    "Predicate",
    "Pruner",
    "SelectorError",
    "Summary",
    "Writer",
    "all_of",
    "allow_keys",
    "annotation",
    "annotations",
    "any_of",
    "any_semantic",
    "column",
    "computed",
    "condition_columns",
    "default_predicate_for",
    "deletion",
    "derive_columns",
    "drop_annotations",
    "drop_finalizers",
    "drop_managed_fields",
    "drop_spec",
    "drop_status",
    "exclude_namespaces",
    "explain",
    "field_equals",
    "field_not_equals",
    "field_selector",
    "finalizers",
    "first_known",
    "from_json",
    "from_table_row",
    "generation",
    "if_known",
    "keep_annotations",
    "keep_labels",
    "label_equals",
    "label_exists",
    "label_in",
    "label_not_equals",
    "label_not_exists",
    "label_not_in",
    "label_selector",
    "labels",
    "latest_write",
    "named",
    "not_",
    "owner",
    "pod_columns",
    "pod_status_class",
    "prune",
    "prune_mapping",
    "replay",
    "resource_version",
    "streaming_initial_list",
    "writers",
]

_EXPLAINING = frozenset(
    ("Explained", "Outcome", "Summary", "default_predicate_for", "explain", "replay")
)


def __getattr__(name: str) -> typing.Any:
    """Import what explains recorded logs when it is first asked for: who filters never does."""
    if name in _EXPLAINING:
        from filters import explaining  # noqa: PLC0415 -- see above

        return getattr(explaining, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
