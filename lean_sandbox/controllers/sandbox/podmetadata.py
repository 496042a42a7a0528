"""The metadata of a Sandbox's Pod: its owner, and the labels and annotations that it is to have."""

from __future__ import annotations

from typing import Any

from lean_sandbox.config.options import LONGEST_WRITE_BEHIND_S
from lean_sandbox.controllers.sandbox import plans
from lean_sandbox.controllers.sandbox.run import Lacking, SandboxRun
from lean_sandbox.model import names
from lean_sandbox.model.pod import metadata_patch
from lean_sandbox.model.sandbox import PodTemplateMetadata
from lean_sandbox.model.sandbox_status import FailedStep
from lean_sandbox.runtime.workers import ReconcileError, failing_as
from lean_sandbox.watch.resources.pod import PodEntry


class PodMetadata:
    """Brings the metadata of the Pod to the desired state; each step is at most one PATCH."""

    def __init__(self, run: SandboxRun) -> None:
        self._run = run
        self._context = run.context

    async def sync(self, pod: PodEntry, *, adopts: bool = False) -> PodEntry:
        """Patch the metadata that the Pod lacks, at once if it is adopted; return the patched Pod.

        One GET of the Sandbox before the Pod is labelled as a free member of a pool. Raises
        OvertakenError if the Sandbox has changed, ReconcileError if the patch fails or somebody
        undid the adoption.
        """
        self._run.check_template()
        lacking = self._lacks(pod)
        if lacking is None:
            return pod
        if not self._run.is_in_vain(pod, lacking):
            if not adopts and self._defer():
                return pod
            if lacking[1].get("labels", {}).get(names.WARM_POOL_LABEL):
                # Another process may have handed the Sandbox over, and its Pod be shown first.
                await self._run.confirm()
                if (lacking := self._lacks(pod)) is None:
                    return pod
            metadata = lacking[1]
            if adopts:
                metadata = metadata | await self._run.ownership(self._context.caches.pods, pod)
            with failing_as(FailedStep.POD_PATCH):
                pod = await self._patch(pod, metadata)
            self._run.state.drift_since = None
            self._run.judge(pod, lacking, self._lacks(pod))
        if not self._run.owns(pod):
            raise ReconcileError(plans.disowned("pod", pod))
        return pod

    async def keep_in_sight(self, pod: PodEntry) -> PodEntry:
        """Give a Pod the label by which it is watched: suspending waits for its end."""
        if names.NAME_HASH_LABEL in (pod.labels or {}):
            return pod
        labels = {names.NAME_HASH_LABEL: names.name_hash(self._run.key.name)}
        if self._run.is_in_vain(pod, labels):
            return pod
        with failing_as(FailedStep.POD_PATCH):
            made = await self._patch(pod, {"labels": labels})
        is_labelled = names.NAME_HASH_LABEL in (made.labels or {})
        self._run.judge(made, labels, None if is_labelled else labels)
        return made

    async def _patch(self, pod: PodEntry, metadata: dict[str, Any]) -> PodEntry:
        made = await self._context.requests.patch(
            self._context.caches.pods, pod, {"metadata": metadata}, as_metadata=False
        )
        return made.entry

    def _lacks(self, pod: PodEntry) -> Lacking | None:
        missing = metadata_patch(
            self._run.entry.metadata,
            self._run.view.template_metadata,
            PodTemplateMetadata(pod.labels, pod.annotations),
        )
        lacking: Lacking = not self._run.owns(pod), missing or {}
        return lacking if any(lacking) else None

    def _defer(self) -> bool:
        """Put the write off while it may wait, as in the reference controller; return whether."""
        now = self._context.clock.monotonic()
        state = self._run.state
        window_s = min(self._context.settings.sandbox_write_behind_window, LONGEST_WRITE_BEHIND_S)
        if state.drift_since is None:
            state.drift_since = now
        left_s = state.drift_since + window_s - now
        if left_s <= 0:
            return False
        self._run.requeue.within(left_s)
        return True
