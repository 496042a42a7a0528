"""The resource paths of the API: from a request to a verb, from its outcome to an answer."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from lean_sandbox.local import errors
from lean_sandbox.local.access.rights import Authorizer
from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.http.subresources import Subresources
from lean_sandbox.local.http.watching import WatchPlan
from lean_sandbox.local.kinds import Kind
from lean_sandbox.local.read.paging import ListPage, check_options, list_page, matcher, version_of
from lean_sandbox.local.read.represent import Accepted, Renderer, choose_form
from lean_sandbox.local.request import Ask, EncodedAnswer, LocalSettings, Target, flag, number
from lean_sandbox.local.schema.events import check_event_change, check_new_event, to_core, to_events
from lean_sandbox.local.store import Entry
from lean_sandbox.local.write import bodies
from lean_sandbox.local.write.admission import structure_of
from lean_sandbox.local.write.bodies import WriteOptions, read_deletion, read_options
from lean_sandbox.local.write.verbs import Verbs

Json = dict[str, Any]

_WATCH_TIMEOUT_S: Final = 1800.0
_ON_COLLECTIONS: Final = frozenset(("list", "watch", "create", "deletecollection"))
_EVERYWHERE: Final = frozenset(("list", "watch"))
_ON_OBJECTS: Final = frozenset(("get", "update", "patch", "delete"))
_NOTHING_RUNS: Final = (
    "the nodes of this server are simulated: no container runs, so there is nothing to reach in it;"
    " use a cluster with real nodes, such as kind or minikube"
)


class Handlers:
    """Answers requests to resources, except for the streaming part of watches."""

    def __init__(
        self,
        verbs: Verbs,
        renderer: Renderer,
        settings: LocalSettings,
        subresources: Subresources,
        authorizer: Authorizer,
        rng: random.Random,
    ) -> None:
        self._verbs = verbs
        self._renderer = renderer
        self._settings = settings
        self._subresources = subresources
        self._authorizer = authorizer
        self._rng = rng
        self._by_verb: dict[str, Callable[[Ask, Accepted], EncodedAnswer]] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    def answer(self, ask: Ask) -> EncodedAnswer:
        """Answer a request that is not a watch. Raises StatusError: the refusal."""
        self._verbs.store.writer = ask.user
        try:
            self.check_path(ask.target, ask.kind)
            special = self._subresources.handler(ask.kind, ask.target.subresource)
            return special(ask) if special else self._by_verb[ask.target.verb](ask, self._form(ask))
        finally:
            self._verbs.store.writer = None

    def check_path(self, target: Target, kind: Kind) -> None:
        """Refuse a path that is not there, and a verb that it does not have.

        Raises StatusError: 404, 405, or 501 for what needs a running container; PageNotFoundError:
        the path of a custom kind is not there.
        """
        if kind.is_custom:
            self._check_custom(target, kind)
            return
        _check_built_in(target, kind)
        if target.subresource in kind.unserved:
            self._verbs.entry(kind, target.namespace if kind.namespaced else "", target.name)
            raise StatusError(501, "NotImplemented", _NOTHING_RUNS)

    def _check_custom(self, target: Target, kind: Kind) -> None:
        elsewhere = bool(target.namespace) is not kind.namespaced
        if elsewhere and (target.namespace or target.verb not in _EVERYWHERE):
            raise errors.PageNotFoundError
        part = target.subresource
        if part and part not in kind.subresources:
            raise errors.not_found(kind.group, kind.plural, target.name)
        if target.verb not in (kind.subresources[part] if part else kind.verbs):
            raise errors.not_supported(kind.group, kind.plural, target.verb)
        if not target.name and target.verb in _ON_OBJECTS:
            raise errors.bad_request("name must be provided")

    # ------------------------------------------------------------------ reading

    def _form(self, ask: Ask) -> Accepted:
        target = ask.target
        is_list = target.verb in ("list", "deletecollection")
        include = target.query.get("includeObject", "")
        return choose_form(target.accept, include, self._settings, is_list=is_list)

    def _get(self, ask: Ask, form: Accepted) -> EncodedAnswer:
        asked = version_of(ask.target.query.get("resourceVersion", ""), is_list=False)
        if asked > self._verbs.store.version:
            raise errors.too_large_version(asked, self._verbs.store.version)
        entry = self._verbs.entry(ask.kind, ask.namespace, ask.target.name)
        return EncodedAnswer(200, self._renderer.single(ask.kind, entry, form))

    def _list(self, ask: Ask, form: Accepted) -> EncodedAnswer:
        page = self._page(ask)
        return EncodedAnswer(
            200, self._renderer.listing(ask.kind, page.entries, form, page.metadata)
        )

    def _page(self, ask: Ask) -> ListPage:
        return list_page(
            ask.kind,
            self._verbs.collection(ask.kind),
            ask.namespace,
            ask.target.query,
            self._verbs.store.version,
            is_sharding=self._settings.sharded_lists,
        )

    def plan_watch(self, ask: Ask) -> WatchPlan:
        """Return what a watch request asked for.

        Raises StatusError: the refusal, before the stream begins.
        """
        kind = ask.kind
        target = ask.target
        query = target.query
        self.check_path(target, kind)
        form = self._form(ask)
        matches = matcher(kind, query, is_sharding=self._settings.sharded_lists)
        check_options(query, is_watch=True)
        asked_s = number(query, "timeoutSeconds")
        asked = version_of(query.get("resourceVersion", ""), is_list=False)
        collection = self._verbs.collection(kind)
        current = self._verbs.store.version
        namespace = ask.namespace
        plan = WatchPlan(
            kind=kind,
            collection=collection,
            form=form,
            namespace=namespace,
            matches=matches,
            bookmarks=flag(query, "allowWatchBookmarks"),
            start=current,
            timeout_s=float(asked_s) if asked_s else _WATCH_TIMEOUT_S * (1.0 + self._rng.random()),
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
        body = self._renderer.single(ask.kind, entry, form)
        return EncodedAnswer(code, body, warnings=options.warnings)

    def _create(self, ask: Ask, form: Accepted) -> EncodedAnswer:
        options = read_options(ask)
        kind, obj = self._read(ask, options)
        entry = self._verbs.create(kind, ask.namespace, obj, options)
        return self._written(ask, form, entry, options, 201)

    def _read(self, ask: Ask, options: WriteOptions) -> tuple[Kind, Json]:
        """Return the object of a body in the version it is stored in: Events have two faces."""
        obj = bodies.read_object(ask.kind, ask.body, ask.target.content_type)
        kind = self._stored_kind(ask.kind)
        if kind is not ask.kind:
            self._verbs.decode(ask.kind, obj, options)
            held = self._verbs.find(kind, ask.namespace, ask.target.name)
            obj = self._check_event(to_core(obj), None if held is None else held.load())
        return kind, obj

    def _stored_kind(self, kind: Kind) -> Kind:
        is_event = kind.group == "events.k8s.io"
        return self._verbs.registry.by_resource("events") if is_event else kind

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
        entry = self._verbs.replace(kind, ask.namespace, ask.target.name, obj, options)
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

        entry = self._verbs.update(kind, namespace, name, change, options)
        return self._written(ask, form, entry, options)

    def _apply(self, ask: Ask, form: Accepted, options: WriteOptions) -> EncodedAnswer:
        obj = bodies.read_object(ask.kind, ask.body, "application/yaml")
        options.subresource = ask.target.subresource
        namespace = ask.namespace
        name = ask.target.name
        if self._verbs.find(ask.kind, namespace, name) is None:
            self._authorizer.check(ask.user, replace(ask.target, verb="create"))
        entry, created = self._verbs.apply(ask.kind, namespace, name, obj, options)
        return self._written(ask, form, entry, options, 201 if created else 200)

    # ------------------------------------------------------------------ deleting

    def _delete(self, ask: Ask, form: Accepted) -> EncodedAnswer:
        kind = ask.kind
        how = read_deletion(ask, self._verbs.admission)
        entry, gone = self._verbs.delete(kind, ask.namespace, ask.target.name, how)
        if gone and not kind.returns_deleted:
            details = {"name": entry.name}
            if kind.group:
                details["group"] = kind.group
            details |= {"kind": kind.plural, "uid": entry.uid}
            return EncodedAnswer(200, errors.status_success(details))
        return EncodedAnswer(200, self._renderer.single(kind, entry, form))

    def _delete_collection(self, ask: Ask, form: Accepted) -> EncodedAnswer:
        """Delete what a list with the same query shows: a page, if it asks for pages."""
        how = read_deletion(ask, self._verbs.admission)
        page = self._page(ask)
        present = self._verbs.collection(ask.kind).entries
        for entry in page.entries:
            if entry.key in present:  # a page of an older version shows what may be gone
                self._verbs.delete(ask.kind, entry.namespace, entry.name, how)
        return EncodedAnswer(
            200, self._renderer.listing(ask.kind, page.entries, form, page.metadata)
        )


def _check_built_in(target: Target, kind: Kind) -> None:
    inside = bool(target.namespace) and kind.storage != "namespaces"
    there = inside is kind.namespaced
    if kind.is_review:
        there &= not target.name
    else:
        there |= kind.namespaced and not target.name
    found = kind.subresources.get(target.subresource) or kind.unserved.get(target.subresource)
    # Only a proxy has paths of its own below.
    if (
        not there
        or (target.subresource and not found)
        or (target.below and target.subresource != "proxy")
    ):
        raise errors.unknown_resource()
    verbs = frozenset(found or kind.verbs)
    if not found:
        everywhere = kind.namespaced and not inside
        of_path = _EVERYWHERE if everywhere else _ON_COLLECTIONS
        verbs &= _ON_OBJECTS if target.name else of_path
    is_head = target.method == "HEAD" and target.subresource != "proxy"
    if is_head or target.verb not in verbs:
        raise errors.not_allowed()
