"""Functions that Kubernetes adds to CEL. Values of types that CEL lacks are maps of one member."""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from cel import Context, OptionalValue
from cel.stdlib import add_stdlib_to_context

from lean_sandbox.local.schema import names
from lean_sandbox.local.schema.formats import matches_format
from lean_sandbox.local.schema.patterns import compile_pattern
from lean_sandbox.model.comparison import parse_quantity

Json = dict[str, Any]

QUANTITY_TEXT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
# Of the library of the language; Kubernetes leaves out its mathematics and encodings.
_STANDARD: Final = frozenset(
    (
        *("bool", "charAt", "substring", "replace", "split", "join", "lowerAscii", "upperAscii"),
        *("trim", "strings.quote", "sets.contains", "sets.equivalent", "sets.intersects"),
        *("sum", "min", "max", "distinct", "flatten", "slice", "sort", "reverse", "first", "last"),
        "lists.range",
    )
)
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


def _parses(read: Callable[..., Any]) -> Callable[..., bool]:
    def ask(*given: Any) -> bool:
        try:
            read(*given)
        except ValueError:
            return False
        return True

    return ask


# ------------------------------------------------------------------ quantities, versions


def _quantity(text: str) -> Json:
    amount = parse_quantity(text)
    if amount is None:
        raise ValueError(QUANTITY_TEXT)
    return {"quantity": str(amount)}


def _order(value: Json) -> Any:
    """Return what quantities and versions are compared by."""
    if "quantity" in value:
        return Fraction(value["quantity"])
    numbers, before = value["semver"]
    parts = [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in before.split(".") if p]
    return numbers, not parts, parts


def _compare(left: Json, right: Json) -> int:
    return int(_order(left) > _order(right)) - int(_order(left) < _order(right))


def _amount(value: Json | int) -> Fraction:
    return Fraction(value["quantity"]) if isinstance(value, dict) else Fraction(value)


def _integer(value: Json) -> int:
    amount = _amount(value)
    if amount.denominator != 1:
        raise ValueError("cannot convert value to integer")
    return int(amount)


def _semver(text: str, normalize: bool = False) -> Json:  # noqa: FBT001, FBT002 -- as in CEL
    given = text
    if normalize:
        head, dash, tail = text.removeprefix("v").partition("-")
        numbers = [part.lstrip("0") or "0" for part in head.split(".")]
        given = ".".join([*numbers, "0", "0"][: max(3, len(numbers))]) + dash + tail
    found = _SEMVER.fullmatch(given)
    if found is None:
        raise ValueError(f'Semver "{text}" parse error during conversion from string')
    return {"semver": [[int(part) for part in found.groups()[:3]], found[4] or ""]}


# ------------------------------------------------------------------ addresses


def _url(text: str) -> Json:
    problem = f'URL parse error during conversion from string: parse "{text}"'
    found = urlsplit(text)
    port = "" if found.port is None else str(found.port)
    if not (found.scheme or text.startswith("/")) or re.search(r"[\x00-\x20\x7f]", text):
        raise ValueError(f"{problem}: invalid URI for request")
    host = found.netloc.rpartition("@")[2]
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return {"url": [found.scheme, host, name, port, found.path, found.query]}


def _address(value: str | Json) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    text = value["ip"] if isinstance(value, dict) else value
    try:
        found = ipaddress.ip_address(text)
        is_good = "%" not in text and getattr(found, "ipv4_mapped", None) is None
    except ValueError:
        is_good = False
    if not is_good:
        problem = f'IP Address "{text}" parse error during conversion from string'
        raise ValueError(f'{problem}: ParseAddr("{text}"): unable to parse IP')
    return found


def _network(value: str | Json) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    text = value["cidr"] if isinstance(value, dict) else value
    if re.search(r"/\d+$", text) and _parses(ipaddress.ip_interface)(text):
        return ipaddress.ip_interface(text)
    problem = "network address parse error during conversion from string"
    raise ValueError(f'{problem}: netip.ParsePrefix("{text}"): unable to parse prefix')


def _holds_network(outer: Json, inner: str | Json) -> bool:
    wide, narrow = _network(outer).network, _network(inner).network
    return (
        wide.version == narrow.version
        and wide.prefixlen <= narrow.prefixlen
        and narrow.network_address in wide
    )


def _is_global(value: Json) -> bool:
    found = _address(value)
    flags = (found.is_unspecified, found.is_loopback, found.is_multicast, found.is_link_local)
    return not any(flags) and str(found) != "255.255.255.255"


def _is_local_multicast(value: Json) -> bool:
    found = _address(value)
    return found in ipaddress.ip_network("224.0.0.0/24" if found.version == 4 else "ff02::/16")


# ------------------------------------------------------------------ texts and lists


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match.group() for match in compile_pattern(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


def _position(values: Any, wanted: Any, *start: int) -> int:
    if isinstance(values, str):
        return values.find(wanted, *start)
    return next((at for at, value in enumerate(values) if value == wanted), -1)


def _last_position(values: Any, wanted: Any, *start: int) -> int:
    if isinstance(values, str):
        return values.rfind(wanted, 0, *(at + len(wanted) for at in start))
    at = _position(values[::-1], wanted)
    return -1 if at < 0 else len(values) - 1 - at


def _decimal(number: float) -> str:
    digits, mark, exponent = repr(number).partition("e")
    digits = digits.removesuffix(".0")
    return f"{digits}e{int(exponent):+03d}" if mark else digits


def _text_of(value: Any) -> str:
    """Return a value as `string()` writes it; of an address or a network, its text."""
    if isinstance(value, dict):
        return str(next(iter(value.values())))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _decimal(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, datetime):
        text = value.astimezone(UTC).replace(tzinfo=None).isoformat()
        return (text.rstrip("0") if "." in text else text) + "Z"
    if isinstance(value, timedelta):
        return _decimal(value.total_seconds()) + "s"
    return str(value)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_shown(key)}: {_shown(value[key])}" for key in value) + "}"
    return _text_of(value)


def _formatted(text: str, values: list[Any]) -> str:
    waiting = list(values)

    def fill(found: re.Match[str]) -> str:
        digits, verb = found.groups()
        if verb == "%":
            return "%"
        if not waiting:
            raise ValueError(f"index {len(values)} out of range")
        value = waiting.pop(0)
        if verb == "s":
            return _shown(value)
        return format(value, (f".{int(digits or 6)}" if verb in "fe" else "") + verb)

    return re.sub(r"%(?:\.(\d+))?([sdfebxXo%])", fill, text)


def _prefix(rule: names.NameRule) -> names.NameRule:
    return lambda text: rule(re.sub(r"[-.]$", "a", text))


def _like(form: str, problem: str) -> names.NameRule:
    return lambda text: [] if matches_format(text, form) else [problem]


_FORMATS: Final[dict[str, names.NameRule]] = {
    "dns1123Label": names.rfc1123_label_problems,
    "dns1123Subdomain": names.subdomain_problems,
    "dns1035Label": names.rfc1035_label_problems,
    "qualifiedName": names.label_key_problems,
    "dns1123LabelPrefix": _prefix(names.rfc1123_label_problems),
    "dns1123SubdomainPrefix": _prefix(names.subdomain_problems),
    "dns1035LabelPrefix": _prefix(names.rfc1035_label_problems),
    "labelValue": names.label_value_problems,
    "uri": lambda text: [] if _parses(_url)(text) else ["must be a valid URI"],
    "uuid": _like("uuid", "does not match the UUID format"),
    "byte": _like("byte", "invalid base64"),
    "date": _like("date", "invalid date"),
    "datetime": _like("date-time", "invalid datetime"),
}


def _validate(form: Json, text: str) -> Any:
    problems = _FORMATS[form["format"]](text)
    return OptionalValue.of(problems) if problems else OptionalValue.none()


def _named(name: str) -> Any:
    return OptionalValue.of({"format": name}) if name in _FORMATS else OptionalValue.none()


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "quantity": _quantity,
    "isQuantity": _parses(_quantity),
    "isInteger": _parses(_integer),
    "asInteger": _integer,
    "asApproximateFloat": lambda value: float(_amount(value)),
    "add": lambda left, right: {"quantity": str(_amount(left) + _amount(right))},
    "sub": lambda left, right: {"quantity": str(_amount(left) - _amount(right))},
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
    "compareTo": _compare,
    "semver": _semver,
    "isSemver": _parses(_semver),
    **{
        name: lambda value, at=at: value["semver"][0][at]
        for at, name in enumerate(("major", "minor", "patch"))
    },
    "url": _url,
    "isURL": _parses(_url),
    **{
        f"get{name}": lambda value, at=at: value["url"][at]
        for at, name in enumerate(("Scheme", "Host", "Hostname", "Port", "EscapedPath"))
    },
    "getQuery": lambda value: parse_qs(value["url"][5], keep_blank_values=True),
    "ip": lambda value: {"ip": str(_network(value).ip if "cidr" in value else _address(value))},
    "isIP": _parses(_address),
    "ip.isCanonical": lambda text: str(_address(text)) == text,
    "family": lambda value: _address(value).version,
    "isUnspecified": lambda value: _address(value).is_unspecified,
    "isLoopback": lambda value: _address(value).is_loopback,
    "isLinkLocalUnicast": lambda value: _address(value).is_link_local,
    "isLinkLocalMulticast": _is_local_multicast,
    "isGlobalUnicast": _is_global,
    "cidr": lambda text: {"cidr": str(_network(text))},
    "isCIDR": _parses(_network),
    "containsIP": lambda value, address: _address(address) in _network(value).network,
    "containsCIDR": _holds_network,
    "masked": lambda value: {"cidr": str(_network(value).network)},
    "prefixLength": lambda value: _network(value).network.prefixlen,
    "int": lambda moment: int(moment.timestamp() // 1),
    # Under these names `rules` has them called instead of the language's own.
    "string_": _text_of,
    "size_": len,
    "matches_": lambda text, pattern: compile_pattern(pattern).search(text) is not None,
    "format": _formatted,
    "format.named": _named,
    **{f"format.{name}": lambda name=name: {"format": name} for name in _FORMATS},
    "validate": _validate,
    "find": lambda text, pattern: (_find_all(text, pattern, 1) or [""])[0],
    "findAll": _find_all,
    "indexOf": _position,
    "lastIndexOf": _last_position,
    "isSorted": lambda values: all(a <= b for a, b in itertools.pairwise(values)),
}


def functions() -> dict[str, Callable[..., Any]]:
    """Return the functions of rules by name, those of the language itself left out."""
    standard = Context()
    add_stdlib_to_context(standard)
    kept = {name: run for name, run in standard.functions.items() if name in _STANDARD}
    return {**kept, **_FUNCTIONS}
