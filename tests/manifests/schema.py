"""The part of the chart's schema that follows from the table of options.

As a program it writes manifests/chart/values.schema.json anew.
"""

from __future__ import annotations

import json
from typing import Any

from lean_sandbox.config.declare import Flag, dns_name, namespace_name
from lean_sandbox.config.flags import FLAGS
from lean_sandbox.config.forms import BOOLEAN, DURATION, INTEGER, NUMBER
from lean_sandbox.config.options import COMPANIONS, OF_EXTENSIONS, OPTIONS
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
_COMPANIONS = {"type": "string", "pattern": rf"^({_COMPANION}(, *{_COMPANION})*)?$"}
_NAMES: dict[object, Json] = {
    namespace_name: {"type": "string", "pattern": LABEL},
    dns_name: {"type": "string", "pattern": SUBDOMAIN, "maxLength": 253},
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
    option = OPTIONS.get(flag.name.replace("_", "-"))
    bound = None if option is None else option.bound
    said = _NAMES.get(bound) or dict(_FORMS.get(id(flag.form), {"type": "string"}))
    if flag.form.words and "" not in flag.form.words:
        said = {"enum": list(flag.form.words)}
    if name == "companions":
        said = _COMPANIONS
    elif flag.form in (INTEGER, NUMBER, DURATION) and bound is not None and bound(-1):
        said |= _above_zero(said, with_zero=not bound(0))
    return {"description": flag.help, **said}


def _above_zero(said: Json, *, with_zero: bool) -> Json:
    """Return what a bound of 0 adds to the form of a number or a duration."""
    least: Json = {} if said["type"] == "string" else {"minimum": 0 if with_zero else 1}
    if "pattern" in said:
        least["pattern"] = said["pattern"].replace("-?", "")
        if not with_zero:
            least["allOf"] = [{"pattern": "[1-9]"}]
    return least


def controller() -> Json:
    """Return the schema of ``controller``: its values, and which of them go with which."""
    of_claims = {"pattern": "|".join(sorted(OF_EXTENSIONS))}
    return {
        "type": "object",
        "properties": values(),
        "additionalProperties": False,
        # Whoever writes `leaderElect:` with nothing behind it has taken the default away.
        "required": ["leaderElect", "extensions"],
        "allOf": [
            _needs("companions", of_claims, extensions=True),
            _needs("sandboxLabelSelector", {"minLength": 1}, extensions=False),
        ],
    }


def _needs(name: str, form: Json, *, extensions: bool) -> Json:
    return {
        "if": {"required": [name], "properties": {name: form}},
        "then": {"properties": {"extensions": {"const": extensions}}},
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
