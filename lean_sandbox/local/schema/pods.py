"""Checks of Pods: those whose answers users of Sandboxes meet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from lean_sandbox.local.errors import ErrorCause
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.causes import (
    always,
    at_most,
    between,
    labels,
    named,
    needed,
    one_of,
    unique,
)
from lean_sandbox.local.schema.containers import MAX_INT32, RIGHTS, USER_ID, check_containers
from lean_sandbox.local.schema.defaults import CONTAINER_LISTS
from lean_sandbox.local.schema.formats import address
from lean_sandbox.local.schema.placement import (
    AFFINITY,
    RESOURCES,
    SPREAD,
    TOLERATION,
    check_narrowed,
    repeated_spread,
)
from lean_sandbox.local.schema.volumes import VOLUME

Json = dict[str, Any]

_UPDATE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


# ------------------------------------------------------------------ the spec

_SYSCTL: Final = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_domain_problems: Final = causes.name_rule(
    r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
    253,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-'"
    " or '.', and must start and end with an alphanumeric character",
    "example.com",
)


def _search_problems(domain: str) -> list[str]:
    return [] if domain == "." else _domain_problems(domain.removesuffix("."))


def _sysctl_problems(name: str) -> list[str]:
    text = f"must have at most 253 characters and match regex ^{_SYSCTL}$"
    return [] if len(name) <= 253 and re.fullmatch(_SYSCTL, name) else [text]


def _option(option: Json, where: str) -> Iterator[ErrorCause]:
    yield from needed("must not be empty")(option.get("name"), where)


def _host(spec: Json, where: str) -> Iterator[ErrorCause]:
    """Check what a Pod shares with its node."""
    if spec.get("dnsPolicy") == "None" and not spec.get("dnsConfig"):
        text = "must provide `dnsConfig` when `dnsPolicy` is None"
        yield causes.required(f"{where}.dnsConfig", text)
    elif spec.get("dnsPolicy") == "None":
        text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        yield from needed(text)(
            spec["dnsConfig"].get("nameservers"), f"{where}.dnsConfig.nameservers"
        )
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        place = f"{where}.securityContext.shareProcessNamespace"
        yield causes.invalid(place, spec["shareProcessNamespace"], text)
    if spec.get("hostUsers") is False:
        for name, shown in (
            ("hostNetwork", "hostNetwork"),
            ("hostPID", "HostPID"),
            ("hostIPC", "HostIPC"),
        ):
            if spec.get(name):
                yield causes.forbidden(f"{where}.{shown}", "when `hostUsers` is false")
    if (system := spec.get("os")) is not None:
        name = system.get("name")
        yield from needed()(name, f"{where}.os.name")
        # The server leaves out the member.
        yield from one_of("linux", "windows")(name or None, f"{where}.os")


def _of_whole_pod(resources: Any, where: str) -> Iterator[ErrorCause]:
    for part in ("limits", "requests"):
        for name in (resources or {}).get(part) or ():
            if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
                known = ("cpu", "hugepages-", "memory")
                yield causes.not_supported(f"{where}.{part}[{name}]", name, known)


def _gate_names(value: Any, where: str) -> Iterator[ErrorCause]:
    seen: set[str] = set()
    for position, gate in enumerate(value or ()):
        name = gate.get("name") or ""
        yield from always(causes.label_key_problems)(name, f"{where}[{position}]")
        if name in seen:
            yield causes.duplicate(f"{where}[{position}]", name)
        seen.add(name)


_SPEC: Final[Any] = (
    check_containers,
    _host,
    {
        "containers": needed(),
        "restartPolicy": one_of("Always", "OnFailure", "Never"),
        "dnsPolicy": one_of("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
        "dnsConfig": {
            "nameservers": at_most(3, "must not have more than 3 nameservers"),
            "nameservers[*]": address,
            "searches[*]": always(_search_problems),
            "options[*]": _option,
        },
        "activeDeadlineSeconds": between(1, MAX_INT32),
        "hostname": named(causes.rfc1123_label_problems),
        "hostnameOverride": named(causes.subdomain_problems),
        "subdomain": named(causes.rfc1123_label_problems),
        "nodeName": named(causes.subdomain_problems),
        "nodeSelector": labels,
        "hostAliases[*]": {
            "ip": address,
            "hostnames[*]": always(causes.subdomain_problems),
        },
        "schedulingGates": _gate_names,
        "readinessGates[*]": {"conditionType": always(causes.label_key_problems)},
        "resources": (_of_whole_pod, RESOURCES),
        "securityContext": {
            **RIGHTS,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": one_of("Always", "OnRootMismatch"),
            "seLinuxChangePolicy": one_of("Recursive"),
            "supplementalGroups[*]": USER_ID,
            "supplementalGroupsPolicy": one_of("Merge", "Strict"),
            "sysctls": unique("name"),
            "sysctls[*]": {"name": (needed(), named(_sysctl_problems))},
        },
        "tolerations[*]": TOLERATION,
        "affinity": AFFINITY,
        "topologySpreadConstraints": repeated_spread,
        "topologySpreadConstraints[*]": SPREAD,
        "volumes": unique("name"),
        "volumes[*]": VOLUME,
    },
)


def _pod_addresses(addresses: Any, where: str) -> Iterator[ErrorCause]:
    """Check that a Pod has one address of each family."""
    given = [one.get("ip") or "" for one in addresses or ()]
    for position, one in enumerate(given):
        yield from address(one, f"{where}[{position}]")
    if len({":" in one for one in given}) < len(given):
        shown = [{"IP": one} for one in given]
        text = "may specify no more than one IP for each IP family"
        yield causes.invalid(where, shown, text)


POD_STATUS: Final[Any] = {
    "status": {
        "podIPs": _pod_addresses,
        "nominatedNodeName": named(causes.subdomain_problems),
    }
}
POD: Final[Any] = ({"spec": _SPEC}, POD_STATUS)


# ------------------------------------------------------------------ updates


def _toleration_key(toleration: Json) -> Json:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _updatable(spec: Json, old: Json) -> Json:
    """Return a spec in which what an update may change is as it was before."""
    kept = ["activeDeadlineSeconds", "tolerations", "schedulingGates"]
    if (old.get("terminationGracePeriodSeconds") or 0) < 0 and (
        spec.get("terminationGracePeriodSeconds") == 1
    ):
        kept.append("terminationGracePeriodSeconds")
    made = {**spec, **{name: old.get(name) for name in kept}}
    if old.get("schedulingGates"):
        # Which nodes may still be chosen is checked apart.
        made["nodeSelector"] = old.get("nodeSelector")
        was = (old.get("affinity") or {}).get("nodeAffinity")
        made["affinity"] = _without_empty({**(spec.get("affinity") or {}), "nodeAffinity": was})
    for part in CONTAINER_LISTS:
        both = zip(spec.get(part) or (), old.get(part) or (), strict=True)
        made[part] = [{**now, "image": was.get("image")} for now, was in both]
    return _without_empty(made)


def _gates(spec: Json, old: Json) -> Iterator[ErrorCause]:
    """Check that gates only open, and that a gated Pod gets no more choice of nodes."""
    closed = old.get("schedulingGates") or []
    for position, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate not in closed:
            name = gate.get("name")
            text = f"only deletion is allowed, but found new scheduling gate '{name}'"
            yield causes.forbidden(f"spec.schedulingGates[{position}].name", text)
    if closed:
        yield from check_narrowed(spec, old)


def _without_empty(spec: Json) -> Json:
    return {key: value for key, value in spec.items() if value not in (None, [], {}, "", False)}


def check_pod_status_change(obj: Json, before: Json) -> Iterator[ErrorCause]:
    """Give what is wrong with the update of a Pod's status: its class never changes."""
    now = (obj.get("status") or {}).get("qosClass")
    was = (before.get("status") or {}).get("qosClass")
    if was and now != was:
        yield causes.immutable("status.qosClass", now or "")


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
    yield from _gates(spec, old)
    if _updatable(spec, old) != _without_empty(old):
        yield causes.forbidden("spec", _UPDATE)
