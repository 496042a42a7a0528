"""Checks of what decides where a Pod may run: resources, tolerations, affinity, topology spread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.causes import (
    SELECTOR,
    always,
    amounts,
    at_least,
    between,
    broken,
    named,
    needed,
    one_of,
)
from lean_sandbox.model.comparison import parse_quantity

Json = dict[str, Any]

# ------------------------------------------------------------------ resources

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
        is_prefixed = name.startswith("requests.") or causes.label_key_problems(f"requests.{name}")
        if _is_extended(name) and is_prefixed:
            yield causes.invalid(inner, name, "doesn't follow extended resource name standard")
        yield from _whole_amount(name, amount, inner)
    yield from amounts(resources, where)


def _whole_amount(name: str, text: str, where: str) -> Iterator[ErrorCause]:
    amount = parse_quantity(text) or 0
    if _is_extended(name) and amount % 1:
        yield causes.invalid(where, text, "must be an integer")
    page = parse_quantity(name.removeprefix("hugepages-"))
    if name.startswith("hugepages-") and not (page and amount % page == 0):
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

# ------------------------------------------------------------------ tolerations

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""What a taint does to Pods that do not tolerate it."""


def _toleration(toleration: Json, where: str) -> Iterator[ErrorCause]:
    operator = toleration.get("operator") or ""
    effect = toleration.get("effect") or ""
    value = toleration.get("value") or ""
    if not toleration.get("key") and operator != "Exists":
        text = (
            'operator must be Exists when `key` is empty, which means "match all values and '
            'all keys"'
        )
        yield causes.invalid(f"{where}.operator", operator, text)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield causes.invalid(f"{where}.effect", effect, text)
    if operator == "Exists" and value:
        text = "value must be empty when `operator` is 'Exists'"
        yield causes.invalid(f"{where}.operator", value, text)
    elif operator in ("", "Equal"):
        yield from named(causes.label_value_problems)(value, f"{where}.operator")
    elif operator != "Exists":
        known = ("Equal", "Exists", *(("Lt", "Gt") if operator in ("Lt", "Gt") else ()))
        yield causes.not_supported(f"{where}.operator", operator, known)


TOLERATION: Final[Any] = (
    _toleration,
    {"key": named(causes.label_key_problems), "effect": one_of(*EFFECTS)},
)

# ------------------------------------------------------------------ affinity

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT: Final = between(1, 100, "must be in the range 1-100")


def _requirement(value: Json, where: str) -> Iterator[ErrorCause]:
    if value.get("operator") in ("Gt", "Lt") and len(value.get("values") or ()) != 1:
        text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        yield causes.required(f"{where}.values", text)
    yield from causes.requirement(value, where, "Gt", "Lt")


def _node_field(value: Json, where: str) -> Iterator[ErrorCause]:
    operator = value.get("operator") or ""
    values = value.get("values") or []
    key = value.get("key") or ""
    if operator not in ("In", "NotIn"):
        yield causes.invalid(f"{where}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield causes.required(f"{where}.values", text)
    if key != "metadata.name":
        yield causes.invalid(f"{where}.key", key, "not a valid field selector key")
    else:
        yield from broken(value, where, {"values[*]": named(causes.subdomain_problems)})


_NODE_TERM: Final[Json] = {"matchExpressions[*]": _requirement, "matchFields[*]": _node_field}


def _topology(key: Any, where: str) -> Iterator[ErrorCause]:
    yield from needed("can not be empty")(key, where)
    yield from always(causes.label_key_problems)(key, where)


def _namespaces(term: Json, where: str) -> Iterator[ErrorCause]:
    rule = always(causes.rfc1123_label_problems)
    for namespace in term.get("namespaces") or ():
        yield from rule(namespace, f"{where}.namespace")


def _label_keys(term: Json, where: str) -> Iterator[ErrorCause]:
    for name in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = term.get(name) or []
        place = f"{where}.{name}"
        if keys and term.get("labelSelector") is None:
            yield causes.forbidden(place, "must not be specified when labelSelector is not set")
        for position, key in enumerate(keys):
            yield from always(causes.label_key_problems)(key, f"{place}[{position}]")
            if name == "matchLabelKeys" and key in (term.get("mismatchLabelKeys") or ()):
                text = "exists in both matchLabelKeys and mismatchLabelKeys"
                yield causes.invalid(f"{place}[{position}]", key, text)


_POD_TERM: Final[Any] = (
    _namespaces,
    _label_keys,
    {"labelSelector": SELECTOR, "namespaceSelector": SELECTOR, "topologyKey": _topology},
)
_POD_AFFINITY: Final[Json] = {
    f"{_REQUIRED}[*]": _POD_TERM,
    f"{_PREFERRED}[*]": {"weight": _WEIGHT, "podAffinityTerm": _POD_TERM},
}
AFFINITY: Final[Json] = {
    "nodeAffinity": {
        _REQUIRED: {
            "nodeSelectorTerms": needed("must have at least one node selector term"),
            "nodeSelectorTerms[*]": _NODE_TERM,
        },
        f"{_PREFERRED}[*]": {"weight": _WEIGHT, "preference": _NODE_TERM},
    },
    "podAffinity": _POD_AFFINITY,
    "podAntiAffinity": _POD_AFFINITY,
}


def _terms(spec: Json) -> list[Json]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []


def _shown(term: Json) -> Json:
    """Return a term under the names of Go."""
    made: Json = {}
    for name in ("matchExpressions", "matchFields"):
        listed = [
            {"Key": one["key"], "Operator": one["operator"], "Values": one.get("values")}
            for one in term.get(name) or ()
        ]
        made[name[0].upper() + name[1:]] = listed or None
    return made


def _has_only_additions(term: Json, old: Json) -> bool:
    if not any(old.get(name) for name in ("matchExpressions", "matchFields")):
        return not any(term.values())
    return all(
        (term.get(name) or [])[: len(old.get(name) or ())] == (old.get(name) or [])
        for name in ("matchExpressions", "matchFields")
    )


def check_narrowed(spec: Json, old: Json) -> Iterator[ErrorCause]:
    """Give where a Pod may run now, but might not before."""
    chosen = spec.get("nodeSelector") or {}
    if not (old.get("nodeSelector") or {}).items() <= chosen.items():
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield causes.invalid("spec.nodeSelector", chosen or None, text)
    place = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    terms = _terms(spec)
    before = _terms(old)
    if before and len(before) != len(terms):
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield causes.invalid(place, [_shown(term) for term in terms] or None, text)
    elif before:
        for position, (term, was) in enumerate(zip(terms, before, strict=True)):
            if not _has_only_additions(term, was):
                text = "only additions are allowed (no mutations or deletions)"
                yield causes.invalid(f"{place}[{position}]", _shown(term), text)


# ------------------------------------------------------------------ topology spread


def _spread(constraint: Json, where: str) -> Iterator[ErrorCause]:
    least = constraint.get("minDomains")
    when = constraint.get("whenUnsatisfiable")
    place = f"{where}.minDomains"
    yield from at_least(1, "must be greater than zero")(least, place)
    if least is not None and when != "DoNotSchedule":
        text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}"
        yield causes.invalid(place, least, text)


def repeated_spread(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check that no two constraints are about the same."""
    seen: list[str] = []
    for one in value or ():
        shown = f"{{{one.get('topologyKey')}, {one.get('whenUnsatisfiable')}}}"
        if shown in seen:
            place = f"{where}[{seen.index(shown)}].{{topologyKey, whenUnsatisfiable}}"
            yield causes.duplicate(place, shown)
        seen.append(shown)


SPREAD: Final[Any] = (
    _spread,
    _label_keys,
    {
        "labelSelector": SELECTOR,
        "maxSkew": at_least(1, "must be greater than zero"),
        "nodeAffinityPolicy": one_of("Honor", "Ignore"),
        "nodeTaintsPolicy": one_of("Honor", "Ignore"),
        "topologyKey": needed("can not be empty"),
        "whenUnsatisfiable": one_of("DoNotSchedule", "ScheduleAnyway", is_needed=True),
    },
)
"""One constraint."""
