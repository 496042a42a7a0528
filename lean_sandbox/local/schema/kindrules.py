"""Checks of kinds that need little: rows of a path and what holds there.

In a path `[*]` stands for every item of a list, and `?` after a name for what may be absent.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from zoneinfo import available_timezones

from lean_sandbox.local.errors import Cause
from lean_sandbox.local.schema import errors, names, paths
from lean_sandbox.local.schema.metadata import check_labels
from lean_sandbox.local.schema.pods import check_pod_spec

Json = dict[str, Any]
Check = Callable[[Any, str], Iterable[Cause]]
ObjectCheck = Callable[[Json, Json | None], Iterable[Cause]]

_RBAC: Final = "rbac.authorization.k8s.io"
_CIDR_TEXT: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_PORT_RANGE: Final = "must be between 1 and 65535, inclusive"
_PERCENT_TEXT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)
_MIBI: Final = 1024 * 1024


# ------------------------------------------------------------------ what a row may ask for


def places(obj: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Give each place of a path with its value, None where a member is absent."""
    found = [("", obj)]
    for step in path.replace("?", "").split("."):
        name, _, is_list = step.partition("[")
        members = [
            (paths.child(where, name), value.get(name))
            for where, value in found
            if isinstance(value, dict)
        ]
        found = members
        if is_list:
            found = [
                (paths.index(where, position), item)
                for where, items in members
                for position, item in enumerate(items or ())
            ]
    yield from found


def _needed(detail: str = "") -> Check:
    def check(value: Any, where: str) -> Iterator[Cause]:
        if value in (None, "", [], {}):
            yield errors.required(where, detail)

    return check


def _one_of(*allowed: str, needed: bool = False) -> Check:
    def check(value: Any, where: str) -> Iterator[Cause]:
        if (value or needed) and value not in allowed:
            yield errors.not_supported(where, value or "", allowed)

    return check


def _at_least(least: int, text: str = "must be greater than or equal to 0") -> Check:
    def check(value: Any, where: str) -> Iterator[Cause]:
        if isinstance(value, int) and value < least:
            yield errors.invalid(where, value, text)

    return check


def _named(rule: names.NameRule) -> Check:
    def check(value: Any, where: str) -> Iterator[Cause]:
        yield from (errors.invalid(where, value, text) for text in (rule(value) if value else ()))

    return check


def _selector(value: Any, where: str) -> Iterator[Cause]:
    given: Json = value or {}
    yield from check_labels(given.get("matchLabels"), paths.child(where, "matchLabels"))
    for position, one in enumerate(given.get("matchExpressions") or ()):
        inner = paths.index(paths.child(where, "matchExpressions"), position)
        sign, listed = one.get("operator") or "", one.get("values") or []
        if sign in ("In", "NotIn") and not listed:
            text = "must be specified when `operator` is 'In' or 'NotIn'"
            yield errors.required(paths.child(inner, "values"), text)
        elif sign in ("Exists", "DoesNotExist") and listed:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield errors.forbidden(paths.child(inner, "values"), text)
        elif sign not in ("In", "NotIn", "Exists", "DoesNotExist"):
            text = "not a valid selector operator"
            yield errors.invalid(paths.child(inner, "operator"), sign, text)
        for text in names.label_key_problems(one.get("key") or ""):
            yield errors.invalid(paths.child(inner, "key"), one.get("key") or "", text)


def _share(value: Any, where: str) -> Iterator[Cause]:
    """Check a number or percentage that is no more than all."""
    if isinstance(value, int) and value < 0:
        yield errors.invalid(where, value, "must be greater than or equal to 0")
    elif isinstance(value, str):
        if not re.fullmatch(r"\d+%", value):
            yield errors.invalid(where, value, _PERCENT_TEXT)
        elif int(value[:-1]) > 100:
            yield errors.invalid(where, value, "must not be greater than 100%")


def _port(value: Any, where: str) -> Iterator[Cause]:
    if isinstance(value, str):
        yield from (errors.invalid(where, value, text) for text in names.port_name_problems(value))
    elif value is not None and not 1 <= value <= 65535:
        yield errors.invalid(where, value, _PORT_RANGE)


# ------------------------------------------------------------------ workloads


def _template(restarts: tuple[str, ...], path: str = "spec.template") -> ObjectCheck:
    def check(obj: Json, _old: Json | None) -> Iterator[Cause]:
        for where, template in places(obj, path):
            spec: Json = (template or {}).get("spec") or {}
            inner = paths.child(where, "spec")
            yield from check_labels(
                ((template or {}).get("metadata") or {}).get("labels"), f"{where}.metadata.labels"
            )
            yield from check_pod_spec(spec, inner)
            policy = spec.get("restartPolicy")
            if restarts == ("Always",) and policy != "Always":
                yield errors.not_supported(paths.child(inner, "restartPolicy"), policy, restarts)
            elif policy not in restarts:
                text = 'valid values: "OnFailure", "Never"'
                yield errors.required(paths.child(inner, "restartPolicy"), text)

    return check


def _selects(kind: str) -> ObjectCheck:
    def check(obj: Json, old: Json | None) -> Iterator[Cause]:
        spec: Json = obj.get("spec") or {}
        selector = spec.get("selector")
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
        if old is not None and selector != (old.get("spec") or {}).get("selector"):
            yield errors.immutable("spec.selector", selector)
        if selector is None:
            yield errors.required("spec.selector")
        elif not (selector.get("matchLabels") or selector.get("matchExpressions")):
            text = f"empty selector is invalid for {kind}"
            yield errors.invalid("spec.selector", selector, text)
            return
        found = list(_selector(selector, "spec.selector"))
        yield from found
        if not found and not _matches(selector, labels or {}):
            text = "`selector` does not match template `labels`"
            yield errors.invalid("spec.template.metadata.labels", labels, text)

    return check


def _matches(selector: Json | None, labels: Json) -> bool:
    if selector is None:
        return False
    for one in selector.get("matchExpressions") or ():
        key, listed = one.get("key"), one.get("values") or ()
        fits = {
            "In": labels.get(key) in listed,
            "NotIn": labels.get(key) not in listed,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not fits[one["operator"]]:
            return False
    wanted: Json = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())


def _strategy(obj: Json, _old: Json | None) -> Iterator[Cause]:
    strategy: Json = obj["spec"].get("strategy") or {}
    rolling = strategy.get("rollingUpdate")
    if strategy.get("type") not in ("Recreate", "RollingUpdate"):
        shown = {"Type": strategy.get("type", ""), "RollingUpdate": rolling}
        yield errors.not_supported("spec.strategy", shown, ["Recreate", "RollingUpdate"])
    elif strategy["type"] == "Recreate" and rolling is not None:
        text = "may not be specified when strategy `type` is 'Recreate'"
        yield errors.forbidden("spec.strategy.rollingUpdate", text)
    elif rolling and {rolling.get("maxSurge"), rolling.get("maxUnavailable")} <= {0, "0%"}:
        text = "may not be 0 when `maxSurge` is 0"
        where = "spec.strategy.rollingUpdate.maxUnavailable"
        yield errors.invalid(where, rolling.get("maxUnavailable"), text)


def _schedule(value: Any, where: str) -> Iterator[Cause]:
    fields = (value or "").split()
    if not value:
        yield errors.required(where)
    elif "TZ=" in value:
        text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield errors.invalid(where, value, text)
    elif len(fields) != 5 and not value.startswith("@"):
        shown = " ".join(fields)
        text = f"expected exactly 5 fields, found {len(fields)}: [{shown}]"
        yield errors.invalid(where, value, text)


def _zone(value: Any, where: str) -> Iterator[Cause]:
    if value and value not in available_timezones():
        yield errors.invalid(where, value, f"unknown time zone {value}")


def _job_selector(obj: Json, _old: Json | None) -> Iterator[Cause]:
    spec: Json = obj["spec"]
    if spec.get("selector") is None:
        yield errors.required("spec.selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if not _matches(spec.get("selector"), labels or {}):
        text = "`selector` does not match template `labels`"
        yield errors.invalid("spec.template.metadata.labels", labels, text)


# ------------------------------------------------------------------ others


def _budget(obj: Json, _old: Json | None) -> Iterator[Cause]:
    spec: Json = obj["spec"]
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        members = ("MinAvailable", "Selector", "MaxUnavailable", "UnhealthyPodEvictionPolicy")
        shown = {name: spec.get(name[0].lower() + name[1:]) for name in members}
        text = "minAvailable and maxUnavailable cannot be both set"
        yield errors.invalid("spec", shown, text)


def _peer(value: Any, where: str) -> Iterator[Cause]:
    block = value.get("ipBlock")
    others = [key for key in ("podSelector", "namespaceSelector") if value.get(key) is not None]
    if block is None and not others:
        yield errors.required(where, "must specify a peer")
    for key in others:
        yield from _selector(value[key], paths.child(where, key))
    if block is None:
        return
    if others:
        yield errors.forbidden(where, "may not specify both ipBlock and another peer")
    inner, cidr = paths.child(where, "ipBlock"), block.get("cidr") or ""
    network = _network(cidr)
    if not cidr:
        yield errors.required(paths.child(inner, "cidr"))
    elif network is None:
        yield errors.invalid(paths.child(inner, "cidr"), cidr, _CIDR_TEXT)
    for position, text in enumerate(block.get("except") or ()):
        named, part = paths.index(paths.child(inner, "except"), position), _network(text)
        if part is None:
            yield errors.invalid(named, text, _CIDR_TEXT)
        elif network is not None and not _is_inside(part, network):
            yield errors.invalid(named, text, "must be a strict subset of `cidr`")


def _network(text: str) -> Any:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None


def _is_inside(part: Any, whole: Any) -> bool:
    is_narrower = part.version == whole.version and part.prefixlen > whole.prefixlen
    return is_narrower and part.network_address in whole


def _policy_port(value: Any, where: str) -> Iterator[Cause]:
    port, end = value.get("port"), value.get("endPort")
    protocols = ("TCP", "UDP", "SCTP")
    yield from _one_of(*protocols)(value.get("protocol"), paths.child(where, "protocol"))
    yield from _port(port, paths.child(where, "port"))
    if end is not None and port is None:
        text = "may not be specified when `port` is not specified"
        yield errors.invalid(paths.child(where, "endPort"), end, text)
    elif end is not None and isinstance(port, int) and end < port:
        text = "must be greater than or equal to `port`"
        yield errors.invalid(paths.child(where, "endPort"), port, text)


def _policy_rule(*, is_namespaced: bool) -> Check:
    def check(rule: Any, where: str) -> Iterator[Cause]:
        if not rule.get("verbs"):
            text = "verbs must contain at least one value"
            yield errors.required(paths.child(where, "verbs"), text)
        if urls := rule.get("nonResourceURLs"):
            if is_namespaced:
                text = "namespaced rules cannot apply to non-resource URLs"
                yield errors.invalid(paths.child(where, "nonResourceURLs"), urls, text)
            return
        for name, text in (("apiGroups", "api group"), ("resources", "resource")):
            if not rule.get(name):
                problem = f"resource rules must supply at least one {text}"
                yield errors.required(paths.child(where, name), problem)

    return check


def _binding(*kinds: str) -> ObjectCheck:
    def check(obj: Json, old: Json | None) -> Iterator[Cause]:
        reference: Json = obj.get("roleRef") or {}
        if old is not None and reference != (old.get("roleRef") or {}):
            yield errors.invalid("roleRef", reference, "cannot change roleRef")
        if (group := reference.get("apiGroup")) != _RBAC:
            yield errors.not_supported("roleRef.apiGroup", group or "", [_RBAC])
        if (kind := reference.get("kind")) not in kinds:
            yield errors.not_supported("roleRef.kind", kind or "", kinds)
        if not reference.get("name"):
            yield errors.required("roleRef.name")
        for where, subject in places(obj, "subjects[*]"):
            yield from _subject(subject, where, is_cluster=len(kinds) == 1)

    return check


def _subject(subject: Json, where: str, *, is_cluster: bool) -> Iterator[Cause]:
    kind, name = subject.get("kind") or "", subject.get("name") or ""
    group = subject.get("apiGroup") or ""
    if not name:
        yield errors.required(paths.child(where, "name"))
    if kind == "ServiceAccount":
        yield from _named(names.subdomain_problems)(name, paths.child(where, "name"))
        if group:
            yield errors.not_supported(paths.child(where, "apiGroup"), group, [""])
        if not subject.get("namespace") and is_cluster:
            yield errors.required(paths.child(where, "namespace"))
    elif kind in ("User", "Group"):
        if group != _RBAC:
            yield errors.not_supported(paths.child(where, "apiGroup"), group, [_RBAC])
    else:
        allowed = ("ServiceAccount", "User", "Group")
        yield errors.not_supported(paths.child(where, "kind"), kind, allowed)


def _aggregation(obj: Json, _old: Json | None) -> Iterator[Cause]:
    rule = obj.get("aggregationRule")
    if rule is not None and not rule.get("clusterRoleSelectors"):
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield errors.required("aggregationRule.clusterRoleSelectors", text)


def _unchanged(*members: str) -> ObjectCheck:
    def check(obj: Json, old: Json | None) -> Iterator[Cause]:
        for name in members:
            if old is not None and obj.get(name) != old.get(name):
                text = f"updates to {name} are forbidden."
                yield errors.forbidden(name, text)

    return check


def _priority_class(obj: Json, old: Json | None) -> Iterator[Cause]:
    name, value = obj["metadata"].get("name") or "", obj.get("value") or 0
    if old is not None and value != (old.get("value") or 0):
        yield errors.forbidden("value", "may not be changed in an update.")
    if name.startswith("system-"):
        text = "priority class names with 'system-' prefix are reserved for system use only"
        problem = f"{text}. error: {name} is not a known system priority class"
        yield errors.forbidden("metadata.name", problem)
    elif value > 10**9:
        text = f"maximum allowed value of a user defined priority is {10**9}"
        yield errors.forbidden("value", text)


_SECRET_KEYS: Final = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def _secret(obj: Json, old: Json | None) -> Iterator[Cause]:
    kind, data = obj.get("type") or "", obj.get("data") or {}
    if old is not None and kind != old.get("type"):
        yield errors.immutable("type", kind)
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            yield errors.required(paths.key("data", key))
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield from (errors.required(paths.key("data", key)) for key in ("username", "password"))
    account = (obj["metadata"].get("annotations") or {}).get("kubernetes.io/service-account.name")
    if kind == "kubernetes.io/service-account-token" and not account:
        where = "metadata.annotations[kubernetes.io/service-account.name]"
        yield errors.required(where)
    # Four letters of base64 are three bytes.
    if sum(len(text) * 3 // 4 for text in data.values()) > _MIBI:
        yield errors.too_long("data", _MIBI)


def _config_map(obj: Json, _old: Json | None) -> Iterator[Cause]:
    texts = sum(len(text.encode()) for text in (obj.get("data") or {}).values())
    octets = sum(len(text) * 3 // 4 for text in (obj.get("binaryData") or {}).values())
    if texts + octets > _MIBI:
        yield errors.too_long("[]", _MIBI)


_WORKLOAD: Final[tuple[tuple[str, Check], ...]] = (
    ("spec.replicas", _at_least(0)),
    ("spec.minReadySeconds", _at_least(0)),
)
_RULES: Final[dict[str, tuple[tuple[str, Check], ...]]] = {
    "Deployment": _WORKLOAD,
    "ReplicaSet": _WORKLOAD,
    "StatefulSet": _WORKLOAD,
    "DaemonSet": _WORKLOAD,
    "Job": (
        ("spec.parallelism", _at_least(0)),
        ("spec.completions", _at_least(0)),
        ("spec.backoffLimit", _at_least(0)),
        ("spec.completionMode", _one_of("NonIndexed", "Indexed")),
    ),
    "CronJob": (
        ("spec.schedule", _schedule),
        ("spec.timeZone", _zone),
        ("spec.concurrencyPolicy", _one_of("Allow", "Forbid", "Replace")),
        ("spec.successfulJobsHistoryLimit", _at_least(0)),
        ("spec.failedJobsHistoryLimit", _at_least(0)),
    ),
    "PodDisruptionBudget": (
        ("spec.minAvailable", _share),
        ("spec.maxUnavailable", _share),
        ("spec.selector", _selector),
        ("spec.unhealthyPodEvictionPolicy", _one_of("AlwaysAllow", "IfHealthyBudget")),
    ),
    "NetworkPolicy": (
        ("spec.podSelector", _selector),
        ("spec.policyTypes[*]", _one_of("Ingress", "Egress", needed=True)),
        ("spec.ingress[*].from[*]", _peer),
        ("spec.egress[*].to[*]", _peer),
        ("spec.ingress[*].ports[*]", _policy_port),
        ("spec.egress[*].ports[*]", _policy_port),
    ),
    "Role": (("rules[*]", _policy_rule(is_namespaced=True)),),
    "ClusterRole": (
        ("rules[*]", _policy_rule(is_namespaced=False)),
        ("aggregationRule.clusterRoleSelectors[*]", _selector),
    ),
    "StorageClass": (
        ("provisioner", _needed()),
        ("provisioner", _named(lambda text: names.label_key_problems(text.lower()))),
        ("reclaimPolicy", _one_of("Delete", "Retain")),
        ("volumeBindingMode", _one_of("Immediate", "WaitForFirstConsumer")),
    ),
    "PriorityClass": (("preemptionPolicy", _one_of("PreemptLowerPriority", "Never")),),
    "RuntimeClass": (("handler", _needed()), ("handler", _named(names.rfc1123_label_problems))),
    "Lease": (
        ("spec.leaseDurationSeconds", _at_least(1, "must be greater than 0")),
        ("spec.leaseTransitions", _at_least(0)),
    ),
}
_WHOLE: Final[dict[str, tuple[ObjectCheck, ...]]] = {
    "Deployment": (_selects("deployment"), _template(("Always",)), _strategy),
    "ReplicaSet": (_selects("deployment"), _template(("Always",))),
    "StatefulSet": (_selects("statefulset"), _template(("Always",))),
    "DaemonSet": (_selects("daemonset"), _template(("Always",))),
    "Job": (_job_selector, _template(("OnFailure", "Never"))),
    "CronJob": (_template(("OnFailure", "Never"), "spec.jobTemplate.spec.template"),),
    "PodDisruptionBudget": (_budget,),
    "RoleBinding": (_binding("Role", "ClusterRole"),),
    "ClusterRoleBinding": (_binding("ClusterRole"),),
    "ClusterRole": (_aggregation,),
    "PriorityClass": (_priority_class,),
    "Secret": (_secret,),
    "ConfigMap": (_config_map,),
    "StorageClass": (
        _unchanged("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
    ),
}


def check_rows(kind: str, obj: Json, old: Json | None) -> Iterator[Cause]:
    """Give an error for each row of a kind that does not hold."""
    for path, check in _RULES.get(kind, ()):
        for where, value in places(obj, path):
            yield from check(value, where)
    for whole in _WHOLE.get(kind, ()):
        yield from whole(obj, old)
