"""Laws of rules and patterns in definitions: what is taken, what is refused, what is true."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import Api, Room, answers, until
from tests.conformance.objects import GROUP, WIDGETS

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_FIELDS: Json = {
    "text": {"type": "string", "maxLength": 20},
    "count": {"type": "integer"},
    "share": {"type": "number"},
    "moment": {"type": "string", "format": "date-time"},
    "span": {"type": "string", "format": "duration"},
    "octets": {"type": "string", "format": "byte"},
    "names": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 9}},
    "map": {
        "type": "object",
        "maxProperties": 3,
        "additionalProperties": {"type": "string", "maxLength": 5},
    },
    "part": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
    "blank": {"type": "string", "nullable": True},
    "port": {"x-kubernetes-int-or-string": True},
    "namespace": {"type": "string"},
    "a-b": {"type": "string"},
    "a.b": {"type": "string"},
}
_SPEC: Json = {
    "text": "é1b2",
    "count": 1,
    "share": 1,
    "moment": "2020-03-05T01:02:03Z",
    "span": "5s",
    "octets": "YWJj",
    "names": ["a", "b"],
    "map": {"k": "v"},
    "part": {"a": "x"},
    "blank": None,
    "port": 80,
    "namespace": "n",
    "a-b": "dash",
    "a.b": "dot",
}
_TRUE = {
    "quantities": """
        quantity('1') == quantity('1000m')
        quantity('1Ki').isGreaterThan(quantity('1k')) && quantity('1').isLessThan(quantity('2'))
        quantity('2').compareTo(quantity('1')) == 1 && quantity('2').asInteger() == 2
        quantity('1').add(quantity('1')).sub(1) == quantity('1')
        quantity('1.5').asApproximateFloat() == 1.5 && !quantity('1500m').isInteger()
        isQuantity('1Gi') && !isQuantity('1x')
    """,
    "texts": """
        'abc123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''
        'a1b2c3'.findAll('[0-9]', 2) == ['1', '2']
        'a1b2'.matches('^[[:alnum:]]+$') && matches('é', '^\\\\pL$')
        'abc'.charAt(1) == 'b' && 'abcb'.indexOf('b', 2) == 3 && 'abcb'.lastIndexOf('b') == 3
        'AbC'.lowerAscii() == 'abc' && 'aaa'.replace('a', 'b', 2) == 'bba'
        'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'abc'.substring(1, 2) == 'b' && ' a '.trim() == 'a'
        string(1.5) == '1.5' && string(true) == 'true' && string(duration('90m')) == '5400s'
        string(timestamp('2020-01-01T00:00:00.5Z')) == '2020-01-01T00:00:00.5Z'
        size('héllo') == 5 && self.text.size() == 4 && self.text.startsWith('é')
        int('12') == 12 && int(-1.9) == -1 && int(timestamp('1970-01-01T00:01:00Z')) == 60
        timestamp(60) == timestamp('1970-01-01T00:01:00Z')
        self.moment.getMonth() == 2 && duration('3661s').getMinutes() == 61
    """,
    "lists": """
        [1, 2, 3].isSorted() && ![2, 1].isSorted() && [1, 2, 3].sum() == 6 && [1, 3, 2].max() == 3
        [1, 3, 1].indexOf(1) == 0 && [1, 3, 1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1
        [1, 1, 2].distinct() == [1, 2] && [[1], [2]].flatten() == [1, 2]
        lists.range(2) == [0, 1]
        sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1, 1])
        !sets.intersects([1], [3])
        self.names.all(x, size(x) < 5) && self.names.exists_one(x, x == 'a') && 'b' in self.names
        self.names.map(x, x + '!') == ['a!', 'b!'] && self.names.filter(x, x > 'a') == ['b']
        optional.of(1).orValue(2) == 1 && !optional.none().hasValue()
        1 / 0 == 1 || true
        dyn(1) == 1.0 && 5 / 2 == 2 && -5 % 3 == -2
    """,
    "fields": """
        self.moment.getFullYear() == 2020 && self.moment > timestamp('2020-01-01T00:00:00Z')
        self.span == duration('5s') && self.octets == b'abc' && self.share == 1.0
        self.map['k'] == 'v' && self.map.k == 'v' && 'k' in self.map && !has(self.map.z)
        has(self.part.a) && !has(self.part.b) && !has(self.blank)
        self.port == 80 && self.__namespace__ == 'n' && self.a__dash__b == 'dash'
        self.a__dot__b == 'dot' && self == self
    """,
}
_FALSE = {
    "self.part.b == 'y'": '"object": no such key: b',
    "{'a': 1}['b'] == 1": '"object": no such key: b',
    "quantity('zz').isInteger()": '"object": quantities must match the regular expression',
    "9223372036854775807 + 1 > 0": "overflow",
    "1 / 0 == 1": '"object": division by zero',
    "optional.none().value() == 1": '"object": optional.none() dereference',
    "self.text == 'other'": "rule",
}
_REFUSED = {
    "self.nope == 1": "undefined field 'nope'",
    "self.part.nope == 'a'": "undefined field 'nope'",
    "size(self.names) > 0 && self.parts.a == 'a'": "undefined field 'parts'",
    "foo(1)": "undeclared reference to 'foo'",
    "self.text.foo()": "undeclared reference to 'foo'",
    "other == 1": "undeclared reference to 'other'",
    "self.names.all(x, y)": "undeclared reference to 'y'",
    "math.greatest(1, 2) == 2": "undeclared reference to 'greatest'",
    "base64.decode('YQ==') == b'a'": "undeclared reference to 'base64'",
    "1 +": "compilation failed",
    "self.`a-b` == 'x'": "unsupported syntax",
}


def definition(plural: str, spec: Json) -> Json:
    """Return a definition whose objects have this schema of their spec."""
    kind = plural[:-1].capitalize()
    properties = {"spec": {"type": "object", "properties": _FIELDS, **spec}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    return {
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural[:-1], "kind": kind},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


async def causes_of(room: Room, plural: str, spec: Json) -> list[Json]:
    """Define a kind, create an object of it, and return why it is refused."""
    api = room.api
    made = definition(plural, spec)
    (await api.post(_CRDS, made)).ok()
    path = f"{WIDGETS}/namespaces/{room.name}/{plural}"
    await answers(api, path)
    kind = made["spec"]["names"]["kind"]
    body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": "x"}, "spec": _SPEC}

    async def is_served() -> bool:
        return (await api.post(path, body, dryRun="All")).status in (201, 422)

    await until(is_served)
    reply = await api.post(path, body, dryRun="All")
    await api.delete(f"{_CRDS}/{plural}.{GROUP}")
    if reply.status == 201:
        return []
    return list(reply.refused(422, "Invalid")["details"]["causes"])


@pytest.mark.parametrize("part", list(_TRUE))
async def test_what_rules_say_of_values(room: Room, part: str) -> None:
    """Functions, operators and fields have the values of Kubernetes' own CEL."""
    rules = [{"rule": line.strip()} for line in _TRUE[part].strip().splitlines()]
    assert await causes_of(room, part, {"x-kubernetes-validations": rules}) == []


async def test_rules_that_are_false_or_cannot_be_evaluated(room: Room) -> None:
    """Each is a cause of its own, which says why."""
    rules = [{"rule": rule} for rule in _FALSE]
    found = await causes_of(room, "failures", {"x-kubernetes-validations": rules})
    assert [cause["field"] for cause in found] == ["spec"] * len(_FALSE)
    for rule, text in _FALSE.items():
        mine = [cause["message"] for cause in found if rule in cause["message"]]
        assert len(mine) == 1, (rule, found)
        assert text in mine[0]


@pytest.mark.parametrize("rule", list(_REFUSED))
async def test_a_rule_that_does_not_compile_keeps_its_definition_out(api: Api, rule: str) -> None:
    """Unknown fields, functions and variables are found before the first object is."""
    made = definition("wrongs", {"x-kubernetes-validations": [{"rule": rule}]})
    reply = await api.post(_CRDS, made, dryRun="All")
    (cause,) = reply.refused(422, "Invalid")["details"]["causes"]
    assert cause["field"].endswith("properties[spec].x-kubernetes-validations[0].rule")
    assert _REFUSED[rule] in cause["message"]


_PATTERNS = [
    ("^[a-z$]+$", ["ab$", "a"], ["A", "a\n"]),
    (r"^\pL+\z", ["é", "ab"], ["1", ""]),
    (r"\p{Greek}", ["x\u03b1x"], ["abc"]),
    (r"^\Qa.b\E$", ["a.b"], ["axb"]),
    ("^(?i)abc$", ["ABC"], ["ABD"]),
    (r"^\x{41}$", ["A"], ["B"]),
    ("^[[:alnum:]]+$", ["a1"], ["a-1", ":a"]),
    (r"^\d+$", ["12"], ["١٢"]),
    ("^(a+)+$", ["a" * 30], ["a" * 40 + "!"]),
    ("^.$", ["é"], ["\n"]),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), _PATTERNS)
async def test_patterns_are_those_of_re2(
    room: Room, pattern: str, good: list[str], bad: list[str]
) -> None:
    """Classes, flags and anchors mean what they mean in Go, and no pattern takes long."""
    values = {f"v{at}": text for at, text in enumerate([*good, *bad])}
    fields = {name: {"type": "string", "pattern": pattern} for name in values}
    made = definition("patterns", {"properties": fields})
    path = f"{WIDGETS}/namespaces/{room.name}/patterns"
    (await room.api.post(_CRDS, made)).ok()
    await answers(room.api, path)
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Pattern", "metadata": {"name": "x"}}

    async def is_served() -> bool:
        return (await room.api.post(path, body, dryRun="All")).status == 201

    await until(is_served)
    reply = await room.api.post(path, {**body, "spec": values}, dryRun="All")
    await room.api.delete(f"{_CRDS}/patterns.{GROUP}")
    await answers(room.api, f"{_CRDS}/patterns.{GROUP}", 404)
    found = {cause["field"] for cause in reply.refused(422, "Invalid")["details"]["causes"]}
    assert found == {f"spec.v{at}" for at in range(len(good), len(values))}


@pytest.mark.parametrize("pattern", ["[a", "(?=a)", "a{2000}", "*a", "a**", r"\Z", "[z-a]"])
async def test_a_pattern_that_is_none_keeps_its_definition_out(api: Api, pattern: str) -> None:
    """The refusal names the pattern and what is wrong with it."""
    field = {"type": "string", "pattern": pattern}
    made = definition("wrongs", {"properties": {"a": field}})
    reply = await api.post(_CRDS, made, dryRun="All")
    (cause,) = reply.refused(422, "Invalid")["details"]["causes"]
    assert "but isn't: error parsing regexp: " in cause["message"]
