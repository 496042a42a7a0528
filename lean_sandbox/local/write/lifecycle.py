"""What follows from single objects: namespaces, definitions and claims that end, budgets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from filters.events import condition_of
from lean_sandbox.local.errors import ErrorCause, StatusError, invalid
from lean_sandbox.local.kinds import Definition, Kind, read_definition
from lean_sandbox.local.schema import causes
from lean_sandbox.local.schema.metadata import selector_of
from lean_sandbox.local.schema.structural import is_same
from lean_sandbox.local.store import Collection, Entry, Event, Store, at
from lean_sandbox.local.write.admission import DEFINITIONS
from lean_sandbox.local.write.bodies import Deletion, WriteOptions
from lean_sandbox.local.write.objects import CLEANUP, PROTECTED
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]
_MANAGER: Final = "kube-controller-manager"
_IN_EVERY_NAMESPACE: Final = {"serviceaccounts": "default", "configmaps": "kube-root-ca.crt"}
"""The names of what every namespace has, by kind."""
_CLAIMS: Final = "persistentvolumeclaims"
_NAMES: Final = (("plural", "singular", "shortNames"), ("kind", "listKind"))
"""Members that may not have a name in common, of two definitions of a group."""


class Definitions:
    """Keeps the registry up with the definitions that are stored."""

    def __init__(self, verbs: Verbs) -> None:
        self._store = verbs.store
        self._registry = verbs.registry
        self._verbs = verbs
        self._stored = self._store.collection(DEFINITIONS)
        verbs.admission.guards.append(self._check_names)

    def rebuild(self) -> None:
        """Take up the deletions that had begun before a restart."""
        self._registry.ending |= {entry.name for entry in self._stored.scan() if entry.deleting}

    def _check_names(self, kind: Kind, new: Json, old: Json | None) -> None:
        """Refuse names that another definition of the group has, and the groups of built-in kinds.

        Raises StatusError: 422.
        """
        if kind.storage != DEFINITIONS:
            return
        spec: Json = new.get("spec") or {}
        wanted: Json = spec.get("names") or {}
        if old is not None and old["spec"]["names"] == wanted:
            return
        name = new["metadata"].get("name", "")
        found = list(self._taken(spec.get("group", ""), wanted, name))
        if found:
            raise invalid(kind.group, kind.kind, name, found)

    def _taken(self, group: str, wanted: Json, own: str) -> Iterator[ErrorCause]:
        """Give the names that are not free, for a definition that is called ``own``."""
        if group and self._registry.serves_built_in(group):
            yield causes.invalid("spec.group", group, "has kinds of the server itself")
        for other in self._stored.scan():
            spec = _definition(other).spec
            if spec["group"] != group or other.name == own:
                continue
            for members in _NAMES:
                names = [name for member in members for name in _listed(spec["names"], member)]
                for member in members:
                    for name in set(_listed(wanted, member)).intersection(names):
                        why = f"is already in use by {other.name}"
                        yield causes.invalid(f"spec.names.{member}", name, why)

    def follow(self, event: Event) -> None:
        """Do what a change of a definition brings: kinds, the end of its watches."""
        entry = event.entry
        name = event.entry.name
        if event.type == "DELETED":
            self._store.collection(name).close(event.version)
            self._registry.withdraw(name)
            self._registry.ending.discard(name)
            return
        if entry.deleting:
            self._registry.ending.add(name)
        served = _definition(entry)
        if event.prev is None or not is_same(_definition(event.prev).spec, served.spec):
            self._registry.define(name, served)
            # Who watched what was served before comes back to what is now.
            self._store.collection(name).end_watches()

    def remove_instances(self, name: str) -> None:
        """Delete the objects of a definition that ends, then let it go."""
        collection = self._store.collection(name)
        kind = _definition(self._stored.entries[name]).stored
        for entry in collection.scan():
            if not entry.deleting:
                how = Deletion(policy="Background")
                self._verbs.delete(kind, entry.namespace, entry.name, how)
        if collection.is_empty():
            own = self._registry.by_resource(DEFINITIONS)
            self._verbs.drop_finalizer(own, self._stored.entries[name], CLEANUP)


def _definition(entry: Entry) -> Definition:
    return read_definition(bytes(entry.members()["spec"]))


def _listed(names: Json, member: str) -> list[str]:
    value = names.get(member) or []
    return [value] if isinstance(value, str) else value


class NamespaceLifecycle:
    """Follows Namespaces and CustomResourceDefinitions."""

    def __init__(self, verbs: Verbs) -> None:
        self._store = verbs.store
        self._registry = verbs.registry
        self._verbs = verbs
        self._definitions = Definitions(verbs)
        self._ending: set[str] = set()
        self._wake = anyio.Event()
        self.ca_pem = ""
        """Shown in each namespace's ``kube-root-ca.crt``."""
        self._store.listeners.append(self._follow)

    def rebuild(self) -> None:
        """Take in everything that is already stored, as after a restart."""
        self._definitions.rebuild()
        for entry in self._store.collection("namespaces").scan():
            if entry.fields.get("status.phase") == "Terminating":
                self._ending.add(entry.name)
        self._wake.set()

    def _follow(self, collection: Collection, event: Event) -> None:
        storage = collection.storage
        entry = event.entry
        if storage == "namespaces":
            if event.type == "ADDED":
                for plural in _IN_EVERY_NAMESPACE:
                    self._furnish(entry.name, plural)
            elif entry.fields.get("status.phase") == "Terminating" and event.type != "DELETED":
                self._ending.add(entry.name)
                self._wake.set()
        elif storage == DEFINITIONS:
            self._definitions.follow(event)
            if self._registry.ending:
                self._wake.set()
        if event.type == "DELETED":
            if entry.namespace in self._ending or self._registry.ending:
                self._wake.set()
            elif _IN_EVERY_NAMESPACE.get(storage) == entry.name:
                self._furnish(entry.namespace, storage)

    @property
    def is_idle(self) -> bool:
        """Say whether nothing can be done now; what waits for finalizers counts as idle."""
        return not self._wake.is_set()

    # ------------------------------------------------------------------ namespaces

    def _furnish(self, namespace: str, plural: str) -> None:
        """Create what the controllers of a cluster put into each namespace that does not end."""
        made: Json = {"metadata": {"name": _IN_EVERY_NAMESPACE[plural]}}
        if plural == "configmaps":
            made["data"] = {"ca.crt": self.ca_pem}
        options = WriteOptions(manager=_MANAGER)
        with suppress(StatusError):
            self._verbs.create(self._registry.by_resource(plural), namespace, made, options)

    def _end_namespace(self, name: str) -> None:
        namespace = self._store.collection("namespaces").entries.get(name)
        if namespace is None:
            self._ending.discard(name)
            return
        empty = True
        for collection in self._store:
            kind = self._registry.of_storage(collection.storage)
            if kind is not None and kind.namespaced:
                for entry in collection.scan(name):
                    if not entry.deleting:
                        self._verbs.delete(kind, name, entry.name, Deletion(policy="Background"))
                empty = empty and collection.is_empty(name)
        if empty:
            self._ending.discard(name)

            def finish(obj: Json) -> None:
                kept = obj.setdefault("spec", {}).get("finalizers") or ()
                obj["spec"]["finalizers"] = [item for item in kept if item != "kubernetes"]

            self._verbs.rewrite(self._registry.by_resource("namespaces"), "", name, finish)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            # What is refused is tried again after the next deletion.
            for name in sorted(self._ending):
                with suppress(StatusError):
                    self._end_namespace(name)
            for name in sorted(self._registry.ending):
                with suppress(StatusError):
                    self._definitions.remove_instances(name)
            await checkpoint()


class ClaimProtection:
    """Lets claims that are being deleted go once no Pod on a node mounts them, finished or not."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._claims = verbs.store.collection(_CLAIMS)
        self._pods = verbs.store.collection("pods")
        verbs.store.listeners.append(self._follow)

    def rebuild(self) -> None:
        """Take in everything that is already stored, as after a restart."""
        self._look("")

    def _follow(self, collection: Collection, event: Event) -> None:
        is_gone = event.type == "DELETED"
        if is_gone if collection is self._pods else collection is self._claims and not is_gone:
            self._look(event.entry.namespace)

    def _look(self, namespace: str) -> None:
        """Let the claims of a namespace, or of all, go that are being deleted and not used."""
        for claim in self._claims.scan(namespace):
            if claim.deleting and not self._is_used(claim):
                kind = self._verbs.registry.by_resource(_CLAIMS)
                self._verbs.drop_finalizer(kind, claim, PROTECTED)

    def _is_used(self, claim: Entry) -> bool:
        return any(
            pod.fields.get("spec.nodeName") and claim.name in _claims_of(pod)
            for pod in self._pods.scan(claim.namespace)
        )


def _claims_of(pod: Entry) -> Iterator[str]:
    for volume in pod.load()["spec"].get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim:
            yield claim["claimName"]
        elif volume.get("ephemeral"):
            yield f"{pod.name}-{volume['name']}"


# ------------------------------------------------------------------ budgets of disruptions


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
        def change(obj: Json) -> None:
            obj["status"] = self._status(obj)

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

    Raises StatusError: 429, or 500 where several budgets select the Pod.
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
    cause = ErrorCause("DisruptionBudget", why)
    return StatusError(429, "TooManyRequests", message, details={"causes": [cause.body()]})


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
    return math.ceil(float(percent) * whole / 100) if percent.isdecimal() else whole


def _selects(selector: Json | None, pod: Entry) -> bool:
    return selector is not None and selector_of(selector).matches(pod.labels)
