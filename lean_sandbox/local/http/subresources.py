"""Subresources whose bodies are of a kind of their own: scale, binding, eviction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from lean_sandbox.local import errors
from lean_sandbox.local.errors import StatusError
from lean_sandbox.local.kinds import Kind, make_kind
from lean_sandbox.local.request import Ask, EncodedAnswer
from lean_sandbox.local.schema import causes
from lean_sandbox.local.store import Entry, at
from lean_sandbox.local.write import bodies
from lean_sandbox.local.write.admission import structure_of
from lean_sandbox.local.write.bodies import WriteOptions, deletion_of, read_body, read_options
from lean_sandbox.local.write.lifecycle import check_budget
from lean_sandbox.local.write.objects import check_preconditions
from lean_sandbox.local.write.verbs import Verbs, check_identity

Json = dict[str, Any]

_BINDING: Final = make_kind("", "v1", "bindings", "Binding")
_EVICTION: Final = make_kind("policy", "v1", "evictions", "Eviction")
_SCALE: Final = make_kind("autoscaling", "v1", "scales", "Scale")
_SCHEDULED: Final = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
_EVICTED: Final = {
    "type": "DisruptionTarget",
    "status": "True",
    "lastProbeTime": None,
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def _set_condition(obj: Json, condition: Json) -> None:
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    conditions[:] = [item for item in conditions if item.get("type") != condition["type"]]
    conditions.append(condition)


def _set_path(obj: Json, path: str, value: Any) -> None:
    *above, last = path.strip(".").split(".")
    for part in above:
        obj = obj.setdefault(part, {})
    obj[last] = value


class Subresources:
    """Handlers of the special subresources."""

    def __init__(
        self, verbs: Verbs, others: Mapping[tuple[str, str], Callable[[Ask], EncodedAnswer]]
    ) -> None:
        """Add handlers to ``others``, which are found by collection and subresource."""
        self._verbs = verbs
        self._handlers = {
            **others,
            ("pods", "binding"): self._bind,
            ("pods", "eviction"): self._evict,
        }

    def handler(self, kind: Kind, subresource: str) -> Callable[[Ask], EncodedAnswer] | None:
        """Return what answers a request, None where its verb says it all."""
        if subresource == "scale":
            return self._scale
        return self._handlers.get((kind.storage, subresource))

    # ------------------------------------------------------------------ scale

    def _scale_of(self, kind: Kind, entry: Entry) -> Json:
        obj = entry.load()
        paths = kind.scale or {}
        wanted = at(obj, paths["spec"], None)
        if wanted is None:
            raise errors.internal(f'the spec replicas field "{paths["spec"]}" does not exist')
        status: Json = {"replicas": at(obj, paths["status"], 0)}
        if not kind.is_custom:
            labels = at(obj, "spec.selector.matchLabels", {})
            status["selector"] = ",".join(f"{k}={v}" for k, v in sorted(labels.items()))
        elif paths["selector"] and (selector := at(obj, paths["selector"])):
            status["selector"] = selector
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {key: obj["metadata"][key] for key in kept if key in obj["metadata"]},
            "spec": {"replicas": wanted} if wanted else {},
            "status": status,
        }

    def _scale(self, ask: Ask) -> EncodedAnswer:
        kind = ask.kind
        target = ask.target
        if target.verb == "get":
            entry = self._verbs.entry(kind, ask.namespace, target.name)
            return EncodedAnswer(200, msgspec.json.encode(self._scale_of(kind, entry)))
        options = read_options(ask)
        options.subresource = ""
        wanted = self._wanted_scale(ask, options)
        replicas = (wanted.get("spec") or {}).get("replicas") or 0
        path = (kind.scale or {})["spec"]
        if replicas < 0:
            field = path if kind.is_custom else "spec.replicas"
            shown = kind if kind.is_custom else _SCALE
            cause = causes.invalid(field, replicas, "should be a non-negative integer")
            raise errors.invalid(shown.group, shown.kind, target.name, [cause])

        def change(obj: Json) -> Json:
            _set_path(obj, path, replicas)
            return obj

        changed = self._verbs.update(kind, ask.namespace, target.name, change, options)
        return EncodedAnswer(200, msgspec.json.encode(self._scale_of(kind, changed)))

    def _wanted_scale(self, ask: Ask, options: WriteOptions) -> Json:
        """Return the Scale that a request wants, which is one of this object."""
        is_put = ask.target.verb == "update"
        if is_put:
            wanted = read_body(_SCALE, ask, options, self._verbs.admission)
        entry = self._verbs.entry(ask.kind, ask.namespace, ask.target.name)
        if not is_put:
            node = None if ask.kind.is_custom else structure_of(_SCALE)
            change = bodies.patch_function(_SCALE, ask.body, ask.target.content_type, node)
            try:
                current = self._scale_of(ask.kind, entry)
            except StatusError:
                current = {"metadata": {"name": entry.name}, "spec": {}}
            wanted = change(current)
            self._verbs.decode_patched(_SCALE, wanted, options)
        metadata = wanted["metadata"]
        bodies.check_address(ask.namespace, ask.target.name, metadata)
        # A scale may leave out which version is meant.
        said = {"resourceVersion": str(entry.version), **metadata}
        check_identity(ask.kind, entry, said, is_put=is_put)
        return wanted

    # ------------------------------------------------------------------ Pods

    def _bind(self, ask: Ask) -> EncodedAnswer:
        target = ask.target
        options = read_options(ask)
        body = read_body(_BINDING, ask, options, self._verbs.admission)
        metadata = body["metadata"]
        place = body.get("target") or {}
        if metadata.get("name") != target.name:
            raise errors.bad_request("name in URL does not match name in Binding object")
        # A bare list of field errors, which API servers take for a failure of their own.
        if place.get("kind") not in (None, "", "Node"):
            kinds = 'supported values: "Node", "<empty>"'
            raise StatusError(
                500, "", f'target.kind: Unsupported value: "{place["kind"]}": {kinds}'
            )
        if not place.get("name"):
            raise StatusError(500, "", "target.name: Required value")
        uid = metadata.get("uid")
        version = metadata.get("resourceVersion")
        now = self._verbs.now()

        def change(obj: Json) -> None:
            held = obj["metadata"]
            bound = obj["spec"].get("nodeName")
            why = ""
            if uid and uid != held["uid"]:
                why = "the UID does not match"
            elif held.get("deletionTimestamp"):
                why = f"pod {target.name} is being deleted, cannot be assigned to a host"
            elif obj["spec"].get("schedulingGates"):
                why = f"pod {target.name} has non-empty .spec.schedulingGates"
            elif bound:
                why = f'pod {target.name} is already assigned to node "{bound}"'
            elif version and version != held["resourceVersion"]:
                why = f"the resourceVersion is {held['resourceVersion']}, not {version}"
            if why:
                raise errors.conflict("", "pods/binding", target.name, why)
            obj["spec"]["nodeName"] = place["name"]
            for part in ("labels", "annotations"):
                held[part] = {**(held.get(part) or {}), **(metadata.get(part) or {})}
            _set_condition(obj, {**_SCHEDULED, "lastTransitionTime": now})

        dry_run = options.dry_run
        self._verbs.rewrite(ask.kind, ask.namespace, target.name, change, dry_run=dry_run)
        return self._created(options)

    def _created(self, options: WriteOptions) -> EncodedAnswer:
        return EncodedAnswer(201, errors.status_success(code=201), warnings=options.warnings)

    def _evict(self, ask: Ask) -> EncodedAnswer:
        options = read_options(ask)
        body = read_body(_EVICTION, ask, options, self._verbs.admission)
        if body["metadata"].get("name") != ask.target.name:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        how = deletion_of(body.get("deleteOptions") or {})
        if options.dry_run:
            how = replace(how, dry_run=True)
        pod = self._verbs.entry(ask.kind, ask.namespace, ask.target.name)
        check_budget(self._verbs.store, pod)
        check_preconditions(ask.kind, pod, how)
        if not how.dry_run:
            now = self._verbs.now()
            change = partial(_set_condition, condition={**_EVICTED, "lastTransitionTime": now})
            self._verbs.rewrite(ask.kind, ask.namespace, pod.name, change)
        # The version was the one asked for, until the condition was written.
        how = replace(how, version=None)
        self._verbs.delete(ask.kind, ask.namespace, pod.name, how)
        return self._created(options)
