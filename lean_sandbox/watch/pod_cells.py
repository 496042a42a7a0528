"""What the bare cells of a Pod say, put beside what is remembered of it.

A row without its object tells readiness, address, node and that the Pod is going. Labels, owners
and annotations are those of the memory: they change by writes of their own, which show as an event
without any change in the cells. Such an event is unexplained, and what is remembered is doubted
until somebody looks.
"""

from __future__ import annotations

from filters import EventType
from lean_sandbox.watch.resources.pod import NO_NODE, PodEntry, pod_hint
from lean_sandbox.watch.wire import MetaRow, as_version

_GOING = "Terminating"
# Only that there is a time is ever read.
_SOME_TIME = "-"


def pod_row_of_cells(
    entry: PodEntry, event_type: EventType, resource_version: str, columns: dict[str, str]
) -> MetaRow:
    """Return the row that cells stand for, given what is remembered of the Pod.

    The entry is told of the cells, if they are newer than what it knows.
    """
    owner = entry.owner
    is_going = entry.is_deleting or columns.get("Status") == _GOING
    row = MetaRow(
        name=entry.key.name,
        namespace=entry.key.namespace,
        uid=entry.uid,
        resource_version=resource_version,
        labels=entry.labels,
        annotations=entry.annotations,
        owners=entry.others if owner is None else (owner,),
        deletion_timestamp=_SOME_TIME if is_going else None,
        columns=columns,
    )
    if as_version(resource_version) > entry.version:
        row.cells = _digest(columns)
        row.is_unexplained = (
            event_type is EventType.MODIFIED
            and not is_going
            and entry.cells in (0, row.cells)
            and _shows_what_is_known(entry, columns)
        )
        entry.cells = row.cells
    return row


def _digest(columns: dict[str, str]) -> int:
    """Return a digest of the cells, never 0; of the restarts without how long ago the last was."""
    cells = {**columns, "Restarts": columns.get("Restarts", "").partition(" ")[0]}
    return hash(tuple(cells.values())) or 1


def _shows_what_is_known(entry: PodEntry, columns: dict[str, str]) -> bool:
    """Tell whether cells repeat a state that nobody is going to look at anyway.

    Before there is a node any write is the scheduler's, and wakes by itself.
    """
    state = entry.state
    node, address = columns.get("Node", ""), columns.get("IP", "")
    return (
        state is not None
        and not entry.is_stale
        and node not in NO_NODE
        and node == state.node
        and (address in NO_NODE or address in state.ips)
        and pod_hint(columns) == entry.hint
    )
