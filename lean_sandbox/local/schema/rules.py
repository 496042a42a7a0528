"""CEL validation rules (`x-kubernetes-validations`) of custom resource schemas."""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from lean_sandbox.local.schema import errors, paths
from lean_sandbox.local.schema.errors import FieldError
from lean_sandbox.local.schema.listtypes import correlate
from lean_sandbox.model.times import parse_duration, parse_rfc3339

if TYPE_CHECKING:
    from cel import Context, Program

Json = dict[str, Any]
Wanted = dict[str, Any]
"""Which members of a value are asked for, by name; an empty one stands for the whole value."""

_MISSING: Final = object()
_KEYWORD: Final = "x-kubernetes-validations"
# What the CEL language itself offers; the rest comes from `celfunctions`.
_LANGUAGE: Final = frozenset(
    """all bytes contains double duration dyn endsWith exists exists_one filter getDate
    getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours getMilliseconds getMinutes
    getMonth getSeconds has hasValue int map matches none of or orValue size startsWith string
    timestamp type uint value""".split()  # noqa: SIM905
)
_TYPES: Final = ("bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint")
_SPACES: Final = ("format", "ip", "lists", "optional", "sets", "strings")
_UNSUPPORTED: Final = re.compile(
    r"\.\?|\[\?|\{\s*\?|\b(?:optMap|optFlatMap|sortBy|transform(?:List|Map|MapEntry))\(\s*\w+\s*,"
    r"|\.(?:all|exists|exists_one|existsOne)\(\s*\w+\s*,\s*\w+\s*,"
)
_TEXT: Final = re.compile(r"""[rRbB]{0,2}(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""")
# Sizes of texts are counted in bytes, times written otherwise, and patterns are not RE2's.
_REPLACED: Final = re.compile(r"\b(matches|size|string)(?=\s*\()")
_BINDING: Final = re.compile(r"\.(?:all|exists|exists_one|map|filter)\(\s*(\w+)\s*,")
_OPERATOR: Final = re.compile(r"[^\w.]|^_|^@|^$")
_REFERENCE: Final = re.compile(r"(?<![\w.])(self|oldSelf)\b((?:\s*\.\s*[A-Za-z_]\w*(?!\w*\s*\())*)")
_RESERVED: Final = frozenset(
    """true false null in as break const continue else for function if import let loop package
    namespace return var void while""".split()  # noqa: SIM905
)
_ESCAPES: Final = (
    ("__", "__underscores__"),
    (".", "__dot__"),
    ("-", "__dash__"),
    ("/", "__slash__"),
)
_STRING: Final = {"type": "string"}
_RESOURCE: Final[Json] = {
    "apiVersion": _STRING,
    "kind": _STRING,
    "metadata": {"type": "object", "properties": {"name": _STRING, "generateName": _STRING}},
}


class RuleError(ValueError):
    """A rule that cannot be compiled: bad syntax, an unknown field, or an unknown function."""


# ------------------------------------------------------------------ compiling


@lru_cache(maxsize=1)
def _context() -> Context:
    from cel import Context  # noqa: PLC0415 -- only servers whose definitions have rules need it

    from lean_sandbox.local.schema.celfunctions import functions  # noqa: PLC0415 -- as above

    # It warns of each error of a function, which here is the answer to a write.
    logging.getLogger("cel").setLevel(logging.CRITICAL)
    return Context(functions=functions())


@lru_cache(maxsize=512)
def compile_rule(expression: str) -> Program:
    """Return the compiled expression. Raises RuleError naming what is wrong with it."""
    from cel import compile as compile_expression  # noqa: PLC0415 -- as above

    plain = _TEXT.sub('""', expression)
    if found := _UNSUPPORTED.search(plain):
        text = f"'{found.group()}': this server has no optional fields or two-variable macros"
        raise RuleError(f"compilation failed: unsupported syntax {text}")
    try:
        program = compile_expression(_renamed(expression))
    except ValueError as error:
        text = " ".join(str(error).split())
        raise RuleError(f"compilation failed: {text}") from error
    known = {name.rpartition(".")[2] for name in _context().functions} | _LANGUAGE
    bound = set(_BINDING.findall(plain)) | {"self", "oldSelf", *_TYPES, *_SPACES}
    unknown = [n for n in program.functions() if n not in known and not _OPERATOR.search(n)]
    unknown += [n for n in program.variables() if n not in bound and not _OPERATOR.search(n)]
    if unknown:
        text = f"undeclared reference to '{min(unknown)}' (in container '')"
        raise RuleError(f"compilation failed: {text}")
    return program


def _renamed(expression: str) -> str:
    """Return an expression that calls our functions where the library's differ from Kubernetes'."""
    texts = _TEXT.findall(expression)
    parts = _TEXT.split(expression)
    renamed = [_REPLACED.sub(r"\1_", part) for part in parts]
    return "".join(a + b for a, b in zip(renamed, [*texts, ""], strict=True))


def check_fields(expression: str, schema: Json, *, is_root: bool) -> None:
    """Raise RuleError when an expression asks for a field that the schema does not have."""
    for name in ("self", "oldSelf"):
        _check_fields(_wanted(name, expression), _visible(schema, is_root=is_root))


def _check_fields(wanted: Wanted, schema: Json) -> None:
    properties: Json = schema.get("properties") or {}
    if schema.get("type") != "object" or isinstance(schema.get("additionalProperties"), dict):
        return
    fields = {_escaped(name): field for name, field in properties.items()}
    for name, inner in wanted.items():
        if name not in fields:
            raise RuleError(f"compilation failed: undefined field '{name}'")
        _check_fields(inner, _visible(fields[name]))


@lru_cache(maxsize=1024)
def _wanted(name: str, *expressions: str) -> Wanted:
    """Return which members of `self` or `oldSelf` expressions can reach."""
    tree: Wanted = {}
    found = [pair for text in expressions for pair in _REFERENCE.findall(_TEXT.sub('""', text))]
    ways = [tail.replace(" ", "").split(".")[1:] for who, tail in found if who == name]
    # Longer ways first: a shorter one then stands for all that is below it.
    for steps in sorted((list(map(str.strip, way)) for way in ways), key=len, reverse=True):
        if not steps:
            return {}
        node = tree
        for step in steps[:-1]:
            node = node.setdefault(step, {})
        node[steps[-1]] = {}
    return tree


# ------------------------------------------------------------------ values


def _escaped(name: str) -> str:
    """Return how an expression writes the name of a field."""
    if name in _RESERVED:
        return f"__{name}__"
    for char, text in _ESCAPES:
        name = name.replace(char, text)
    return name


def _visible(schema: Json, *, is_root: bool = False) -> Json:
    """Return a schema with what rules see of a whole object: its type and names."""
    if is_root or schema.get("x-kubernetes-embedded-resource"):
        return {**schema, "properties": {**(schema.get("properties") or {}), **_RESOURCE}}
    return schema


def _scalar(value: Any, schema: Json) -> Any:
    if schema.get("type") == "number" and isinstance(value, int):
        return float(value)
    form = schema.get("format") if isinstance(value, str) else None
    if form in ("date-time", "datetime"):
        return parse_rfc3339(value.upper())
    if form == "date":
        return datetime.combine(date.fromisoformat(value), time(0), UTC)
    if form == "duration":
        return timedelta(seconds=parse_duration(value))
    return base64.b64decode(value) if form == "byte" else value


def _view(value: Any, schema: Json, wanted: Wanted, *, is_root: bool = False) -> Any:
    """Return a value as rules see it, without the members that nobody asks for."""
    if isinstance(value, list):
        items: Json = schema.get("items") or {}
        return [_view(item, items, {}) for item in value]
    if not isinstance(value, dict):
        return _scalar(value, schema)
    properties: Json = _visible(schema, is_root=is_root).get("properties") or {}
    others = schema.get("additionalProperties")
    made: Json = {}
    for name, item in value.items():
        field = properties.get(name)
        shown = name if field is None else _escaped(name)
        if (wanted and shown not in wanted) or (item is None and field is not None):
            continue
        if field is None:
            field = others if isinstance(others, dict) else {}
        made[shown] = _view(item, field, wanted.get(shown, {}))
    return made


# ------------------------------------------------------------------ checking


def _where(rule: Json, path: str) -> str:
    return (path + rule["fieldPath"]).lstrip(".") if rule.get("fieldPath") else path or "<nil>"


def _execute(expression: str, values: Json) -> Any:
    """Return what an expression says of values. Raises ValueError."""
    context = _context()
    context.update(values)
    try:
        return compile_rule(expression).execute(context)
    except KeyError as error:
        raise ValueError(f"no such key: {error.args[0]}") from None
    except (ArithmeticError, LookupError, RuntimeError, TypeError) as error:
        raise ValueError(_explained(str(error))) from None


def _explained(problem: str) -> str:
    for begin, text in (
        ("Arithmetic overflow", "integer overflow"),
        ("division by zero", "division by zero"),
    ):
        if problem.startswith(begin):
            return text
    text = re.sub(r"\. Check function.*", "", problem, flags=re.DOTALL)
    return re.sub(r"^(?:Function '\w+' error: )?(?:Python function call failed: \w+: )?", "", text)


def _message(rule: Json, values: Json) -> str:
    if expression := rule.get("messageExpression"):
        try:
            text = _execute(expression, values)
        except ValueError:
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


def _kind_of(value: Any) -> Any:
    """Return what stands for a value that is not quoted."""
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else value


class RuleSet:
    """The rules of a schema and of all that is inside it, made once for each schema."""

    def __init__(self, schema: Json) -> None:
        self._schema = schema
        self._rules: list[Json] = schema.get(_KEYWORD) or []
        fields = schema.get("properties") or {}
        made = {name: RuleSet(field) for name, field in fields.items()}
        self._fields = {name: inner for name, inner in made.items() if inner}
        self._others = self._inner("additionalProperties")
        self._items = self._inner("items")

    def _inner(self, name: str) -> RuleSet | None:
        field = self._schema.get(name)
        return (RuleSet(field) or None) if isinstance(field, dict) else None

    def __bool__(self) -> bool:
        return bool(self._rules or self._fields or self._others or self._items)

    def check(self, obj: Json, old: Json | None = None) -> Iterator[FieldError]:
        """Give an error for each rule an object breaks; transition rules need `old`.

        Rules of the root run at every write, rules of other parts only when the part changed.
        """
        yield from self.walk(obj, _MISSING if old is None else old, "", is_root=True)

    def _apply(self, rule: Json, value: Any, old: Any, path: str) -> FieldError | None:
        asked = (rule["rule"], rule.get("messageExpression") or "true")
        is_root = not path
        values = {"self": _view(value, self._schema, _wanted("self", *asked), is_root=is_root)}
        if "oldSelf" in compile_rule(rule["rule"]).variables():
            if old is _MISSING:
                return None
            wanted = _wanted("oldSelf", *asked)
            values["oldSelf"] = _view(old, self._schema, wanted, is_root=is_root)
        try:
            if _execute(rule["rule"], values) is True:
                return None
        except ValueError as error:
            text = f"{error} evaluating rule: {rule.get('message') or rule['rule']}"
            return errors.invalid(path or "<nil>", _kind_of(value), text)
        return _failure(rule, path, _message(rule, values))

    def walk(self, value: Any, old: Any, path: str, *, is_root: bool) -> Iterator[FieldError]:
        """Give the errors of a part of an object, `old` being what it was."""
        # Ratcheting: rules over a part that an update left alone are not run again.
        if not is_root and old is not _MISSING and old == value:
            return
        for rule in self._rules:
            if error := self._apply(rule, value, old, path):
                yield error
        if isinstance(value, dict):
            before: Mapping[str, Any] = old if isinstance(old, dict) else {}
            declared = self._schema.get("properties") or ()
            for name, item in value.items():
                inner = self._fields.get(name) if name in declared else self._others
                if inner is not None:
                    where = paths.child(path, name)
                    yield from inner.walk(item, before.get(name, _MISSING), where, is_root=False)
        elif isinstance(value, list) and self._items is not None:
            find = correlate(None if old is _MISSING else old, self._schema)
            for position, item in enumerate(value):
                where = paths.index(path, position)
                yield from self._items.walk(item, find(item, _MISSING), where, is_root=False)
