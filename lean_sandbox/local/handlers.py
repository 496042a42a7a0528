"""The resource paths of the API: from a request to a verb, from its outcome to an answer."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from lean_sandbox.local import bodies
from lean_sandbox.local.admission import refusal
from lean_sandbox.local.answers import Answer, Ask
from lean_sandbox.local.deletion import Deletion
from lean_sandbox.local.errors import (
    PageNotFoundError,
    StatusError,
    bad_request,
    not_allowed,
    not_found,
    status_success,
    too_large_version,
    unknown_resource,
    unsupported_media_type,
)
from lean_sandbox.local.eventconv import to_core, to_events
from lean_sandbox.local.paging import check_options, list_page, matcher, version_of
from lean_sandbox.local.patch import json_patch, merge_patch, strategic_patch
from lean_sandbox.local.registry import Kind
from lean_sandbox.local.represent import Accepted, Negotiator, Renderer
from lean_sandbox.local.schema.errors import invalid_status
from lean_sandbox.local.schema.events import check_new_event
from lean_sandbox.local.serversettings import LocalSettings
from lean_sandbox.local.store import Entry
from lean_sandbox.local.subresources import Subresources
from lean_sandbox.local.verbs import Verbs, WriteOptions
from lean_sandbox.local.watching import WatchPlan
from lean_sandbox.local.writeoptions import read_options

Json = dict[str, Any]

_WATCH_TIMEOUT_S: Final = 1800.0
_IN_CONTAINERS: Final = frozenset(
    ("exec", "attach", "log", "portforward", "proxy", "ephemeralcontainers")
)
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
        rng: random.Random,
    ) -> None:
        self._verbs = verbs
        self._renderer = renderer
        self._settings = settings
        self._subresources = subresources
        self._negotiator = Negotiator(settings)
        self._rng = rng
        self._by_verb: dict[str, Callable[[Ask], Answer]] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    def answer(self, ask: Ask) -> Answer:
        """Answer a request that is not a watch.

        Raises:
            StatusError: the refusal.

        """
        self._verbs.store.writer = ask.user
        try:
            return self._answer(ask)
        finally:
            self._verbs.store.writer = None

    def _answer(self, ask: Ask) -> Answer:
        target, kind = ask.target, ask.kind
        handler = self._by_verb.get(target.verb)
        if handler is None:
            raise not_allowed()
        if target.namespace and not kind.namespaced and kind.plural != "namespaces":
            raise unknown_resource()
        if target.subresource and target.subresource not in kind.subresources:
            if kind.plural == "pods" and target.subresource in _IN_CONTAINERS:
                raise StatusError(501, "NotImplemented", _NOTHING_RUNS)
            if kind.is_custom:
                raise not_found(kind.group, kind.plural, target.name)
            raise unknown_resource()
        special = self._subresources.handler(kind, target.subresource)
        if special is not None:
            return special(ask)
        needs_namespace = target.name or target.verb in ("create", "deletecollection")
        if kind.namespaced and not target.namespace and needs_namespace:
            if target.name:
                raise unknown_resource()
            if kind.is_custom:
                raise PageNotFoundError
            raise not_allowed()
        return handler(ask)

    # ------------------------------------------------------------------ reading

    def _form(self, ask: Ask, *, is_list: bool = False) -> Accepted:
        include = ask.target.query.get("includeObject", "")
        return self._negotiator.choose(ask.accept, include, is_list=is_list)

    def _namespace(self, ask: Ask) -> str:
        return ask.target.namespace if ask.kind.namespaced else ""

    def _get(self, ask: Ask) -> Answer:
        form = self._form(ask)
        asked = version_of(ask.target.query.get("resourceVersion", ""), is_list=False)
        if asked > self._verbs.store.version:
            raise too_large_version(asked, self._verbs.store.version)
        entry = self._verbs.entry(ask.kind, self._namespace(ask), ask.target.name)
        return Answer(200, self._renderer.single(ask.kind, entry, form))

    def _list(self, ask: Ask) -> Answer:
        form = self._form(ask, is_list=True)
        page = list_page(
            ask.kind,
            self._verbs.collection(ask.kind),
            self._namespace(ask),
            ask.target.query,
            self._verbs.store.version,
            self._settings,
        )
        return Answer(200, self._renderer.listing(ask.kind, page.entries, form, page.metadata))

    def plan_watch(self, ask: Ask) -> WatchPlan:
        """Return what a watch request asked for.

        Raises:
            StatusError: the refusal, before the stream begins.

        """
        kind, target = ask.kind, ask.target
        query = target.query
        if target.namespace and not kind.namespaced and kind.plural != "namespaces":
            raise unknown_resource()
        form = self._form(ask)
        check_options(query, is_watch=True, streaming=self._settings.streaming_lists)
        text = query.get("resourceVersion", "")
        asked = version_of(text, is_list=False)
        collection = self._verbs.collection(kind)
        current = self._verbs.store.version
        matches = matcher(kind, query, is_sharding=self._settings.sharded_lists)
        namespace = self._namespace(ask)
        wants_initial = query.get("sendInitialEvents") in ("true", "1")
        plan = WatchPlan(
            kind=kind,
            collection=collection,
            form=form,
            namespace=namespace,
            matches=matches,
            initial=[],
            backlog=[],
            bookmarks=query.get("allowWatchBookmarks") in ("true", "1"),
            ends_initial=False,
            start=current,
            timeout_s=self._timeout(query),
        )
        if wants_initial or (asked == 0 and query.get("sendInitialEvents") != "false"):
            entries = collection.scan(namespace)
            plan.initial = [
                ("ADDED", entry) for entry in entries if matches is None or matches(entry)
            ]
            plan.ends_initial = wants_initial and plan.bookmarks
        elif asked > current:
            # Nothing is sent until the store gets there; then whatever comes later.
            plan.start = asked
        elif asked:
            try:
                plan.backlog = collection.since(asked)
            except StatusError as error:
                plan.failure = error
        return plan

    def _timeout(self, query: Mapping[str, str]) -> float:
        asked = int(query.get("timeoutSeconds") or 0)
        return float(asked) if asked else _WATCH_TIMEOUT_S * (1.0 + self._rng.random())

    # ------------------------------------------------------------------ writing

    def written(self, ask: Ask, entry: Entry, options: WriteOptions, code: int = 200) -> Answer:
        """Return the answer to a write that leaves an object to show."""
        body = self._renderer.single(ask.kind, entry, self._form(ask))
        return Answer(code, body, warnings=options.warnings)

    def _create(self, ask: Ask) -> Answer:
        self._form(ask)
        options = read_options(ask)
        obj = bodies.read_object(ask.kind, ask.body, ask.content_type)
        if ask.target.name and not ask.kind.is_custom:
            raise unknown_resource()
        namespace = self._namespace(ask)
        self._check_namespace(obj, namespace)
        kind, obj = self._stored(ask.kind, obj, options)
        if kind is not ask.kind:
            obj.setdefault("metadata", {})
            self._check_event(obj, None)
        return self.written(ask, self._verbs.create(kind, namespace, obj, options), options, 201)

    def _stored(self, kind: Kind, obj: Json, options: WriteOptions) -> tuple[Kind, Json]:
        """Return an object in the version it is stored in: Events have two faces."""
        if kind.group != "events.k8s.io":
            return kind, obj
        self._verbs.admission.decode(kind, obj, options.validation, options.warnings)
        stored = self._verbs.registry.get("", "v1", "events")
        return stored or kind, to_core(obj)

    @staticmethod
    def _check_event(obj: Json, old: Json | None) -> Json:
        """Refuse, as events.k8s.io/v1 does, what core/v1 lets pass."""
        found = check_new_event(obj, old)
        if found:
            raise refusal(invalid_status("Event", "", obj["metadata"].get("name", ""), found))
        return obj

    @staticmethod
    def _check_namespace(obj: Json, namespace: str) -> None:
        metadata = obj.get("metadata")
        said = metadata.get("namespace") if isinstance(metadata, dict) else ""
        if namespace and said and said != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )

    def _update(self, ask: Ask) -> Answer:
        if not ask.target.name:
            raise bad_request("name must be provided")
        self._form(ask)
        options = read_options(ask)
        obj = bodies.read_object(ask.kind, ask.body, ask.content_type)
        namespace = self._namespace(ask)
        self._check_namespace(obj, namespace)
        kind, obj = self._stored(ask.kind, obj, options)
        entry = self._verbs.update(
            kind, namespace, ask.target.name, lambda _: obj, options, is_put=True
        )
        return self.written(ask, entry, options)

    def patch_function(self, ask: Ask) -> Callable[[Json], Json]:
        """Return what a patch request does to an object.

        Raises:
            StatusError: 415 for an unknown format, 400 for a body that is no patch.

        """
        kind, media = ask.kind, bodies.media_type(ask.content_type)
        known = [bodies.JSON_PATCH, bodies.MERGE_PATCH]
        if not kind.is_custom:
            known.append(bodies.STRATEGIC)
        if media not in known:
            if not kind.is_custom:
                raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type")
            raise unsupported_media_type((*known, bodies.APPLY))
        try:
            patch = msgspec.json.decode(ask.body)
        except msgspec.DecodeError as error:
            raise bad_request(f"error decoding patch: {error}") from None
        if media == bodies.JSON_PATCH:
            return self._framed(kind, lambda obj: json_patch(obj, patch))
        if not isinstance(patch, dict):
            raise bad_request("error decoding patch: the patch is no object")
        if media == bodies.MERGE_PATCH:
            return self._framed(kind, lambda obj: merge_patch(obj, patch))
        node = self._verbs.admission.structure(kind)
        return self._framed(kind, lambda obj: strategic_patch(obj, patch, node))

    @staticmethod
    def _framed(kind: Kind, change: Callable[[Json], Json]) -> Callable[[Json], Json]:
        """Let a patch see kind and apiVersion, and refuse one that changes them."""

        def framed(obj: Json) -> Json:
            changed = change({"kind": kind.kind, "apiVersion": kind.api_version, **obj})
            bodies.check_patched(kind, changed)
            changed.pop("kind", None)
            changed.pop("apiVersion", None)
            return changed

        return framed

    def _patch(self, ask: Ask) -> Answer:
        if not ask.target.name:
            raise bad_request("name must be provided")
        self._form(ask)
        options = read_options(ask)
        namespace, name = self._namespace(ask), ask.target.name
        if bodies.media_type(ask.content_type) == bodies.APPLY:
            return self._apply(ask, options)
        kind, change = ask.kind, self.patch_function(ask)
        if kind.group == "events.k8s.io":
            shown = change
            kind, _ = self._stored(kind, {"metadata": {}}, options)

            def change(obj: Json) -> Json:
                return self._check_event(to_core(shown(to_events(copy.deepcopy(obj)))), obj)

        entry = self._verbs.update(kind, namespace, name, change, options)
        return self.written(ask, entry, options)

    def _apply(self, ask: Ask, options: WriteOptions) -> Answer:
        obj = bodies.read_object(ask.kind, ask.body, bodies.APPLY)
        options.subresource = ask.target.subresource
        namespace, name = self._namespace(ask), ask.target.name
        self._check_namespace(obj, namespace)
        metadata = obj.setdefault("metadata", {})
        if metadata.setdefault("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL"
                f" ({name})"
            )
        entry, created = self._verbs.apply(ask.kind, namespace, name, obj, options)
        return self.written(ask, entry, options, 201 if created else 200)

    # ------------------------------------------------------------------ deleting

    def _delete(self, ask: Ask) -> Answer:
        kind = ask.kind
        form = self._form(ask)
        how = bodies.read_deletion(ask.body, ask.content_type, ask.target.query)
        entry, gone = self._verbs.delete(kind, self._namespace(ask), ask.target.name, how)
        if gone and not kind.returns_deleted:
            details = {"name": entry.name}
            if kind.group:
                details["group"] = kind.group
            details |= {"kind": kind.plural, "uid": entry.uid}
            return Answer(200, status_success(details))
        return Answer(200, self._renderer.single(kind, entry, form))

    def _delete_collection(self, ask: Ask) -> Answer:
        kind, namespace = ask.kind, self._namespace(ask)
        form = self._form(ask, is_list=True)
        how = bodies.read_deletion(ask.body, ask.content_type, ask.target.query)
        matches = matcher(kind, ask.target.query)
        chosen = [
            entry
            for entry in self._verbs.collection(kind).scan(namespace)
            if matches is None or matches(entry)
        ]
        plain = Deletion(how.grace_s, how.policy, None, None, how.dry_run)
        for entry in chosen:
            self._verbs.delete(kind, namespace or entry.namespace, entry.name, plain)
        metadata = {"resourceVersion": str(self._verbs.store.version)}
        return Answer(200, self._renderer.listing(kind, chosen, form, metadata))
