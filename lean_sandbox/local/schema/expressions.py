"""Expressions of CEL as Kubernetes has them: what compiles, and what they say of values.

A quantity, a type that CEL lacks, is a map of one member.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from lean_sandbox.local.schema.structural import compile_pattern, quantity_problem
from lean_sandbox.model.comparison import parse_quantity

if TYPE_CHECKING:
    import cel

Json = dict[str, Any]

TEXT: Final = re.compile(r"""[rRbB]{0,2}(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""")
"""A literal text in an expression."""

# What the language itself offers.
_LANGUAGE: Final = frozenset(
    """all bytes contains double duration dyn endsWith exists exists_one filter getDate
    getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours getMilliseconds getMinutes
    getMonth getSeconds has hasValue int map matches none of or orValue size startsWith string
    timestamp type uint value""".split()  # noqa: SIM905
)
# Of the library beside it; Kubernetes leaves out its mathematics and encodings.
_STANDARD: Final = frozenset(
    """bool charAt substring replace split join lowerAscii upperAscii trim strings.quote
    sets.contains sets.equivalent sets.intersects sum min max distinct flatten slice sort reverse
    first last lists.range""".split()  # noqa: SIM905
)
_NAMES: Final = frozenset(
    """self oldSelf bool bytes double int list map null_type string uint lists optional sets
    strings""".split()  # noqa: SIM905
)
_ABSENT: Final = frozenset(
    """bind cidr format ip isCIDR isIP isSemver isURL ofNonZeroValue optFlatMap optMap
    semver sign sortBy transformList transformMap transformMapEntry url""".split()  # noqa: SIM905
)
"""What a real server has besides."""
_LACKS: Final = (
    "this server has no addresses, URLs, versions, formats, time zones, optional fields and macros"
    " of two variables"
)
_UNSUPPORTED: Final = re.compile(
    r"""
    \.\? | \[\? | \{\s*\?                                            # optional fields
    | \.(?:all|exists|exists_one)\(\s*\w+\s*,\s*\w+\s*,              # two variables
    | \bget\w+\(\s*[^\s)]                                           # time zones
    | \b[A-Z]\w*\s*\{                                               # messages
    """,
    re.VERBOSE,
)
# Sizes of texts are counted in bytes, times written otherwise, and patterns are not RE2's.
_REPLACED: Final = re.compile(r"\b(matches|size|string)(?=\s*\()")
_BINDING: Final = re.compile(r"\.(?:all|exists|exists_one|existsOne|map|filter)\(\s*(\w+)\s*,")
_OPERATOR: Final = re.compile(r"[^\w.]|^_|^@|^$")

# It warns of each error of a function, which here is the answer to a write.
logging.getLogger("cel").setLevel(logging.CRITICAL)


class RuleError(ValueError):
    """A rule that cannot be compiled: bad syntax, an unknown field, or an unknown function."""


def _quantity(text: str) -> Json:
    amount = parse_quantity(text)
    if amount is None:
        raise ValueError(quantity_problem(text))
    return {"quantity": str(amount)}


def _amount(value: Json | int) -> Fraction:
    return Fraction(value["quantity"]) if isinstance(value, dict) else Fraction(value)


def _integer(value: Json) -> int:
    amount = _amount(value)
    if amount.denominator != 1:
        raise ValueError("cannot convert value to integer")
    return int(amount)


def _compare(left: Json, right: Json) -> int:
    difference = _amount(left) - _amount(right)
    return int(difference > 0) - int(difference < 0)


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match.group() for match in compile_pattern(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


def _position(values: Any, wanted: Any, *start: int) -> int:
    if isinstance(values, str):
        return values.find(wanted, *start)
    return values.index(wanted) if wanted in values else -1


def _last_position(values: Any, wanted: Any, *start: int) -> int:
    if isinstance(values, str):
        return values.rfind(wanted, 0, *(at + len(wanted) for at in start))
    at = _position(values[::-1], wanted)
    return -1 if at < 0 else len(values) - 1 - at


def _text_of(value: Any) -> str:
    """Return a value as Kubernetes' `string()` writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, datetime):
        text = value.astimezone(UTC).replace(tzinfo=None).isoformat()
        return (text.rstrip("0") if "." in text else text) + "Z"
    if isinstance(value, timedelta):
        return _text_of(value.total_seconds()) + "s"
    return str(value)


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "quantity": _quantity,
    "isQuantity": lambda text: parse_quantity(text) is not None,
    "isInteger": lambda value: _amount(value).denominator == 1,
    "asInteger": _integer,
    "asApproximateFloat": lambda value: float(_amount(value)),
    "add": lambda left, right: {"quantity": str(_amount(left) + _amount(right))},
    "sub": lambda left, right: {"quantity": str(_amount(left) - _amount(right))},
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "compareTo": _compare,
    "int": lambda moment: int(moment.timestamp() // 1),
    "timestamp": lambda seconds: datetime.fromtimestamp(seconds, UTC),
    "find": lambda text, pattern: (_find_all(text, pattern, 1) or [""])[0],
    "findAll": _find_all,
    "indexOf": _position,
    "lastIndexOf": _last_position,
    "isSorted": lambda values: all(a <= b for a, b in itertools.pairwise(values)),
    # Under these names they are called instead of the language's own.
    "string_": _text_of,
    "size_": len,
    "matches_": lambda text, pattern: compile_pattern(pattern).search(text) is not None,
}


@cache
def _context() -> cel.Context:
    import cel  # noqa: PLC0415 -- slow to import, and not always needed
    from cel.stdlib import add_stdlib_to_context  # noqa: PLC0415 -- as above

    standard = cel.Context()
    add_stdlib_to_context(standard)
    kept = {name: run for name, run in standard.functions.items() if name in _STANDARD}
    return cel.Context(functions={**kept, **_FUNCTIONS})


@lru_cache(maxsize=512)
def compile_rule(expression: str) -> cel.Program:
    """Return the compiled expression. Raises RuleError naming what is wrong with it."""
    import cel  # noqa: PLC0415 -- as above

    plain = TEXT.sub('""', expression)
    if found := _UNSUPPORTED.search(plain):
        raise RuleError(f"unsupported syntax '{found.group()}': {_LACKS}")
    try:
        program = cel.compile(_renamed(expression))
    except ValueError as error:
        raise RuleError(" ".join(str(error).split())) from error
    known = {name.rpartition(".")[2] for name in _context().functions} | _LANGUAGE
    bound = _NAMES.union(_BINDING.findall(plain))
    unknown = {name for name in program.functions() if name not in known}
    unknown.update(name for name in program.variables() if name not in bound)
    if absent := unknown & _ABSENT:
        raise RuleError(f"unsupported function '{min(absent)}': {_LACKS}")
    if named := {name for name in unknown if not _OPERATOR.search(name)}:
        raise RuleError(f"undeclared reference to '{min(named)}' (in container '')")
    return program


def _renamed(expression: str) -> str:
    """Return an expression that calls our functions where the library's differ from Kubernetes'."""
    renamed = [_REPLACED.sub(r"\1_", part) for part in TEXT.split(expression)]
    texts = TEXT.findall(expression)
    return "".join(a + b for a, b in zip(renamed, [*texts, ""], strict=True))


def execute(expression: str, values: Json) -> Any:
    """Return what an expression says of values. Raises ValueError."""
    context = _context()
    context.update(values)
    try:
        return compile_rule(expression).execute(context)
    except KeyError as error:
        raise ValueError(f"no such key: {error.args[0]}") from None
    except (ArithmeticError, LookupError, RuntimeError, TypeError) as error:
        text = re.sub(r"\. Check function.*", "", str(error), flags=re.DOTALL)
        begin = r"^(?:Function '\w+' error: )?(?:Python function call failed: \w+: )?"
        raise ValueError(re.sub(begin, "", text)) from None
