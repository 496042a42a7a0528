"""The second write of a binding: the Pod of the Sandbox ceases to look free.

Ready tells a client that it can use what the claim names. But a router does not know a Pod by name
while that has the label of a pool, and an autoscaler may evict one that is marked as safe to evict.
So no claim becomes Ready before its Pod has the metadata that its Sandbox asks for, and our watch
has shown it so: a router learns of it by a watch as well, and a busy server sends to all of them
late.
"""

from __future__ import annotations

from lean_sandbox.controllers.claim.run import SOON_READY_S, ClaimContext, ClaimRun
from lean_sandbox.controllers.resolver import NotYetError
from lean_sandbox.kube.errors import Conflict, ControlPlaneError, NotFound, message_of
from lean_sandbox.model.claim_status import ClaimError, ClaimFault
from lean_sandbox.model.pod import metadata_patch
from lean_sandbox.model.sandbox import PodTemplateMetadata
from lean_sandbox.watch.resources.pod import PodEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# How long a claim waits at most for the watch to show its Pod as it was written.
_SHOWN_WITHIN_S = 1.0
# The longest wait for a Pod that no watch shows: a policy may take away the label by which it does.
_LONGEST_WAIT_S = 30.0
# From this wait on the claim says what it waits for.
_TOLD_WAIT_S = 8.0


async def make_usable(run: ClaimRun, sandbox: SandboxEntry) -> None:
    """Bring the metadata of a ready Sandbox's Pod to what the Sandbox asks for.

    Makes no request if the Pod has it already; else one PATCH, and a GET if another Pod has taken
    the name. Raises NotYetError if no Pod is known to be ready: then the Sandbox's status describes
    a Pod that is gone, and the Sandbox is reconciled at once; the wait doubles each time. Raises
    ClaimError once that wait is long, and if the server refuses the patch or does not answer it.
    Waits first for a write of the Sandbox's own reconcile, which may carry older metadata.
    """
    context = run.context
    state = run.state
    pods = context.caches.pods
    latest = run.sandboxes.latest(sandbox)
    if latest is not None and not latest.needs_fetch:
        owned = pods.owned_by(latest.key.namespace, latest.uid)
        found = [await _release(context, latest, pod) for pod in owned if pod.may_be_ready]
        if any(pod is not None and pod.may_be_ready for pod in found):
            state.unusable_s = 0.0
            return
    context.wakes.launch(sandbox.key, None)
    state.unusable_s = min(max(SOON_READY_S, 2.0 * state.unusable_s), _LONGEST_WAIT_S)
    if state.unusable_s < _TOLD_WAIT_S:
        raise NotYetError(state.unusable_s)
    text = f'no Pod of sandbox "{sandbox.key.name}" is seen to be ready'
    raise ClaimError(ClaimFault.POD_UNSEEN, text, after_s=state.unusable_s)


async def _release(context: ClaimContext, sandbox: SandboxEntry, pod: PodEntry) -> PodEntry | None:
    """Return the Pod with the metadata it is to have, or ``None`` if it is gone."""
    assert sandbox.view is not None
    pods = context.caches.pods
    await pods.own.ended(pod)
    latest = pods.latest(pod)
    if latest is None:
        return None
    pod = latest
    patch = metadata_patch(
        sandbox.metadata,
        sandbox.view.template_metadata,
        PodTemplateMetadata(pod.labels, pod.annotations),
    )
    if patch is None:
        return pod
    began = context.clock.monotonic()
    try:
        with pods.shown.of(pod.key) as shown:
            # The whole Pod: it may have ended just before, which metadata would hide.
            written = await context.writer.patch(pods, pod, {"metadata": patch}, as_metadata=False)
            await shown.until(written.entry.version, context.clock, _SHOWN_WITHIN_S)
    except NotFound:
        return None
    except Conflict:
        await context.writer.get(pods, pod.key)
        return None
    except ControlPlaneError as error:
        text = f'failed to patch pod "{pod.key.name}": {message_of(error)}'
        raise ClaimError(ClaimFault.OTHER, text) from error
    context.metrics.stage("pod_metadata", began)
    return pods.latest(written.entry)
