"""What users and other programs change of objects that exist, in ways that few of them do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from lean_sandbox.model.times import format_rfc3339
from tests.faults.acts import NAMESPACES
from tests.faults.details import MARK, NOTE, TEAM
from tests.faults.ending import Ending
from tests.faults.oracle import CLAIMS, POOLS, SANDBOXES, TEMPLATES
from tests.support.builders import of_image
from tests.support.names import (
    ANNOTATION,
    CREATED_BY,
    LAUNCH_TYPE,
    POD_NAME,
    POLICIES,
    REF_HASH,
    TEMPLATE_HASH,
)
from tests.support.stored import owner_of
from tests.support.volumes import VOLUME

__all__ = [
    "CLAIM",
    "HOLD",
    "OVER",
    "PAUSE",
    "POOL",
    "SANDBOX",
    "STOLEN",
    "TEMPLATE",
    "WHERE",
    "WHICH",
    "Edits",
    "act",
]

Json = dict[str, Any]
WHERE = st.sampled_from((NAMESPACES[0],) * 3 + NAMESPACES[1:])
SANDBOX = st.sampled_from(("a", "b"))
CLAIM = st.sampled_from(("c", "d"))
POOL = st.sampled_from(("p", "p", "p", "q"))
TEMPLATE = st.sampled_from(("t", "t", "t", "u"))
WHICH = st.integers(0, 9)
PAUSE = st.sampled_from((0, 0, 3, 12, 60))
OVER = "2020-01-01T00:00:00Z"

# The name of an image that no server takes.
IMPOSSIBLE = " "
# The finalizer of another program.
HOLD = "example.com/hold"
# A label that no claim may ask for.
REFUSED = "plain"
# Of a label or an annotation; without one it is taken away.
VALUE = st.sampled_from((None, "v1", "v2"))
MINE = st.sampled_from(
    (
        (SANDBOXES, "a"),
        (SANDBOXES, "b"),
        (CLAIMS, "c"),
        (CLAIMS, "d"),
        (POOLS, "p"),
        (TEMPLATES, "t"),
    )
)
# What a template says of the Sandboxes that are made of it, and of the network of their Pods.
PARTS = st.sampled_from(
    (
        {"service": True},
        {"service": False},
        {"service": None},
        {"volumeClaimTemplates": [VOLUME]},
        {"volumeClaimTemplates": None},
        {"networkPolicy": {"egress": [{}]}},
        {"networkPolicy": None},
        {"podTemplate": {"metadata": {"labels": {TEAM: "v1"}}}},
        {"podTemplate": {"metadata": {"labels": {TEAM: None}}}},
        {"podTemplate": {"spec": {"nodeName": None}}},
        {"podTemplate": {"spec": {"nodeName": "node-1"}}},
    )
)
STOLEN: Json = {
    "type": "Ready",
    "status": "Unknown",
    "reason": "Stolen",
    "message": "",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}
# Statuses that nobody has reason to write, by kind.
STATUSES = st.sampled_from(
    (
        (SANDBOXES, {"conditions": [STOLEN]}),
        (SANDBOXES, {"podIPs": ["192.0.2.1"], "selector": "x", "nodeName": None}),
        (CLAIMS, {"conditions": [STOLEN]}),
        (CLAIMS, {"sandbox": None}),
        (POOLS, {"replicas": 7, "readyReplicas": 5, "selector": None}),
    )
)


def act(**strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """Return a rule after which a little happens before the next one, or nothing."""

    def decorate(do: Callable[..., None]) -> Any:
        def doing(self: Edits, pause: int, **given: Any) -> None:
            do(self, **given)
            self.story.moments(pause)

        doing.__name__ = do.__name__
        made: Any = rule(pause=PAUSE, **strategies)
        return made(doing)

    return decorate


class Edits(RuleBasedStateMachine):
    """Every part of an object that the specification says something about may change."""

    story: Ending

    @act(where=WHERE, name=SANDBOX, label=VALUE, note=VALUE)
    def edit_pod_metadata(self, where: str, name: str, label: str | None, note: str | None) -> None:
        """Change labels and annotations that a Sandbox wants its Pod to have."""
        metadata = {"labels": {TEAM: label}, "annotations": {NOTE: note}}
        self._patch(SANDBOXES, where, name, {"spec": {"podTemplate": {"metadata": metadata}}})

    @act(where=WHERE, name=CLAIM, label=VALUE, note=VALUE, is_valid=st.booleans())
    def edit_claim_metadata(
        self, where: str, name: str, label: str | None, note: str | None, *, is_valid: bool
    ) -> None:
        """Change labels and annotations that a claim asks for, perhaps to what it may not have."""
        refused = None if is_valid else "x"
        metadata = {"labels": {MARK: label, REFUSED: refused}, "annotations": {MARK: note}}
        self._patch(CLAIMS, where, name, {"spec": {"additionalPodMetadata": metadata}})

    @act(where=WHERE, what=MINE, by=st.sampled_from((None, "go-client", "mallory")))
    def edit_created_by(self, where: str, what: tuple[str, str], by: str | None) -> None:
        """Say of an object who made it."""
        self._patch(what[0], where, what[1], {"metadata": {"labels": {CREATED_BY: by}}})

    @act(where=WHERE, which=WHICH, mode=st.sampled_from(("Running", "Suspended")))
    def set_mode_of_owned(self, where: str, which: int, mode: str) -> None:
        """Suspend or resume the Sandbox of a claim, as its user does, or of a pool."""
        name = self._pick(SANDBOXES, where, which, "SandboxClaim", "SandboxWarmPool")
        self._patch(SANDBOXES, where, name, {"spec": {"operatingMode": mode}})

    @act(
        where=WHERE,
        which=WHICH,
        after_s=st.sampled_from((None, 0.0, 3.0, 20.0)),
        policy=st.sampled_from(("Retain", "Delete")),
    )
    def date_sandbox(self, where: str, which: int, after_s: float | None, policy: str) -> None:
        """Let a Sandbox end now, soon, or no more."""
        name = self._pick(SANDBOXES, where, which)
        body = {"shutdownTime": self._date(after_s), "shutdownPolicy": policy}
        self._patch(SANDBOXES, where, name, {"spec": body})

    @act(
        where=WHERE,
        name=CLAIM,
        after_s=st.sampled_from((None, 3.0, 20.0)),
        policy=st.sampled_from(("Retain", "Delete")),
    )
    def date_claim(self, where: str, name: str, after_s: float | None, policy: str) -> None:
        """Let a claim end soon, or no more."""
        date = self._date(after_s)
        lifecycle = date and {"shutdownTime": date, "shutdownPolicy": policy}
        self._patch(CLAIMS, where, name, {"spec": {"lifecycle": lifecycle}})

    @act(where=WHERE, which=WHICH, policy=st.sampled_from((None, "Foreground", "Orphan")))
    def delete_owned_sandbox(self, where: str, which: int, policy: str | None) -> None:
        """Delete the Sandbox of a claim or a pool."""
        name = self._pick(SANDBOXES, where, which, "SandboxClaim", "SandboxWarmPool")
        if name:
            self.story.delete(SANDBOXES, where, name, policy=policy)

    @act(where=WHERE, what=MINE)
    def replace(self, where: str, what: tuple[str, str]) -> None:
        """Delete an object and create it anew under its name, with nothing in between."""
        resource, name = what
        store = self.story.plane.store

        def replacing() -> None:
            old = store.get(resource, where, name)
            kept = {key: old[key] for key in ("apiVersion", "kind", "spec")}
            metadata = {"name": name, "namespace": where, "annotations": {"user": "made this"}}
            store.delete(resource, where, name, grace_s=0)
            store.create({**kept, "metadata": metadata})

        self.story.act(f"replace {resource.partition('.')[0]} {where}/{name}", replacing)

    @act(
        where=WHERE,
        which=WHICH,
        kind=st.sampled_from(("pods", SANDBOXES, SANDBOXES, CLAIMS, POOLS)),
        adds=st.sampled_from((True, False)),
    )
    def finalize(self, where: str, which: int, kind: str, *, adds: bool) -> None:
        """Let another program keep an object from going, or no more."""
        body = {"metadata": {"finalizers": [HOLD] if adds else None}}
        self._patch(kind, where, self._pick(kind, where, which), body)

    @act(
        where=WHERE,
        name=SANDBOX,
        which=WHICH,
        to=st.sampled_from((None, "", "nothing", "Not A Name", "a Pod", "a Pod")),
    )
    def point_at_pod(self, where: str, name: str, which: int, to: str | None) -> None:
        """Say of a Sandbox which Pod is its, as older controllers did."""
        pod = self._pick("pods", where, which) if to == "a Pod" else to
        self._patch(SANDBOXES, where, name, {"metadata": {"annotations": {POD_NAME: pod}}})

    @act(
        where=WHERE,
        name=CLAIM,
        which=WHICH,
        to=st.sampled_from((None, "nothing", "a Sandbox", "a Sandbox")),
    )
    def point_at_sandbox(self, where: str, name: str, which: int, to: str | None) -> None:
        """Say of a claim which Sandbox is its."""
        other = self._pick(SANDBOXES, where, which) if to == "a Sandbox" else to
        self._patch(CLAIMS, where, name, {"metadata": {"annotations": {ANNOTATION: other}}})

    @act(where=WHERE, which=WHICH)
    def misname_expired(self, where: str, which: int) -> None:
        """Let a claim end and stay, and write into its status a Sandbox that no claim has."""
        name = self._pick(CLAIMS, where, which)
        lifecycle = {"shutdownTime": OVER, "shutdownPolicy": "Retain"}
        self._patch(CLAIMS, where, name, {"spec": {"lifecycle": lifecycle}})
        # Its own Sandbox is gone by then.
        self.story.time(1.0)
        other = self._pick(SANDBOXES, where, which, "SandboxWarmPool", "")
        if name and other:
            status = {"sandbox": {"name": other}}
            self._patch(CLAIMS, where, name, {"status": status}, "status")

    @act(where=WHERE, which=WHICH, what=STATUSES)
    def write_status(self, where: str, which: int, what: tuple[str, Json]) -> None:
        """Write a status that is not so."""
        resource, status = what
        name = self._pick(resource, where, which)
        self._patch(resource, where, name, {"status": status}, "status")

    @act(
        where=WHERE,
        how=st.sampled_from(("delete", "empty", "label", "Managed", "Unmanaged", "strip")),
    )
    def meddle_with_policy(self, where: str, how: str) -> None:
        """Delete or change the NetworkPolicy of the template, or what the template says of it."""
        policy = "t-network-policy"
        if how == "delete":
            self.story.delete(POLICIES, where, policy)
        elif how == "strip":
            self._patch(TEMPLATES, where, "t", {"metadata": {"labels": None}})
        elif how in ("Managed", "Unmanaged"):
            self._patch(TEMPLATES, where, "t", {"spec": {"networkPolicyManagement": how}})
        else:
            emptied: Json = {"spec": {"egress": []}}
            labelled: Json = {"metadata": {"labels": {"x": "y"}}}
            self._patch(POLICIES, where, policy, emptied if how == "empty" else labelled)

    @act(where=WHERE, name=CLAIM, has_volume=st.booleans())
    def create_cold_claim(self, where: str, name: str, *, has_volume: bool) -> None:
        """Create a claim that no member of a pool can serve, as it brings variables or volumes."""
        spec: Json = {"warmPoolRef": {"name": "p"}}
        if has_volume:
            spec["volumeClaimTemplates"] = [{**VOLUME, "metadata": {"name": "own"}}]
        else:
            spec["env"] = [{"name": "A", "value": "b"}]
        self.story.create("SandboxClaim", where, name, spec)

    @act(where=WHERE, policy=st.sampled_from(("Allowed", "Disallowed")), team=VALUE, between=PAUSE)
    def renew_template(self, where: str, policy: str, team: str | None, between: int) -> None:
        """Replace the template by one with other labels, which lets claims bring variables or not.

        A mere change of either wakes no claim (claims, 3.3 and open point 6).
        """
        self.story.delete(TEMPLATES, where, "t")
        self.story.moments(between)
        metadata = {"labels": {TEAM: team}} if team else {}
        self.story.template(where, "busybox", metadata=metadata, injection=policy)

    @act(where=WHERE, which=WHICH, image=st.sampled_from(("busybox", "alpine", IMPOSSIBLE)))
    def edit_pod_spec(self, where: str, which: int, image: str) -> None:
        """Change what the next Pod of a Sandbox is made of, perhaps to what no Pod can have."""
        self._patch(SANDBOXES, where, self._pick(SANDBOXES, where, which), of_image(image))

    @act(
        where=WHERE,
        name=POOL,
        template=st.sampled_from((None, "t", "t", "u")),
        strategy=st.sampled_from((None, "Recreate", "OnReplenish")),
        grace_s=st.sampled_from((None, None, 30, 600)),
    )
    def edit_pool(
        self, where: str, name: str, template: str | None, strategy: str | None, grace_s: int | None
    ) -> None:
        """Change what a pool makes its members of, how it replaces them, how long they may take."""
        spec: Json = {"readinessGracePeriodSeconds": grace_s}
        if template:
            spec["sandboxTemplateRef"] = {"name": template}
        if strategy:
            spec["updateStrategy"] = {"type": strategy}
        self._patch(POOLS, where, name, {"spec": spec})

    @act(where=WHERE, name=TEMPLATE, part=PARTS)
    def edit_blueprint(self, where: str, name: str, part: Json) -> None:
        """Change something else of a template than the image."""
        self._patch(TEMPLATES, where, name, {"spec": part})

    @act(where=WHERE, name=CLAIM, pool=POOL, ttl_s=st.sampled_from((None, 0, 5, 60)))
    def edit_claim(self, where: str, name: str, pool: str, ttl_s: int | None) -> None:
        """Let a claim name another pool, and end some time after its Sandbox has."""
        lifecycle = {"ttlSecondsAfterFinished": ttl_s}
        spec = {"warmPoolRef": {"name": pool}, "lifecycle": lifecycle}
        self._patch(CLAIMS, where, name, {"spec": spec})

    @act(where=WHERE, which=WHICH, label=st.sampled_from((LAUNCH_TYPE, REF_HASH, TEMPLATE_HASH)))
    def unlabel_owned_sandbox(self, where: str, which: int, label: str) -> None:
        """Take a label from the Sandbox of a claim or a pool."""
        name = self._pick(SANDBOXES, where, which, "SandboxClaim", "SandboxWarmPool")
        self._patch(SANDBOXES, where, name, {"metadata": {"labels": {label: None}}})

    def finish(self) -> list[str]:
        """Let all faults end, and let nothing be held by other programs; return what is wrong."""
        for where in NAMESPACES:
            for name in self.story.names(CLAIMS, where, _asks_too_much):
                asked = {"labels": {REFUSED: None}}
                self.story.patch(CLAIMS, where, name, {"spec": {"additionalPodMetadata": asked}})
            for name in self.story.names(SANDBOXES, where, _is_impossible):
                self.story.patch(SANDBOXES, where, name, of_image("busybox"))
            for kind in ("pods", SANDBOXES, CLAIMS, POOLS):
                for name in self.story.names(kind, where, lambda one: HOLD in _finalizers(one)):
                    self.story.patch(kind, where, name, {"metadata": {"finalizers": None}})
        return self.story.end()

    def _pick(self, resource: str, where: str, which: int, *owners: str) -> str:
        """Return the name of an object, of those that have an owner of such a kind; or none."""

        def is_wanted(one: Json) -> bool:
            return not owners or owner_of(one).get("kind", "") in owners

        names = self.story.names(resource, where, is_wanted)
        return names[which % len(names)] if names else ""

    def _date(self, after_s: float | None) -> str | None:
        if not after_s:
            return None if after_s is None else OVER
        return format_rfc3339(self.story.true_time() + timedelta(seconds=after_s))

    def _patch(
        self, resource: str, where: str, name: str, body: Json, subresource: str = ""
    ) -> None:
        if name:
            self.story.patch(resource, where, name, body, subresource)


def _is_impossible(sandbox: Json) -> bool:
    image: str = sandbox["spec"]["podTemplate"]["spec"]["containers"][0]["image"]
    return image == IMPOSSIBLE


def _asks_too_much(claim: Json) -> bool:
    return REFUSED in claim["spec"].get("additionalPodMetadata", {}).get("labels", {})


def _finalizers(one: Json) -> list[str]:
    found: list[str] = one["metadata"].get("finalizers") or []
    return found
