"""Checks of what containers, Pods and classes ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.causes import amounts
from lean_sandbox.model.comparison import parse_quantity

Json = dict[str, Any]

_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")


def _is_overcommitted(name: str) -> bool:
    """Say whether limits of a resource may be more than its requests."""
    return not name.startswith("hugepages-") and not _is_extended(name)


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


def resource_names(resources: Any, where: str) -> Iterator[ErrorCause]:
    """Check the names of resources and their amounts."""
    for name, amount in (resources or {}).items():
        inner = f"{where}[{name}]"
        for text in causes.label_key_problems(name):
            yield causes.invalid(inner, name, text)
        is_known = name in _STANDARD or name.startswith("hugepages-")
        if not ("/" in name or is_known or name == "storage"):
            text = "must be a standard resource type or fully qualified"
            yield causes.invalid(inner, name, text)
        if not ("/" in name or is_known):
            yield causes.invalid(inner, name, "must be a standard resource for containers")
        if _is_extended(name) and name.startswith("requests."):
            yield causes.invalid(inner, name, "doesn't follow extended resource name standard")
        yield from _whole_amount(name, amount, inner)
    yield from amounts(resources, where)


def _whole_amount(name: str, text: str, where: str) -> Iterator[ErrorCause]:
    amount = parse_quantity(text) or 0
    page = parse_quantity(name.removeprefix("hugepages-")) if name.startswith("hugepages-") else 0
    if _is_extended(name) and amount % 1:
        yield causes.invalid(where, text, "must be an integer")
    if page and amount % page:
        problem = f"{text} is not positive integer multiple of {name}"
        yield causes.invalid(where, text, problem)


def _requests(resources: Any, where: str) -> Iterator[ErrorCause]:
    limits: Json = (resources or {}).get("limits") or {}
    requests: Json = (resources or {}).get("requests") or {}
    for name, value in requests.items():
        wanted = parse_quantity(value)
        limit = parse_quantity(limits.get(name))
        is_loose = _is_overcommitted(name)
        if limit is None:
            if not is_loose:
                text = "Limit must be set for non overcommitable resources"
                yield causes.required(f"{where}.limits", text)
        elif wanted is not None and (wanted > limit or (wanted < limit and not is_loose)):
            bound = "less than or equal to" if is_loose else "equal to"
            text = f"must be {bound} {name} limit of {limits[name]}"
            yield causes.invalid(f"{where}.requests", str(value), text)
    names = {*limits, *requests}
    if any(name.startswith("hugepages-") for name in names) and not names & {"cpu", "memory"}:
        yield causes.forbidden(where, "HugePages require cpu or memory")


RESOURCES: Final[Any] = (_requests, {"limits": resource_names, "requests": resource_names})
"""What a container, or a Pod, asks for."""
