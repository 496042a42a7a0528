"""The API over HTTP: from a request to a verb, from its outcome to an answer."""

from __future__ import annotations

import copy
import random
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import structlog
from aiohttp import web

from lean_sandbox.clock import Clock
from lean_sandbox.local import errors
from lean_sandbox.local.access.identity import Authenticator, impersonated
from lean_sandbox.local.access.rights import Authorizer
from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.http.documents import Documents
from lean_sandbox.local.http.faults import AnswerLostError, ChosenFailure, Faults
from lean_sandbox.local.http.subresources import Subresources
from lean_sandbox.local.http.watching import Watches, WatchPlan
from lean_sandbox.local.kinds import Kind, Registry, to_core, to_events
from lean_sandbox.local.read.paging import ListPage, check_options, list_page, matcher, version_of
from lean_sandbox.local.read.represent import Accepted, Renderer, choose_form
from lean_sandbox.local.request import (
    HOST,
    MAX_BODY_BYTES,
    Ask,
    AuditEntry,
    AuditLog,
    EncodedAnswer,
    LocalSettings,
    Target,
    check_path,
    flag,
    number,
    read_target,
)
from lean_sandbox.local.schema.core import check_event_change, check_new_event
from lean_sandbox.local.store import Entry
from lean_sandbox.local.write import bodies
from lean_sandbox.local.write.admission import structure_of
from lean_sandbox.local.write.bodies import WriteOptions, read_deletion, read_options
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]

_WATCH_TIMEOUT_S: Final = 1800.0
_NOTHING_RUNS: Final = (
    "the nodes of this server are simulated: no container runs, so there is nothing to reach in it;"
    " use a cluster with real nodes, such as kind or minikube"
)
_HEALTH: Final = frozenset(("/healthz", "/livez", "/readyz"))
_HOST: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::\d{1,5})?", re.ASCII)
_OWN_NAMES: Final = (HOST, "localhost", "[::1]")
_log = structlog.get_logger("local.server")


# ------------------------------------------------------------------ resources


@dataclass(slots=True)
class Handlers:
    """Answers requests to resources, except for the streaming part of watches."""

    verbs: Verbs
    renderer: Renderer
    settings: LocalSettings
    subresources: Subresources
    authorizer: Authorizer
    rng: random.Random

    def answer(self, ask: Ask) -> EncodedAnswer:
        """Answer a request that is not a watch. Raises StatusError: the refusal."""
        self.verbs.store.writer = ask.user
        try:
            self._check(ask)
            special = self.subresources.handler(ask.kind, ask.target.subresource)
            return special(ask) if special else self._handler(ask)(ask, self._form(ask))
        finally:
            self.verbs.store.writer = None

    def _handler(self, ask: Ask) -> Callable[[Ask, Accepted], EncodedAnswer]:
        return {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }[ask.target.verb]

    def _check(self, ask: Ask) -> None:
        """Refuse what is not there, and what needs a running container. Raises StatusError."""
        check_path(ask.target, ask.kind)
        if ask.target.subresource in ask.kind.unserved:
            self.verbs.entry(ask.kind, ask.namespace, ask.target.name)
            raise StatusError(501, "NotImplemented", _NOTHING_RUNS)

    # ------------------------------------------------------------------ reading

    def _form(self, ask: Ask) -> Accepted:
        target = ask.target
        is_list = target.verb in ("list", "deletecollection")
        include = target.query.get("includeObject", "")
        return choose_form(target.accept, include, self.settings, is_list=is_list)

    def _get(self, ask: Ask, form: Accepted) -> EncodedAnswer:
        asked = version_of(ask.target.query.get("resourceVersion", ""), is_list=False)
        if asked > self.verbs.store.version:
            raise errors.too_large_version(asked, self.verbs.store.version)
        entry = self.verbs.entry(ask.kind, ask.namespace, ask.target.name)
        return EncodedAnswer(200, self.renderer.single(ask.kind, entry, form))

    def _list(self, ask: Ask, form: Accepted) -> EncodedAnswer:
        page = self._page(ask)
        return EncodedAnswer(
            200, self.renderer.listing(ask.kind, page.entries, form, page.metadata)
        )

    def _page(self, ask: Ask) -> ListPage:
        return list_page(
            ask.kind,
            self.verbs.collection(ask.kind),
            ask.namespace,
            ask.target.query,
            self.verbs.store.version,
            is_sharding=self.settings.sharded_lists,
        )

    def plan_watch(self, ask: Ask) -> WatchPlan:
        """Return what a watch request asked for.

        Raises StatusError: the refusal, before the stream begins.
        """
        kind = ask.kind
        target = ask.target
        query = target.query
        self._check(ask)
        form = self._form(ask)
        matches = matcher(kind, query, is_sharding=self.settings.sharded_lists)
        check_options(query, is_watch=True)
        asked_s = number(query, "timeoutSeconds")
        asked = version_of(query.get("resourceVersion", ""), is_list=False)
        collection = self.verbs.collection(kind)
        current = self.verbs.store.version
        namespace = ask.namespace
        plan = WatchPlan(
            kind=kind,
            collection=collection,
            form=form,
            namespace=namespace,
            matches=matches,
            bookmarks=flag(query, "allowWatchBookmarks"),
            start=current,
            timeout_s=float(asked_s) if asked_s else _WATCH_TIMEOUT_S * (1.0 + self.rng.random()),
        )
        is_any = asked == 0 and "sendInitialEvents" not in query
        if is_any or flag(query, "sendInitialEvents"):
            entries = collection.scan(namespace)
            plan.initial = [entry for entry in entries if matches is None or matches(entry)]
            plan.ends_initial = plan.bookmarks
        elif asked > current:
            # Nothing is sent until the store gets there; then whatever comes later.
            plan.start = asked
        elif asked:
            try:
                plan.backlog = collection.since(asked)
            except StatusError as error:
                plan.failure = error
        return plan

    # ------------------------------------------------------------------ writing

    def _written(
        self, ask: Ask, form: Accepted, entry: Entry, options: WriteOptions, code: int = 200
    ) -> EncodedAnswer:
        body = self.renderer.single(ask.kind, entry, form)
        return EncodedAnswer(code, body, warnings=options.warnings)

    def _create(self, ask: Ask, form: Accepted) -> EncodedAnswer:
        options = read_options(ask)
        kind, obj = self._read(ask, options)
        entry = self.verbs.create(kind, ask.namespace, obj, options)
        return self._written(ask, form, entry, options, 201)

    def _read(self, ask: Ask, options: WriteOptions) -> tuple[Kind, Json]:
        """Return the object of a body in the version it is stored in: Events have two faces."""
        obj = bodies.read_object(ask.kind, ask.body, ask.target.content_type)
        kind = self._stored_kind(ask.kind)
        if kind is not ask.kind:
            self.verbs.decode(ask.kind, obj, options)
            held = self.verbs.find(kind, ask.namespace, ask.target.name)
            obj = self._check_event(to_core(obj), None if held is None else held.load())
        return kind, obj

    def _stored_kind(self, kind: Kind) -> Kind:
        is_event = kind.group == "events.k8s.io"
        return self.verbs.registry.by_resource("events") if is_event else kind

    @staticmethod
    def _check_event(obj: Json, old: Json | None) -> Json:
        """Refuse, as events.k8s.io/v1 does, what core/v1 lets pass."""
        found = list(check_new_event(obj) if old is None else check_event_change(obj, old))
        if found:
            raise errors.invalid("", "Event", obj["metadata"].get("name", ""), found)
        return obj

    def _update(self, ask: Ask, form: Accepted) -> EncodedAnswer:
        options = read_options(ask)
        kind, obj = self._read(ask, options)
        entry = self.verbs.replace(kind, ask.namespace, ask.target.name, obj, options)
        return self._written(ask, form, entry, options)

    def _patch(self, ask: Ask, form: Accepted) -> EncodedAnswer:
        options = read_options(ask)
        namespace = ask.namespace
        name = ask.target.name
        if bodies.media_type(ask.target.content_type) == bodies.APPLY:
            return self._apply(ask, form, options)
        kind = self._stored_kind(ask.kind)
        node = None if kind.is_custom else structure_of(ask.kind)
        change = bodies.patch_function(ask.kind, ask.body, ask.target.content_type, node)
        if kind is not ask.kind:
            shown = change

            def change(obj: Json) -> Json:
                return self._check_event(to_core(shown(to_events(copy.deepcopy(obj)))), obj)

        entry = self.verbs.update(kind, namespace, name, change, options)
        return self._written(ask, form, entry, options)

    def _apply(self, ask: Ask, form: Accepted, options: WriteOptions) -> EncodedAnswer:
        obj = bodies.read_applied(ask.kind, ask.body)
        options.subresource = ask.target.subresource
        namespace = ask.namespace
        name = ask.target.name
        if self.verbs.find(ask.kind, namespace, name) is None:
            self.authorizer.check(ask.user, replace(ask.target, verb="create"))
        entry, created = self.verbs.apply(ask.kind, namespace, name, obj, options)
        return self._written(ask, form, entry, options, 201 if created else 200)

    # ------------------------------------------------------------------ deleting

    def _delete(self, ask: Ask, form: Accepted) -> EncodedAnswer:
        kind = ask.kind
        how = read_deletion(ask, self.verbs.admission)
        entry, gone = self.verbs.delete(kind, ask.namespace, ask.target.name, how)
        if gone and not kind.returns_deleted:
            details = errors.details_of(kind.group, kind.plural, entry.name, uid=entry.uid)
            return EncodedAnswer(200, errors.status_success(details))
        return EncodedAnswer(200, self.renderer.single(kind, entry, form))

    def _delete_collection(self, ask: Ask, form: Accepted) -> EncodedAnswer:
        """Delete what a list with the same query shows: a page, if it asks for pages."""
        page = self._page(ask)
        how = read_deletion(ask, self.verbs.admission)
        present = self.verbs.collection(ask.kind).entries
        for entry in page.entries:
            if entry.key in present:  # a page of an older version shows what may be gone
                self.verbs.delete(ask.kind, entry.namespace, entry.name, how)
        return EncodedAnswer(
            200, self.renderer.listing(ask.kind, page.entries, form, page.metadata)
        )


# ------------------------------------------------------------------ requests


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
            raise StatusError(401, "Unauthorized", "Unauthorized")
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
        found = self.documents.answer(target.path, target.accept)
        if target.path.rstrip("/") in _HEALTH:
            found = EncodedAnswer(200, b"ok", content_type=errors.PageNotFoundError.content_type)
        if found is None:
            is_api = self.registry.serves_built_in(target.group, target.version)
            raise errors.unknown_resource() if is_api else errors.PageNotFoundError()
        if target.method != "GET":
            raise errors.not_allowed()
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
