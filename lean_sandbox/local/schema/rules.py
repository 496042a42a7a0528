"""CEL validation rules (`x-kubernetes-validations`) of custom resource schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lean_sandbox.local.schema import errors, paths
from lean_sandbox.local.schema.errors import FieldError
from lean_sandbox.local.schema.listtypes import correlate

if TYPE_CHECKING:
    from cel import Program

Json = dict[str, Any]
_MISSING = object()
_KEYWORD = "x-kubernetes-validations"

# What the CEL language itself offers; the rest of the functions come with the library.
_LANGUAGE = frozenset(
    {
        "all",
        "bool",
        "bytes",
        "contains",
        "double",
        "duration",
        "dyn",
        "endsWith",
        "exists",
        "exists_one",
        "filter",
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getFullYear",
        "getHours",
        "getMilliseconds",
        "getMinutes",
        "getMonth",
        "getSeconds",
        "has",
        "int",
        "map",
        "matches",
        "max",
        "min",
        "size",
        "startsWith",
        "string",
        "timestamp",
        "type",
        "uint",
    }
)
_GLOBALS = frozenset({"self", "oldSelf", "math", "sets", "base64", "strings", "lists", *_LANGUAGE})
_BINDING = re.compile(r"\.(?:all|exists|exists_one|map|filter)\(\s*(\w+)\s*(?:,\s*(\w+)\s*(?=,))?")
_OPERATOR = re.compile(r"[^\w.]|^_|^@|^$")
_REFERENCE = re.compile(r"(?<![\w.\"'])(self|oldSelf)\b((?:\s*\.\s*[A-Za-z_]\w*(?!\w*\s*\())*)")


class RuleError(ValueError):
    """A rule that cannot be compiled: bad syntax, or a function this server does not have."""


@lru_cache(maxsize=1)
def _library() -> dict[str, Any]:
    from cel import Context  # noqa: PLC0415 -- only servers whose definitions have rules need it
    from cel.stdlib import add_stdlib_to_context  # noqa: PLC0415 -- as above

    context = Context()
    add_stdlib_to_context(context)
    return dict(context.functions)


@lru_cache(maxsize=512)
def compile_rule(expression: str) -> Program:
    """Return the compiled expression. Raises RuleError naming what is wrong with it."""
    from cel import compile as compile_expression  # noqa: PLC0415 -- as above

    try:
        program = compile_expression(expression)
    except ValueError as error:
        text = " ".join(str(error).split())
        raise RuleError(f"compilation failed: {text}") from error
    known = {name.rpartition(".")[2] for name in _library()} | _LANGUAGE
    bound = {name for names in _BINDING.findall(expression) for name in names}
    unknown = [n for n in program.functions() if n not in known and not _OPERATOR.search(n)]
    unknown += [n for n in program.variables() if n not in bound and n not in _GLOBALS]
    if unknown:
        raise RuleError(f"compilation failed: undeclared reference to '{min(unknown)}'")
    return program


def has_rules(schema: Json) -> bool:
    """Say whether a schema has a CEL rule anywhere."""
    found = _HAS_RULES.get(id(schema))
    if found is None or found[0] is not schema:
        found = (schema, any(True for _ in _ruled(schema, set())))
        # Identity is enough as a key while the entry keeps the schema alive.
        if len(_HAS_RULES) >= 64:
            _HAS_RULES.clear()
        _HAS_RULES[id(schema)] = found
    return found[1]


_HAS_RULES: dict[int, tuple[Json, bool]] = {}


def _children(schema: Json) -> Iterator[Json]:
    yield from (schema.get("properties") or {}).values()
    for name in ("items", "additionalProperties"):
        if isinstance(inner := schema.get(name), dict):
            yield inner


def _ruled(schema: Json, seen: set[int]) -> Iterator[Json]:
    if id(schema) in seen:
        return
    seen.add(id(schema))
    if schema.get(_KEYWORD):
        yield schema
    for inner in _children(schema):
        yield from _ruled(inner, seen)


@lru_cache(maxsize=512)
def _used_paths(expression: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return which fields of self and oldSelf an expression can reach."""
    found = []
    for name, tail in _REFERENCE.findall(expression):
        steps = tuple(step.strip() for step in tail.split(".") if step.strip())
        found.append((name, steps))
    return tuple(found)


def _copy_path(source: Any, target: Json, steps: tuple[str, ...]) -> None:
    for position, step in enumerate(steps):
        if not isinstance(source, dict) or step not in source:
            return
        source = source[step]
        if position == len(steps) - 1 or not isinstance(source, dict):
            target[step] = source
            return
        target = target.setdefault(step, {})


def _reachable(value: Any, name: str, expressions: tuple[str, ...]) -> Any:
    """Return a copy of a value that holds only what the expressions name: less to convert."""
    if not isinstance(value, dict):
        return value
    wanted = [
        steps for expression in expressions for who, steps in _used_paths(expression) if who == name
    ]
    if not all(wanted):
        return value
    partial: Json = {}
    # Longer paths first: a shorter one then replaces the partial object by the whole one.
    for steps in sorted(wanted, key=len, reverse=True):
        _copy_path(value, partial, steps)
    return partial


def _environment(rule: Json, value: Any, old: Any) -> dict[str, Any]:
    expressions = (rule["rule"], rule.get("messageExpression") or "true")
    variables = dict(_library())
    variables["self"] = _reachable(value, "self", expressions)
    if old is not _MISSING:
        variables["oldSelf"] = _reachable(old, "oldSelf", expressions)
    return variables


def _where(rule: Json, path: str) -> str:
    return (path + rule["fieldPath"]).lstrip(".") if rule.get("fieldPath") else path or "<nil>"


def _message(rule: Json, variables: dict[str, Any]) -> str:
    expression = rule.get("messageExpression")
    if expression:
        try:
            text = compile_rule(expression).execute(variables)
        except (KeyError, RuntimeError, TypeError, ValueError):
            text = None
        if isinstance(text, str) and text.strip() and "\n" not in text:
            return text.strip()
    return str(rule.get("message") or f"failed rule: {' '.join(rule['rule'].split())}").strip()


def _failure(rule: Json, path: str, message: str) -> FieldError:
    where, reason = _where(rule, path), rule.get("reason") or "FieldValueInvalid"
    if reason == "FieldValueForbidden":
        return errors.forbidden(where, message)
    if reason == "FieldValueRequired":
        return errors.required(where, message)
    made = errors.invalid(where, errors.OMITTED, message)
    if reason == "FieldValueDuplicate":
        return FieldError(where, reason, f"Duplicate value: {message}")
    return made


def _apply(rule: Json, value: Any, old: Any, path: str) -> FieldError | None:
    program = compile_rule(rule["rule"])
    if "oldSelf" in program.variables() and old is _MISSING:
        return None
    variables = _environment(rule, value, old)
    try:
        accepted = program.execute(variables)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = f"no such key: {error.args[0]}" if isinstance(error, KeyError) else str(error)
        text = f"{reason} evaluating rule: {rule.get('message') or rule['rule']}"
        return errors.invalid(path or "<nil>", errors.OMITTED, text)
    return None if accepted is True else _failure(rule, path, _message(rule, variables))


def _walk(value: Any, schema: Json, old: Any, path: str, *, is_root: bool) -> Iterator[FieldError]:
    # Ratcheting: rules over a part that an update left alone are not run again.
    if not is_root and old is not _MISSING and old == value:
        return
    for rule in schema.get(_KEYWORD) or ():
        if error := _apply(rule, value, old, path):
            yield error
    if isinstance(value, dict):
        properties: Json = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        before: Json = old if isinstance(old, dict) else {}
        for name, item in value.items():
            field = properties.get(name, others)
            if isinstance(field, dict) and has_rules(field):
                yield from _walk(
                    item,
                    field,
                    before.get(name, _MISSING),
                    paths.child(path, name),
                    is_root=False,
                )
    elif isinstance(value, list):
        items = schema.get("items")
        if not (isinstance(items, dict) and has_rules(items)):
            return
        find = correlate(None if old is _MISSING else old, schema)
        for position, item in enumerate(value):
            where = paths.index(path, position)
            yield from _walk(item, items, find(item, _MISSING), where, is_root=False)


def _root_value(obj: Json) -> Json:
    """Return an object as rules see it: of the metadata only name and generateName."""
    metadata = obj.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    shown = {key: named[key] for key in ("name", "generateName") if key in named}
    return {**obj, "metadata": shown}


def check_rules(obj: Json, schema: Json, old: Json | None = None) -> Iterator[FieldError]:
    """Give an error for each rule an object breaks; transition rules need `old`.

    Rules of the root run at every write, rules of other parts only when the part changed.
    Raises RuleError for rules that do not compile (the definition's creation refuses those).
    """
    before = _MISSING if old is None else _root_value(old)
    yield from _walk(_root_value(obj), schema, before, "", is_root=True)
