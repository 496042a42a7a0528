"""Subresources that are more than a part of their object: scale, binding, eviction, token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from lean_sandbox.local import bodies
from lean_sandbox.local.answers import Answer, Ask
from lean_sandbox.local.deletion import Deletion
from lean_sandbox.local.errors import (
    Cause,
    StatusError,
    conflict,
    internal,
    invalid,
    status_success,
)
from lean_sandbox.local.jsonpath import parse_path
from lean_sandbox.local.patch import json_patch, merge_patch
from lean_sandbox.local.registry import Kind
from lean_sandbox.local.reviews import TokenRequests
from lean_sandbox.local.store import Entry
from lean_sandbox.local.verbs import Verbs, WriteOptions
from lean_sandbox.local.writeoptions import read_options

Json = dict[str, Any]


def _set_path(obj: Json, path: str, value: Any) -> None:
    *above, last = path.strip(".").split(".")
    for part in above:
        obj = obj.setdefault(part, {})
    obj[last] = value


class Subresources:
    """Handlers of the special subresources."""

    def __init__(self, verbs: Verbs, tokens: TokenRequests) -> None:
        self._verbs = verbs
        self._tokens = tokens

    def handler(self, kind: Kind, subresource: str) -> Callable[[Ask], Answer] | None:
        """Return what answers a subresource, None for those that are plain parts."""
        if subresource == "scale":
            return self._scale
        if kind.group:
            return None
        return {
            ("pods", "binding"): self._bind,
            ("pods", "eviction"): self._evict,
            ("serviceaccounts", "token"): self._token,
        }.get((kind.plural, subresource))

    def _reply(self, code: int, body: Any) -> Answer:
        encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return Answer(code, encoded)

    @staticmethod
    def _body(ask: Ask) -> Json:
        return bodies.read_plain(ask.body, ask.content_type)

    # ------------------------------------------------------------------ scale

    def _scale_of(self, kind: Kind, entry: Entry) -> Json:
        obj, paths = entry.load(), kind.scale or {}
        wanted = parse_path(paths["spec"])(obj)
        if not wanted:
            raise internal(f'the spec replicas field "{paths["spec"]}" does not exist')
        status: Json = {"replicas": (parse_path(paths["status"])(obj) or [0])[0]}
        if paths.get("selector"):
            found = parse_path(paths["selector"])(obj)
            if found:
                status["selector"] = found[0]
        elif not kind.is_custom:
            labels = ((obj.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
            status["selector"] = ",".join(f"{k}={v}" for k, v in sorted(labels.items()))
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {key: obj["metadata"][key] for key in kept if key in obj["metadata"]},
            "spec": {"replicas": wanted[0]} if wanted[0] else {},
            "status": status,
        }

    def _scale(self, ask: Ask) -> Answer:
        kind, target = ask.kind, ask.target
        entry = self._verbs.entry(kind, target.namespace, target.name)
        if target.verb == "get":
            return self._reply(200, self._scale_of(kind, entry))
        path = (kind.scale or {})["spec"]
        current: Json = {"metadata": {}, "spec": {}}
        if target.verb == "patch":
            try:
                current = self._scale_of(kind, entry)
            except StatusError:
                current = {"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": {}}
            wanted = self._patched_scale(ask, current)
        else:
            wanted = self._body(ask)
        version = (wanted.get("metadata") or {}).get("resourceVersion")
        if version and version != str(entry.version):
            raise conflict(kind.group, kind.plural, target.name)
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            text = f"Invalid value: {replicas}: should be a non-negative integer"
            cause = Cause(
                "FieldValueInvalid", text, f"{path if kind.is_custom else 'spec.replicas'}"
            )
            shown = (kind.group, kind.kind) if kind.is_custom else ("autoscaling", "Scale")
            raise invalid(*shown, target.name, [cause])

        def change(obj: Json) -> Json:
            _set_path(obj, path, replicas)
            return obj

        options = read_options(ask, subresource="")
        options.subresource = ""
        changed = self._verbs.update(kind, target.namespace, target.name, change, options)
        return self._reply(200, self._scale_of(kind, changed))

    def _patched_scale(self, ask: Ask, current: Json) -> Json:
        patch = msgspec.json.decode(ask.body)
        if bodies.media_type(ask.content_type) == bodies.JSON_PATCH:
            return json_patch(current, patch)
        patched: Json = merge_patch(current, patch)
        return patched

    # ------------------------------------------------------------------ Pods

    def _bind(self, ask: Ask) -> Answer:
        target = ask.target
        body = self._body(ask)
        node = (body.get("target") or {}).get("name")
        if not node:
            # A bare list of field errors, which API servers take for a failure of their own.
            raise StatusError(500, "", "target.name: Required value")
        uid = (body.get("metadata") or {}).get("uid")
        now = self._verbs.now()

        def change(obj: Json) -> Json:
            bound = obj["spec"].get("nodeName")
            if uid and uid != obj["metadata"]["uid"]:
                raise conflict("", "pods/binding", target.name, "the UID does not match")
            if obj["metadata"].get("deletionTimestamp"):
                why = f"pod {target.name} is being deleted, cannot be assigned to a host"
                raise conflict("", "pods/binding", target.name, why)
            if bound:
                why = f'pod {target.name} is already assigned to node "{bound}"'
                raise conflict("", "pods/binding", target.name, why)
            obj["spec"]["nodeName"] = node
            conditions = obj.setdefault("status", {}).setdefault("conditions", [])
            conditions[:] = [item for item in conditions if item.get("type") != "PodScheduled"]
            conditions.append(
                {
                    "type": "PodScheduled",
                    "status": "True",
                    "lastProbeTime": None,
                    "lastTransitionTime": now,
                }
            )
            return obj

        options = WriteOptions(dry_run="dryRun" in target.query, trusted=True)
        self._verbs.update(ask.kind, target.namespace, target.name, change, options)
        return self._reply(201, status_success(code=201))

    def _evict(self, ask: Ask) -> Answer:
        options = self._body(ask).get("deleteOptions") or {}
        how = Deletion(grace_s=options.get("gracePeriodSeconds"))
        self._verbs.delete(ask.kind, ask.target.namespace, ask.target.name, how)
        return self._reply(201, status_success(code=201))

    # ------------------------------------------------------------------ tokens

    def _token(self, ask: Ask) -> Answer:
        return self._reply(201, self._tokens.answer(ask.target, ask.body, ask.content_type))
