"""Laws of reading objects from JSON and from Table rows."""

from __future__ import annotations

import pytest

from filters import Owner, from_json, from_table_row
from tests.filters.objects import partial


def test_metadata_is_read_into_plain_attributes() -> None:
    """Every attribute predicates read comes from the field of the same meaning."""
    obj = from_json(
        partial(
            version="7",
            generation=3,
            labels={"a": "b"},
            annotations={"c": "d"},
            finalizers=["f"],
            deletionTimestamp="2026-01-02T03:04:05Z",
            ownerReferences=[
                {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": True},
                {"apiVersion": "v1", "kind": "K", "name": "m", "uid": "w"},
            ],
        )
    )
    assert (obj.name, obj.namespace, obj.uid, obj.resource_version) == (
        "box",
        "default",
        "uid-1",
        "7",
    )
    assert (obj.generation, obj.labels, obj.annotations) == (3, {"a": "b"}, {"c": "d"})
    assert (obj.finalizers, obj.deletion_timestamp) == (("f",), "2026-01-02T03:04:05Z")
    assert obj.owners == (
        Owner("u", "K", "v1", "n", controller=True),
        Owner("w", "K", "v1", "m", controller=False),
    )
    assert obj.columns is None


def test_what_metadata_leaves_out_reads_as_nothing() -> None:
    """Absent and null fields give empty values, never an error."""
    obj = from_json({"metadata": {"uid": "u", "labels": None, "finalizers": None}})
    assert (obj.generation, obj.deletion_timestamp, obj.namespace) == (None, None, "")
    assert (obj.labels, obj.annotations, obj.finalizers, obj.owners) == ({}, {}, (), ())


@pytest.mark.parametrize("document", [{}, {"metadata": 3}, {"metadata": {"labels": ["a"]}}])
def test_unusable_metadata_is_a_value_error(document: dict[str, object]) -> None:
    """An object without metadata of the right shape is refused with one kind of error."""
    with pytest.raises(ValueError, match="metadata"):
        from_json(document)


def test_a_row_pairs_cells_with_the_definitions_of_the_first_event() -> None:
    """Cells are texts under the name of their column, a null cell is an empty text."""
    definitions = [{"name": "Ready"}, {"name": "Reason"}, {"name": "Restarts"}]
    obj = from_table_row(definitions, {"cells": ["True", None, 2], "object": partial()})
    assert obj.columns == {"Ready": "True", "Reason": "", "Restarts": "2"}


def test_a_row_that_does_not_fit_its_definitions_has_no_columns() -> None:
    """Cells of another stream are not filed under names that are not theirs."""
    row = {"cells": ["True", "x"], "object": partial()}
    assert from_table_row([{"name": "Ready"}], row).columns is None
    assert from_table_row(None, row).columns is None


def test_a_row_without_metadata_says_what_to_ask_for() -> None:
    """A Table asked for without objects cannot be judged, and the error says why."""
    with pytest.raises(ValueError, match="includeObject=Metadata"):
        from_table_row(None, {"cells": [], "object": None})
