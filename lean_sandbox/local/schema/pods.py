"""Checks of Pods and Services: those whose answers users of Sandboxes meet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.causes import (
    amounts,
    at_least,
    between,
    broken,
    labels,
    named,
    needed,
    never,
    one_of,
    port,
    unique,
)
from lean_sandbox.local.schema.defaults import CONTAINER_LISTS, containers_of
from lean_sandbox.local.schema.structural import matches_format
from lean_sandbox.model.comparison import parse_quantity

Json = dict[str, Any]

_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_MAX_INT32: Final = 2**31 - 1
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_ENV_NAME: Final = (
    "a valid environment variable name must consist only of printable ASCII "
    "characters other than '='"
)
_ENV_SOURCES: Final = (
    *("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"),
)
_STANDARD_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", "storage")
_UPDATE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


# ------------------------------------------------------------------ containers


def _container_port(value: Any, where: str) -> Iterator[ErrorCause]:
    yield from port(value, where) if value else [causes.required(where)]


def _variable_name(name: str) -> list[str]:
    is_good = "=" not in name and name.isascii() and name.isprintable()
    return [] if is_good else [_ENV_NAME]


def _variable(variable: Json, where: str) -> Iterator[ErrorCause]:
    source = variable.get("valueFrom")
    if source is None:
        return
    given = [key for key in _ENV_SOURCES if source.get(key) is not None]
    text = ""
    if not given:
        shown = [f"`{key}`" for key in _ENV_SOURCES]
        text = f"must specify one of: {', '.join(shown[:-1])} or {shown[-1]}"
    elif variable.get("value"):
        text = "may not be specified when `value` is not empty"
    elif len(given) > 1:
        text = "may not have more than one field specified at a time"
    if text:
        yield causes.invalid(f"{where}.valueFrom", "", text)


def _resource_names(resources: Any, where: str) -> Iterator[ErrorCause]:
    for name in resources or ():
        inner = f"{where}[{name}]"
        for text in causes.label_key_problems(name):
            yield causes.invalid(inner, name, text)
        if not ("/" in name or name in _STANDARD_RESOURCES or name.startswith("hugepages-")):
            text = "must be a standard resource type or fully qualified"
            yield causes.invalid(inner, name, text)
            yield causes.invalid(inner, name, "must be a standard resource for containers")


def _requests(resources: Any, where: str) -> Iterator[ErrorCause]:
    limits: Json = resources.get("limits") or {}
    for name, value in (resources.get("requests") or {}).items():
        wanted = parse_quantity(value)
        limit = parse_quantity(limits.get(name))
        if wanted is not None and limit is not None and wanted > limit:
            text = f"must be less than or equal to {name} limit of {limits[name]}"
            yield causes.invalid(f"{where}.requests", str(value), text)


def _handler(probe: Any, where: str) -> Iterator[ErrorCause]:
    if probe is None:
        return
    given = [name for name in _HANDLERS if probe.get(name) is not None]
    if not given:
        yield causes.required(where, "must specify a handler type")
    for name in given[1:]:
        yield causes.forbidden(f"{where}.{name}", "may not specify more than 1 handler type")
    for name in given:
        yield from port(probe[name].get("port"), f"{where}.{name}.port")


_PROBE: Final = (
    _handler,
    dict.fromkeys(
        (
            *("initialDelaySeconds", "timeoutSeconds", "periodSeconds"),
            *("successThreshold", "failureThreshold"),
        ),
        at_least(0),
    ),
)
_OTHER_PROBE: Final = (
    _PROBE,
    {"successThreshold": never(lambda times: times > 1, "must be 1")},
)
_CONTAINER: Final[Json] = {
    "image": (
        needed(),
        never(lambda text: text != text.strip(), "must not have leading or trailing whitespace"),
    ),
    "terminationMessagePolicy": one_of("File", "FallbackToLogsOnError"),
    "imagePullPolicy": one_of("Always", "IfNotPresent", "Never"),
    "readinessProbe": _PROBE,
    "livenessProbe": _OTHER_PROBE,
    "startupProbe": _OTHER_PROBE,
    "ports": unique("name"),
    "ports[*]": {
        "name": named(causes.port_name_problems),
        "containerPort": _container_port,
        "protocol": one_of(*_PROTOCOLS),
        "hostPort": port,
    },
    "env[*]": (_variable, {"name": (needed(), named(_variable_name))}),
    "volumeMounts": unique(
        "mountPath", lambda where, path: causes.invalid(where, path, "must be unique")
    ),
    "volumeMounts[*]": {"name": needed(), "mountPath": needed()},
    "resources": (
        _requests,
        {"limits": (_resource_names, amounts), "requests": (_resource_names, amounts)},
    ),
    "name": (needed(), named(causes.rfc1123_label_problems)),
}


def _host_ports(container: Json, where: str, taken: set[str], spec: Json) -> Iterator[ErrorCause]:
    for position, one in enumerate(container.get("ports") or ()):
        number = one.get("hostPort")
        if not number:
            continue
        inner = f"{where}.ports[{position}].hostPort"
        if spec.get("hostNetwork") and number != one.get("containerPort"):
            text = "must match `containerPort` when `hostNetwork` is true"
            yield causes.invalid(inner, number, text)
        key = f"{one.get('protocol')}/{one.get('hostIP') or ''}/{number}"
        if key in taken:
            yield causes.duplicate(inner, key)
        taken.add(key)


def _containers(spec: Json, path: str) -> Iterator[ErrorCause]:
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    seen: set[str | None] = set()
    host_ports: set[str] = set()
    # Names are unique over all lists; `containers` are looked at first, as the server does.
    for list_name, position, container in sorted(containers_of(spec), key=lambda one: one[:2]):
        where = f"{path}.{list_name}[{position}]"
        name = container.get("name")
        if name and name in seen:
            yield causes.duplicate(f"{where}.name", name)
        seen.add(name)
        yield from broken(container, where, _CONTAINER)
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            if mount.get("name") not in volumes:
                yield causes.not_found(f"{where}.volumeMounts[{number}].name", mount.get("name"))
        taken = host_ports if list_name == "containers" else set()
        yield from _host_ports(container, where, taken, spec)


# ------------------------------------------------------------------ the whole


def _one_source(volume: Json, where: str) -> Iterator[ErrorCause]:
    sources = [key for key in volume if key != "name" and volume[key] is not None]
    for extra in sources[1:]:
        yield causes.forbidden(f"{where}.{extra}", "may not specify more than 1 volume type")


def _toleration(toleration: Json, where: str) -> Iterator[ErrorCause]:
    operator = toleration.get("operator") or ""
    if not toleration.get("key") and operator != "Exists":
        text = (
            'operator must be Exists when `key` is empty, which means "match all values and '
            'all keys"'
        )
        yield causes.invalid(f"{where}.operator", operator, text)
    if operator == "Exists" and toleration.get("value"):
        text = "value must be empty when `operator` is 'Exists'"
        yield causes.invalid(f"{where}.operator", toleration["value"], text)


_SPEC: Final[Any] = (
    _containers,
    {
        "containers": needed(),
        "restartPolicy": one_of("Always", "OnFailure", "Never"),
        "dnsPolicy": one_of("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
        "activeDeadlineSeconds": between(1, _MAX_INT32),
        "hostname": named(causes.rfc1123_label_problems),
        "subdomain": named(causes.rfc1123_label_problems),
        "nodeName": named(causes.subdomain_problems),
        "serviceAccountName": named(causes.subdomain_problems),
        "priorityClassName": named(causes.subdomain_problems),
        "runtimeClassName": named(causes.subdomain_problems),
        "nodeSelector": labels,
        "securityContext": dict.fromkeys(
            ("runAsUser", "runAsGroup", "fsGroup"), between(0, _MAX_INT32)
        ),
        "tolerations[*]": (
            _toleration,
            {
                "key": named(causes.label_key_problems),
                "operator": one_of("Equal", "Exists"),
                "effect": one_of("NoSchedule", "PreferNoSchedule", "NoExecute"),
            },
        ),
        "topologySpreadConstraints[*]": {
            "maxSkew": at_least(1, "must be greater than zero"),
            "topologyKey": needed("can not be empty"),
            "whenUnsatisfiable": one_of("DoNotSchedule", "ScheduleAnyway", is_needed=True),
        },
        "volumes": unique("name"),
        "volumes[*]": (
            _one_source,
            {
                "name": (needed(), named(causes.rfc1123_label_problems)),
                "persistentVolumeClaim": {"claimName": needed()},
                "hostPath": {"path": needed()},
            },
        ),
    },
)


def _pod_addresses(addresses: Any, where: str) -> Iterator[ErrorCause]:
    """Check that a Pod has one address of each family."""
    given = [one.get("ip") or "" for one in addresses or ()]
    if len({":" in address for address in given}) < len(given):
        shown = [{"IP": address} for address in given]
        text = "may specify no more than one IP for each IP family"
        yield causes.invalid(where, shown, text)


POD_STATUS: Final[Any] = {"status": {"podIPs": _pod_addresses}}
POD: Final[Any] = ({"spec": _SPEC}, POD_STATUS)


# ------------------------------------------------------------------ updates


def _toleration_key(toleration: Json) -> Json:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _updatable(spec: Json, old: Json) -> Json:
    """Return a spec in which what an update may change is as it was before."""
    kept = ["activeDeadlineSeconds", "tolerations"]
    if (old.get("terminationGracePeriodSeconds") or 0) < 0 and (
        spec.get("terminationGracePeriodSeconds") == 1
    ):
        kept.append("terminationGracePeriodSeconds")
    if old.get("schedulingGates") and _gates(spec) <= _gates(old):
        # While a gate is closed, node selectors may still be narrowed.
        kept += ["schedulingGates", "nodeSelector"]
    made = {**spec, **{name: old.get(name) for name in kept}}
    for part in CONTAINER_LISTS:
        both = zip(spec.get(part) or (), old.get(part) or (), strict=True)
        made[part] = [{**now, "image": was.get("image")} for now, was in both]
    return _without_empty(made)


def _gates(spec: Json) -> set[str]:
    return {gate.get("name", "") for gate in spec.get("schedulingGates") or ()}


def _without_empty(spec: Json) -> Json:
    return {key: value for key, value in spec.items() if value not in (None, [], {}, "", False)}


def check_pod_change(obj: Json, before: Json) -> Iterator[ErrorCause]:
    """Give what is wrong with the update of a Pod: most of its spec is fixed.

    Binding is a subresource: writes to it do not come here.
    """
    spec: Json = obj.get("spec") or {}
    old: Json = before.get("spec") or {}
    for name in CONTAINER_LISTS:
        if len(spec.get(name) or ()) != len(old.get(name) or ()):
            text = "pod updates may not add or remove containers"
            yield causes.forbidden(f"spec.{name}", text)
            return
    kept = [_toleration_key(item) for item in spec.get("tolerations") or ()]
    if any(_toleration_key(item) not in kept for item in old.get("tolerations") or ()):
        text = "existing toleration can not be modified except its tolerationSeconds"
        yield causes.forbidden("spec.tolerations", text)
    was = old.get("activeDeadlineSeconds")
    now = spec.get("activeDeadlineSeconds")
    if was is not None and (now is None or now > was):
        text = "must be less than or equal to previous value"
        if now is None:
            text = "must not update from a positive integer to nil value"
        yield causes.invalid("spec.activeDeadlineSeconds", now, text)
    if _updatable(spec, old) != _without_empty(old):
        yield causes.forbidden("spec", _UPDATE)


# ------------------------------------------------------------------ Services

_IP_TEXT: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def _ports(spec: Json, where: str) -> Iterator[ErrorCause]:
    ports: list[Json] = spec.get("ports") or []
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        yield causes.required(f"{where}.ports")
    seen: set[tuple[Any, Any]] = set()
    for position, one in enumerate(ports):
        if len(ports) > 1 and not one.get("name"):
            yield causes.required(f"{where}.ports[{position}].name")
        key = (one.get("protocol"), one.get("port"))
        if key in seen:
            shown = {
                "Name": "",
                "Protocol": key[0],
                "AppProtocol": None,
                "Port": key[1],
                "TargetPort": 0,
                "NodePort": 0,
            }
            yield causes.duplicate(f"{where}.ports[{position}]", shown)
        seen.add(key)


def _addresses(spec: Json, where: str) -> Iterator[ErrorCause]:
    addresses: list[str] = spec.get("clusterIPs") or []
    kind = spec.get("type")
    if kind == "ExternalName" and not spec.get("externalName"):
        yield causes.required(f"{where}.externalName")
    if addresses[:1] == ["None"] and kind in {"NodePort", "LoadBalancer"}:
        text = f"may not be set to 'None' for {kind} services"
        yield causes.invalid(f"{where}.clusterIPs[0]", "None", text)
    for position, address in enumerate(addresses):
        is_address = any(matches_format(address, form) for form in ("ipv4", "ipv6"))
        if address not in {"None", ""} and not is_address:
            yield causes.invalid(f"{where}.clusterIPs[{position}]", address, _IP_TEXT)
    if addresses and spec.get("clusterIP") != addresses[0]:
        text = "first value must match `clusterIP`"
        yield causes.invalid(f"{where}.clusterIPs", addresses, text)


SERVICE: Final[Any] = {
    "spec": (
        _ports,
        _addresses,
        {
            "type": one_of("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"),
            "sessionAffinity": one_of("ClientIP", "None"),
            "selector": labels,
            "ports": unique("name"),
            "ports[*]": {
                "name": named(causes.rfc1123_label_problems),
                "port": between(1, 65535),
                "protocol": one_of(*_PROTOCOLS),
                "targetPort": port,
            },
        },
    )
}


def check_service_change(obj: Json, before: Json) -> Iterator[ErrorCause]:
    """Give what is wrong with the update of a Service: its address never changes."""
    spec = obj["spec"]
    old = before.get("spec") or {}
    now = spec.get("clusterIPs") or []
    was = old.get("clusterIPs") or []
    is_named = "ExternalName" in (spec.get("type"), old.get("type"))
    if now and was and now[0] != was[0] and not is_named:
        yield causes.invalid("spec.clusterIPs[0]", now, "may not change once set")
