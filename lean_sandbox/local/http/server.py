"""The HTTP face of the embedded API server."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass, field
from typing import Final

import structlog
from aiohttp import web

from lean_sandbox.clock import Clock
from lean_sandbox.local import errors
from lean_sandbox.local.access.identity import Authenticator, impersonated
from lean_sandbox.local.access.rights import Authorizer
from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.http.documents import Documents
from lean_sandbox.local.http.faults import AnswerLostError, ChosenFailure, Faults
from lean_sandbox.local.http.handlers import Handlers
from lean_sandbox.local.http.watching import Watches
from lean_sandbox.local.kinds import Registry
from lean_sandbox.local.request import (
    HOST,
    MAX_BODY_BYTES,
    Ask,
    AuditEntry,
    AuditLog,
    EncodedAnswer,
    LocalSettings,
    Target,
    read_target,
)

_HEALTH: Final = frozenset(("/healthz", "/livez", "/readyz"))
_HOST: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::\d{1,5})?", re.ASCII)
_OWN_NAMES: Final = (HOST, "localhost", "[::1]")
_log = structlog.get_logger("local.server")


@dataclass(slots=True)
class ApiServer:
    """Takes a request through authentication, authorization, faults and its handler."""

    settings: LocalSettings
    clock: Clock
    registry: Registry
    handlers: Handlers
    watches: Watches
    authenticator: Authenticator
    authorizer: Authorizer
    audit: AuditLog
    faults: Faults
    documents: Documents
    pending: dict[int, AuditEntry] = field(default_factory=dict)
    """What is being answered at present, watches among them."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; whatever goes wrong becomes a Status body."""
        url = request.rel_url
        entry = read_target(AuditEntry, request.method, url.raw_path, url.raw_query_string)
        entry.user_agent = request.headers.get("User-Agent", "")
        entry.content_type = request.headers.get("Content-Type", "")
        entry.accept = request.headers.get("Accept", "")
        self.pending[id(entry)] = entry
        try:
            return await self._handle(request, entry)
        except AnswerLostError:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        finally:
            del self.pending[id(entry)]

    async def _handle(self, request: web.BaseRequest, entry: AuditEntry) -> web.StreamResponse:
        try:
            answer = await self._answer(request, entry)
        except StatusError as error:
            answer = _failed(error)
        except (ConnectionError, AnswerLostError):
            raise
        except Exception as error:  # noqa: BLE001 - a defect must be an answer, not a dead connection
            # As text: a log that shows the values of variables would show whole objects.
            trace = traceback.format_exc()
            _log.error("request failed", path=entry.path, verb=entry.verb, exception=trace)
            answer = _failed(errors.internal(repr(error)))
        if isinstance(answer, web.StreamResponse):
            return answer
        # Entered before anything can happen to the answer: the request has been carried out.
        self.audit.add(entry)
        try:
            await self.faults.meet(entry, self.clock, after=True)
        except ChosenFailure as failure:
            answer = _failed(failure)
        entry.code = answer.code
        entry.response_bytes = len(answer.body)
        response = _response(answer)
        response.headers["Date"] = f"{self.clock.now():%a, %d %b %Y %H:%M:%S} GMT"
        return response

    async def _answer(
        self, request: web.BaseRequest, entry: AuditEntry
    ) -> EncodedAnswer | web.StreamResponse:
        if not self.settings.tls:
            self._refuse_browsers(request)
        user = self.authenticator.identify(request.headers.get("Authorization", ""))
        if user is None:
            raise errors.unauthorized()
        entry.user = user.name
        user = impersonated(user, request.headers, self.authorizer)
        body = await self._read(request)
        entry.request_bytes = len(body)
        await self.faults.meet(entry, self.clock)
        self.authorizer.check(user, entry)
        kind = self.registry.get(entry.group, entry.version, entry.resource)
        if kind is None:
            return self._document(entry)
        ask = Ask(entry, kind, user, body)
        if entry.verb == "watch":
            plan = self.handlers.plan_watch(ask)
            entry.code = 200
            self.audit.add(entry)
            return await self.watches.serve(request, plan, entry)
        return self.handlers.answer(ask)

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

    def _document(self, target: Target) -> EncodedAnswer:
        """Answer a path without a kind: health, discovery, descriptions, or nothing there."""
        if target.path.rstrip("/") in _HEALTH:
            return EncodedAnswer(200, b"ok", content_type=errors.PageNotFoundError.content_type)
        found = self.documents.answer(target.path, target.accept)
        if found is None:
            is_api = self.registry.serves_built_in(target.group, target.version)
            raise errors.unknown_resource() if is_api else errors.PageNotFoundError()
        return found


def _failed(error: StatusError) -> EncodedAnswer:
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    return EncodedAnswer(error.code, error.body(), headers, content_type=error.content_type)


def _response(answer: EncodedAnswer) -> web.Response:
    body = answer.body + b"\n" if answer.content_type == "application/json" else answer.body
    response = web.Response(body=body, status=answer.code, headers=answer.headers)
    response.headers["Content-Type"] = answer.content_type
    for warning in answer.warnings:
        response.headers.add("Warning", warning)
    return response
