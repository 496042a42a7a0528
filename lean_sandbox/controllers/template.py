"""The SandboxTemplate controller.

A reconcile labels the template with the hash of its name, then brings its one shared NetworkPolicy
to the rules it asks for. Requests: none when nothing is to be done; at most one PATCH of the
template and one POST, PATCH (after a GET if the watch has only shown a write) or DELETE of the
policy.
"""

from __future__ import annotations

import msgspec

from lean_sandbox.controllers.common import ObjectEvents, Shared, Undone, Wakes
from lean_sandbox.kube.errors import ControlPlaneError, NotFound, message_of
from lean_sandbox.model.meta import is_controlled_by
from lean_sandbox.model.template import (
    build_policy,
    is_policy_as_desired,
    policy_name,
    policy_name_fault,
    policy_patch,
    policy_refusal,
    ref_hash_patch,
    template_of_policy,
)
from lean_sandbox.runtime.controller import Controller
from lean_sandbox.runtime.queue import Cause, Item
from lean_sandbox.runtime.workers import ReconcileError, Result, failing_as
from lean_sandbox.runtime.writer import ObjectWriter
from lean_sandbox.watch.kind import Delta, Key, key_of
from lean_sandbox.watch.resources import Caches
from lean_sandbox.watch.resources.children import PolicyEntry
from lean_sandbox.watch.resources.extensions import TemplateEntry


class TemplateContext(msgspec.Struct, kw_only=True, frozen=True):
    """What the reconciles of all templates share."""

    caches: Caches
    events: ObjectEvents
    undone: Undone
    wakes: Wakes
    writer: ObjectWriter


class TemplateController(Controller[TemplateEntry]):
    """Keeps the label and the NetworkPolicy of templates."""

    def __init__(self, shared: Shared) -> None:
        caches = shared.caches
        # The reference controller takes 0 for 1 here, and refuses it everywhere else.
        workers = max(1, shared.settings.sandbox_template_concurrent_workers)
        super().__init__("sandboxtemplate", caches.templates, shared.clock, workers=workers)
        self._context = TemplateContext(
            caches=caches,
            events=ObjectEvents(
                shared, caches.templates.kind.resource, "sandboxtemplate-controller"
            ),
            undone=Undone(),
            wakes=shared.wakes,
            writer=shared.writer,
        )

    def on_policy(self, delta: Delta[PolicyEntry]) -> None:
        """Signal that a policy is there, or reconcile the template of a policy that is gone.

        A policy that is gone frees its name, even if somebody else controlled it.
        """
        if delta.initial:
            return
        name = template_of_policy(delta.key.name)
        template = None if name is None else Key(delta.key.namespace, name)
        if template is None or template not in self.cache:
            return
        if delta.new is None:
            self.wake(template, cause=Cause.CHILD_GONE, reason="policy is gone")
        elif delta.old is None:
            self._context.wakes.policy(template)

    def is_final(self, entry: TemplateEntry) -> bool:
        """Return whether a template has its label, and its policy if it is to have one."""
        if entry.view is None:
            return True
        policy = Key(entry.key.namespace, policy_name(entry.key.name))
        is_settled = policy in self._context.caches.policies or not entry.view.is_managed
        return is_settled and ref_hash_patch(entry.key.name, entry.labels) is None

    async def reconcile(self, item: Item[Key]) -> Result:
        """Label one template and bring its NetworkPolicy to the rules it asks for."""
        policy = key_of(item.key.namespace, policy_name(item.key.name))
        may_create = policy not in self._context.caches.policies and item.key in self.cache
        if Cause.CHILD_GONE in item.causes and may_create:
            # Perhaps the template is gone too, and the watch has not shown it yet.
            await self._context.writer.get(self.cache, item.key)
        entry = self.cache.get(item.key)
        if entry is None or entry.is_deleting or entry.view is None:
            return Result()
        await _bring(self._context, entry)
        return Result()


async def _bring(context: TemplateContext, entry: TemplateEntry) -> None:
    """Label a template and bring its policy to the rules it asks for.

    That the server refuses what the policy needs is reported by an Event, and raised.
    """
    try:
        if await _label(context, entry):
            await _bring_policy(context, entry)
    except (ControlPlaneError, ReconcileError) as error:
        if error.is_refusal:
            name = policy_name(entry.key.name)
            _report(context, entry, f'NetworkPolicy "{name}" is refused: {message_of(error)}')
        raise


def _report(context: TemplateContext, entry: TemplateEntry, why: str) -> None:
    context.events.emit(entry, "Warning", "NetworkPolicyNotApplied", "Reconciling", why)


async def _label(context: TemplateContext, entry: TemplateEntry) -> bool:
    """Label the template with its hash; false when it is gone. At most one PATCH."""
    patch = ref_hash_patch(entry.key.name, entry.labels)
    if patch is None or context.undone.is_in_vain(entry.uid, entry.version):
        return True
    with failing_as(f'failed to label sandbox template "{entry.key}" with template ref hash'):
        try:
            written = await context.writer.patch(
                context.caches.templates, entry, patch, generation=entry.generation
            )
        except NotFound:
            return False
    made = written.entry
    if ref_hash_patch(made.key.name, made.labels) is not None:
        context.undone.note(made.uid, made.version)
    return True


async def _bring_policy(context: TemplateContext, entry: TemplateEntry) -> None:
    """Bring the template's policy to its desired state; an unmanaged template has none.

    A policy belongs to the template only if its controller reference says so.
    """
    view = entry.view
    assert view is not None
    policies = context.caches.policies
    key = key_of(entry.key.namespace, policy_name(entry.key.name))
    held = policies.get(key)
    is_ours = held is not None and is_controlled_by(held.owner, entry.uid)
    if not view.is_managed:
        if held is not None and is_ours and not held.is_deleting:
            await context.writer.remove(policies, held)
        return
    if held is not None and is_ours and held.needs_fetch:
        with failing_as("failed to get NetworkPolicy"):
            await context.writer.get(policies, key)
        held = policies.get(key)
    if held is None:
        # If the name is too long for a policy, pools and claims report that.
        if not policy_name_fault(entry.key.name):
            body = build_policy(view)
            await context.writer.create(policies, key.namespace, body, name=key.name)
            context.wakes.policy(entry.key)
    elif not is_controlled_by(held.owner, entry.uid):
        why = policy_refusal(entry.key.name)
        _report(context, entry, why)
        raise ReconcileError(why)
    elif not (
        is_policy_as_desired(view, held.spec_json)
        or context.undone.is_in_vain(held.uid, (entry.generation, held.version))
    ):
        patch = policy_patch(view, held.uid)
        made = await context.writer.patch(policies, held, patch, as_metadata=False)
        if not is_policy_as_desired(view, made.entry.spec_json):
            context.undone.note(held.uid, (entry.generation, made.entry.version))
