"""The two text forms of metrics, as Prometheus and as OpenMetrics write them.

Which one: OpenMetrics only for a client that asks for it and would not take the older text.
Prometheus itself takes both, and OpenMetrics writes the bounds of buckets differently (``1.0`` for
``1``): queries made for the reference controller, which offers the older text only, name the older.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from lean_sandbox.metrics.histogram import HistogramSnapshot
from lean_sandbox.metrics.registry import Exposition, Family, Kind, Labels

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# Lines a block, so that whoever writes them out can let others run in between.
_BLOCK: Final = 200
_ESCAPED: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_ESCAPED_HELP: Final = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def content_type(accept: str) -> str:
    """Return the form to answer with, given the Accept header of a request ("" for none)."""
    ranges = [part.split(";") for part in accept.lower().split(",")]
    wanted = {first.strip() for first, *rest in ranges if not _is_refused(rest)}
    if "application/openmetrics-text" not in wanted:
        return TEXT
    return TEXT if wanted & {"text/plain", "text/*"} else OPENMETRICS


def _is_refused(parameters: list[str]) -> bool:
    return any(
        text.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for text in parameters
    )


def render(found: Exposition, form: str = TEXT) -> Iterator[str]:
    """Yield the text of a scrape in blocks; families without a series are left out."""
    is_open = form == OPENMETRICS
    lines: list[str] = []
    for family, series in found.families.values():
        if not series:
            continue
        lines += _head(family, is_open=is_open)
        for labels, value in series:
            _series(lines, family, labels, value, is_open=is_open)
            if len(lines) >= _BLOCK:
                yield "".join(lines)
                lines.clear()
    if is_open:
        lines.append("# EOF\n")
    yield "".join(lines)


def _head(family: Family, *, is_open: bool) -> tuple[str, str]:
    name = family.name
    if is_open and family.kind is Kind.COUNTER:
        # There the family has the bare name and its samples the suffix.
        name = name.removesuffix("_total")
    text = family.help.translate(_ESCAPED if is_open else _ESCAPED_HELP)
    return f"# HELP {name} {text}\n", f"# TYPE {name} {family.kind.value}\n"


def _series(
    lines: list[str],
    family: Family,
    labels: Labels,
    value: float | HistogramSnapshot,
    *,
    is_open: bool,
) -> None:
    pairs = ",".join(
        f'{name}="{text.translate(_ESCAPED)}"'
        for name, text in zip(family.labels, labels, strict=True)
    )
    braced = f"{{{pairs}}}" if pairs else ""
    if not isinstance(value, HistogramSnapshot):
        lines.append(f"{family.name}{braced} {_number(value)}\n")
        return
    prefix = f"{family.name}_bucket{{{pairs}{',' if pairs else ''}le="
    running = 0
    for bound, count in zip((*value.bounds, math.inf), value.counts, strict=True):
        running += count
        shown = repr(bound) if is_open and bound != math.inf else _number(bound)
        lines.append(f'{prefix}"{shown}"}} {running}\n')
    lines.append(f"{family.name}_sum{braced} {_number(value.total)}\n")
    lines.append(f"{family.name}_count{braced} {value.count}\n")


def _number(value: float) -> str:
    """Write a number as the reference does: whole without a point, others as short as can be."""
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
