"""The processes of the controller in a story: what each serves, and whoever goes beyond that."""

from __future__ import annotations

import asyncio
from typing import Any

from lean_sandbox.config.options import Settings
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.direct import StoredChange
from lean_sandbox.local.request import AuditEntry
from tests.faults.oracle import SANDBOXES
from tests.faults.scope import SELECTORS, Scope
from tests.support.clock import FakeClock
from tests.support.names import CONTROLLER
from tests.support.stored import owner_of
from tests.support.world import World, open_world

__all__ = ["Borders", "Process"]

Json = dict[str, Any]
_EXTENDED = ("sandboxclaims", "sandboxwarmpools", "sandboxtemplates", "networkpolicies")
_CHILDREN = ("pods", "services", "persistentvolumeclaims")


def scope_of(settings: Settings) -> Scope:
    """Return what a controller serves, the namespaces aside."""
    return Scope(settings.extensions, str(settings.sandbox_label_selector))


def user_of(settings: Settings) -> str:
    """Return the user that a controller asks as: one for each thing that it may serve."""
    selector = str(settings.sandbox_label_selector)
    parts = [
        f"shard-{settings.shard.index}" if settings.shard else "",
        "" if settings.extensions else "sandboxes",
        f"selection-{SELECTORS.index(selector)}" if selector else "",
    ]
    return "-".join([CONTROLLER, *filter(None, parts)])


class Borders:
    """What each user serves, and all that it asked for beyond that."""

    def __init__(self, plane: ControlPlane) -> None:
        """Follow a plane."""
        self.crossed: list[str] = []
        self._served: dict[str, Settings] = {}
        self._ever: set[tuple[str, str]] = set()
        """By selector and uid: the Sandboxes that have ever matched it. A view may lag behind."""
        plane.store.follow(self._take, (SANDBOXES, *_CHILDREN))
        plane.audit.listeners.append(self._note)

    @property
    def users(self) -> list[str]:
        """The users of the controllers that serve, or have served."""
        return list(self._served)

    def grant(self, user: str, settings: Settings) -> None:
        """Let a user serve what settings say."""
        self._served[user] = settings

    def _note(self, entry: AuditEntry) -> None:
        settings = self._served.get(entry.user)
        if settings is None:
            return
        is_of_one = entry.namespace and entry.verb not in ("list", "watch")
        shard = settings.shard
        is_elsewhere = shard and is_of_one and not shard.admits(entry.namespace)
        if is_elsewhere or (not settings.extensions and entry.resource in _EXTENDED):
            self._cross(entry.user, f"{entry.what} {entry.namespace}/{entry.name}")

    def _take(self, change: StoredChange) -> None:
        one = change.after or change.before
        assert one is not None
        uid = one["metadata"]["uid"]
        if change.resource == SANDBOXES:
            self._ever |= {(how, uid) for how in SELECTORS if Scope(selector=how).selects(one)}
        settings = self._served.get(change.by)
        selector = "" if settings is None else str(settings.sandbox_label_selector)
        if not selector:
            return
        if change.resource != SANDBOXES:
            owners = [owner_of(it).get("uid") for it in (change.before, change.after) if it]
            uid = next(filter(None, owners), "")
        if uid and (selector, uid) not in self._ever:
            metadata = one["metadata"]
            what = f"{one['kind']} {metadata['namespace']}/{metadata['name']}"
            self._cross(change.by, f"write of {what}, which was never selected,")

    def _cross(self, user: str, what: str) -> None:
        self.crossed.append(f"{what} by {user.rpartition(':')[2]}, which does not serve it")


class Process:
    """What a controller is told, and its world: the last one while none runs."""

    def __init__(self, settings: Settings, *, companions_only: bool = False) -> None:
        """Take what it is told; nothing runs yet."""
        self.settings = settings
        self._companions_only = companions_only
        self.user = user_of(settings) + ("-companions" if companions_only else "")
        self.scope = scope_of(settings)
        self.name = f"shard {settings.shard.index}" if settings.shard else "the controller"
        self.world: World
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def runs(self) -> bool:
        """Whether it was started and not killed since."""
        return self._task is not None

    async def start(self, plane: ControlPlane, clock: FakeClock, url: str) -> None:
        """Run from now on, knowing nothing but what is stored."""
        self._up.clear()
        self._down.clear()
        self._task = asyncio.ensure_future(self._run(plane, clock, url))
        is_up = asyncio.ensure_future(self._up.wait())
        await asyncio.wait({is_up, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            await self._task

    async def kill(self) -> None:
        """End at once; fails if it has broken a promise or has failed itself."""
        task = self._task
        self._task = None
        if task is not None:
            self._down.set()
            await task

    async def _run(self, plane: ControlPlane, clock: FakeClock, url: str) -> None:
        async with open_world(
            self.settings,
            plane=plane,
            clock=clock,
            url=url,
            is_served=False,
            user=self.user,
            companions_only=self._companions_only,
        ) as world:
            self.world = world
            self._up.set()
            await self._down.wait()
