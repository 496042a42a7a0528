"""The part of the chart's schema that follows from the table of options.

As a program it writes manifests/chart/values.schema.json anew.
"""

from __future__ import annotations

import json
from typing import Any

from lean_sandbox.config.declare import Flag
from lean_sandbox.config.flags import FLAGS
from lean_sandbox.config.forms import BOOLEAN, DURATION, INTEGER, NUMBER
from lean_sandbox.config.options import COMPANIONS, OF_EXTENSIONS
from tests.manifests.files import ROOT

__all__ = ["FIXED", "LABEL", "SCHEMA", "SUBDOMAIN", "controller", "value_name"]

Json = dict[str, Any]

SCHEMA = ROOT / "chart/values.schema.json"
#: What the chart fixes itself, in ports, probes, mounts, rights and names; no value can change it.
FIXED = {
    *("kubeconfig", "context", "shard"),
    *("metrics-bind-address", "health-probe-bind-address"),
    *("metrics-secure-serving", "metrics-cert-dir", "tls-min-version", "tls-cipher-suites"),
}
#: Names that objects, and namespaces, may have; empty is the default.
SUBDOMAIN = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$"
LABEL = r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$"
_COMPANION = rf"(?:{'|'.join(COMPANIONS)})"
_NAMES: dict[str, Json] = {
    "companions": {"type": "string", "pattern": rf"^({_COMPANION}(, *{_COMPANION})*)?$"},
    "leader-election-namespace": {"type": "string", "pattern": LABEL},
    "leader-election-lease": {"type": "string", "pattern": SUBDOMAIN, "maxLength": 253},
}
_DURATION = r"^(0|-?([0-9]+(\.[0-9]*)?(ns|us|ms|s|m|h))+)$"
_FORMS: dict[int, Json] = {
    id(BOOLEAN): {"type": "boolean"},
    id(INTEGER): {"type": "integer"},
    # `--set` reads whole numbers alone as numbers.
    id(NUMBER): {"type": ["number", "string"], "pattern": r"^-?[0-9]+(\.[0-9]+)?$"},
    id(DURATION): {"type": "string", "pattern": _DURATION},
}


def value_name(flag: str) -> str:
    """Return what the chart calls a flag: as the reference's chart does, in camel case."""
    first, *rest = flag.split("-")
    return first + "".join("REST" if word == "rest" else word.capitalize() for word in rest)


def _value(name: str, flag: Flag) -> Json:
    said = _NAMES.get(name) or _FORMS.get(id(flag.form), {"type": "string"})
    if flag.form.words and "" not in flag.form.words:
        said = {"enum": list(flag.form.words)}
    return {"description": flag.help, **said}


def controller() -> Json:
    """Return the schema of ``controller``: its values, and which of them needs another."""
    served = {"required": ["extensions"], "properties": {"extensions": {"const": True}}}
    chosen = {"properties": {"companions": {"pattern": "|".join(sorted(OF_EXTENSIONS))}}}
    return {
        "type": "object",
        "properties": values(),
        "additionalProperties": False,
        "if": {"required": ["companions"], **chosen},
        "then": served,
    }


def values() -> Json:
    """Return what may stand below ``controller``: the other flags, and arguments as they are."""
    found = {
        value_name(name): _value(name, flag) for name, flag in FLAGS.items() if name not in FIXED
    }
    extra = {"type": "array", "items": {"type": "string"}}
    return found | {"extraArgs": extra}


if __name__ == "__main__":
    schema = json.loads(SCHEMA.read_text())
    schema["properties"]["controller"] = controller()
    SCHEMA.write_text(json.dumps(schema, indent=2) + "\n")
