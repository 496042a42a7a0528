"""What users and kubelets do every day: rules for stories."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis.stateful import rule

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.http.subresources import Subresources
from lean_sandbox.local.request import Ask, Target, UserInfo
from tests.faults.acts import NAMESPACES
from tests.faults.edits import CLAIM, OVER, PAUSE, POOL, SANDBOX, TEMPLATE, WHERE, WHICH, act
from tests.faults.neighbours import Neighbours
from tests.faults.oracle import CLAIMS, POOLS, SANDBOXES, TEMPLATES

__all__ = ["BEGUN", "IMAGE", "REPLICAS", "Users"]

Json = dict[str, Any]
IMAGE = st.sampled_from(("busybox", "alpine"))
REPLICAS = st.integers(0, 2)
# How much there is: nothing yet, or objects, or all of them running.
BEGUN = st.sampled_from((0, 1, 2, 2))
KINDS = ("pods", SANDBOXES, CLAIMS, POOLS, TEMPLATES, "services")


def ask_scale(plane: ControlPlane, where: str, name: str, scale: Json | None = None) -> Json:
    """Read the subresource of a pool, or write it."""
    target = Target("update" if scale else "get", "", namespace=where, name=name)
    kind = plane._registry.by_resource(POOLS)
    body = msgspec.json.encode(scale)
    target.content_type = "application/json"
    ask = Ask(target, kind, UserInfo("autoscaler"), body)
    answer = Subresources(plane._verbs, {})._scale(ask)
    shown: Json = msgspec.json.decode(answer.body)
    return shown


class Users(Neighbours):
    """Objects come, change and go, and Pods run."""

    def furnish(self, replicas: int, begun: int) -> None:
        """Begin with what most stories need."""
        story = self.story
        for namespace in NAMESPACES[: max(1, begun)]:
            story.template(namespace, "busybox")
            story.pool(namespace, replicas, "Recreate" if replicas == 2 else "OnReplenish")
        if begun:
            story.sandbox(NAMESPACES[0], "a", service=replicas > 0)
            story.claim(NAMESPACES[0], "c")
        if begun == 2:
            story.live_on()

    # -- time ------------------------------------------------------------------------------------

    @rule(count=st.sampled_from((1, 4, 10, 30, 100)))
    def moments(self, count: int) -> None:
        """Let a little happen."""
        self.story.moments(count)

    @rule(seconds=st.sampled_from((0.1, 1.0, 2.5, 12.0)))
    def time(self, seconds: float) -> None:
        """Let time pass."""
        self.story.time(seconds)

    # -- users -----------------------------------------------------------------------------------

    @act(
        where=WHERE,
        name=SANDBOX,
        service=st.booleans(),
        volume=st.sampled_from((False, False, True)),
    )
    def create_sandbox(self, where: str, name: str, *, service: bool, volume: bool) -> None:
        """Create a Sandbox."""
        self.story.sandbox(where, name, service=service, has_volume=volume)

    @act(where=WHERE, name=CLAIM)
    def create_claim(self, where: str, name: str) -> None:
        """Create a claim."""
        self.story.claim(where, name)

    @act(
        where=WHERE,
        name=POOL,
        template=TEMPLATE,
        replicas=st.integers(0, 3),
        image=IMAGE,
        strategy=st.booleans(),
        between=PAUSE,
    )
    def create_pool(
        self,
        where: str,
        name: str,
        template: str,
        replicas: int,
        image: str,
        *,
        strategy: bool,
        between: int,
    ) -> None:
        """Create template and pool."""
        self.story.template(where, image, name=template)
        self.story.moments(between)
        self.story.pool(where, replicas, "Recreate" if strategy else "OnReplenish", name)

    @act(where=WHERE, name=POOL, replicas=st.integers(0, 3))
    def scale(self, where: str, name: str, replicas: int) -> None:
        """Scale a pool."""
        self.story.patch(POOLS, where, name, {"spec": {"replicas": replicas}})

    @act(where=WHERE, name=POOL, by=st.sampled_from((-1, 1, 2)))
    def autoscale(self, where: str, name: str, by: int) -> None:
        """Scale a pool as an autoscaler does: read its /scale, and write that version of it."""
        plane = self.story.plane

        def scaling() -> None:
            scale = ask_scale(plane, where, name)
            scale["spec"]["replicas"] = max(0, scale["spec"].get("replicas", 0) + by)
            ask_scale(plane, where, name, scale)

        self.story.act(f"/scale of SandboxWarmPool {where}/{name} changes by {by}", scaling)

    @act(where=WHERE, image=IMAGE)
    def edit_template(self, where: str, image: str) -> None:
        """Change the template."""
        self.story.edit_image(where, image)

    @act(where=WHERE, name=SANDBOX, mode=st.sampled_from(("Running", "Suspended", "Suspended")))
    def set_mode(self, where: str, name: str, mode: str) -> None:
        """Suspend or resume a Sandbox."""
        self.story.patch(SANDBOXES, where, name, {"spec": {"operatingMode": mode}})

    @act(where=WHERE, which=WHICH, service=st.sampled_from((True, False, None)))
    def set_service(self, where: str, which: int, *, service: bool | None) -> None:
        """Switch the Service of a Sandbox on or off."""
        name = self._pick(SANDBOXES, where, which)
        self._patch(SANDBOXES, where, name, {"spec": {"service": service}})

    @act(where=WHERE, name=SANDBOX, policy=st.sampled_from(("Retain", "Delete")))
    def expire_sandbox(self, where: str, name: str, policy: str) -> None:
        """Let the time of a Sandbox be over."""
        body = {"spec": {"shutdownTime": OVER, "shutdownPolicy": policy}}
        self.story.patch(SANDBOXES, where, name, body)

    @act(where=WHERE, name=CLAIM, policy=st.sampled_from(("Retain", "Delete", "DeleteForeground")))
    def expire_claim(self, where: str, name: str, policy: str) -> None:
        """Let the time of a claim be over."""
        body = {"spec": {"lifecycle": {"shutdownTime": OVER, "shutdownPolicy": policy}}}
        self.story.patch(CLAIMS, where, name, body)

    @act(where=WHERE, which=WHICH)
    def delete_volume_claim(self, where: str, which: int) -> None:
        """Delete a volume claim; it goes once no Pod has it."""
        if name := self._pick("persistentvolumeclaims", where, which):
            self.story.delete("persistentvolumeclaims", where, name)

    @act(
        where=WHERE,
        what=st.sampled_from(
            ((SANDBOXES, "a"), (SANDBOXES, "b"), (CLAIMS, "c"), (CLAIMS, "d"), (POOLS, "p"))
        ),
        policy=st.sampled_from((None, "Background", "Foreground", "Orphan")),
    )
    def delete(self, where: str, what: tuple[str, str], policy: str | None) -> None:
        """Delete what a user made."""
        self.story.delete(what[0], where, what[1], policy=policy)

    @act(where=WHERE, name=TEMPLATE)
    def delete_template(self, where: str, name: str) -> None:
        """Delete a template."""
        self.story.delete(TEMPLATES, where, name)

    @act(where=WHERE, which=WHICH, kind=st.sampled_from(KINDS), value=WHICH)
    def annotate(self, where: str, which: int, kind: str, value: int) -> None:
        """Change what concerns nobody."""
        body = {"metadata": {"annotations": {"example.com/noise": str(value)}}}
        self._patch(kind, where, self._pick(kind, where, which), body)

    @act(where=WHERE, which=WHICH, kind=st.sampled_from(("pods", "services")))
    def strip_labels(self, where: str, which: int, kind: str) -> None:
        """Take all labels from a child."""
        body = {"metadata": {"labels": None}}
        self._patch(kind, where, self._pick(kind, where, which), body)

    # -- kubelets --------------------------------------------------------------------------------

    @act(
        where=WHERE,
        which=WHICH,
        ready=st.sampled_from((True, True, False)),
        moves=st.booleans(),
        has_ip=st.sampled_from((True, True, True, False)),
    )
    def run_pod(self, where: str, which: int, *, ready: bool, moves: bool, has_ip: bool) -> None:
        """Run a Pod, Ready or not."""
        if name := self._pick("pods", where, which):
            self.story.run_pod(where, name, ready=ready, moves=moves, has_ip=has_ip)

    @act(where=WHERE, which=WHICH, phase=st.sampled_from(("Succeeded", "Failed")))
    def finish_pod(self, where: str, which: int, phase: str) -> None:
        """End the containers of a Pod."""
        self.story.finish_pod(where, which, phase)

    @rule(
        where=WHERE,
        which=WHICH,
        kind=st.sampled_from(("pods", "pods", "sandboxes")),
        turns=st.lists(st.booleans(), min_size=1, max_size=3),
        noise=st.booleans(),
        pause=st.sampled_from((12, 60)),
    )
    def overtake(
        self, where: str, which: int, kind: str, *, turns: list[bool], noise: bool, pause: int
    ) -> None:
        """Let changes pass, relevant or not, while an answer about an object is on its way."""
        story = self.story
        resource = "pods" if kind == "pods" else SANDBOXES
        if name := self._pick(resource, where, which):
            story.hold("get", kind, answers=True)
            for turn in turns:
                if kind == "pods":
                    story.run_pod(where, name, ready=turn)
                else:
                    story.patch(resource, where, name, {"spec": {"service": turn}})
                story.moments(pause)
            if noise:
                story.patch(resource, where, name, {"metadata": {"annotations": {"noise": "1"}}})
                story.moments(pause)
            story.let_go(-1)

    @act(where=WHERE, which=WHICH, grace=st.sampled_from((0, 30)))
    def delete_pod(self, where: str, which: int, grace: int) -> None:
        """Delete a Pod, as a user, a drain, or the kubelet that has ended it."""
        if name := self._pick("pods", where, which):
            self.story.delete("pods", where, name, grace_s=grace)

    def teardown(self) -> None:
        """Let all faults end: what is stored has to be what the specification asks."""
        try:
            found = self.finish()
            assert not found, "\n".join(["", *found, self.story.text()])
        finally:
            self.story.close()
