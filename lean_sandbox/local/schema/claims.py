"""PersistentVolumeClaims: defaults and validation."""

from __future__ import annotations

from typing import Any

from lean_sandbox.local.errors import Cause
from lean_sandbox.local.schema import errors, names, paths
from lean_sandbox.model.comparison import parse_quantity

Json = dict[str, Any]

_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_IMMUTABLE = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName "
    "for bound claims"
)


def claim_defaults(obj: Json) -> None:
    """Write the defaults of a claim (the default storage class is the server's matter)."""
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def check_claim_spec(spec: Json, path: str) -> list[Cause]:
    """Return what is wrong with the spec of a claim."""
    found: list[Cause] = []
    where = paths.child(path, "accessModes")
    modes = spec.get("accessModes") or []
    if not modes:
        found.append(errors.required(where, "at least 1 access mode is required"))
    found += [errors.not_supported(where, mode, _MODES) for mode in modes if mode not in _MODES]
    where = paths.child(path, "resources[storage]")
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        found.append(errors.required(where))
    else:
        size = parse_quantity(storage)
        if size is not None and size <= 0:
            found.append(errors.invalid(where, str(storage), "must be greater than zero"))
    if storage_class := spec.get("storageClassName"):
        where = paths.child(path, "storageClassName")
        problems = names.subdomain_problems(storage_class)
        found += [errors.invalid(where, storage_class, text) for text in problems]
    mode = spec.get("volumeMode")
    if mode not in {None, "Block", "Filesystem"}:
        where = paths.child(path, "volumeMode")
        found.append(errors.not_supported(where, mode, ["Block", "Filesystem"]))
    return found


def _fixed_part(spec: Json, *, is_bound: bool) -> Json:
    """Return what must stay. The volume may be set once, the request of a bound claim grow."""
    fixed = {key: value for key, value in spec.items() if key != "volumeName"}
    if is_bound:
        resources = {k: v for k, v in (fixed.get("resources") or {}).items() if k != "requests"}
        fixed["resources"] = resources
        fixed.pop("volumeAttributesClassName", None)
    return fixed


def check_claim(obj: Json, old: Json | None) -> list[Cause]:
    """Return what is wrong with a claim, and on an update with the change."""
    spec: Json = obj.get("spec") or {}
    found = check_claim_spec(spec, "spec")
    if old is None:
        return found
    before: Json = old.get("spec") or {}
    is_bound = (old.get("status") or {}).get("phase") == "Bound"
    renamed = bool(before.get("volumeName")) and before["volumeName"] != spec.get("volumeName")
    if renamed or _fixed_part(spec, is_bound=is_bound) != _fixed_part(before, is_bound=is_bound):
        found.append(errors.forbidden("spec", _IMMUTABLE))
    elif is_bound:
        now = parse_quantity(((spec.get("resources") or {}).get("requests") or {}).get("storage"))
        was = parse_quantity(((before.get("resources") or {}).get("requests") or {}).get("storage"))
        if now is not None and was is not None and now < was:
            text = "field can not be less than status.capacity"
            found.append(errors.forbidden("spec.resources.requests.storage", text))
    return found
