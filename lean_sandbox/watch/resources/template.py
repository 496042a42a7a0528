"""SandboxTemplates: their cache entry, and the predicate over their events.

Templates are watched as full objects, because nearly every event of a template needs its spec and
they are small. Of the decoded object only a view is kept.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from filters import any_of, deletion, generation, keep, labels
from lean_sandbox.kube.resources import SANDBOXTEMPLATES
from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta, as_version
from lean_sandbox.model.template import SandboxTemplate, TemplateView, view_of_template
from lean_sandbox.model.wire import ODD
from lean_sandbox.watch.kind import Key, Kind, Representation, key_of

TEMPLATE_LABELS = frozenset({names.TEMPLATE_REF_HASH_LABEL})


class TemplateEntry(msgspec.Struct, gc=False):
    """The cache entry of a template; ``view`` has everything that a Sandbox takes from it.

    ``fault`` is the reason why a full template has no view.
    """

    key: Key
    uid: str
    version: int
    generation: int
    is_deleting: bool
    labels: dict[str, str] | None = None
    view: TemplateView | None = None
    fault: str = ""
    seen: tuple[Hashable, ...] = ()


def template_from_row(row: ObjectMeta, old: TemplateEntry | None) -> TemplateEntry:
    """Build the entry from metadata; the view of the old entry holds for the same generation."""
    generation = row.generation or 0
    entry = TemplateEntry(
        key=old.key if old is not None else key_of(row.namespace, row.name),
        uid=row.uid,
        version=as_version(row.resource_version),
        generation=generation,
        is_deleting=row.deletion_timestamp is not None,
        labels=keep(row.labels, TEMPLATE_LABELS),
    )
    if old is not None and old.generation == generation and old.version:
        entry.view, entry.fault = old.view, old.fault
    return entry


def template_from_full(
    item: SandboxTemplate, row: ObjectMeta, old: TemplateEntry | None
) -> TemplateEntry:
    """Build the entry from a full template."""
    entry = template_from_row(row, old)
    if entry.view is None:
        try:
            entry.view = view_of_template(item)
        except ODD as error:
            entry.fault = str(error)
        else:
            entry.fault = ""
    return entry


def template_kind() -> Kind[TemplateEntry]:
    """Templates pass when their spec or hash label changes, or they are deleted."""
    return Kind(
        resource=SANDBOXTEMPLATES,
        item_type=SandboxTemplate,
        predicate=any_of(generation(), deletion(), labels(*sorted(TEMPLATE_LABELS))),
        from_row=template_from_row,
        from_full=template_from_full,
        watch_order=(Representation.FULL,),
    )
