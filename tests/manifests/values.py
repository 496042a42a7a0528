"""Values of the chart, good and bad."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.manifests.schema import SCHEMA

# What YAML, or the template around a value, would read as something else than a name.
HOSTILE = (
    *("x\ny: z", "x\n", " x", "x y", "x: y", "x #", "x, y", "x]", "[x", "{x}", "&x", "*x", "!x"),
    *("'x'", '"x"', 'x"y', "x\\", "@x", "`x`", "%x", "|", ">", "~x", "-x", "{{ x }}", "\x00"),
    *("../x", "x/", "/x", "x:", "X Y", "é", "x\u2028y"),
)


# Texts that mean what somebody else says they mean; each is written as a value of its own.
FREE = {
    *("podAnnotations", "podLabels", "nodeSelector"),
    *("metrics.serviceMonitor.additionalLabels", "metrics.prometheusRule.additionalLabels"),
}


def texts(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the schema says of each text below ``path``, by its place."""
    if "string" in schema.get("type", ()):
        yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from texts(below, f"{path}.{name}".lstrip("."))
    for key in ("items", "additionalProperties"):
        if isinstance(below := schema.get(key), dict):
            yield from texts(below, path)


TEXTS = dict(texts(json.loads(SCHEMA.read_text())))
NAMES = [path for path, said in TEXTS.items() if "pattern" in said]
