"""Brings the metadata of a claim and its template to the Sandbox that is bound to it."""

from __future__ import annotations

from lean_sandbox.controllers.claim.owned import assigned_name
from lean_sandbox.controllers.claim.run import ClaimRun
from lean_sandbox.kube.errors import ControlPlaneError, message_of
from lean_sandbox.model import names
from lean_sandbox.model.claim_additions import bound_sync_patch, desired_pod_metadata
from lean_sandbox.model.claim_sandbox import launch_type_patch, needs_template_touch
from lean_sandbox.model.claim_status import ClaimError, ClaimFault
from lean_sandbox.model.sandbox import PodTemplateMetadata
from lean_sandbox.model.template import TemplateView
from lean_sandbox.watch.resources.sandbox import SandboxEntry


async def sync_metadata(run: ClaimRun, sandbox: SandboxEntry) -> SandboxEntry:
    """Return the claim's Sandbox with its metadata brought up to date.

    No request when nothing that reaches the Pod differs; else one GET and one PATCH. Raises
    ClaimError if the template cannot be resolved, or the server refuses the patch.
    """
    sandbox = await _give_launch_type_back(run, sandbox)
    template = await _template(run)
    if template is None:
        return sandbox
    undone = run.context.undone
    ref_hash = template.ref_hash
    desired = desired_pod_metadata(template, run.facts, ref_hash=ref_hash)
    if _is_synced(run, sandbox, template, desired):
        return sandbox
    if undone.is_in_vain(sandbox.uid, (sandbox.generation, sandbox.labels, desired)):
        return sandbox
    try:
        found = await run.writer.get(run.sandboxes, sandbox.key)
        current = found.item.spec.podTemplate.metadata if found is not None else None
        patch = bound_sync_patch(
            desired,
            current or PodTemplateMetadata(),
            claim=run.facts,
            labels=sandbox.labels,
            ref_hash=ref_hash,
        )
        if patch is None:
            return sandbox
        sandbox = await run.patch(sandbox, patch)
    except ControlPlaneError as error:
        raise ClaimError(
            ClaimFault.OTHER,
            f'failed to patch sandbox metadata for claim "{run.facts.name}": {message_of(error)}',
        ) from error
    if not _is_synced(run, sandbox, template, desired):
        undone.note(sandbox.uid, (sandbox.generation, sandbox.labels, desired))
    run.context.wakes.sandbox(sandbox.key)
    return sandbox


async def _give_launch_type_back(run: ClaimRun, sandbox: SandboxEntry) -> SandboxEntry:
    """Label a Sandbox that was bound before there was this label. At most one PATCH.

    Remove after v1.1.
    """
    undone = run.context.undone
    label = names.LAUNCH_TYPE_LABEL
    patch = launch_type_patch(
        sandbox.labels,
        sandbox.key.name,
        assigned=assigned_name(run.entry),
        claim=run.entry.key.name,
    )
    if patch is None or undone.is_in_vain(f"{sandbox.uid} {label}", sandbox.labels):
        return sandbox
    sandbox = await run.patch(sandbox, patch)
    if label not in (sandbox.labels or {}):
        undone.note(f"{sandbox.uid} {label}", sandbox.labels)
    return sandbox


async def _template(run: ClaimRun) -> TemplateView | None:
    """Return the template, ``None`` if neither it nor the claim's own metadata is known."""
    resolver = run.context.resolver
    template = resolver.known_template_of(run.pool)
    if template is not None or run.facts.additional == PodTemplateMetadata():
        return template
    try:
        return await resolver.template_of(run.pool)
    except ClaimError as error:
        if error.fault is ClaimFault.WARM_POOL_NOT_FOUND:
            raise
        text = f"failed to get template for metadata propagation: {error.text}"
        raise ClaimError(error.fault, text) from error


def _is_synced(
    run: ClaimRun, sandbox: SandboxEntry, template: TemplateView, desired: PodTemplateMetadata
) -> bool:
    view = sandbox.view
    labels = sandbox.labels or {}
    return (
        labels.get(names.TEMPLATE_REF_HASH_LABEL) == template.ref_hash
        and labels.get(names.CREATED_BY_LABEL, "") == run.facts.created_by
        and view is not None
        and view.generation == sandbox.generation
        and not needs_template_touch(view.template_metadata, desired)
    )
