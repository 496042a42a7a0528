"""The HTTP face of the embedded API server."""

from __future__ import annotations

import re
import traceback
from typing import Final

import structlog
from aiohttp import web

from lean_sandbox.clock import Clock
from lean_sandbox.local.access.rbac import Authorizer, impersonated
from lean_sandbox.local.auth import Authenticator
from lean_sandbox.local.errors import (
    PageNotFoundError,
    StatusError,
    internal,
    unauthorized,
    unknown_resource,
)
from lean_sandbox.local.http.audit import AuditEntry, AuditLog
from lean_sandbox.local.http.documents import Documents
from lean_sandbox.local.http.faults import AnswerLostError, ChosenFailure, Faults
from lean_sandbox.local.http.handlers import Handlers
from lean_sandbox.local.http.watching import Watches
from lean_sandbox.local.kinds.registry import Registry
from lean_sandbox.local.serversettings import HOST, MAX_BODY_BYTES, LocalSettings
from lean_sandbox.local.target import Answer, Ask, Target, read_target

_TEXT: Final = "text/plain; charset=utf-8"
_PAGE_NOT_FOUND: Final = (404, b"404 page not found\n", _TEXT)
_HEALTH: Final = frozenset(("/healthz", "/livez", "/readyz"))
_HOST: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::\d{1,5})?", re.ASCII)
_OWN_NAMES: Final = (HOST, "localhost", "[::1]")
_log = structlog.get_logger("local.server")


class ApiServer:
    """Takes a request through authentication, authorization, faults and its handler."""

    def __init__(
        self,
        *,
        settings: LocalSettings,
        clock: Clock,
        registry: Registry,
        handlers: Handlers,
        watches: Watches,
        authenticator: Authenticator,
        authorizer: Authorizer,
        audit: AuditLog,
        faults: Faults,
        documents: Documents,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._registry = registry
        self._handlers = handlers
        self._watches = watches
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._audit = audit
        self._faults = faults
        self._documents = documents
        self.pending: dict[int, AuditEntry] = {}
        """What is being answered at present, watches among them."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; whatever goes wrong becomes a Status body."""
        url = request.rel_url
        target = read_target(request.method, url.raw_path, url.raw_query_string)
        headers = request.headers
        entry = AuditEntry(
            verb=target.verb,
            path=target.path,
            group=target.group,
            resource=target.resource,
            subresource=target.subresource,
            namespace=target.namespace,
            name=target.name,
            code=0,
            user="",
            user_agent=headers.get("User-Agent", ""),
            content_type=headers.get("Content-Type", ""),
            accept=headers.get("Accept", ""),
            request_bytes=0,
            response_bytes=0,
            latency_s=0.0,
            query=request.query_string,
        )
        self.pending[id(entry)] = entry
        try:
            return await self._handle(request, target, entry)
        except AnswerLostError:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        finally:
            del self.pending[id(entry)]

    async def _handle(
        self, request: web.BaseRequest, target: Target, entry: AuditEntry
    ) -> web.StreamResponse:
        start = self._clock.monotonic()
        try:
            answer = await self._answer(request, target, entry)
        except StatusError as error:
            answer = _failed(error.code, error.body(), error.retry_after_s)
        except ChosenFailure as failure:
            answer = _failed(failure.status, failure.body, failure.retry_after_s)
        except PageNotFoundError:
            code, body, content_type = _PAGE_NOT_FOUND
            answer = Answer(code, body, content_type=content_type)
        except (ConnectionError, AnswerLostError):
            raise
        except Exception as error:  # noqa: BLE001 - a defect must be an answer, not a dead connection
            # As text: a log that shows the values of variables would show whole objects.
            trace = traceback.format_exc()
            _log.error("request failed", path=target.path, verb=target.verb, exception=trace)
            answer = _failed(500, internal(repr(error)).body(), None)
        if isinstance(answer, web.StreamResponse):
            return answer
        # Entered before anything can happen to the answer: the request has been carried out.
        self._audit.add(entry)
        try:
            await self._faults.leave(target, entry, self._clock)
        except ChosenFailure as failure:
            answer = _failed(failure.status, failure.body, failure.retry_after_s)
        entry.code = answer.code
        entry.response_bytes = len(answer.body)
        entry.latency_s = self._clock.monotonic() - start
        response = _response(answer)
        response.headers["Date"] = f"{self._clock.now():%a, %d %b %Y %H:%M:%S} GMT"
        return response

    async def _answer(
        self, request: web.BaseRequest, target: Target, entry: AuditEntry
    ) -> Answer | web.StreamResponse:
        if not self._settings.tls:
            self._refuse_browsers(request)
        user = self._authenticator.identify(request.headers.get("Authorization", ""))
        if user is None:
            entry.user = ""
            raise unauthorized()
        entry.user = user.name
        user = impersonated(user, request.headers, self._authorizer)
        body = await self._read(request)
        entry.request_bytes = len(body)
        await self._faults.arrive(target, entry, self._clock)
        self._authorizer.check(user, target)
        kind = self._registry.get(target.group, target.version, target.resource)
        if kind is None:
            return self._document(target, entry.accept)
        ask = Ask(target, kind, user, body, entry.content_type, entry.accept, entry.user_agent)
        if target.is_watch:
            plan = self._handlers.plan_watch(ask)
            entry.code = 200
            self._audit.add(entry)
            return await self._watches.serve(request, plan, entry)
        return self._handlers.answer(ask)

    def _refuse_browsers(self, request: web.BaseRequest) -> None:
        """Refuse what a page of another site makes a browser send.

        On plain HTTP a request without credentials is an administrator's. A name of the page's own
        that leads to this machine shows in Host, the page itself in Origin or Sec-Fetch-Site: one
        of them comes with every write. That a body has no Content-Type tells nothing, for the
        official Python client sends none with custom objects.
        """
        host = request.headers.get("Host", "")
        found = _HOST.fullmatch(host)
        if found is None:
            raise StatusError(400, "BadRequest", f"the Host header {host!r} is not a host and port")
        name = found[1]
        if name not in _OWN_NAMES:
            raise StatusError(
                403, "Forbidden", f"the Host header names {name!r}, which is not this server"
            )
        site = request.headers.get("Sec-Fetch-Site", "none")
        own = f"http://{host}"
        if request.headers.get("Origin", own) != own or site not in ("none", "same-origin"):
            raise StatusError(403, "Forbidden", "pages of other sites are not served")

    async def _read(self, request: web.BaseRequest) -> bytes:
        if not request.body_exists:
            return b""
        try:
            return await request.read()
        except web.HTTPRequestEntityTooLarge:
            said = f"Request entity too large: limit is {MAX_BODY_BYTES}"
            raise StatusError(413, "RequestEntityTooLarge", said) from None

    def _document(self, target: Target, accept: str) -> Answer:
        """Answer a path without a kind: health, discovery, descriptions, or nothing there."""
        found = self._documents.answer(target.path, accept)
        if target.path.rstrip("/") in _HEALTH:
            found = (200, b"ok", _TEXT)
        elif found is None and self._registry.serves_built_in(target.group, target.version):
            raise unknown_resource()
        code, body, content_type = found or _PAGE_NOT_FOUND
        return Answer(code, body, content_type=content_type)


def _failed(code: int, body: bytes, retry_after_s: int | None) -> Answer:
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return Answer(code, body, headers)


def _response(answer: Answer) -> web.Response:
    body = answer.body + b"\n" if answer.content_type == "application/json" else answer.body
    response = web.Response(body=body, status=answer.code, headers=answer.headers)
    response.headers["Content-Type"] = answer.content_type
    for warning in answer.warnings:
        response.headers.add("Warning", warning)
    return response
