"""What the reconciles of all Sandboxes share, what is remembered of each, and one reconcile."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.config.options import Settings
from lean_sandbox.controllers.common import ObjectEvents, ServerTime, Undone, Wakes
from lean_sandbox.controllers.metrics import Metrics
from lean_sandbox.controllers.sandbox.requests import SandboxRequests
from lean_sandbox.controllers.sandbox.throttle import StatusThrottle
from lean_sandbox.kube.errors import ControlPlaneError, message_of
from lean_sandbox.model.meta import is_controlled_by, sandbox_reference, with_controller_reference
from lean_sandbox.model.sandbox import EMPTY_STATUS, Sandbox, SandboxView
from lean_sandbox.model.sandbox_status import Observation
from lean_sandbox.runtime.states import State
from lean_sandbox.runtime.workers import ReconcileError, Requeue
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.group import ReflectorGroup
from lean_sandbox.watch.kind import Entry, OwnedEntry
from lean_sandbox.watch.resources import Caches
from lean_sandbox.watch.resources.children import PvcEntry, ServiceEntry
from lean_sandbox.watch.resources.pod import PodEntry
from lean_sandbox.watch.resources.sandbox import SandboxEntry

# Whether an object lacks its controller reference, and the merge patch of what else it lacks.
Lacking = tuple[bool, dict[str, Any]]

C = TypeVar("C", PodEntry, PvcEntry, ServiceEntry)


class SandboxState(State):
    """What is remembered of one Sandbox."""

    # Since when the metadata of its Pod has differed from the desired one, while the write waits.
    drift_since: float | None = None
    # The generation at which the server has refused any update of it.
    refused: int | None = None
    # The uids of the children whose last patch did not leave them as wanted.
    unsettled: set[str] = msgspec.field(default_factory=set)


class SandboxContext(msgspec.Struct, kw_only=True, frozen=True):
    """What the reconciles of all Sandboxes share."""

    caches: Caches
    clock: Clock
    events: ObjectEvents
    metrics: Metrics
    reflectors: ReflectorGroup
    requests: SandboxRequests
    server_time: ServerTime
    settings: Settings
    throttle: StatusThrottle
    undone: Undone
    wakes: Wakes


class OvertakenError(Exception):
    """The Sandbox was changed, replaced or deleted meanwhile: its reconcile has to start over."""


class UnusableTemplateError(Exception):
    """No Pod can have what the template asks for; only a change of the Sandbox can cure it."""


class SandboxRun:
    """One reconcile of one Sandbox: what is known of it, what has failed, and when to repeat it.

    ``is_start``: a published status that says there is no Pod is trusted.
    """

    def __init__(
        self, context: SandboxContext, entry: SandboxEntry, state: SandboxState, *, is_start: bool
    ) -> None:
        self.context = context
        self.entry = entry
        self.state = state
        self.key = entry.key
        #: The status that was published when the reconcile began.
        self.old = entry.status or EMPTY_STATUS
        #: The whole object, once it was fetched.
        self.sandbox: Sandbox | None = None
        self.is_start = is_start
        self.seen = Observation(generation=entry.generation)
        self.failures: list[Exception] = []
        self.requeue = Requeue()

    @property
    def view(self) -> SandboxView:
        """What the spec asks for."""
        assert self.entry.view is not None
        return self.entry.view

    async def fetch(self) -> bool:
        """Fetch the Sandbox; return whether it is there and known now. At most one GET.

        Otherwise it is gone, being deleted, another of its name, or a newer event has overtaken the
        response: each queues the key again.
        """
        self.sandbox = await self.context.requests.get_sandbox(self.key)
        fresh = self.context.caches.sandboxes.latest(self.entry)
        if fresh is None or fresh.is_deleting or fresh.needs_fetch:
            return False
        assert fresh.status is not None
        self.entry = fresh
        self.old = fresh.status
        return True

    async def confirm(self) -> None:
        """Fetch the Sandbox once more; raise OvertakenError if it is gone or its spec has changed.

        For what a child shows that the Sandbox may only have caused by a change not seen yet. At
        most one GET.
        """
        generation = self.entry.generation
        if not await self.fetch() or self.entry.generation != generation:
            raise OvertakenError

    def owns(self, child: OwnedEntry) -> bool:
        """Return whether an object is controlled by this Sandbox."""
        return is_controlled_by(child.owner, self.entry.uid)

    def check_template(self) -> None:
        """Raise UnusableTemplateError if no Pod can be made of the Sandbox's template."""
        if self.view.refusal:
            raise UnusableTemplateError(self.view.refusal)

    async def guarded(self, step: Awaitable[None]) -> bool:
        """Run one step, collect its error if it has one, and return whether it succeeded.

        Raises what only says that the namespace is being deleted: no other step can succeed then.
        """
        try:
            await step
        except ControlPlaneError as error:
            if error.namespace_terminating:
                raise
            if error.is_schema_refusal:
                self._show_invalid(error)
            else:
                self.failures.append(error)
        except UnusableTemplateError as error:
            self._show_invalid(error)
        except ReconcileError as error:
            self.failures.append(error)
        else:
            return True
        return False

    def _show_invalid(self, error: Exception) -> None:
        # Only a change of the Sandbox can cure it: shown in the status, not retried.
        self.seen.invalid = self.seen.invalid or message_of(error)

    def is_in_vain(self, child: Entry, lacking: object) -> bool:
        """Return whether what a child lacks was written at this version, and undone."""
        return self.context.undone.is_in_vain(child.uid, (child.version, lacking))

    def judge(self, made: Entry, sent: object, lacking: object) -> None:
        """After a patch: repeat it if others have written meanwhile, not if it was undone.

        If the next one does not leave it as wanted either, the server changes it each time.
        """
        unsettled = self.state.unsettled
        was_unsettled = made.uid in unsettled
        unsettled.discard(made.uid)
        if lacking and (lacking == sent or was_unsettled):
            self.context.undone.note(made.uid, (made.version, lacking))
        elif lacking:
            unsettled.add(made.uid)
            self.requeue.within(0.0)

    async def whole(self) -> Sandbox:
        """Return the whole Sandbox, fetched once; raises OvertakenError if it has changed."""
        sandbox = self.sandbox or await self.context.requests.get_sandbox(self.key)
        # One that is gone is not cached any more either.
        self.entry = self.check_unchanged()
        assert sandbox is not None
        self.sandbox = sandbox
        return sandbox

    def check_unchanged(self) -> SandboxEntry:
        """Return the Sandbox's current entry; raise OvertakenError if spec or uid have changed.

        Or if somebody deletes it: the server counts that as another generation.
        """
        fresh = self.context.caches.sandboxes.latest(self.entry)
        if fresh is None or fresh.generation != self.entry.generation:
            raise OvertakenError
        return fresh

    async def ownership(self, cache: Cache[C], child: C) -> dict[str, Any]:
        """Return the metadata that makes an object the Sandbox's own, guarded by its version.

        At most one GET of the Sandbox, and one of the object. Raises OvertakenError if the Sandbox
        has changed or is gone, Conflict or NotFound if the object has or is.
        """
        # The object may have lost its owner together with the Sandbox, whose end is not known yet.
        await self.whole()
        controller = sandbox_reference(self.key.name, self.entry.uid)
        references = with_controller_reference(child.others, controller)
        version = await self.context.requests.guard(cache, child)
        return {"resourceVersion": version, "ownerReferences": references}
