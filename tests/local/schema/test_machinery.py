"""Laws of pruning, defaulting, validation and CEL rules on schemas of any shape."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.local.kinds import builtin_kinds
from lean_sandbox.local.schema.core import core_validate
from lean_sandbox.local.schema.decoding import DecodeError, builtin_schema, complete, decode
from lean_sandbox.local.schema.defaults import core_defaults, definition_defaults
from lean_sandbox.local.schema.definition import check_definition
from lean_sandbox.local.schema.expressions import compile_rule
from lean_sandbox.local.schema.metadata import validate_metadata
from lean_sandbox.local.schema.structural import apply_defaults, canonical_quantity, prune
from lean_sandbox.local.schema.validation import validate
from lean_sandbox.model.comparison import parse_quantity
from tests.model.crds.definitions import definitions

Json = dict[str, Any]
KINDS = {kind.kind: kind for kind in builtin_kinds()}
SANDBOX: Json = definitions()["agents.x-k8s.io_sandboxes.yaml"]["spec"]["versions"][0]["schema"][
    "openAPIV3Schema"
]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("ab{}", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "podTemplate", "containers", "name", "ports", "env", "zz"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def _messages(obj: Json, schema: Json, old: Json | None = None) -> list[str]:
    return [f"{error.field}: {error.message}" for error in validate(obj, schema, old=old)]


@given(st.dictionaries(st.sampled_from(["spec", "status", "x"]), JSON_VALUES))
def test_pruning_is_idempotent_and_defaults_are_stable(obj: Json) -> None:
    """Whatever comes in: a second pass changes nothing, and validation always gives an answer."""
    prune(obj, SANDBOX)
    apply_defaults(obj, SANDBOX)
    once = copy.deepcopy(obj)
    assert prune(obj, SANDBOX) == []
    apply_defaults(obj, SANDBOX)
    assert obj == once
    validate({**obj, "metadata": {"name": "x"}}, SANDBOX)


@given(JSON_VALUES, st.dictionaries(st.sampled_from(["labels", "finalizers", "uid"]), JSON_VALUES))
def test_decoding_a_pod_never_fails_in_later_steps(spec: Any, metadata: Json) -> None:
    """What the decoder lets through can be defaulted, completed and validated."""
    pod = {"metadata": {**metadata, "name": "p", "namespace": "n"}, "spec": spec}
    schema = builtin_schema("Pod")
    try:
        decode(pod, schema, "Pod")
    except DecodeError:
        return
    core_defaults("Pod", pod)
    complete(pod, schema)
    found = core_validate(KINDS["Pod"], pod)
    # Without containers there is always something to refuse.
    assert found or (isinstance(spec, dict) and spec.get("containers"))


@given(JSON_VALUES)
def test_what_was_stored_is_decoded_to_itself(spec: Any) -> None:
    """Decoding and completing a second time changes nothing."""
    pod = {"metadata": {"name": "p"}, "spec": spec}
    schema = builtin_schema("Pod")
    try:
        decode(pod, schema, "Pod")
    except DecodeError:
        return
    complete(pod, schema)
    once = copy.deepcopy(pod)
    assert decode(pod, schema, "Pod") == []
    complete(pod, schema)
    assert pod == once


@pytest.mark.parametrize(
    ("given_", "written"),
    [("1000m", "1"), ("1024Ki", "1Mi"), ("2.5", "2500m"), ("0.5Ki", "512"), ("1e3", "1e3"),
     ("100000000000000000000", "100E"), ("0", "0"), ("-1.5k", "-1500"), ("1.5Ki", "1536"),
     (1, "1"), (2.5, "2500m"), ("0.1n", "1n"), ("x", None), (True, None)],
)  # fmt: skip
def test_a_quantity_has_one_form(given_: Any, written: str | None) -> None:
    """Mantissa without fraction, and the largest suffix of its family."""
    assert canonical_quantity(given_) == written


@given(st.fractions(), st.sampled_from(["", "m", "k", "Ki", "Gi", "n", "e3", "E"]))
def test_the_form_of_a_quantity_keeps_its_value(number: Any, suffix: str) -> None:
    """Writing a quantity in its one form changes nothing, and neither does doing it again."""
    text = f"{float(number):.3f}{suffix}"
    written = canonical_quantity(text)
    if written is not None:
        assert canonical_quantity(written) == written
        is_rounded = suffix.endswith("i") or suffix == "n"
        assert is_rounded or parse_quantity(written) == parse_quantity(text)


def test_unknown_fields_are_named_with_their_path() -> None:
    """Dropped paths are sorted and name list positions; warnings and strict errors quote them."""
    obj = {
        "extra": 1,
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "m", "foo": {"z": 1}}]}}},
        "metadata": {"name": "x", "foo": 1},
    }
    dropped = prune(obj, SANDBOX)
    assert dropped == ["extra", "metadata.foo", "spec.podTemplate.spec.containers[0].foo"]


def test_preserved_fields_stay() -> None:
    """Unknown fields stay where asked for, and typed ones inside are still pruned."""
    schema = _object(
        open={
            "x-kubernetes-preserve-unknown-fields": True,
            **_object(known=_object(a={"type": "string"})),
        },
        embedded={"x-kubernetes-embedded-resource": True, **_object(spec=_object())},
    )
    obj: Json = {
        "open": {"other": {"x": 1}, "known": {"a": "b", "c": "d"}},
        "embedded": {"kind": "K", "apiVersion": "v", "metadata": {"name": "n", "q": 1}, "zz": 1},
    }
    dropped = prune(obj, schema)
    assert dropped == ["embedded.metadata.q", "embedded.zz", "open.known.c"]
    assert obj["open"]["other"] == {"x": 1}


def test_null_becomes_the_default_or_disappears() -> None:
    """A null without `nullable` counts as absent."""
    schema = _object(
        a={"type": "string", "default": "d"},
        b={"type": "string"},
        c={"type": "string", "nullable": True},
    )
    obj: Json = {"a": None, "b": None, "c": None}
    apply_defaults(obj, schema)
    assert obj == {"a": "d", "c": None}


def test_defaults_are_copies() -> None:
    """Changing one object's default value does not change the next one's."""
    schema = _object(a={**_object(), "default": {}})
    first: Json = {}
    apply_defaults(first, schema)
    first["a"]["x"] = 1
    second: Json = {}
    apply_defaults(second, schema)
    assert second == {"a": {}}


def test_unchanged_parts_are_not_held_against_an_update() -> None:
    """Ratcheting: an old violation may stay as long as it is not touched."""
    schema = _object(a={"type": "string", "maxLength": 1}, b={"type": "string"})
    old = {"a": "long", "b": "x"}
    assert _messages({"a": "long", "b": "y"}, schema, old) == []
    assert _messages({"a": "longer", "b": "x"}, schema, old) == [
        "a: Too long: may not be more than 1 bytes"
    ]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ({"type": "array", "items": {"type": "string"}, "maxItems": 1}, ["a", "b"],
         "f: Too many: 2: must have at most 1 item"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, [],
         "f: Invalid value: 0: f in body should have at least 1 items"),
        ({"type": "integer", "maximum": 2}, 3,
         "f: Invalid value: 3: f in body should be less than or equal to 2"),
        ({"type": "integer", "minimum": 2, "exclusiveMinimum": True}, 2,
         "f: Invalid value: 2: f in body should be greater than 2"),
        ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
         ["a", "a"], 'f[1]: Duplicate value: "a"'),
    ],
)  # fmt: skip
def test_a_value_out_of_its_bounds_is_refused_as_kubernetes_words_it(
    field: Json, value: Any, message: str
) -> None:
    """Bounds are worded as Kubernetes words them."""
    assert _messages({"f": value}, _object(f=field)) == [message]


def _ruled(rule: Json, **properties: Json) -> Json:
    return _object(spec={**_object(**properties), "x-kubernetes-validations": [rule]})


def test_rules_with_message_expression_reason_and_field_path() -> None:
    """A broken rule names the field and reason it asks for."""
    rule = {
        "rule": "self.low <= self.high",
        "messageExpression": "'low ' + string(self.low) + ' is above high'",
        "reason": "FieldValueForbidden",
        "fieldPath": ".low",
    }
    number = {"type": "integer"}
    schema = _ruled(rule, low=number, high=number)
    found = validate({"spec": {"low": 3, "high": 1}}, schema)
    assert [(e.field, e.reason, e.message) for e in found] == [
        ("spec.low", "FieldValueForbidden", "Forbidden: low 3 is above high")
    ]
    assert validate({"spec": {"low": 1, "high": 1}}, schema) == []


def test_transition_rules_run_on_updates_only() -> None:
    """A rule that names oldSelf is skipped at creation."""
    rule = {"rule": "self.a == oldSelf.a", "message": "a is immutable"}
    schema = _ruled(rule, a={"type": "string"}, b={"type": "string"})
    assert _messages({"spec": {"a": "1"}}, schema) == []
    old = {"spec": {"a": "1", "b": "1"}}
    assert _messages({"spec": {"a": "1", "b": "2"}}, schema, old) == []
    assert _messages({"spec": {"a": "2", "b": "1"}}, schema, old) == [
        "spec: Invalid value: a is immutable"
    ]


def test_a_rule_that_cannot_be_evaluated_refuses_the_object() -> None:
    """A missing key is an error of the write, not a crash."""
    rule = {"rule": "self.a == 'x'", "message": "m"}
    found = _messages({"spec": {}}, _ruled(rule, a={"type": "string"}))
    assert found == ['spec: Invalid value: "object": no such key: a evaluating rule: m']


def _refusal_of(text: str) -> str:
    """Return why a definition with a rule is refused."""
    crd = copy.deepcopy(definitions()["extensions.agents.x-k8s.io_sandboxwarmpools.yaml"])
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["x-kubernetes-validations"] = [{"rule": text}]
    definition_defaults(crd)
    (error,) = check_definition(crd)
    assert error.field == "spec.validation.openAPIV3Schema.x-kubernetes-validations[0].rule"
    return error.message


@pytest.mark.parametrize("text", ["foo(1)", "self.a +", "other.b == 1", "math.greatest(1, 2) == 2"])
def test_rules_that_do_not_compile_are_refused_by_name(text: str) -> None:
    """Bad syntax and unknown functions are found when the definition is created."""
    assert "compilation failed" in _refusal_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "isURL(self.kind)", "url('http://a').getHost() == 'a'", "ip.isCanonical('::1')",
        "cidr('1.2.3.0/24').containsIP('1.2.3.4')", "semver('1.0.0').major() == 1",
        "format.dns1123Label().validate('a').hasValue()", "'%s'.format(['a']) == 'a'",
        "optional.of(1).optMap(x, x + 1).hasValue()", "self.?kind.hasValue()", "{?'a': self.b}",
        "[1].sortBy(x, x) == [1]", "{'a': 1}.all(k, v, v == 1)",
        "timestamp('2020-01-01T00:00:00Z').getHours('Europe/Paris') == 1",
        "google.protobuf.Duration{seconds: 1} == duration('1s')", "cel.bind(x, 1, x == 1)",
    ],
)  # fmt: skip
def test_what_rules_lack_here_is_refused_in_words(text: str) -> None:
    """A real server takes such a definition: this one says at once what it does not have."""
    assert "compilation failed: unsupported" in _refusal_of(text)
    assert "this server has no" in _refusal_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "self.list.all(x, x.startsWith('a'))",
        "has(self.a) && size(self.a) > 1 ? self.a.matches('^x') : true",
        "self.m.exists(k, k in ['a', 'b']) && duration('1s') < self.d",
        "quantity('1').isLessThan(quantity(self.q)) && self.a.lowerAscii() == 'x'",
    ],
)
def test_rules_within_the_language_compile(text: str) -> None:
    """Macros, string functions, ternaries and lists are available."""
    compile_rule(text)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda crd: crd["metadata"].update(name="bar"), "metadata.name"),
        (lambda crd: crd["spec"].update(scope="x"), "spec.scope"),
        (lambda crd: crd["spec"]["versions"][0].pop("schema"),
         "spec.versions[0].schema.openAPIV3Schema"),
        (lambda crd: crd["spec"]["names"].update(kind="a b"), "spec.names.kind"),
        (lambda crd: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].update(
            a={}), "spec.validation.openAPIV3Schema.properties[a].type"),
        (lambda crd: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].update(
            a={"type": "string", "default": 5}),
         "spec.validation.openAPIV3Schema.properties[a].default"),
    ],
)  # fmt: skip
def test_broken_definitions_are_refused(change: Any, field: str) -> None:
    """Names, scope and structural schema of a definition are checked."""
    crd = copy.deepcopy(definitions()["extensions.agents.x-k8s.io_sandboxwarmpools.yaml"])
    change(crd)
    definition_defaults(crd)
    assert [error.field for error in check_definition(crd)] == [field]


def test_annotations_are_limited_as_a_whole() -> None:
    """256 KiB of annotation keys and values are accepted, one byte more is not."""
    obj: Json = {"metadata": {"name": "x", "namespace": "n", "annotations": {"a": "x" * 262143}}}
    assert validate_metadata(obj) == []
    obj["metadata"]["annotations"]["a"] += "x"
    assert [f"{error.field}: {error.message}" for error in validate_metadata(obj)] == [
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    ]


def test_services_have_label_names() -> None:
    """A Service name is an RFC 1123 label of at most 63 characters."""
    for name in ("-a", "s" * 64, "a.b"):
        service: Json = {
            "metadata": {"name": name, "namespace": "n"},
            "spec": {"clusterIP": "None"},
        }
        core_defaults("Service", service)
        found = core_validate(KINDS["Service"], service)
        assert [error.field for error in found] == ["metadata.name"]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:" + "a" * 64, "IfNotPresent"),
    ],
)
def test_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    """Images that can move under their name are always pulled."""
    pod: Json = {"spec": {"containers": [{"name": "m", "image": image}]}}
    core_defaults("Pod", pod)
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("1Ki", 1024), ("500m", 0.5), ("1e3", 1000), ("-2", -2), (".5", 0.5), ("x", None)],
)
def test_a_quantity_may_have_suffix_exponent_and_sign(text: str, number: float | None) -> None:
    """Suffixes, exponents and signs."""
    assert parse_quantity(text) == number


def test_validation_is_fast_enough_for_a_server() -> None:
    """A typical Sandbox write (prune, default, validate with rules) is fewer than 7,000 calls."""
    obj: Json = {
        "metadata": {"name": "x"},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "m", "image": "i"}]}}},
    }
    validate(copy.deepcopy(obj), SANDBOX)
    calls = 0

    def count(_frame: object, event: str, _about: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        prune(obj, SANDBOX)
        apply_defaults(obj, SANDBOX)
        found = validate(obj, SANDBOX, old=obj)
    finally:
        sys.setprofile(before)
    assert found == []
    assert 1000 < calls < 7000
