"""The embedded control plane: an API server in memory, with garbage collection, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import structlog
from aiohttp import web
from anyio.lowlevel import checkpoint

from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.kube.errors import ConfigError
from lean_sandbox.local.audit import AuditEntry, AuditLog
from lean_sandbox.local.auth import ANONYMOUS, UNSECURED, Authenticator, User
from lean_sandbox.local.certificates import serving_context
from lean_sandbox.local.claimprotection import ClaimProtection
from lean_sandbox.local.direct import DirectAccess
from lean_sandbox.local.disruption import Budgets
from lean_sandbox.local.documents import Documents
from lean_sandbox.local.faults import Faults
from lean_sandbox.local.gc import GarbageCollector
from lean_sandbox.local.handlers import Handlers
from lean_sandbox.local.kubeconfig import kubeconfig, write_kubeconfig
from lean_sandbox.local.lifecycle import Lifecycle
from lean_sandbox.local.options import WriteOptions
from lean_sandbox.local.persistence import StateFile
from lean_sandbox.local.rbac import Authorizer
from lean_sandbox.local.registry import Kind, Registry
from lean_sandbox.local.represent import Renderer
from lean_sandbox.local.reviews import Reviews
from lean_sandbox.local.roles import Aggregation, RoleGuard, first_roles
from lean_sandbox.local.server import ApiServer
from lean_sandbox.local.serversettings import LocalSettings
from lean_sandbox.local.store import Entry, Store
from lean_sandbox.local.subresources import Subresources
from lean_sandbox.local.verbs import Verbs
from lean_sandbox.local.watching import Watches

__all__ = ["ControlPlane", "LocalSettings"]

Json = dict[str, Any]
log = structlog.get_logger("control-plane")

_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_ADMIN: Final = "admin"
_MASTERS: Final = "system:masters"
_SHUTDOWN_S: Final = 2.0


class ControlPlane:
    """An API server that lives as long as its ``async with`` block.

    Attributes:
        url: where it listens, known once the block is entered.
        audit: every request and how it went.
        store: objects past HTTP, for tests.
        settings: the options it runs with.
        clock: its time.
        faults: what fails, waits or is lost; ``fail_next``, ``delay``, ``hold`` and ``hold_events``
            are its methods.

    """

    def __init__(
        self,
        settings: LocalSettings | None = None,
        *,
        clock: Clock | None = None,
        crds: Iterable[Mapping[str, Any]] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Prepare a server.

        Args:
            settings: its options.
            clock: time for timestamps, timeouts and bookmarks.
            crds: CustomResourceDefinitions to serve from the start; None for those of this project.
            rng: source of uids, generated names and tokens; give a seeded one to repeat a run.

        """
        self.settings = settings or LocalSettings()
        self.url = ""
        self.ca_pem: bytes | None = None
        self.clock = clock or SystemClock()
        self._rng = rng or random.Random()  # noqa: S311 - names, not secrets; the key has its own
        self._crds = crds
        self.audit = AuditLog()
        self.faults = Faults()
        self.fail_next = self.faults.fail_next
        self.delay = self.faults.delay
        self.hold = self.faults.hold
        self.hold_events = self.faults.hold_events
        self._store = Store()
        self._registry = Registry()
        self._verbs = Verbs(self._store, self._registry, self.clock, self._rng)
        self.store = DirectAccess(self._store, self._registry, self._verbs)
        self._collector = GarbageCollector(self._store, self._registry, self._verbs)
        self._lifecycle = Lifecycle(self._store, self._registry, self._verbs, self._verbs.addresses)
        Budgets(self._verbs)
        self._protection = ClaimProtection(self._store, self._registry, self._verbs)
        self._renderer = Renderer(self.clock.now)
        self._watches = Watches(
            self._renderer,
            self.clock,
            lambda: self._store.version,
            faults=self.faults,
            bookmark_interval_s=self.settings.bookmark_interval_s,
        )
        self._key = b""
        self._authenticator: Authenticator
        self._api: ApiServer | None = None
        self._runner: web.ServerRunner | None = None
        self._tasks: list[asyncio.Task[None]] = []
        path = self.settings.state_file
        self._state = None if path is None else StateFile(path, self._store)

    # ------------------------------------------------------------------ life

    async def __aenter__(self) -> Self:
        tls: ssl.SSLContext | None = None
        if self.settings.tls:
            tls, self.ca_pem = serving_context(self.settings.host)
            self._lifecycle.ca_pem = self.ca_pem.decode()
        self._load()
        self._bootstrap()
        server = self._api = self._server()
        # Cancelling the handler of a client that left frees its watch at once.
        self._runner = web.ServerRunner(
            web.Server(
                server.handle,
                request_factory=self._request_factory,
                handler_cancellation=True,
                access_log=None,
                tcp_keepalive=False,
                keepalive_timeout=3600.0,
            ),
            access_log=None,
            shutdown_timeout=_SHUTDOWN_S,
        )
        await self._runner.setup()
        host, port = self.settings.host, self.settings.port
        site = web.TCPSite(self._runner, host, port, ssl_context=tls, backlog=1024)
        try:
            await site.start()
            # Here, for at the end it is too late to learn that the state cannot be saved.
            self.save()
        except OSError as error:
            await self._runner.cleanup()
            why = os.strerror(error.errno or 0)
            raise ConfigError(
                f"cannot listen on {host}:{port}: {why}",
                way_out="--port 0 picks a free one; `lean-sandbox local status` lists what runs",
            ) from error
        except ConfigError:
            await self._runner.cleanup()
            raise
        address = self._runner.addresses[0]
        self.url = f"{'https' if tls else 'http'}://{host}:{address[1]}"
        jobs: list[Callable[[], Awaitable[None]]] = [self._collector.run, self._lifecycle.run]
        if self._state is not None:
            jobs.append(functools.partial(self._save_now_and_then, self._state))
        self._tasks = [asyncio.ensure_future(job()) for job in jobs]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._watches.drop_all()
        if self._runner is not None:
            await self._runner.cleanup()
        self.save()

    def _request_factory(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any
    ) -> web.BaseRequest:
        return web.BaseRequest(
            message,
            payload,
            protocol,
            writer,
            task,
            asyncio.get_running_loop(),
            client_max_size=self.settings.max_body_bytes,
        )

    def _server(self) -> ApiServer:
        authorizer = Authorizer(self._store)
        self._verbs.admission.guard = RoleGuard(self._store, authorizer).check
        reviews = Reviews(self._verbs, self._authenticator, authorizer)
        subresources = Subresources(self._verbs, reviews.handlers)
        handlers = Handlers(
            self._verbs, self._renderer, self.settings, subresources, authorizer, self._rng
        )
        return ApiServer(
            settings=self.settings,
            clock=self.clock,
            registry=self._registry,
            handlers=handlers,
            watches=self._watches,
            authenticator=self._authenticator,
            authorizer=authorizer,
            audit=self.audit,
            faults=self.faults,
            documents=Documents(self._registry, lambda: self.url),
        )

    # ------------------------------------------------------------------ state

    def _load(self) -> None:
        key: bytes | None = None
        if self._state is not None:
            key = self._state.load(self._registry)
        self._key = key or random.SystemRandom().randbytes(32)
        self._authenticator = Authenticator(
            self._key,
            self.clock.now,
            self._find_uid,
            self._verbs.new_uid,
            nobody=ANONYMOUS if self.settings.tls else UNSECURED,
        )
        self._authenticator.add(
            self._authenticator.derive(_ADMIN), User(_ADMIN, (_MASTERS, "system:authenticated"))
        )
        self._lifecycle.rebuild()
        self._protection.rebuild()
        self._collector.rebuild()

    def _find_uid(self, namespace: str, account: str) -> str | None:
        entry = self._store.collection("serviceaccounts").entries.get(f"{namespace}/{account}")
        return None if entry is None else entry.uid

    def _bootstrap(self) -> None:
        """Create what every cluster has, unless the state file brought it."""
        for name in _NAMESPACES:
            self._furnish("v1", "Namespace", msgspec.json.encode({"metadata": {"name": name}}))
        for kind, body in _first_roles():
            self._furnish("rbac.authorization.k8s.io/v1", kind, body)
        cluster_roles = _kind(self._registry, "rbac.authorization.k8s.io/v1", "ClusterRole")
        Aggregation(self._store, self._verbs, cluster_roles)
        self._ensure(
            "v1",
            "Service",
            {
                "metadata": {"name": "kubernetes", "namespace": "default"},
                "spec": {"ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
            },
        )
        given = None if self._crds is None else map(msgspec.json.encode, self._crds)
        for definition in _project_definitions() if given is None else given:
            self._furnish("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition)
        self._store.compact()  # nobody can have seen a version of before

    def _furnish(self, api_version: str, kind_name: str, body: bytes) -> None:
        """Store what many servers begin with, with a uid and times of this one."""
        storage, admitted = _admitted(api_version, kind_name, body)
        collection = self._store.collection(storage)
        if admitted.key in collection.entries:
            return
        now = self._verbs.now()
        metadata: Json = msgspec.json.decode(admitted.metadata_raw())
        metadata |= {"uid": self._verbs.new_uid(), "creationTimestamp": now}
        for manager in metadata["managedFields"]:
            manager["time"] = now
        stored = {**admitted.members(), "metadata": metadata}
        self._store.put(collection, admitted.key, stored, admitted.fields)

    def _ensure(self, api_version: str, kind_name: str, body: Json) -> None:
        kind = _kind(self._registry, api_version, kind_name)
        metadata = body["metadata"]
        namespace = metadata.get("namespace", "")
        key = f"{namespace}/{metadata['name']}" if namespace else metadata["name"]
        if key not in self._verbs.collection(kind).entries:
            self._verbs.create(kind, namespace, body, WriteOptions(manager="kube-apiserver"))

    def save(self) -> None:
        """Write the state to its file at once, if there is one; raises ConfigError."""
        if self._state is not None:
            self._state.save(self._key)

    async def _save_now_and_then(self, state: StateFile) -> None:
        while True:
            await self.clock.sleep(self.settings.save_interval_s)
            try:
                await state.save_changes(self._key)
            except ConfigError as error:
                log.warning("the state was not saved; it is tried again", problem=str(error))

    # ------------------------------------------------------------------ for users and tests

    def create_token(
        self, user: str = _ADMIN, *, groups: Iterable[str] = (), lifetime_s: int = 24 * 3600
    ) -> str:
        """Return a bearer token for a user.

        ``admin`` may do everything. ``system:serviceaccount:NAMESPACE:NAME`` is created if it does
        not exist. Any other name gets the groups given, and the rights bound to them.
        """
        if user.startswith("system:serviceaccount:"):
            _, _, namespace, name = user.split(":")
            self._ensure("v1", "Namespace", {"metadata": {"name": namespace}})
            account = {"metadata": {"name": name, "namespace": namespace}}
            self._ensure("v1", "ServiceAccount", account)
            uid = self._find_uid(namespace, name) or ""
            return self._authenticator.issue(namespace, name, uid, lifetime_s)[0]
        token = self._authenticator.derive(user)
        if user != _ADMIN:
            known = User(user, (*groups, "system:authenticated"))
            self._authenticator.add(token, known)
        return token

    def kubeconfig(self, path: Path, user: str = _ADMIN, *, namespace: str = "default") -> Path:
        """Write a kubeconfig for a user of :meth:`create_token`; raises ConfigError."""
        token = self.create_token(user)
        body = kubeconfig(self.url, token=token, ca_pem=self.ca_pem, namespace=namespace)
        write_kubeconfig(path, body)
        return path

    def compact(self, keep_last: int = 0) -> None:
        """Forget all but the newest events of every kind: older versions are answered with 410."""
        self._store.compact(keep_last)

    def drop_watches(self) -> int:
        """Cut every watch connection, as a failing network would; return how many there were."""
        return self._watches.drop_all()

    def bookmark_now(self) -> int:
        """Send every watcher a bookmark of the newest version at once, and return that version.

        Who has seen it has seen every change made before the call.
        """
        version = self._store.version
        self._watches.bookmark_all()
        return version

    @property
    def open_watches(self) -> int:
        """Return how many watches are open."""
        return len(self._watches)

    @property
    def pending(self) -> list[AuditEntry]:
        """What is being answered at present, watches among them."""
        return [] if self._api is None else list(self._api.pending.values())

    async def settled(self) -> None:
        """Wait until garbage collection and namespace deletion have nothing left to do."""
        # Their tasks run whenever this one does not, so giving way is all there is to do.
        while not (self._collector.is_idle and self._lifecycle.is_idle):
            await checkpoint()


@functools.cache
def _project_definitions() -> tuple[bytes, ...]:
    from lean_sandbox.model.crds.definitions import definitions  # noqa: PLC0415 - not needed with other kinds

    return tuple(map(msgspec.json.encode, definitions().values()))


@functools.cache
def _first_roles() -> tuple[tuple[str, bytes], ...]:
    return tuple((one.pop("kind"), msgspec.json.encode(one)) for one in first_roles())


@functools.lru_cache(maxsize=128)
def _admitted(api_version: str, kind_name: str, body: bytes) -> tuple[str, Entry]:
    """Return where any server would store an object without a namespace, and as what.

    Remembered, because schemas are large and the control planes of one process, as tests start them
    by the hundred, begin with the same objects.

    Raises:
        StatusError: whatever is wrong with it.

    """
    registry = Registry()
    nobody = random.Random(0)  # noqa: S311 - each server gives a uid of its own
    verbs = Verbs(Store(), registry, SystemClock(), nobody)
    obj = msgspec.json.decode(body)
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    kind = _kind(registry, api_version, kind_name)
    options = WriteOptions(manager="kube-apiserver", dry_run=True)
    return kind.storage, verbs.create(kind, "", obj, options)


def _kind(registry: Registry, api_version: str, name: str) -> Kind:
    found = registry.by_kind(api_version, name)
    if found is None:
        raise KeyError(f"{api_version} {name}")
    return found
