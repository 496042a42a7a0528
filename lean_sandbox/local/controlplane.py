"""The embedded control plane: an API server in memory, with garbage collection, on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import structlog
from aiohttp import web
from anyio.lowlevel import checkpoint

from lean_sandbox.clock import Clock, SystemClock
from lean_sandbox.errors import ConfigError
from lean_sandbox.local.access.identity import Authenticator, Reviews
from lean_sandbox.local.access.rights import Aggregation, Authorizer, RoleGuard, first_roles
from lean_sandbox.local.direct import DirectAccess
from lean_sandbox.local.files import write_kubeconfig
from lean_sandbox.local.http.documents import Documents
from lean_sandbox.local.http.faults import Faults
from lean_sandbox.local.http.server import ApiServer, Handlers
from lean_sandbox.local.http.subresources import Subresources
from lean_sandbox.local.http.watching import Watches
from lean_sandbox.local.kinds import Registry
from lean_sandbox.local.read.represent import Renderer
from lean_sandbox.local.request import (
    ANONYMOUS,
    AUTHENTICATED,
    HOST,
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    UNSECURED,
    AuditEntry,
    AuditLog,
    LocalSettings,
    UserInfo,
)
from lean_sandbox.local.schema.assigned import SYSTEM_PRIORITIES
from lean_sandbox.local.store import Collection, Entry, StateFile, Store
from lean_sandbox.local.write.bodies import WriteOptions
from lean_sandbox.local.write.gc import GarbageCollector
from lean_sandbox.local.write.lifecycle import Budgets, ClaimProtection, NamespaceLifecycle
from lean_sandbox.local.write.verbs import Verbs
from lean_sandbox.program import called

__all__ = ["ControlPlane", "LocalSettings"]

Json = dict[str, Any]
log = structlog.get_logger("control-plane")

# The definitions of the project.
_CRDS: Final = Path(__file__).parents[1] / "crds"
_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_ADMIN: Final = "admin"
_MASTERS: Final = "system:masters"
_SHUTDOWN_S: Final = 2.0
_ORGANIZATION: Final = "lean-sandbox"
# Clients that verify by the means of macOS take no server's certificate beyond 825 days.
_CERTIFICATE_LIFETIME: Final = timedelta(days=365)


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
        self.store = DirectAccess(self._verbs)
        self._collector = GarbageCollector(self._verbs)
        self._lifecycle = NamespaceLifecycle(self._verbs)
        Budgets(self._verbs)
        self._protection = ClaimProtection(self._verbs)
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
            tls, self.ca_pem = _serving_context()
            self._lifecycle.ca_pem = self.ca_pem.decode()
        self._load()
        self._bootstrap()
        self._api = self._server()
        self._runner = await _listening(self._api, self.settings.port, tls)
        try:
            # Here, for at the end it is too late to learn that the state cannot be saved.
            self.save()
        except ConfigError:
            await self._runner.cleanup()
            raise
        self.url = f"{'https' if tls else 'http'}://{HOST}:{self._runner.addresses[0][1]}"
        jobs: list[Callable[[], Awaitable[None]]] = [self._collector.run, self._lifecycle.run]
        if self._state is not None:
            jobs.append(functools.partial(self._save_now_and_then, self._state))
        self._tasks = [asyncio.ensure_future(job()) for job in jobs]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._watches.drop_all()
        if self._runner is not None:
            await self._runner.cleanup()
        self.save()

    def _server(self) -> ApiServer:
        authorizer = Authorizer(self._store)
        self._verbs.admission.guards.append(RoleGuard(self._store, authorizer).check)
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
        nobody = ANONYMOUS if self.settings.tls else UNSECURED
        self._authenticator = Authenticator(self._key, self._verbs, nobody=nobody)
        self._authenticator.add(
            self._authenticator.derive(_ADMIN), UserInfo(_ADMIN, (_MASTERS, AUTHENTICATED))
        )
        self._lifecycle.rebuild()
        self._protection.rebuild()
        self._collector.rebuild()

    def _bootstrap(self) -> None:
        """Create what every cluster has, unless the state file brought it."""
        for storage, admitted in _first_objects(
            None if self._crds is None else tuple(map(msgspec.json.encode, self._crds))
        ):
            _furnish(self._verbs, self._store.collection(storage), admitted)
        Aggregation(self._verbs)
        ports = [{"name": "https", "port": 443, "targetPort": 6443}]
        self._ensure("services", "Service", "kubernetes", "default", spec={"ports": ports})
        self._store.compact()  # nobody can have seen a version of before

    def _ensure(self, plural: str, kind: str, name: str, namespace: str = "", **rest: Json) -> None:
        """Create an object of the core group unless there is one of this name."""
        if self.store.find(plural, namespace, name) is None:
            metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
            self.store.create({"apiVersion": "v1", "kind": kind, "metadata": metadata, **rest})

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
            self._ensure("namespaces", "Namespace", namespace)
            self._ensure("serviceaccounts", "ServiceAccount", name, namespace)
            uid = self.store.get("serviceaccounts", namespace, name)["metadata"]["uid"]
            return self._authenticator.issue(namespace, name, uid, lifetime_s)[0]
        token = self._authenticator.derive(user)
        if user != _ADMIN:
            known = UserInfo(user, (*groups, AUTHENTICATED))
            self._authenticator.add(token, known)
        return token

    def kubeconfig(self, path: Path, user: str = _ADMIN, *, namespace: str = "default") -> Path:
        """Write a kubeconfig for a user of :meth:`create_token`; raises ConfigError."""
        token = self.create_token(user)
        write_kubeconfig(path, self.url, token=token, ca_pem=self.ca_pem, namespace=namespace)
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


async def _listening(server: ApiServer, port: int, tls: ssl.SSLContext | None) -> web.ServerRunner:
    """Return what listens for requests. Raises ConfigError: the port is taken."""
    loop = asyncio.get_running_loop()
    # Cancelling the handler of a client that left frees its watch at once.
    runner = web.ServerRunner(
        web.Server(
            server.handle,
            request_factory=lambda message, body, protocol, writer, task: web.BaseRequest(
                message, body, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES
            ),
            handler_cancellation=True,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            access_log=None,
            tcp_keepalive=False,
            keepalive_timeout=3600.0,
        ),
        access_log=None,
        shutdown_timeout=_SHUTDOWN_S,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port, ssl_context=tls, backlog=1024).start()
    except OSError as error:
        await runner.cleanup()
        why = os.strerror(error.errno or 0)
        raise ConfigError(
            f"cannot listen on {HOST}:{port}: {why}",
            way_out=f"--port 0 picks a free one; `{called()} local status` lists what runs",
        ) from error
    return runner


@functools.lru_cache(maxsize=32)
def _first_objects(definitions: tuple[bytes, ...] | None) -> tuple[tuple[str, Entry], ...]:
    """Return what every server has, with these definitions, and where any would store it.

    Remembered, because schemas are large and the control planes of one process, as tests start them
    by the hundred, begin with the same objects. Raises StatusError: whatever is wrong with a
    definition.
    """
    if definitions is None:
        kinds = [msgspec.yaml.decode(one.read_bytes()) for one in sorted(_CRDS.glob("*.yaml"))]
    else:
        kinds = [msgspec.json.decode(one) for one in definitions]
    objects: list[Json] = [
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in _NAMESPACES),
        *(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
            for name, value in SYSTEM_PRIORITIES.items()
        ),
        *({"apiVersion": "rbac.authorization.k8s.io/v1", **role} for role in first_roles()),
        *kinds,
    ]
    registry = Registry()
    nobody = random.Random(0)  # noqa: S311 - each server gives a uid of its own
    verbs = Verbs(Store(), registry, SystemClock(), nobody)
    options = WriteOptions(manager="kube-apiserver", dry_run=True)
    found = []
    for one in objects:
        body = msgspec.json.decode(msgspec.json.encode(one))  # some share a part
        kind = registry.by_kind(body.pop("apiVersion"), body.pop("kind"))
        assert kind is not None
        found.append((kind.storage, verbs.create(kind, "", body, options)))
    return tuple(found)


def _furnish(verbs: Verbs, collection: Collection, admitted: Entry) -> None:
    """Store what many servers begin with, with a uid and times of this one."""
    if admitted.key in collection.entries:
        return
    now = verbs.now()
    metadata: Json = msgspec.json.decode(admitted.metadata_raw())
    metadata |= {"uid": verbs.new_uid(), "creationTimestamp": now}
    for manager in metadata["managedFields"]:
        manager["time"] = now
    stored = {**admitted.members(), "metadata": metadata}
    verbs.store.put(collection, admitted.key, stored, admitted.fields)


def _serving_context() -> tuple[ssl.SSLContext, bytes]:
    """Return a TLS context for a new certificate, and the authority that signed it (PEM)."""
    import trustme  # noqa: PLC0415 -- slow to import, and few serve HTTPS

    authority = trustme.CA(
        path_length=0,
        organization_name=_ORGANIZATION,
        organization_unit_name="local control plane",
    )
    today = datetime.now(UTC)
    certificate = authority.issue_cert(
        "localhost",
        "kubernetes.default",
        HOST,
        common_name="kube-apiserver",
        organization_name=_ORGANIZATION,
        not_before=today - timedelta(days=1),
        not_after=today + _CERTIFICATE_LIFETIME,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context, authority.cert_pem.bytes()
