"""The options of writes and deletions, from the query of a request or the body of a deletion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lean_sandbox.local.errors import Cause, bad_request, invalid
from lean_sandbox.local.kinds.registry import Kind, make_kind
from lean_sandbox.local.schema import errors
from lean_sandbox.local.target import Ask, Target, flag, number
from lean_sandbox.local.write import bodies
from lean_sandbox.local.write.admission import Admission

Json = dict[str, Any]

_DELETE_OPTIONS: Final = make_kind("", "v1", "deleteoptions", "DeleteOptions")
_KINDS: Final = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_MANAGER_LIMIT_BYTES: Final = 128
_POLICIES: Final = ("Foreground", "Background", "Orphan")
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")


@dataclass(slots=True)
class WriteOptions:
    """Who writes, how, and what the server had to say beside the answer."""

    manager: str = "unknown"
    dry_run: bool = False
    validation: str = "Warn"
    subresource: str = ""
    force: bool = False
    is_patch: bool = False
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Deletion:
    """How an object is deleted."""

    grace_s: int | None = None
    policy: str | None = None
    """``Orphan``, ``Background`` or ``Foreground``; None leaves it to the object."""
    uid: str | None = None
    version: str | None = None
    dry_run: bool = False


def read_options(ask: Ask, *, verb: str = "") -> WriteOptions:
    """Return how a request writes: manager, dry run, validation.

    Raises:
        StatusError: 422 with a cause for each value that means nothing.

    """
    target = ask.target
    verb, query = verb or target.verb, target.query
    is_apply = bodies.media_type(ask.target.content_type) == bodies.APPLY
    found = list(_mistakes(target, is_apply=is_apply, is_patch=verb == "patch"))
    if found:
        raise invalid("meta.k8s.io", _KINDS[verb], "", found)
    agent = ask.target.user_agent.partition("/")[0].partition(" ")[0]
    return WriteOptions(
        manager=query.get("fieldManager") or agent or "unknown",
        dry_run=bool(target.dry_run),
        validation=query.get("fieldValidation") or "Warn",
        subresource=target.subresource,
        force=flag(query, "force"),
        is_patch=verb == "patch",
    )


def read_body(kind: Kind, ask: Ask, options: WriteOptions, admission: Admission) -> Json:
    """Return a body that is no object of its path: with the types of its kind, and metadata.

    Raises:
        StatusError: 400 for what is none of that kind, 415 for an unknown format.

    """
    obj = bodies.read_object(kind, ask.body, ask.target.content_type)
    admission.decode(kind, obj, options.validation, options.warnings)
    obj["metadata"] = obj.get("metadata") or {}
    bodies.check_namespace(ask.namespace, obj["metadata"])
    return obj


def _mistakes(target: Target, *, is_apply: bool, is_patch: bool) -> Iterator[Cause]:
    query = target.query
    manager = query.get("fieldManager", "")
    if is_apply and not manager:
        yield errors.required("fieldManager", "is required for apply patch")
    if len(manager.encode()) > _MANAGER_LIMIT_BYTES:
        yield errors.too_long("fieldManager", _MANAGER_LIMIT_BYTES)
    if not manager.isprintable():
        yield errors.invalid("fieldManager", manager, "should only contain printable characters")
    if is_patch and flag(query, "force") and not is_apply:
        yield errors.forbidden("force", "may not be specified for non-apply patch")
    yield from _dry_run_mistakes(target.dry_run)
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        yield errors.not_supported("fieldValidation", validation, _VALIDATIONS)


def _dry_run_mistakes(values: Sequence[str]) -> Iterator[Cause]:
    if set(values) - {"All"}:
        yield errors.not_supported("dryRun", list(values), ("All",))


def read_deletion(ask: Ask, admission: Admission) -> Deletion:
    """Return the options of a delete request: from its body, or from its query without one.

    Raises:
        StatusError: 400 for a body that makes no sense and a number that is none, 415 for a body in
            an unknown format, 422 for a value that means nothing.

    """
    if not ask.body:
        return deletion_of(_from_query(ask.target))
    options = bodies.decoded(_DELETE_OPTIONS, ask.body, ask.target.content_type)
    if options.pop("kind", None) not in (None, "", "DeleteOptions"):
        raise bad_request("the body of a deletion is of kind DeleteOptions")
    options.pop("apiVersion", None)
    admission.decode(_DELETE_OPTIONS, options, "Ignore", [])
    return deletion_of(options)


def _from_query(target: Target) -> dict[str, Any]:
    query = target.query
    options: dict[str, Any] = {
        "dryRun": target.dry_run,
        "gracePeriodSeconds": number(query, "gracePeriodSeconds"),
        "propagationPolicy": query.get("propagationPolicy"),
        "preconditions": {key: query[key] for key in ("uid", "resourceVersion") if key in query},
    }
    if "orphanDependents" in query:
        options["orphanDependents"] = flag(query, "orphanDependents")
    return options


def deletion_of(options: dict[str, Any]) -> Deletion:
    """Return what a DeleteOptions says whose types have been checked.

    Raises:
        StatusError: 422 for a value that means nothing.

    """
    policy, orphans = options.get("propagationPolicy"), options.get("orphanDependents")
    dry_run = options.get("dryRun") or ()
    found = list(_dry_run_mistakes(dry_run))
    if policy is not None and policy not in _POLICIES:
        found.append(errors.not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
    if orphans is not None and policy is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        found.append(errors.invalid("propagationPolicy", policy, why))
    if found:
        raise invalid("meta.k8s.io", "DeleteOptions", "", found)
    if orphans is not None:
        policy = "Orphan" if orphans else "Background"
    conditions = options.get("preconditions") or {}
    return Deletion(
        grace_s=options.get("gracePeriodSeconds"),
        policy=policy,
        uid=conditions.get("uid"),
        version=conditions.get("resourceVersion"),
        dry_run=bool(dry_run),
    )
