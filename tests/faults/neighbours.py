"""What works beside the controller: schedulers, webhooks, other controllers, and who repairs them.

They take children from their owners or share them, stand in the way under a name, change what is
created, and write what no column of a watch shows.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import rule

from lean_sandbox.local.kinds import Kind
from lean_sandbox.local.write.bodies import WriteOptions
from lean_sandbox.model.names import name_hash
from tests.faults.acts import NAMESPACES
from tests.faults.details import TEAM
from tests.faults.edits import HOLD, POOL, SANDBOX, WHERE, WHICH, Edits, act
from tests.faults.oracle import POOLS, SANDBOXES, TEMPLATES
from tests.faults.scope import SLOW, TIER
from tests.support.names import (
    ADOPTABLE,
    CLAIM_UID,
    EXTENSIONS,
    NAME_HASH,
    POLICIES,
    REF_HASH,
    WARM_POOL,
)
from tests.support.stored import owner_of
from tests.support.volumes import VOLUME_SPEC
from tests.support.world import pod_conditions, write_pod_status

__all__ = ["Neighbours"]

Json = dict[str, Any]
# A label of what stands in the way.
FOREIGN = "example.com/foreign"
_POLICY = "t-network-policy"
_PVCS = "persistentvolumeclaims"
CHILDREN = st.sampled_from(("pods", "pods", "services", _PVCS, SANDBOXES, SANDBOXES, POLICIES))
# What webhooks change of what is created.
STAMPS = st.sampled_from(("metadata", "finalizer", "sidecar", "template", "team", "gate", "end"))


class Neighbours(Edits):
    """Other programs act on the objects that the controller serves or creates."""

    # -- owners ----------------------------------------------------------------------------------

    @act(where=WHERE, which=WHICH, kind=CHILDREN)
    def disown(self, where: str, which: int, kind: str) -> None:
        """Take an object from its owners."""
        owners = ("SandboxWarmPool",) if kind == SANDBOXES else ()
        name = self._pick(kind, where, which, *owners)
        self._patch(kind, where, name, {"metadata": {"ownerReferences": None}})

    @act(where=WHERE, which=WHICH, kind=st.sampled_from(("pods", "services", POLICIES)))
    def restore_child(self, where: str, which: int, kind: str) -> None:
        """Replace an object by a copy of it, as a backup of single objects does."""
        name = self._pick(kind, where, which)
        store = self.story.plane.store

        def restoring() -> None:
            old = store.get(kind, where, name)
            kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
            metadata = {key: old["metadata"][key] for key in kept if key in old["metadata"]}
            known = {key: old[key] for key in ("apiVersion", "kind", "spec")}
            store.delete(kind, where, name, grace_s=0)
            store.create({**known, "metadata": metadata})

        if name:
            self.story.act(f"restore a copy of {kind.partition('.')[0]} {where}/{name}", restoring)

    @act(where=WHERE, which=WHICH)
    def add_twin(self, where: str, which: int) -> None:
        """Give a Sandbox one more Pod."""
        name = self._pick(SANDBOXES, where, which)
        store = self.story.plane.store

        def adding() -> None:
            uid = store.get(SANDBOXES, where, name)["metadata"]["uid"]
            owner = {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "name": name}
            metadata = {
                "name": f"{name}-twin",
                "namespace": where,
                "labels": {FOREIGN: "yes", NAME_HASH: name_hash(name)},
                "ownerReferences": [{**owner, "uid": uid, "controller": True}],
            }
            spec = {"containers": [{"name": "main", "image": "busybox"}]}
            store.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

        if name:
            self.story.act(f"somebody gives Sandbox {where}/{name} one more Pod", adding)

    @act(where=WHERE, which=WHICH, kind=CHILDREN, is_first=st.booleans())
    def share(self, where: str, which: int, kind: str, *, is_first: bool) -> None:
        """Give an object one more owner, which does not control it."""
        name = self._pick(kind, where, which)
        store = self.story.plane.store

        def sharing() -> None:
            template = store.get(TEMPLATES, where, "t")
            owner = {
                "apiVersion": EXTENSIONS,
                "kind": "SandboxTemplate",
                "name": "t",
                "uid": template["metadata"]["uid"],
            }
            held = store.get(kind, where, name)["metadata"].get("ownerReferences") or []
            if all(one["uid"] != owner["uid"] for one in held):
                owners = [owner, *held] if is_first else [*held, owner]
                store.patch(kind, where, name, {"metadata": {"ownerReferences": owners}})

        if name:
            self.story.act(f"{kind} {where}/{name} gets one more owner", sharing)

    @act(where=WHERE, which=WHICH, pool=POOL, value=st.sampled_from((None, "x", "")))
    def relabel_member(self, where: str, which: int, pool: str, value: str | None) -> None:
        """Take a member from its pool by the label, or give it to a pool by name."""
        name = self._pick(SANDBOXES, where, which, "SandboxWarmPool")
        label = name_hash(pool) if value == "" else value
        store = self.story.plane.store

        def relabelling() -> None:
            # A claim may have taken the member meanwhile: it removes the label then, and only then.
            if owner_of(store.get(SANDBOXES, where, name)).get("kind") == "SandboxWarmPool":
                store.patch(SANDBOXES, where, name, {"metadata": {"labels": {WARM_POOL: label}}})

        if name:
            self.story.act(f"label member {where}/{name} as one of {label}", relabelling)

    @act(where=WHERE, which=WHICH, tier=st.sampled_from((SLOW, SLOW, None)))
    def relabel_sandbox(self, where: str, which: int, tier: str | None) -> None:
        """Take a Sandbox out of a selection, or into it."""
        name = self._pick(SANDBOXES, where, which)
        self._patch(SANDBOXES, where, name, {"metadata": {"labels": {TIER: tier}}})

    @act(where=WHERE, which=WHICH, name=st.sampled_from(("a", "b", "c", "")))
    def retrack_pod(self, where: str, which: int, name: str) -> None:
        """Label a Pod as that of another Sandbox."""
        label = {"metadata": {"labels": {NAME_HASH: name_hash(name) if name else None}}}
        self._patch("pods", where, self._pick("pods", where, which), label)

    @act(where=WHERE, which=WHICH, kind=st.sampled_from(("pods", SANDBOXES, SANDBOXES)))
    def apply(self, where: str, which: int, kind: str) -> None:
        """Apply something to an object, as kubectl does on the server's side."""
        name = self._pick(kind, where, which)
        plane = self.story.plane
        note = {"annotations": {"example.com/applied": str(which)}}

        def applying() -> None:
            held = plane.store.get(kind, where, name)
            known = {key: held[key] for key in ("apiVersion", "kind")}
            body = {**known, "metadata": {"name": name, "namespace": where, **note}}
            options = WriteOptions(manager="kubectl")
            plane._verbs.apply(plane._registry.by_resource(kind), where, name, body, options)

        if name:
            self.story.act(f"apply to {kind.partition('.')[0]} {where}/{name}", applying)

    @act(where=WHERE, name=SANDBOX, pool=POOL, has_hash=st.booleans())
    def give_to_pool(self, where: str, name: str, pool: str, *, has_hash: bool) -> None:
        """Label a user's Sandbox as a member that has lost its pool."""
        labels = {WARM_POOL: name_hash(pool), **({REF_HASH: name_hash("t")} if has_hash else {})}
        self._patch(SANDBOXES, where, name, {"metadata": {"labels": labels}})

    # -- names -----------------------------------------------------------------------------------

    @act(
        where=WHERE,
        kind=st.sampled_from(("Pod", "Service", "PersistentVolumeClaim", "NetworkPolicy")),
        name=st.sampled_from(("a", "b", "c", "d")),
        how=st.sampled_from(("plain", "adoptable", "tracked", "address")),
    )
    def take_name(self, where: str, kind: str, name: str, how: str) -> None:
        """Create an object under the name of a child, free to be adopted or not."""
        labels = {FOREIGN: "yes"}
        if how == "adoptable":
            labels[ADOPTABLE] = "true"
        elif how == "tracked":
            labels[NAME_HASH] = name_hash(name)
        full = {"PersistentVolumeClaim": f"data-{name}", "NetworkPolicy": _POLICY}.get(kind, name)
        specs: dict[str, Json] = {
            "Pod": {"containers": [{"name": "main", "image": "busybox"}]},
            "Service": {"ports": [{"port": 80}]}
            | ({} if how == "address" else {"clusterIP": "None"}),
            "PersistentVolumeClaim": VOLUME_SPEC,
            "NetworkPolicy": {"podSelector": {}, "egress": []},
        }
        metadata = {"name": full, "namespace": where, "labels": labels}
        version = "networking.k8s.io/v1" if kind == "NetworkPolicy" else "v1"
        body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": specs[kind]}
        self.story.act(
            f"somebody creates {kind} {where}/{full}, {how}",
            lambda: self.story.plane.store.create(body),
        )

    @act(
        where=WHERE,
        which=WHICH,
        how=st.sampled_from(("delete", "delete", "selector", "ports", "labels")),
    )
    def meddle_with_service(self, where: str, which: int, how: str) -> None:
        """Delete or change the Service of a Sandbox."""
        name = self._pick("services", where, which, "Sandbox")
        bodies: dict[str, Json] = {
            "selector": {"spec": {"selector": {"app": "x"}}},
            "ports": {"spec": {"ports": [{"port": 81}]}},
            "labels": {"metadata": {"labels": {NAME_HASH: "x"}}},
        }
        if name and how == "delete":
            self.story.delete("services", where, name)
        elif how in bodies:
            self._patch("services", where, name, bodies[how])

    # -- schedulers, nodes -----------------------------------------------------------------------

    @act(
        where=WHERE,
        which=WHICH,
        how=st.sampled_from(("Unschedulable", "SchedulingGated", "bound", "bound")),
    )
    def schedule(self, where: str, which: int, how: str) -> None:
        """Find a node for a Pod, or say why there is none."""
        names = self.story.names("pods", where, lambda one: not one["spec"].get("nodeName"))
        if not names:
            return
        name = names[which % len(names)]
        if how == "bound":
            self.story.bind(where, name)
        else:
            (found, _) = pod_conditions(ready=False, scheduled=False)
            status = {"conditions": [{**found, "reason": how, "message": "no room"}]}
            plane = self.story.plane
            self.story.act(
                f"Pod {where}/{name} is {how}", lambda: write_pod_status(plane, name, status, where)
            )

    @rule(where=WHERE, which=WHICH, ready=st.booleans(), by=st.sampled_from(("kubelet", "kcm")))
    def write_condition(self, where: str, which: int, *, ready: bool, by: str) -> None:
        """Change the readiness of a Pod and no column, as when its node is lost or comes back."""
        name = self._pick("pods", where, which)
        store = self.story.plane.store
        status = {"conditions": pod_conditions(ready=ready)}

        def writing() -> None:
            if store.get("pods", where, name)["status"].get("phase") == "Running":
                body = {"status": status}
                store.patch("pods", where, name, body, subresource="status", manager=by)

        if name:
            self.story.act(f"{by} says of Pod {where}/{name}: ready {ready}", writing)

    @rule(where=WHERE, which=WHICH, why=st.sampled_from(("ImagePullBackOff", "CrashLoopBackOff")))
    def hinder(self, where: str, which: int, why: str) -> None:
        """Keep the container of a Pod from running."""
        name = self._pick("pods", where, which)
        state = {"waiting": {"reason": why, "message": "back-off"}}
        container = {"name": "main", "image": "busybox", "imageID": "", "ready": False}
        status = {
            "conditions": pod_conditions(ready=False),
            "containerStatuses": [{**container, "restartCount": 1, "state": state}],
        }
        if name:
            plane = self.story.plane
            self.story.act(
                f"Pod {where}/{name} is in {why}",
                lambda: write_pod_status(plane, name, status, where),
            )
            self.story.moments(3)

    @act(where=WHERE, which=WHICH, kind=st.sampled_from(("pods", SANDBOXES)))
    def forget_writers(self, where: str, which: int, kind: str) -> None:
        """Let nobody have written an object, as tools do that copy or shorten objects."""
        name = self._pick(kind, where, which)
        self._patch(kind, where, name, {"metadata": {"managedFields": [{}]}})

    # -- webhooks --------------------------------------------------------------------------------

    @rule(plural=st.sampled_from(("pods", "sandboxes")), what=STAMPS, always=st.booleans())
    def stamp(self, plural: str, what: str, *, always: bool) -> None:
        """Let a webhook change what is created, or also what is updated."""
        end = self._date(20.0)

        def stamping(kind: Kind, obj: Json) -> None:
            is_new = not obj["metadata"].get("resourceVersion")
            if kind.plural != plural or not (is_new or always):
                return
            metadata = obj["metadata"]
            if what == "metadata":
                for part in ("labels", "annotations"):
                    metadata[part] = {**(metadata.get(part) or {}), "example.com/stamp": "1"}
            elif what == "finalizer" and is_new:
                metadata["finalizers"] = [HOLD]
            elif what == "sidecar" and is_new:
                pod = obj if plural == "pods" else obj["spec"]["podTemplate"]
                sidecar = {"name": "sidecar", "image": "proxy"}
                if all(one["name"] != "sidecar" for one in pod["spec"]["containers"]):
                    pod["spec"]["containers"].append(sidecar)
            elif what == "gate" and is_new and plural == "pods":
                obj["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
                obj["spec"].pop("nodeName", None)
            elif what == "end" and CLAIM_UID in (metadata.get("labels") or {}):
                obj["spec"].setdefault("shutdownTime", end)
            # One that changes each Sandbox again would be at odds with the claim for good.
            elif what in ("template", "team") and (is_new or plural == "pods"):
                pod = obj if plural == "pods" else obj["spec"]["podTemplate"]
                pod["metadata"] = {**(pod.get("metadata") or {})}
                labels = pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {})}
                if what == "template":
                    labels["example.com/stamp"] = "x"
                elif TEAM in labels:
                    labels[TEAM] = "x"

        when = "is created or updated" if always else "is created"
        self.story.tell(f"a webhook adds its {what} to each of {plural} that {when}")
        self.story.webhooks.append(stamping)

    @rule()
    def unstamp(self) -> None:
        """Let all webhooks go."""
        self.story.tell("all webhooks are gone")
        self.story.webhooks.clear()

    # -- namespaces ------------------------------------------------------------------------------

    @act(begins=st.booleans())
    def end_namespace(self, *, begins: bool) -> None:
        """Delete a namespace with all that is in it, or create it anew."""
        name = NAMESPACES[1]
        store = self.story.plane.store
        if begins:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.story.act(f"create Namespace {name}", lambda: store.create(body))
        else:
            self.story.act(f"delete Namespace {name}", lambda: store.delete("namespaces", "", name))

    # -- the end ---------------------------------------------------------------------------------

    def finish(self) -> list[str]:
        """Let nothing stand in the way any more."""
        self.unstamp()
        story = self.story

        def is_in_the_way(one: Json) -> bool:
            labels = one["metadata"].get("labels") or {}
            # A child without its label and its owner is nobody's as well.
            if one["metadata"]["name"].endswith("-twin"):
                return True
            is_nobodys = FOREIGN in labels or (
                one["kind"] != "NetworkPolicy" and NAME_HASH not in labels
            )
            return is_nobodys and owner_of(one).get("kind") != "Sandbox"

        unseen = 0
        for where in NAMESPACES:
            for kind in ("pods", "services", POLICIES):
                for name in story.names(kind, where, is_in_the_way):
                    story.delete(kind, where, name, grace_s=0)
                    unseen += 1
            for name in story.names(_PVCS, where, is_in_the_way):
                label = {"metadata": {"labels": {ADOPTABLE: "true"}}}
                story.patch(_PVCS, where, name, label)
        if unseen:
            # What nobody watches is found by the next try.
            story.time(200.0)
        for where in NAMESPACES:
            # Members that ended, or that somebody suspended, are replaced at last.
            for name in story.names(POOLS, where):
                story.patch(POOLS, where, name, {"spec": {"readinessGracePeriodSeconds": 30}})
        return super().finish()
