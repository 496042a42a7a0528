"""CEL validation rules (`x-kubernetes-validations`) of custom resource schemas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from lean_sandbox.local.errors import Cause
from lean_sandbox.local.schema import errors, paths
from lean_sandbox.local.schema.structural import MISSING, former, members
from lean_sandbox.local.schema.views import check_fields, view, wanted_of

Json = dict[str, Any]


def _expressions() -> Any:
    from lean_sandbox.local.schema import expressions  # noqa: PLC0415 -- CEL is slow to import

    return expressions


def check_rule(expression: str, schema: Json, *, is_root: bool) -> None:
    """Raise RuleError if an expression does not compile or asks for a field that is not there."""
    _expressions().compile_rule(expression)
    check_fields(expression, schema, is_root=is_root)


def _failure(rule: Json, path: str, message: str) -> Cause:
    where = (path + (rule.get("fieldPath") or "")).lstrip(".") or "<nil>"
    reason = rule.get("reason")
    if reason == "FieldValueForbidden":
        return errors.forbidden(where, message)
    if reason == "FieldValueRequired":
        return errors.required(where, message)
    if reason == "FieldValueDuplicate":
        return Cause(reason, f"Duplicate value: {message}", where)
    return errors.invalid(where, errors.OMITTED, message)


class RuleSet:
    """The rules of a schema and of all that is inside it, made once for each schema."""

    def __init__(self, schema: Json) -> None:
        self._schema = schema
        self._rules: list[Json] = schema.get("x-kubernetes-validations") or []
        inner = [*(schema.get("properties") or {}).values()]
        inner += [schema.get("additionalProperties"), schema.get("items")]
        made = {id(field): RuleSet(field) for field in inner if isinstance(field, dict)}
        self._inner = {identity: rules for identity, rules in made.items() if rules}

    def __bool__(self) -> bool:
        return bool(self._rules or self._inner)

    def check(self, value: Any, old: Any = MISSING, path: str = "") -> Iterator[Cause]:
        """Give an error for each rule a value breaks; transition rules need `old`.

        Rules of the root run at every write, rules of other parts only when the part changed.
        """
        # Ratcheting: rules over a part that an update left alone are not run again.
        if path and old is not MISSING and old == value:
            return
        for rule in self._rules:
            if error := self._apply(rule, value, old, path):
                yield error
        if self._inner:
            before = former(old, self._schema)
            for key, item, field in members(value, self._schema):
                if inner := self._inner.get(id(field)):
                    yield from inner.check(item, before(key, item), paths.member(path, key))

    def _apply(self, rule: Json, value: Any, old: Any, path: str) -> Cause | None:
        expressions = _expressions()
        asked = (rule["rule"], rule.get("messageExpression") or "true")
        is_root = not path
        values = {"self": view(value, self._schema, wanted_of("self", *asked), is_root=is_root)}
        if "oldSelf" in expressions.compile_rule(rule["rule"]).variables():
            if old is MISSING:
                return None
            wanted = wanted_of("oldSelf", *asked)
            values["oldSelf"] = view(old, self._schema, wanted, is_root=is_root)
        try:
            if expressions.execute(rule["rule"], values) is True:
                return None
        except ValueError as error:
            text = f"{error} evaluating rule: {rule.get('message') or rule['rule']}"
            kinds: dict[type, str] = {dict: "object", list: "array"}
            return errors.invalid(path or "<nil>", kinds.get(type(value), value), text)
        message = rule.get("message") or f"failed rule: {' '.join(rule['rule'].split())}"
        if expression := rule.get("messageExpression"):
            with suppress(ValueError):
                text = expressions.execute(expression, values)
                if isinstance(text, str) and text.strip() and "\n" not in text:
                    message = text
        return _failure(rule, path, message.strip())
