"""Validation of Pods: the checks whose answers users of Sandboxes meet."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from lean_sandbox.local.errors import Cause
from lean_sandbox.local.schema import errors, names, paths
from lean_sandbox.local.schema.containers import check_container
from lean_sandbox.local.schema.metadata import check_labels
from lean_sandbox.local.schema.pod_defaults import containers_of

Json = dict[str, Any]

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_OPERATORS = ("Equal", "Exists")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_MAX_INT32 = 2**31 - 1
_UPDATE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _check_volumes(spec: Json, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for position, volume in enumerate(spec.get("volumes") or ()):
        where = paths.index(path, position)
        name = volume.get("name") or ""
        named = paths.child(where, "name")
        if not name:
            yield errors.required(named)
        for text in names.rfc1123_label_problems(name) if name else ():
            yield errors.invalid(named, name, text)
        if name and name in seen:
            yield errors.duplicate(named, name)
        seen.add(name)
        sources = [key for key in volume if key != "name" and volume[key] is not None]
        for extra in sources[1:]:
            text = "may not specify more than 1 volume type"
            yield errors.forbidden(paths.child(where, extra), text)
        claim = volume.get("persistentVolumeClaim")
        if claim is not None and not claim.get("claimName"):
            yield errors.required(f"{where}.persistentVolumeClaim.claimName")
        host = volume.get("hostPath")
        if host is not None and not host.get("path"):
            yield errors.required(f"{where}.hostPath.path")


def _check_containers(spec: Json, path: str) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield errors.required(paths.child(path, "containers"))
    volumes = {volume.get("name") for volume in spec.get("volumes") or () if volume.get("name")}
    seen: set[str] = set()
    host_ports: set[str] = set()
    # Names are unique over all lists; `containers` are looked at first, as the server does.
    order = {"containers": 0, "initContainers": 1, "ephemeralContainers": 2}
    for list_name, position, container in sorted(
        containers_of(spec), key=lambda entry: (order[entry[0]], entry[1])
    ):
        where = paths.index(paths.child(path, list_name), position)
        name = container.get("name") or ""
        named = paths.child(where, "name")
        if not name:
            yield errors.required(named)
        else:
            for text in names.rfc1123_label_problems(name):
                yield errors.invalid(named, name, text)
            if name in seen:
                yield errors.duplicate(named, name)
        seen.add(name)
        ports = host_ports if list_name == "containers" else set()
        yield from check_container(
            container,
            where,
            volumes=volumes,
            host_ports=ports,
            is_host_network=bool(spec.get("hostNetwork")),
        )


def _check_tolerations(spec: Json, path: str) -> Iterator[Cause]:
    for position, toleration in enumerate(spec.get("tolerations") or ()):
        where = paths.index(path, position)
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        if key:
            for text in names.label_key_problems(key):
                yield errors.invalid(paths.child(where, "key"), key, text)
        elif operator != "Exists":
            text = (
                'operator must be Exists when `key` is empty, which means "match all values and '
                'all keys"'
            )
            yield errors.invalid(paths.child(where, "operator"), operator, text)
        if operator == "Exists" and toleration.get("value"):
            text = "value must be empty when `operator` is 'Exists'"
            yield errors.invalid(paths.child(where, "operator"), toleration["value"], text)
        elif operator and operator not in _OPERATORS:
            yield errors.not_supported(paths.child(where, "operator"), operator, _OPERATORS)
        effect = toleration.get("effect")
        if effect and effect not in _EFFECTS:
            yield errors.not_supported(paths.child(where, "effect"), effect, _EFFECTS)


def _check_names(spec: Json, path: str) -> Iterator[Cause]:
    for name, rule in (
        ("hostname", names.rfc1123_label_problems),
        ("subdomain", names.rfc1123_label_problems),
        ("nodeName", names.subdomain_problems),
        ("serviceAccountName", names.subdomain_problems),
        ("priorityClassName", names.subdomain_problems),
        ("runtimeClassName", names.subdomain_problems),
    ):
        if value := spec.get(name):
            for text in rule(value):
                yield errors.invalid(paths.child(path, name), value, text)


def _check_spread(spec: Json, path: str) -> Iterator[Cause]:
    for position, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        where = paths.index(path, position)
        skew = constraint.get("maxSkew") or 0
        if skew <= 0:
            yield errors.invalid(paths.child(where, "maxSkew"), skew, "must be greater than zero")
        if not constraint.get("topologyKey"):
            yield errors.required(paths.child(where, "topologyKey"), "can not be empty")
        action = constraint.get("whenUnsatisfiable")
        if action not in _UNSATISFIABLE:
            named = paths.child(where, "whenUnsatisfiable")
            yield errors.not_supported(named, action, _UNSATISFIABLE)


def _check_security(context: Json, path: str) -> Iterator[Cause]:
    for name in ("runAsUser", "runAsGroup", "fsGroup"):
        value = context.get(name)
        if value is not None and not 0 <= value <= _MAX_INT32:
            text = f"must be between 0 and {_MAX_INT32}, inclusive"
            yield errors.invalid(paths.child(path, name), value, text)


def check_pod_spec(spec: Json, path: str) -> list[Cause]:
    """Return what is wrong with the spec of a Pod."""
    found = list(_check_volumes(spec, paths.child(path, "volumes")))
    found += _check_containers(spec, path)
    for name, allowed in (("restartPolicy", _RESTART_POLICIES), ("dnsPolicy", _DNS_POLICIES)):
        value = spec.get(name)
        if not value:
            found.append(errors.required(paths.child(path, name)))
        elif value not in allowed:
            found.append(errors.not_supported(paths.child(path, name), value, allowed))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_INT32:
        text = f"must be between 1 and {_MAX_INT32}, inclusive"
        found.append(errors.invalid(paths.child(path, "activeDeadlineSeconds"), deadline, text))
    found += _check_names(spec, path)
    found += check_labels(spec.get("nodeSelector"), paths.child(path, "nodeSelector"))
    found += _check_tolerations(spec, paths.child(path, "tolerations"))
    found += _check_spread(spec, paths.child(path, "topologySpreadConstraints"))
    context = spec.get("securityContext") or {}
    found += _check_security(context, paths.child(path, "securityContext"))
    return found


def _toleration_key(toleration: Json) -> Json:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _updatable(spec: Json, old: Json) -> Json:
    """Return a copy of a spec in which what an update may change is as it was before."""
    masked = copy.deepcopy(spec)
    for name, position, container in containers_of(masked):
        if name != "ephemeralContainers":
            container["image"] = old[name][position].get("image")
    for name in ("activeDeadlineSeconds", "tolerations"):
        masked.pop(name, None)
        if name in old:
            masked[name] = old[name]
    if (old.get("terminationGracePeriodSeconds") or 0) < 0 and masked.get(
        "terminationGracePeriodSeconds"
    ) == 1:
        masked["terminationGracePeriodSeconds"] = old["terminationGracePeriodSeconds"]
    if old.get("schedulingGates") and _gates(masked) <= _gates(old):
        masked["schedulingGates"] = old["schedulingGates"]
        # While a gate is closed, node selectors may still be narrowed.
        masked.pop("nodeSelector", None)
        if "nodeSelector" in old:
            masked["nodeSelector"] = old["nodeSelector"]
    return _without_empty(masked)


def _gates(spec: Json) -> set[str]:
    return {gate.get("name", "") for gate in spec.get("schedulingGates") or ()}


def _without_empty(spec: Json) -> Json:
    return {key: value for key, value in spec.items() if value not in (None, [], {}, "", False)}


def _check_update(spec: Json, old: Json) -> list[Cause]:
    for name in ("containers", "initContainers"):
        if len(spec.get(name) or ()) != len(old.get(name) or ()):
            text = "pod updates may not add or remove containers"
            return [errors.forbidden(f"spec.{name}", text)]
    if len(spec.get("ephemeralContainers") or ()) != len(old.get("ephemeralContainers") or ()):
        return [errors.forbidden("spec", _UPDATE)]
    found: list[Cause] = []
    kept = [_toleration_key(item) for item in spec.get("tolerations") or ()]
    if any(_toleration_key(item) not in kept for item in old.get("tolerations") or ()):
        text = "existing toleration can not be modified except its tolerationSeconds"
        found.append(errors.forbidden("spec.tolerations", text))
    before, now = old.get("activeDeadlineSeconds"), spec.get("activeDeadlineSeconds")
    if before is not None and (now is None or now > before):
        text = "must be less than or equal to previous value"
        where = "spec.activeDeadlineSeconds"
        found.append(
            errors.invalid(where, now, text)
            if now is not None
            else errors.invalid(where, None, "must not update from a positive integer to nil value")
        )
    if _updatable(spec, old) != _without_empty(old):
        found.append(errors.forbidden("spec", _UPDATE))
    return found


def check_pod(obj: Json, old: Json | None) -> list[Cause]:
    """Return what is wrong with a Pod; on an update also with the change (most of spec is fixed).

    Binding, resize and ephemeral containers are subresources: writes to them do not come here.
    """
    spec: Json = obj.get("spec") or {}
    found = check_pod_spec(spec, "spec")
    if old is not None:
        found += _check_update(spec, old.get("spec") or {})
    return found + check_pod_addresses(obj.get("status") or {})


def check_pod_addresses(status: Json) -> list[Cause]:
    """Return what is wrong with the addresses of a Pod: one of each family."""
    addresses = [one.get("ip") or "" for one in status.get("podIPs") or ()]
    families = [":" in address for address in addresses]
    if len(set(families)) == len(families):
        return []
    shown = [{"IP": address} for address in addresses]
    text = "may specify no more than one IP for each IP family"
    return [errors.invalid("status.podIPs", shown, text)]
