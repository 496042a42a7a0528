"""Whom a pool keeps: orphans are adopted or deleted, labels completed, stale members deleted.

Pools, sections 5.3 and 6. A delete is guarded by uid and version: a Sandbox that a claim took a
moment ago has another version, so the delete is refused and the claim keeps it.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from lean_sandbox.controllers.warmpool.act import PoolAct
from lean_sandbox.controllers.warmpool.members import PoolMembers
from lean_sandbox.controllers.warmpool.orphans import OrphanIndex
from lean_sandbox.controllers.warmpool.state import Visit
from lean_sandbox.kube.errors import ControlPlaneError
from lean_sandbox.model import names
from lean_sandbox.model.comparison import Verdict
from lean_sandbox.model.meta import (
    controller_of,
    owner_references_body,
    with_controller_reference,
)
from lean_sandbox.model.sandbox import Sandbox
from lean_sandbox.model.template import TemplateView
from lean_sandbox.watch.caches import Caches
from lean_sandbox.watch.kind import Key
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# A refused write met a version that the watch has not shown yet. It will within this time.
_LOOK_AGAIN_S = 1.0


class Neighbours(Protocol):
    """The controllers that a pool tells of its members."""

    def launch(self, sandbox: Key, whole: Sandbox | None = None) -> None:
        """Have the Sandbox controller look at a Sandbox, shown whole where it is known whole."""

    def withhold(self, key: Key, uid: str) -> None:
        """Let no claim take a member any more: it is about to go."""

    def offer(self, entry: SandboxEntry) -> None:
        """Let claims take a member."""


class Upkeep(msgspec.Struct, frozen=True):
    """Decides about single Sandboxes of a pool and carries it out."""

    caches: Caches
    act: PoolAct
    orphans: OrphanIndex
    neighbours: Neighbours

    async def delete(self, visit: Visit, entry: SandboxEntry) -> bool:
        """Delete a Sandbox unless it changed meanwhile; tell whether it goes. One DELETE."""
        visit.has_acted = True
        deleted = visit.state.deleted
        self.neighbours.withhold(entry.key, entry.uid)
        deleted[entry.uid] = entry.key
        goes = False
        try:
            goes = await self.act.delete(entry)
        except ControlPlaneError as error:
            visit.errors.append(error)
        else:
            if not goes:
                visit.requeues.append(_LOOK_AGAIN_S)
        if not goes:
            deleted.pop(entry.uid, None)
            held = self.caches.sandboxes.get(entry.key)
            if held is not None and held.uid == entry.uid:
                self.neighbours.offer(held)
        return goes

    async def take_in_orphans(self, visit: Visit) -> None:
        """Adopt the orphans that fit the template, delete the others.

        With the template missing all are adopted. One GET and one PATCH, or one DELETE (after a GET
        where labels do not tell), for each.
        """
        for entry in self.orphans.of(visit.view):
            if entry.uid in visit.state.deleted:
                continue
            try:
                await self._take_in(visit, entry)
            except ControlPlaneError as error:
                visit.errors.append(error)

    async def _take_in(self, visit: Visit, entry: SandboxEntry) -> None:
        template = visit.template
        if template is not None and self._is_mislabelled(visit, template, entry):
            await self.delete(visit, entry)
            return
        visit.has_acted = True
        whole = await self.act.get(entry.key)
        if whole is None or whole.metadata.uid != entry.uid:
            return
        if whole.metadata.deletionTimestamp or controller_of(whole.metadata) is not None:
            # The watch is late; what it brings leads to another pass.
            return
        if template is not None:
            judge = visit.state.judge(template)
            if judge.by_spec("", whole.spec) is Verdict.STALE:
                await self.delete(visit, entry)
                return
        await self._adopt(visit, entry, whole)
        self.neighbours.launch(entry.key)

    @staticmethod
    def _is_mislabelled(visit: Visit, template: TemplateView, entry: SandboxEntry) -> bool:
        judge = visit.state.judge(template)
        return judge.by_labels(entry.labels, is_orphan=True) is Verdict.STALE

    async def _adopt(self, visit: Visit, entry: SandboxEntry, whole: Sandbox) -> None:
        meta = whole.metadata
        owners = with_controller_reference(meta.ownerReferences, visit.view.reference)
        patch = {
            "resourceVersion": meta.resourceVersion,
            "ownerReferences": owner_references_body(owners),
            "labels": {names.LAUNCH_TYPE_LABEL: names.LAUNCH_TYPE_WARM},
        }
        await self.act.patch(entry, patch)

    async def complete_labels(self, visit: Visit, census: PoolMembers) -> None:
        """Write the launch type where it is missing. One PATCH for each such member.

        A member whose patch failed is a member all the same.
        """
        for entry in census.unlabelled:
            visit.has_acted = True
            patch = {
                "resourceVersion": str(entry.version),
                "labels": {names.LAUNCH_TYPE_LABEL: names.LAUNCH_TYPE_WARM},
            }
            try:
                await self.act.patch(entry, patch)
            except ControlPlaneError as error:
                visit.errors.append(error)

    async def drop_stale(self, visit: Visit, template: TemplateView, census: PoolMembers) -> None:
        """Delete the members that no longer fit the template (strategy Recreate).

        One DELETE for each, and one GET for each stamp that is not the template's own.
        """
        judge = visit.state.judge(template)
        for entry in census.active:
            verdict = judge.by_labels(entry.labels, is_orphan=False)
            if verdict is Verdict.UNDECIDED:
                visit.has_acted = True
                try:
                    whole = await self.act.get(entry.key)
                except ControlPlaneError as error:
                    visit.errors.append(error)
                    continue
                if whole is None or whole.metadata.uid != entry.uid:
                    continue
                stamp = (entry.labels or {}).get(names.TEMPLATE_HASH_LABEL, "")
                verdict = judge.by_spec(stamp, whole.spec)
            if verdict is Verdict.STALE:
                await self.delete(visit, entry)
