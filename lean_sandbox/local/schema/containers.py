"""Checks of a Pod's containers: their probes, variables, resources, mounts and rights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.causes import (
    Check,
    at_least,
    between,
    broken,
    named,
    needed,
    never,
    no_backsteps,
    one_of,
    port,
    prohibited,
    relative_path,
    unique,
)
from lean_sandbox.local.schema.defaults import containers_of
from lean_sandbox.local.schema.placement import RESOURCES
from lean_sandbox.local.schema.volumes import PULL_POLICY, VARIABLE_SOURCE

Json = dict[str, Any]

PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
MAX_INT32: Final = 2**31 - 1

# ------------------------------------------------------------------ probes and hooks


def _headers(value: Any, where: str) -> Iterator[ErrorCause]:
    text = (
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g."
        " 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
    )
    for header in value or ():
        name = header.get("name") or ""
        if not re.fullmatch("[-A-Za-z0-9]+", name):
            yield causes.invalid(where, name, text)


_HANDLERS: Final[Json] = {
    "exec": {"command": needed()},
    "httpGet": {
        "path": needed(),
        "port": port,
        "scheme": one_of("HTTP", "HTTPS"),
        "httpHeaders": _headers,
    },
    "tcpSocket": {"port": port},
    "grpc": {"port": port},
    "sleep": {},
}


def _handler(probe: Any, where: str) -> Iterator[ErrorCause]:
    if probe is None:
        return
    given = [name for name in _HANDLERS if probe.get(name) is not None]
    if not given:
        yield causes.required(where, "must specify a handler type")
    for name in given[1:]:
        yield causes.forbidden(f"{where}.{name}", "may not specify more than 1 handler type")
    for name in given[:1]:
        yield from broken(probe[name], f"{where}.{name}", _HANDLERS[name])


_TIMES: Final = (
    *("initialDelaySeconds", "timeoutSeconds", "periodSeconds"),
    *("successThreshold", "failureThreshold"),
)
_PROBE: Final = (_handler, dict.fromkeys(_TIMES, at_least(0)))
_GRACE: Final = "terminationGracePeriodSeconds"
_OTHER_PROBE: Final = (
    _PROBE,
    {
        "successThreshold": never(lambda times: times != 1, "must be 1"),
        _GRACE: at_least(1, "must be greater than 0"),
    },
)
_PROBES: Final[Json] = {
    "readinessProbe": (
        _PROBE,
        {_GRACE: never(lambda _: True, "must not be set for readinessProbes")},
    ),
    "livenessProbe": _OTHER_PROBE,
    "startupProbe": _OTHER_PROBE,
    "lifecycle": {"postStart": _handler, "preStop": _handler},
}
# An init container that is no sidecar has none of them.
_NO_PROBES: Final[Json] = dict.fromkeys(
    _PROBES, prohibited("may not be set for init containers without restartPolicy=Always")
)


def _sleeps(container: Json, where: str, grace_s: int) -> Iterator[ErrorCause]:
    for hook in ("postStart", "preStop"):
        sleep = ((container.get("lifecycle") or {}).get(hook) or {}).get("sleep") or {}
        if not 0 <= (sleep.get("seconds") or 0) <= grace_s:
            text = "must be non-negative and less than terminationGracePeriodSeconds"
            place = f"{where}.lifecycle.{hook}.sleep"
            yield causes.invalid(place, sleep["seconds"], f"{text} ({grace_s})")


# ------------------------------------------------------------------ variables


def _variable_name(name: str) -> list[str]:
    text = (
        "a valid environment variable name must consist only of printable ASCII "
        "characters other than '='"
    )
    return [] if "=" not in name and name.isascii() and name.isprintable() else [text]


_SOURCES: Final = (
    *("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"),
)


def _not_one_of(value: Json, sources: tuple[str, ...], text: str = "") -> str:
    """Return what is wrong with how many sources a value names."""
    given = [key for key in sources if value.get(key) is not None]
    if not given:
        shown = [f"`{key}`" for key in sources]
        return f"must specify one of: {', '.join(shown[:-1])} or {shown[-1]}"
    return text or ("may not have more than one field specified at a time" if given[1:] else "")


def _variable(variable: Json, where: str) -> Iterator[ErrorCause]:
    source = variable.get("valueFrom")
    if source is None:
        return
    both = "may not be specified when `value` is not empty" if variable.get("value") else ""
    if text := _not_one_of(source, _SOURCES, both):
        yield causes.invalid(f"{where}.valueFrom", "", text)


def _variables_from(value: Any, where: str) -> Iterator[ErrorCause]:
    for source in value or ():
        if text := _not_one_of(source, ("configMapRef", "secretRef")):
            yield causes.invalid(where, "", text)


_WHOLE: Final = {"name": (needed(), named(causes.subdomain_problems))}

# ------------------------------------------------------------------ resources


def _resizing(value: Any, where: str) -> Iterator[ErrorCause]:
    """Check what becomes of a container whose resources change."""
    seen: set[str] = set()
    for position, policy in enumerate(value or ()):
        name = policy.get("resourceName") or ""
        yield from one_of("cpu", "memory", is_needed=True)(name, where)
        one = one_of("NotRequired", "RestartContainer", is_needed=True)
        yield from one(policy.get("restartPolicy"), where)
        if name in seen:
            yield causes.duplicate(f"{where}[{position}]", name)
        seen.add(name)


# ------------------------------------------------------------------ mounts


def _mount(mount: Json, where: str) -> Iterator[ErrorCause]:
    place = where.rpartition("[")[0]
    # The server leaves out which of the mounts it is.
    yield from broken(
        mount,
        place,
        {
            "subPath": relative_path,
            "subPathExpr": relative_path,
            "mountPropagation": one_of("Bidirectional", "HostToContainer", "None"),
            "recursiveReadOnly": one_of("Disabled", "Enabled", "IfPossible"),
        },
    )
    if mount.get("subPath") and mount.get("subPathExpr"):
        text = "subPathExpr and subPath are mutually exclusive"
        yield causes.invalid(f"{where}.subPathExpr", mount["subPathExpr"], text)
    is_recursive = mount.get("recursiveReadOnly") in ("Enabled", "IfPossible")
    if is_recursive and not mount.get("readOnly"):
        text = "may only be specified when readOnly is true"
        yield causes.forbidden(f"{place}.recursiveReadOnly", text)


def _mounts(container: Json, where: str, volumes: dict[str, Json]) -> Iterator[ErrorCause]:
    """Check that what is mounted is there, and may be mounted so."""
    is_privileged = (container.get("securityContext") or {}).get("privileged")
    for number, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            yield causes.not_found(f"{where}.volumeMounts[{number}].name", mount.get("name"))
        if mount.get("mountPropagation") == "Bidirectional" and not is_privileged:
            text = "Bidirectional mount propagation is available only to privileged containers"
            yield causes.forbidden(f"{where}.volumeMounts.mountPropagation", text)
    for number, device in enumerate(container.get("volumeDevices") or ()):
        name = device.get("name")
        place = f"{where}.volumeDevices[{number}].name"
        if name not in volumes:
            yield causes.not_found(place, name)
        elif not volumes[name].keys() & {"persistentVolumeClaim", "ephemeral"}:
            text = (
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block"
                " mode"
            )
            yield causes.invalid(place, name, text)


# ------------------------------------------------------------------ rights

_LOCAL: Final = ("Localhost", "RuntimeDefault", "Unconfined")


def _profile(what: str, *, is_path: bool) -> Check:
    """Return a check for a profile of seccomp or AppArmor."""

    def check(value: Json | None, where: str) -> Iterator[ErrorCause]:
        if value is None:
            return
        kind = value.get("type") or ""
        place = f"{where}.localhostProfile"
        path = value.get("localhostProfile")
        if not kind:
            name = where.rpartition(".")[2]
            yield causes.required(f"{where}.type", f"type is required when {name} is set")
        else:
            yield from one_of(*_LOCAL)(kind, f"{where}.type")
        if kind == "Localhost" and not path:
            yield causes.required(place, f"must be set when {what} type is Localhost")
        elif kind == "Localhost" and is_path:
            yield from relative_path(path, place)
        elif path and kind == "Localhost" and path.strip() != path:
            yield causes.invalid(place, path, "must not be padded with whitespace")
        elif path is not None and kind != "Localhost":
            shown = {"Type": kind, "LocalhostProfile": path} if is_path else path
            yield causes.invalid(place, shown, f"can only be set when {what} type is Localhost")

    return check


USER_ID: Final = between(0, MAX_INT32)
RIGHTS: Final[Json] = {
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "seccompProfile": _profile("seccomp", is_path=True),
    "appArmorProfile": _profile("AppArmor", is_path=False),
}
"""What the security contexts of Pods and of containers have in common."""
_SHOWN_RIGHTS: Final = (
    *("capabilities", "privileged", "seLinuxOptions", "windowsOptions", "runAsUser"),
    *("runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation"),
    *("procMount", "seccompProfile", "appArmorProfile"),
)


def _escalation(rights: Json | None, where: str) -> Iterator[ErrorCause]:
    if rights is None or rights.get("allowPrivilegeEscalation") is not False:
        return
    added = (rights.get("capabilities") or {}).get("add") or ()
    shown = {_go_name(name): rights.get(name) for name in _SHOWN_RIGHTS}
    if capabilities := rights.get("capabilities"):
        shown["Capabilities"] = {"Add": capabilities.get("add"), "Drop": capabilities.get("drop")}
    text = "cannot set `allowPrivilegeEscalation` to false and"
    if rights.get("privileged"):
        yield causes.invalid(where, shown, f"{text} `privileged` to true")
    if "CAP_SYS_ADMIN" in added:
        yield causes.invalid(where, shown, f"{text} `capabilities.Add` CAP_SYS_ADMIN")


def _go_name(name: str) -> str:
    return name[0].upper() + name[1:].replace("eLinux", "ELinux")


# ------------------------------------------------------------------ the whole


def _container_port(value: Any, where: str) -> Iterator[ErrorCause]:
    yield from port(value, where) if value else [causes.required(where)]


def _must_be_unique(where: str, value: Any) -> ErrorCause:
    return causes.invalid(where, value, "must be unique")


_CONTAINER: Final[Json] = {
    "image": (
        needed(),
        never(lambda text: text != text.strip(), "must not have leading or trailing whitespace"),
    ),
    "restartPolicy": one_of("Always", "Never", "OnFailure"),
    "terminationMessagePolicy": one_of("File", "FallbackToLogsOnError"),
    "imagePullPolicy": PULL_POLICY,
    "ports": unique("name"),
    "ports[*]": {
        "name": named(causes.port_name_problems),
        "containerPort": _container_port,
        "protocol": one_of(*PROTOCOLS),
        "hostPort": port,
    },
    "env[*]": (
        _variable,
        {"name": (needed(), named(_variable_name)), "valueFrom": VARIABLE_SOURCE},
    ),
    "envFrom": _variables_from,
    "envFrom[*]": {
        "prefix": named(_variable_name),
        "configMapRef": _WHOLE,
        "secretRef": _WHOLE,
    },
    "volumeMounts": unique("mountPath", _must_be_unique),
    "volumeMounts[*]": (_mount, {"name": needed(), "mountPath": needed()}),
    "volumeDevices": unique("name", _must_be_unique),
    "volumeDevices[*]": {
        "name": needed(),
        "devicePath": (needed(), no_backsteps("can not contain backsteps ('..')")),
    },
    "resizePolicy": _resizing,
    "resources": RESOURCES,
    "securityContext": (
        _escalation,
        {**RIGHTS, "procMount": one_of("Default", "Unmasked")},
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


def check_containers(spec: Json, path: str) -> Iterator[ErrorCause]:
    """Give what is wrong with the containers of a Pod's spec."""
    volumes = {volume.get("name") or "": volume for volume in spec.get("volumes") or ()}
    grace_s = spec.get("terminationGracePeriodSeconds") or 0
    seen: set[str | None] = set()
    host_ports: set[str] = set()
    # Names are unique over all lists; `containers` are looked at first, as the server does.
    for list_name, position, container in sorted(containers_of(spec), key=lambda one: one[:2]):
        where = f"{path}.{list_name}[{position}]"
        is_init = list_name == "initContainers" and container.get("restartPolicy") != "Always"
        name = container.get("name")
        if name and name in seen:
            yield causes.duplicate(f"{where}.name", name)
        seen.add(name)
        yield from broken(container, where, (_CONTAINER, _NO_PROBES if is_init else _PROBES))
        yield from _sleeps({} if is_init else container, where, grace_s)
        yield from _mounts(container, where, volumes)
        taken = host_ports if list_name == "containers" else set()
        yield from _host_ports(container, where, taken, spec)
