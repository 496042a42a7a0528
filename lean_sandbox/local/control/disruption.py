"""PodDisruptionBudgets: their status, and the evictions that they refuse."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from filters.events import condition_of
from lean_sandbox.local.access.roles import selector_of
from lean_sandbox.local.errors import ErrorCause, StatusError, too_many_requests
from lean_sandbox.local.read.cells import at
from lean_sandbox.local.store.store import Collection, Entry, Event, Store
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]

_BUDGETS: Final = "poddisruptionbudgets.policy"


class Budgets:
    """Follows Pods and budgets, and writes how many Pods of each budget may go."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._store = verbs.store
        self._store.listeners.append(self._follow)

    def _follow(self, collection: Collection, event: Event) -> None:
        if collection.storage not in ("pods", _BUDGETS):
            return
        for budget in self._store.collection(_BUDGETS).scan(event.entry.namespace):
            self._write(budget)

    def _write(self, budget: Entry) -> None:
        def change(obj: Json) -> Json:
            obj["status"] = self._status(obj)
            return obj

        kind = self._verbs.registry.by_resource(_BUDGETS)
        self._verbs.rewrite(kind, budget.namespace, budget.name, change)

    def _status(self, budget: Json) -> Json:
        metadata = budget["metadata"]
        spec = budget["spec"]
        pods = [
            pod
            for pod in self._store.collection("pods").scan(metadata["namespace"])
            if _selects(spec.get("selector"), pod)
        ]
        healthy = sum(not pod.deleting and _is_ready(pod.load()) for pod in pods)
        least = spec.get("minAvailable")
        most = spec.get("maxUnavailable")
        expected = len(pods)
        problem = ""
        if most is not None or isinstance(least, str):
            expected, problem = self._scale(pods)
        if most is not None:
            desired = max(0, expected - _share(most, expected))
        else:
            desired = _share(least or 0, expected)
        allowed = max(0, healthy - desired) if expected and not problem else 0
        reason = "SufficientPods" if allowed else "InsufficientPods"
        condition = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "observedGeneration": metadata.get("generation", 0),
            "reason": "SyncFailed" if problem else reason,
            "message": problem,
        }
        before = (budget.get("status") or {}).get("conditions") or [{}]
        same = before[0].get("status") == condition["status"]
        moved = before[0].get("lastTransitionTime") if same else None
        condition["lastTransitionTime"] = moved or self._verbs.now()
        return {
            "observedGeneration": metadata.get("generation", 0),
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "conditions": [condition],
        }

    def _scale(self, pods: list[Entry]) -> tuple[int, str]:
        """Return how many Pods the owners want, and why that is not known."""
        wanted: dict[str, int] = {}
        for pod in pods:
            references = pod.load()["metadata"].get("ownerReferences") or ()
            owner = next((each["uid"] for each in references if each.get("controller")), None)
            if owner is None or owner in wanted:
                continue
            replicas = self._replicas(owner)
            if replicas is None:
                return 0, f'found no controllers for pod "{pod.name}"'
            wanted[owner] = replicas
        return sum(wanted.values()), ""

    def _replicas(self, uid: str) -> int | None:
        found = self._store.uids.get(uid)
        if found is None:
            return None
        kind = self._verbs.registry.of_storage(found[0].storage)
        if kind is None or kind.scale is None:
            return None
        value = at(found[0].entries[found[1]].load(), kind.scale["spec"], None)
        return value if isinstance(value, int) else None


def check_budget(store: Store, pod: Entry) -> None:
    """Refuse with 429 the eviction of a Pod that its budget needs.

    Raises:
        StatusError: 429, or 500 where several budgets select the Pod.

    """
    obj = pod.load()
    if pod.deleting or (obj.get("status") or {}).get("phase") != "Running":
        return
    budgets = list(_budgets_of(store, pod))
    if len(budgets) > 1:
        why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does"
        raise StatusError(500, "", f"{why} not support.")
    for budget in budgets:
        name = budget["metadata"]["name"]
        spec = budget["spec"]
        status = budget.get("status") or {}
        if not _is_ready(obj):
            if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
                return
            if status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0:
                return
        if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
            raise _refused(f"The disruption budget {name} is still being processed by the server.")
        if status.get("disruptionsAllowed", 0) <= 0:
            raise _refused(_shortage(name, status))


def _refused(why: str) -> StatusError:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    return too_many_requests(message, ErrorCause("DisruptionBudget", why))


def _shortage(name: str, status: Json) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("reason") == "SyncFailed" and condition.get("message"):
            why = "does not allow evicting pods currently because it failed sync"
            return f"The disruption budget {name} {why}: {condition['message']}"
    needed = status.get("desiredHealthy", 0)
    present = status.get("currentHealthy", 0)
    return f"The disruption budget {name} needs {needed} healthy pods and has {present} currently"


def _budgets_of(store: Store, pod: Entry) -> Iterator[Json]:
    for entry in store.collection(_BUDGETS).scan(pod.namespace):
        budget = entry.load()
        if _selects(budget["spec"].get("selector"), pod):
            yield budget


def _is_ready(pod: Json) -> bool:
    return condition_of(pod.get("status") or {}, "Ready").get("status") == "True"


def _share(value: int | str, whole: int) -> int:
    if isinstance(value, int):
        return value
    percent = value.removesuffix("%")
    return math.ceil(int(percent) * whole / 100) if percent.isdecimal() else whole


def _selects(selector: Json | None, pod: Entry) -> bool:
    return selector is not None and selector_of(selector).matches(pod.labels)
