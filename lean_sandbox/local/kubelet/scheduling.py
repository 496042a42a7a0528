"""The simulated Nodes, and which of them takes a Pod, or what the scheduler says when none does.

Pure functions. Filters, their order and their words are those of kube-scheduler. A Pod that demands
what is not simulated is bound nowhere, and its condition names the field. Volumes, preemption and
preferences are left out: none of them decides whether a Pod may run here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from math import ceil

import msgspec

from lean_sandbox.local.kubelet.pods import Json, KubeletSettings, PodStep, PodView, condition
from lean_sandbox.model.comparison import parse_quantity
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.times import format_rfc3339

_ROOM = {"cpu": "100000", "memory": "100000Gi", "ephemeral-storage": "100000Gi", "pods": "5000"}
_INFO = {
    "architecture": "amd64",
    "containerRuntimeVersion": "simulated://0",
    "kernelVersion": "simulated",
    "kubeletVersion": "v0.0.0-simulated",
    "operatingSystem": "linux",
    "osImage": "simulated",
}
# Marks what must never be mistaken for a machine that runs anything.
SIMULATED_LABEL = "kubelet.lean-sandbox/simulated"
NODE_ADDRESS = "127.0.0.1"


class NodeSpec(msgspec.Struct, frozen=True):
    """What keeps Pods away from a Node."""

    unschedulable: bool = False
    taints: tuple[Json, ...] | None = None


class NodeStatus(msgspec.Struct, frozen=True):
    """What a Node can hold."""

    allocatable: Json | None = None


class NodeView(msgspec.Struct, frozen=True):
    """A Node without what the scheduling of simulated Pods has no use for."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


def node_object(name: str, now: datetime) -> Json:
    """Return the Node ``name`` as its kubelet registers it: Ready, roomy, labelled like others."""
    stamp = format_rfc3339(now)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                SIMULATED_LABEL: "true",
            },
        },
        "status": {
            "capacity": _ROOM,
            "allocatable": _ROOM,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "the simulated kubelet is ready",
                    "lastHeartbeatTime": stamp,
                    "lastTransitionTime": stamp,
                }
            ],
            "addresses": [
                {"type": "InternalIP", "address": NODE_ADDRESS},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": _INFO,
        },
    }


_SCHEDULER_NAMES = ("", "default-scheduler")
_CORDON: Json = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_KEEPS_OUT = ("NoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
# What a Pod may ask for as a whole, whatever its containers ask for.
_OF_WHOLE_PODS = ("cpu", "memory")

Demand = Mapping[str, int]
"""What a Pod takes of its Node; CPU counts in thousandths."""
_Amounts = dict[str, Fraction]


@dataclass(slots=True)
class Use:
    """What the Pods of one Node take of it, by their uids."""

    pods: dict[str, Demand] = field(default_factory=dict)
    resources: Counter[str] = field(default_factory=Counter)

    def add(self, uid: str, demand: Demand) -> None:
        """Count a Pod, which is not counted yet."""
        self.pods[uid] = demand
        self.resources.update(demand)

    def remove(self, uid: str) -> None:
        """Count a Pod no longer."""
        self.resources.subtract(self.pods.pop(uid))


_UNUSED = Use()


class Scheduler:
    """Remembers the Nodes, and what runs or is about to run on each."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeView] = {}
        #: Names of Nodes that were taken away: nobody else ends what was on them.
        self.lost: set[str] = set()
        #: What is taken of each Node.
        self.uses: defaultdict[str, Use] = defaultdict(Use)
        self._places: dict[str, str] = {}
        #: The uids of Pods that fit nowhere.
        self.waiting: set[str] = set()

    def update_node(self, node: NodeView) -> bool:
        """Remember a Node; return whether it offers something else than before."""
        meta = node.metadata
        old = self.nodes.get(meta.name)
        self.nodes[meta.name] = node
        # Heartbeats do not matter to Pods.
        return old is None or (old.metadata.labels, old.spec, old.status) != (
            meta.labels,
            node.spec,
            node.status,
        )

    def remove_node(self, name: str) -> None:
        """Forget a Node that is gone."""
        if self.nodes.pop(name, None) is not None:
            self.lost.add(name)

    def place(self, pod: PodView, node: str) -> bool:
        """Count a Pod on ``node``, empty for nowhere; return whether there is more room now."""
        uid = pod.metadata.uid
        old = self._places.pop(uid, "")
        if old:
            self.uses[old].remove(uid)
        if node:
            self.uses[node].add(uid, demand_of(pod))
            self._places[uid] = node
            self.waiting.discard(uid)
        return old not in ("", node)


def demand_of(pod: PodView) -> Demand:
    """Return what a Pod takes: its containers together, or what its start takes if that is more."""
    spec = pod.spec
    total: _Amounts = {}
    sidecars: _Amounts = {}
    at_start: _Amounts = {}
    for container in spec.containers:
        _add(total, container.requests)
    for container in spec.initContainers or ():
        needed = dict(sidecars)
        _add(needed, container.requests)
        if container.restartPolicy == "Always":
            _add(total, container.requests)
            sidecars = needed
        at_start |= {name: max(at, at_start.get(name, at)) for name, at in needed.items()}
    total |= {name: max(amount, total.get(name, amount)) for name, amount in at_start.items()}
    for name, text in ((spec.resources or {}).get("requests") or {}).items():
        if name in _OF_WHOLE_PODS or name.startswith("hugepages-"):
            total[name] = _quantity(text)
    _add(total, spec.overhead or {})
    return _whole(total)


def next_binding(
    pod: PodView,
    nodes: Mapping[str, NodeView],
    uses: Mapping[str, Use],
    settings: KubeletSettings,
) -> PodStep | None:
    """Return the scheduler's next request for an unbound ``pod``: bind it, or say why not, once.

    ``uses`` tells what Pods take of each Node. The Pod stays with the Node where it is counted
    itself while it fits there. Otherwise it goes to the emptiest.
    """
    spec = pod.spec
    is_ours = spec.schedulerName in _SCHEDULER_NAMES and not pod.is_deleting
    # The API server itself has told of scheduling gates.
    if not is_ours or spec.nodeName or spec.schedulingGates:
        return None
    if not nodes:
        return _say(pod, "no nodes available to schedule pods")
    if missing := " and ".join(_not_simulated(pod)):
        return _say(
            pod,
            f"0/{len(nodes)} nodes are available: the simulated scheduler does not support"
            f" {missing}. Leave it out, or make it a preference.",
        )
    why_not: Counter[str] = Counter()
    demand = demand_of(pod)
    fitting = []
    for name, node in sorted(nodes.items()):
        use = uses.get(name, _UNUSED)
        reasons = _misfits(pod, demand, node, use)
        if not reasons:
            is_new = pod.metadata.uid not in use.pods
            fitting.append((is_new, len(use.pods), name))
        why_not.update(reasons)
    if fitting:
        return PodStep("bind", settings.schedule, min(fitting)[-1])
    told = ", ".join(sorted(f"{count} {reason}" for reason, count in why_not.items()))
    return _say(pod, f"0/{len(nodes)} nodes are available: {told}.")


def _misfits(pod: PodView, demand: Demand, node: NodeView, use: Use) -> list[str]:
    """Return why ``node`` does not take ``pod``."""
    tolerations = pod.spec.tolerations or ()
    if node.spec.unschedulable and not _is_tolerated(_CORDON, tolerations):
        return ["node(s) were unschedulable"]
    for taint in node.spec.taints or ():
        if taint.get("effect") in _KEEPS_OUT and not _is_tolerated(taint, tolerations):
            return ["node(s) had untolerated taint(s)"]
    if not _is_wanted(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    # What is held for the Pod itself does not stand in its way.
    uid = pod.metadata.uid
    held = use.pods.get(uid, {})
    room = _whole({name: _quantity(text) for name, text in (node.status.allocatable or {}).items()})
    count = len(use.pods) - (uid in use.pods)
    reasons = ["Too many pods"] if count >= room.get("pods", 0) else []
    for name, amount in demand.items():
        left = room.get(name, 0) - use.resources[name] + held.get(name, 0)
        if amount > max(0, left):
            reasons.append(f"Insufficient {name}")
    return reasons


def _say(pod: PodView, message: str) -> PodStep | None:
    """Return the step that writes the PodScheduled condition, or None when it already says so."""
    old = condition(pod.status, "PodScheduled")
    said = (old.get("status"), old.get("reason"), old.get("message"))
    if said == ("False", "Unschedulable", message):
        return None
    return PodStep("unschedulable", detail=message)


# Taints and selectors.


def _is_tolerated(taint: Json, tolerations: Iterable[Json]) -> bool:
    for one in tolerations:
        is_about_it = (one.get("effect") or taint["effect"]) == taint["effect"] and (
            one.get("key") or taint["key"]
        ) == taint["key"]
        operator = one.get("operator") or "Equal"
        is_equal = operator == "Equal" and (one.get("value") or "") == (taint.get("value") or "")
        if is_about_it and (is_equal or operator == "Exists"):
            return True
    return False


def _is_wanted(pod: PodView, node: NodeView) -> bool:
    labels = node.metadata.labels or {}
    if any(labels.get(key) != value for key, value in (pod.spec.nodeSelector or {}).items()):
        return False
    terms = _node_terms(pod)
    return terms is None or any(_matches(term, labels) for term in terms)


def _node_terms(pod: PodView) -> list[Json] | None:
    affinity = (pod.spec.affinity or {}).get("nodeAffinity") or {}
    found: list[Json] | None = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms")
    return found


def _matches(term: Json, labels: Mapping[str, str]) -> bool:
    wanted: list[Json] = term.get("matchExpressions") or []
    # An empty term selects nothing.
    return bool(wanted) and all(_holds(one, labels) for one in wanted)


def _holds(requirement: Json, labels: Mapping[str, str]) -> bool:
    found = labels.get(requirement["key"])
    values: list[str] = requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
    try:
        number = int(found or "")
        bound = int(values[0])
    except ValueError:
        return False
    return number > bound if requirement["operator"] == "Gt" else number < bound


def _not_simulated(pod: PodView) -> Iterator[str]:
    if any(term.get("matchFields") for term in _node_terms(pod) or ()):
        yield f"spec.affinity.nodeAffinity.{_REQUIRED} with matchFields"
    affinity = pod.spec.affinity or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if (affinity.get(kind) or {}).get(_REQUIRED):
            yield f"spec.affinity.{kind}.{_REQUIRED}"
    spread = pod.spec.topologySpreadConstraints or ()
    if any(one["whenUnsatisfiable"] == "DoNotSchedule" for one in spread):
        yield "spec.topologySpreadConstraints with whenUnsatisfiable: DoNotSchedule"
    if pod.spec.resourceClaims:
        yield "spec.resourceClaims"


# Resources.


def _add(into: _Amounts, more: Mapping[str, object]) -> None:
    for name, text in more.items():
        into[name] = into.get(name, Fraction()) + _quantity(text)


@lru_cache(maxsize=1024)
def _quantity(text: object) -> Fraction:
    return parse_quantity(text) or Fraction()


def _whole(amounts: _Amounts) -> dict[str, int]:
    return {name: ceil(n * 1000 if name == "cpu" else n) for name, n in amounts.items()}
