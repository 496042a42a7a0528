"""Validation of one container of a Pod."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from lean_sandbox.local.errors import Cause
from lean_sandbox.local.schema import errors, names, paths
from lean_sandbox.model.comparison import parse_quantity

Json = dict[str, Any]

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PORT_RANGE = "must be between 1 and 65535, inclusive"
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_ENV_NAME = (
    "a valid environment variable name must consist only of printable ASCII "
    "characters other than '='"
)
_ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage", "storage"})


def _check_ports(
    ports: list[Json], path: str, host_ports: set[str], *, is_host_network: bool
) -> Iterator[Cause]:
    seen: set[str] = set()
    for position, port in enumerate(ports):
        where = paths.index(path, position)
        if name := port.get("name"):
            named = paths.child(where, "name")
            problems = names.port_name_problems(name)
            for text in problems:
                yield errors.invalid(named, name, text)
            if not problems and name in seen:
                yield errors.duplicate(named, name)
            seen.add(name)
        number = port.get("containerPort") or 0
        numbered = paths.child(where, "containerPort")
        if number == 0:
            yield errors.required(numbered)
        elif not 1 <= number <= 65535:
            yield errors.invalid(numbered, number, _PORT_RANGE)
        protocol = port.get("protocol") or ""
        if not protocol:
            yield errors.required(paths.child(where, "protocol"))
        elif protocol not in _PROTOCOLS:
            yield errors.not_supported(paths.child(where, "protocol"), protocol, _PROTOCOLS)
        if host := port.get("hostPort"):
            hosted = paths.child(where, "hostPort")
            if not 1 <= host <= 65535:
                yield errors.invalid(hosted, host, _PORT_RANGE)
            elif is_host_network and host != number:
                text = "must match `containerPort` when `hostNetwork` is true"
                yield errors.invalid(hosted, host, text)
            key = f"{protocol}/{port.get('hostIP') or ''}/{host}"
            if key in host_ports:
                yield errors.duplicate(hosted, key)
            host_ports.add(key)


def _check_env(variables: list[Json], path: str) -> Iterator[Cause]:
    for position, variable in enumerate(variables):
        where = paths.index(path, position)
        name = variable.get("name") or ""
        if not name:
            yield errors.required(paths.child(where, "name"))
        elif "=" in name or not name.isascii() or not name.isprintable():
            yield errors.invalid(paths.child(where, "name"), name, _ENV_NAME)
        source = variable.get("valueFrom")
        if source is None:
            continue
        sourced = paths.child(where, "valueFrom")
        given = [key for key in _ENV_SOURCES if source.get(key) is not None]
        if not given:
            shown = [f"`{key}`" for key in _ENV_SOURCES]
            text = f"must specify one of: {', '.join(shown[:-1])} or {shown[-1]}"
            yield errors.invalid(sourced, "", text)
        elif variable.get("value"):
            text = "may not be specified when `value` is not empty"
            yield errors.invalid(sourced, "", text)
        elif len(given) > 1:
            text = "may not have more than one field specified at a time"
            yield errors.invalid(sourced, "", text)


def _check_mounts(mounts: list[Json], path: str, volumes: Collection[str]) -> Iterator[Cause]:
    seen: set[str] = set()
    for position, mount in enumerate(mounts):
        where = paths.index(path, position)
        name, target = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield errors.required(paths.child(where, "name"))
        if name not in volumes:
            yield errors.not_found(paths.child(where, "name"), name)
        targeted = paths.child(where, "mountPath")
        if not target:
            yield errors.required(targeted)
        elif target in seen:
            yield errors.invalid(targeted, target, "must be unique")
        seen.add(target)


def _check_resource_name(name: str, path: str) -> Iterator[Cause]:
    for text in names.label_key_problems(name):
        yield errors.invalid(path, name, text)
    if "/" in name or name in _STANDARD_RESOURCES or name.startswith("hugepages-"):
        return
    yield errors.invalid(path, name, "must be a standard resource type or fully qualified")
    yield errors.invalid(path, name, "must be a standard resource for containers")


def _check_resources(resources: Json, path: str) -> Iterator[Cause]:
    limits: Json = resources.get("limits") or {}
    requests: Json = resources.get("requests") or {}
    for part, values in (("limits", limits), ("requests", requests)):
        for name, value in values.items():
            where = paths.key(paths.child(path, part), name)
            yield from _check_resource_name(name, where)
            amount = parse_quantity(value)
            if amount is not None and amount < 0:
                yield errors.invalid(where, str(value), "must be greater than or equal to 0")
    for name, value in requests.items():
        wanted, limit = parse_quantity(value), parse_quantity(limits.get(name))
        if wanted is not None and limit is not None and wanted > limit:
            text = f"must be less than or equal to {name} limit of {limits[name]}"
            yield errors.invalid(paths.child(path, "requests"), str(value), text)


def _check_handler(handler: Json, path: str, missing: str) -> Iterator[Cause]:
    given = [name for name in _HANDLERS if handler.get(name) is not None]
    if not given:
        yield errors.required(path, missing)
    for name in given[1:]:
        yield errors.forbidden(paths.child(path, name), "may not specify more than 1 handler type")
    for name in given:
        target = handler[name].get("port") if name != "exec" else None
        where = paths.child(paths.child(path, name), "port")
        if isinstance(target, int) and not 1 <= target <= 65535:
            yield errors.invalid(where, target, _PORT_RANGE)
        elif isinstance(target, str):
            for text in names.port_name_problems(target):
                yield errors.invalid(where, target, text)


def _check_probes(container: Json, path: str) -> Iterator[Cause]:
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is None:
            continue
        where = paths.child(path, name)
        yield from _check_handler(probe, where, "must specify a handler type")
        for field in (
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ):
            value = probe.get(field) or 0
            if value < 0:
                text = "must be greater than or equal to 0"
                yield errors.invalid(paths.child(where, field), value, text)
        if name != "readinessProbe" and (probe.get("successThreshold") or 1) != 1:
            yield errors.invalid(
                paths.child(where, "successThreshold"), probe["successThreshold"], "must be 1"
            )


def check_container(
    container: Json,
    path: str,
    *,
    volumes: Collection[str],
    host_ports: set[str],
    is_host_network: bool,
) -> Iterator[Cause]:
    """Give an error for each thing wrong with a container, except its name.

    `volumes` are the names the Pod declares; `host_ports` collects the ports taken on the host.
    """
    image = container.get("image") or ""
    if not image:
        yield errors.required(paths.child(path, "image"))
    elif image != image.strip():
        text = "must not have leading or trailing whitespace"
        yield errors.invalid(paths.child(path, "image"), image, text)
    for name, allowed in (
        ("terminationMessagePolicy", _MESSAGE_POLICIES),
        ("imagePullPolicy", _PULL_POLICIES),
    ):
        value = container.get(name)
        if not value:
            yield errors.required(paths.child(path, name))
        elif value not in allowed:
            yield errors.not_supported(paths.child(path, name), value, allowed)
    yield from _check_probes(container, path)
    ports = paths.child(path, "ports")
    yield from _check_ports(
        container.get("ports") or [], ports, host_ports, is_host_network=is_host_network
    )
    yield from _check_env(container.get("env") or [], paths.child(path, "env"))
    mounts = container.get("volumeMounts") or []
    yield from _check_mounts(mounts, paths.child(path, "volumeMounts"), volumes)
    resources = container.get("resources") or {}
    yield from _check_resources(resources, paths.child(path, "resources"))
