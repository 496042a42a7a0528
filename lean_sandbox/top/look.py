"""Watches a cluster, and reads a controller's metrics where an address is given."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec

from lean_sandbox.clock import Clock
from lean_sandbox.errors import ConfigError
from lean_sandbox.kube import errors
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.transport import Transport
from lean_sandbox.program import called
from lean_sandbox.top.board import Board
from lean_sandbox.top.figures import Figures, Scraped
from lean_sandbox.top.kinds import build_top_caches
from lean_sandbox.watch.cache import Cache
from lean_sandbox.watch.kind import METADATA_LIST_ACCEPT
from lean_sandbox.watch.reflector import Reflector

if TYPE_CHECKING:
    from lean_sandbox.top.scrape import MetricsReader

#: How often the metrics are read.
METRICS_INTERVAL_S: Final = 5.0
# How long a server may take to show that it answers at all.
_ANSWER_S: Final = 10.0
_LIST_PATIENCE_S: Final = 120.0
_PAGE_SIZE: Final = 500
_USER_AGENT: Final = "lean-sandbox-top"


class Wanted(msgspec.Struct, frozen=True):
    """What to look at: one namespace or, if empty, all; the metrics of a controller, or none."""

    namespace: str = ""
    url: str = ""
    ca_file: Path | None = None


class Look:
    """What is known of a cluster, at any moment."""

    def __init__(self, client: Client, clock: Clock, wanted: Wanted) -> None:
        self._client = client
        self._clock = clock
        self._wanted = wanted
        self._server = client.transport.connection.server
        self._caches = build_top_caches(clock.monotonic)
        self._board = Board(self._caches)
        self._caches.claims.handlers.append(
            lambda delta: self._board.arrived(delta, clock.monotonic())
        )
        self._reflectors: list[Reflector[Any]] = []
        self._not_served: tuple[str, ...] = ()
        self._scraped: Scraped | str | None = None
        # Since when claims are watched: a monotonic time, in seconds.
        self._since_s = clock.monotonic()

    async def begin(self, group: anyio.abc.TaskGroup) -> None:
        """List all that there is, and watch it in this group from then on.

        Raises ConfigError if that is not possible. Where claims and pools are not served, Sandboxes
        alone are watched.
        """
        caches = self._caches
        not_served = []
        for cache in (caches.sandboxes, caches.claims, caches.pools):
            if await self._is_served(cache, is_needed=cache is caches.sandboxes):
                self._reflectors.append(self._reflector(cache))
            else:
                not_served.append(cache.kind.resource.qualified)
        self._not_served = tuple(not_served)
        for reflector in self._reflectors:
            group.start_soon(reflector.run)
        for reflector in self._reflectors:
            if not await self._clock.wait(reflector.synced, _LIST_PATIENCE_S):
                raise ConfigError(
                    f"{self._server}: {reflector.problem or 'the list is not complete yet'}"
                )
        self._since_s = self._clock.monotonic()

    def _reflector(self, cache: Cache[Any]) -> Reflector[Any]:
        return Reflector(
            self._client,
            cache,
            clock=self._clock,
            uniform=random.random,
            namespace=self._wanted.namespace or None,
            page_size=_PAGE_SIZE,
        )

    async def _is_served(self, cache: Cache[Any], *, is_needed: bool) -> bool:
        """Return whether a kind can be listed; one LIST of one object. Raises ConfigError."""
        resource = cache.kind.resource
        namespace = self._wanted.namespace
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        try:
            await self._client.list(
                resource,
                bytes,
                namespace=namespace or None,
                chunk_size=1,
                accept=METADATA_LIST_ACCEPT,
                timeout_s=_ANSWER_S,
            )
        except (errors.NotServed, errors.NotFound) as error:
            if not is_needed:
                return False
            raise ConfigError(
                f"{self._server} does not serve {resource.qualified}/{resource.version}",
                way_out="apply the definitions: "
                f"{called()} crds | kubectl apply --server-side -f -",
            ) from error
        except errors.Forbidden as error:
            ways = f"allow the verbs list and watch on {resource.qualified} {where}"
            raise ConfigError(
                f"{self._server} does not let you list {resource.plural} {where}",
                way_out=ways if namespace else f"{ways}, or look at one namespace: -n NAMESPACE",
            ) from error
        except errors.Unauthorized as error:
            raise ConfigError(
                f"{self._server} does not accept the credential of the kubeconfig",
                way_out="log in again, or name another one with --kubeconfig or --context",
            ) from error
        except errors.TransportError as error:
            raise ConfigError(
                f"no cluster answers at {self._server}: {error}",
                way_out="name another one with --kubeconfig or --context",
            ) from error
        except errors.ControlPlaneError as error:
            raise ConfigError(f"{self._server}: {error}") from error
        return True

    async def read_metrics(self, reader: MetricsReader) -> None:
        """Read the metrics once; one GET."""
        self._scraped = await reader.read()

    async def keep_reading(self, reader: MetricsReader) -> None:
        """Read the metrics every few seconds, until cancelled."""
        while True:
            await self._clock.sleep(METRICS_INTERVAL_S)
            await self.read_metrics(reader)

    def figures(self) -> Figures:
        """Return everything as it is now; makes no request."""
        scraped = self._scraped if isinstance(self._scraped, Scraped) else None
        return self._board.figures(
            self._clock.now(),
            server=self._server,
            namespace=self._wanted.namespace,
            per_second=self._board.per_second(self._clock.monotonic(), self._since_s),
            controller=scraped.controller if scraped is not None else None,
            causes=scraped.causes if scraped is not None else None,
            problems=tuple(self._problems()),
        )

    def _problems(self) -> list[str]:
        found = [f"{one} is not served: its objects are not shown" for one in self._not_served]
        found += filter(None, (reflector.problem for reflector in self._reflectors))
        if isinstance(self._scraped, str):
            found.append(self._scraped)
        return found


@asynccontextmanager
async def opened(connection: Connection, clock: Clock, wanted: Wanted) -> AsyncIterator[Look]:
    """Look at a cluster while the block runs. Raises ConfigError, also as a group."""
    async with AsyncExitStack() as ends:
        reader = None
        if wanted.url:
            # Not for those who read no page: its parser takes 4 MiB.
            from lean_sandbox.top.scrape import MetricsReader  # noqa: PLC0415

            reader = MetricsReader(wanted.url, wanted.ca_file, clock)
            ends.push_async_callback(reader.aclose)
        transport = Transport(connection, clock=clock, user_agent=_USER_AGENT)
        ends.push_async_callback(transport.aclose)
        look = Look(Client(transport), clock, wanted)
        async with anyio.create_task_group() as group:
            await look.begin(group)
            if reader is not None:
                await look.read_metrics(reader)
                group.start_soon(look.keep_reading, reader)
            yield look
            group.cancel_scope.cancel()
