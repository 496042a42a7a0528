"""What `lean-sandbox config` prints: the effective settings, their units, and their sources.

No setting is a secret: credentials come from the kubeconfig alone.
"""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

import msgspec

from lean_sandbox.config.options import Settings, form_of, shown
from lean_sandbox.config.sources import Effective
from lean_sandbox.config.values import BOOLEAN, DURATION, INTEGER, NUMBER


def as_table(effective: Effective) -> str:
    """Return one line for each setting, under a head."""
    rows = [("SETTING", "VALUE", "UNIT", "SOURCE")]
    for option in fields(Settings):
        value = shown(option, getattr(effective.settings, option.name))
        place = str(effective.place(option.name))
        rows.append((_name(option), value, _unit(option) or "-", place))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "".join(
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]))
        + "\n"
        for row in rows
    )


def as_json(effective: Effective) -> str:
    """Return one object: the settings by name, and what was remarked."""
    settings = {}
    for option in fields(Settings):
        place = effective.place(option.name)
        settings[_name(option)] = {
            "value": _plain(option, getattr(effective.settings, option.name)),
            "default": _plain(option, option.default),
            "unit": _unit(option),
            "source": place.origin.value,
            "from": place.name,
        }
    remarks = [
        {"flag": remark.flag, "from": remark.place, "why": remark.why}
        for remark in effective.remarks
    ]
    report = {"settings": settings, "warnings": remarks}
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"


def as_yaml(effective: Effective) -> str:
    """Return a config file that gives the same settings; what came from where is a comment."""
    lines = []
    for option in fields(Settings):
        value = getattr(effective.settings, option.name)
        comment = f"# {effective.place(option.name)}"
        if unit := _unit(option):
            comment = f"{comment}, {unit}"
        if value is None:
            lines.append(f"# {_name(option)}: automatic {comment}")
        else:
            lines.append(f"{_name(option)}: {_scalar(option, value)}  {comment}")
    return "\n".join((*lines, ""))


WRITERS = {"table": as_table, "json": as_json, "yaml": as_yaml}


def _name(option: Field[Any]) -> str:
    return option.name.replace("_", "-")


def _unit(option: Field[Any]) -> str:
    unit: str = option.metadata["unit"]
    return "duration" if form_of(option) is DURATION else unit


def _plain(option: Field[Any], value: Any) -> Any:
    """Return a value as JSON has it: numbers and booleans as such, durations as text."""
    if value is None or form_of(option) in (BOOLEAN, INTEGER, NUMBER):
        return value
    return list(value) if isinstance(value, tuple) else form_of(option).write(value)


def _scalar(option: Field[Any], value: Any) -> str:
    text = form_of(option).write(value)
    if form_of(option) in (BOOLEAN, INTEGER, NUMBER, DURATION):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
