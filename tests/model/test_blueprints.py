"""Secure defaults, hashes, the comparison of blueprints and staleness."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.local import recorded
from lean_sandbox.model.comparison import canonical
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.sandbox import PodTemplateMetadata, SandboxSpec
from lean_sandbox.model.template import TemplateView, blueprint_spec
from lean_sandbox.model.warmpool import Freshness, Staleness
from tests.model.extensions import MAIN, REF_HASH, TEMPLATE_HASH, sandbox_spec, template
from tests.model.support import as_json

PUBLIC = {"nameservers": ["8.8.8.8", "1.1.1.1"]}


def made_from(view: TemplateView) -> SandboxSpec:
    """Return the spec of a Sandbox made from a template."""
    return sandbox_spec(blueprint_spec(view, PodTemplateMetadata({"a": "b"})))


def is_same_blueprint(view: TemplateView, spec: SandboxSpec) -> bool:
    """Return whether a template would now give a Sandbox the Pod and claims of its spec."""
    return Staleness(view).compare(spec) is not Freshness.STALE


def pod(view: TemplateView) -> dict[str, Any]:
    """Return the Pod spec that a template gives its Sandboxes."""
    spec = as_json(blueprint_spec(view, PodTemplateMetadata()))["podTemplate"]["spec"]
    assert isinstance(spec, dict)
    return spec


# --- secure defaults -----------------------------------------------------------------------------


@pytest.mark.template_case(41)
@pytest.mark.claim_case(2)
@pytest.mark.pool_case(13, 14)
@pytest.mark.parametrize(("given_value", "expected"), [(None, False), (True, True), (False, False)])
def test_the_token_is_mounted_only_when_asked_for(
    given_value: bool | None,  # noqa: FBT001
    expected: bool,  # noqa: FBT001
) -> None:
    """Template case 41, Claim case 2, Pool cases 13, 14: absent is false, a given value stays."""
    spec: dict[str, Any] = {"containers": [MAIN]}
    if given_value is not None:
        spec["automountServiceAccountToken"] = given_value

    assert pod(template(spec))["automountServiceAccountToken"] is expected


@pytest.mark.template_case(14, 42)
@pytest.mark.claim_case(3)
@pytest.mark.pool_case(13, 15, 16)
@pytest.mark.parametrize("management", ["Managed", "", "Unmanaged"])
@pytest.mark.parametrize("policy", [None, {}, {"ingress": []}])
@pytest.mark.parametrize("dns_policy", [None, "", "ClusterFirst"])
def test_dns_is_replaced_in_secure_default_mode_only(
    management: str, policy: dict[str, Any] | None, dns_policy: str | None
) -> None:
    """Template cases 14, 42, Claim case 3, Pool cases 13, 15, 16: the truth table of rule D2."""
    spec: dict[str, Any] = {"containers": [MAIN]}
    if dns_policy is not None:
        spec["dnsPolicy"] = dns_policy
    view = template(spec, networkPolicyManagement=management, networkPolicy=policy)

    result = pod(view)

    if management != "Unmanaged" and policy is None and not dns_policy:
        assert (result["dnsPolicy"], result["dnsConfig"]) == ("None", PUBLIC)
    else:
        assert result.get("dnsPolicy") == dns_policy
        assert "dnsConfig" not in result


@pytest.mark.template_case(43)
def test_own_dns_settings_need_a_policy_of_their_own() -> None:
    """Template case 43: dnsConfig alone is replaced; with dnsPolicy None it is kept."""
    own = {"nameservers": ["10.0.0.1"]}

    assert pod(template({"containers": [], "dnsConfig": own}))["dnsConfig"] == PUBLIC
    kept = pod(template({"containers": [], "dnsConfig": own, "dnsPolicy": "None"}))
    assert kept["dnsConfig"] == own


PODS = st.fixed_dictionaries(
    {"containers": st.just([MAIN])},
    optional={
        "automountServiceAccountToken": st.none() | st.booleans(),
        "dnsPolicy": st.sampled_from(["", "None", "Default"]),
        "dnsConfig": st.just({"searches": ["x"]}),
        "hostNetwork": st.booleans(),
    },
)


@given(PODS, st.sampled_from(["", "Managed", "Unmanaged"]), st.booleans())
def test_secure_defaults_settle_at_once(
    spec: dict[str, Any],
    management: str,
    present: bool,  # noqa: FBT001
) -> None:
    """Applying the defaults twice is applying them once."""
    fields: dict[str, Any] = {"networkPolicyManagement": management}
    if present:
        fields["networkPolicy"] = {}
    once = pod(template(spec, **fields))

    assert pod(template(once, **fields)) == once


# --- hashes --------------------------------------------------------------------------------------


@pytest.mark.template_case(44, 48)
def test_hashes_are_stable_and_cover_metadata() -> None:
    """Template cases 44, 48: key order is no matter; labels, claims and service are part of it."""
    base = template({"containers": [MAIN], "hostname": "h"})

    reordered = template({"hostname": "h", "containers": [{"image": "i", "name": "main"}]})
    assert reordered.blueprint_hash == base.blueprint_hash
    assert reordered.pod_template_hash == base.pod_template_hash
    labelled = template({"containers": [MAIN], "hostname": "h"}, metadata={"labels": {"a": "b"}})
    assert labelled.blueprint_hash != base.blueprint_hash
    assert labelled.pod_template_hash != base.pod_template_hash
    service = template({"containers": [MAIN], "hostname": "h"}, service=False)
    assert service.blueprint_hash != base.blueprint_hash
    assert service.pod_template_hash == base.pod_template_hash


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=6))
def test_the_order_of_keys_never_matters(value: dict[str, Any]) -> None:
    """The JSON form is deterministic."""
    view = template(value or None)
    again = template(dict(reversed(value.items())) or None)
    assert again.pod_template_hash == view.pod_template_hash
    assert again.blueprint_hash == view.blueprint_hash


# --- comparison ----------------------------------------------------------------------------------


@pytest.mark.template_case(45)
def test_a_sandbox_made_from_the_template_is_equal_and_one_without_defaults_is_not() -> None:
    """Template case 45: the defaults are part of the comparison."""
    view = template()

    assert is_same_blueprint(view, made_from(view))
    assert not is_same_blueprint(view, sandbox_spec({"podTemplate": {"spec": {"containers": []}}}))
    plain = sandbox_spec({"podTemplate": {"spec": {"containers": [MAIN]}}})
    assert not is_same_blueprint(view, plain)


def with_container(**fields: Any) -> TemplateView:
    """Return an unmanaged template whose one container has ``fields``."""
    return template({"containers": [{**MAIN, **fields}]}, networkPolicyManagement="Unmanaged")


@pytest.mark.template_case(46)
@pytest.mark.pool_case(75, 78, 81)
def test_values_count_not_notations() -> None:
    """Template case 46, Pool cases 75, 78, 81: quantities by value, images count, labels do not."""
    view = with_container(resources={"limits": {"cpu": "1", "memory": "1Gi"}})

    same = with_container(resources={"limits": {"cpu": "1000m", "memory": "1024Mi"}})
    assert is_same_blueprint(view, made_from(same))
    one, other = (
        template({"containers": [MAIN], "overhead": {"cpu": cpu}}) for cpu in ("1", "1000m")
    )
    assert is_same_blueprint(one, made_from(other))
    other = with_container(resources={"limits": {"cpu": "1"}})
    assert not is_same_blueprint(view, made_from(other))
    image = with_container(image="j", resources={"limits": {"cpu": "1", "memory": "1Gi"}})
    assert not is_same_blueprint(view, made_from(image))
    labelled = template(
        {"containers": [{**MAIN, "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]},
        networkPolicyManagement="Unmanaged",
        metadata={"labels": {"x": "y"}, "annotations": {"x": "y"}},
    )
    assert is_same_blueprint(view, made_from(labelled))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({}, {"resources": {}, "env": [], "args": None}),
        ({}, {"resources": {"limits": {}, "requests": None}}),
        ({}, {"tty": False, "imagePullPolicy": "", "stdin": False}),
        ({"env": [{"name": "A"}]}, {"env": [{"name": "A", "value": ""}]}),
        (
            {"livenessProbe": {"tcpSocket": {"port": 80}}},
            {"livenessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 0}},
        ),
    ],
)
def test_what_the_typed_api_leaves_out_is_not_missed(
    left: dict[str, Any], right: dict[str, Any]
) -> None:
    """Null, empty and absent are one where the API cannot tell them apart, in both directions."""
    assert is_same_blueprint(with_container(**left), made_from(with_container(**right)))
    assert is_same_blueprint(with_container(**right), made_from(with_container(**left)))


@pytest.mark.pool_case(84)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({}, {"terminationGracePeriodSeconds": 0}),
        ({}, {"enableServiceLinks": False}),
        ({}, {"securityContext": {}}),
        ({"dnsPolicy": "Default"}, {"dnsPolicy": "ClusterFirst"}),
        ({}, {"volumes": [{"name": "v", "emptyDir": {}}]}),
        (
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "0"}}]},
        ),
        ({"nodeSelector": {"a": ""}}, {}),
        ({"tolerations": [{}]}, {}),
        ({"containers": [MAIN, MAIN]}, {"containers": [MAIN]}),
        ({"overhead": {"cpu": "0"}}, {}),
    ],
)
def test_what_the_typed_api_tells_apart_differs(
    left: dict[str, Any], right: dict[str, Any]
) -> None:
    """Pool case 84: an absent pointer is not zero, a present struct is not absent, order counts."""

    def view(spec: dict[str, Any]) -> TemplateView:
        return template({"containers": [MAIN], **spec}, networkPolicyManagement="Unmanaged")

    assert not is_same_blueprint(view(left), made_from(view(right)))
    assert not is_same_blueprint(view(right), made_from(view(left)))
    assert is_same_blueprint(view(left), made_from(view(left)))


# A value of each type that Go leaves out of what it sends, unless the field is a pointer.
_ZEROS = {"bool": False, "int32": 0, "int64": 0, "string": "", "Quantity": "0", "IntOrString": 0}


def scalars(component: str, within: str, seen: set[tuple[str, str]]) -> Iterator[tuple[Any, ...]]:
    """Give the fields below a type: the field around it, its name, a zero, if it is a pointer."""
    if (component, within) in seen:
        return
    seen.add((component, within))
    for _, name, of, flags in recorded.protobuf().get(component, ()):
        type_ = of.rpartition(".")[2]
        if type_ not in (*_ZEROS, "ObjectMeta"):
            yield from scalars(of, within if "i" in flags else name, seen)
        elif "m" in flags:
            # An empty value of a map is a value; the options of flexVolume are let go.
            yield from [(name, "key", _ZEROS[type_], True)] if name != "options" else ()
        elif type_ in _ZEROS and "l" not in flags:
            yield within, name, _ZEROS[type_], "p" in flags


def test_zero_is_told_from_absent_by_the_fields_that_are_pointers_in_go() -> None:
    """Of all fields of a Pod and of a volume claim, as the types of Kubernetes declare them."""
    core = "io.k8s.api.core.v1."
    seen: set[tuple[str, str]] = set()
    found = [
        field
        for kind in ("PodSpec", "PersistentVolumeClaimSpec")
        for field in scalars(core + kind, "spec", seen)
    ]
    assert len(found) > 300
    for within, name, zero, is_pointer in found:
        told_apart = canonical({name: zero}, within) != canonical({}, within)
        assert told_apart == is_pointer, f"{within}.{name}"


def volume(name: str, size: str = "1Gi", **labels: str) -> dict[str, Any]:
    """Return a volumeClaimTemplate."""
    metadata = {"name": name, "labels": labels} if labels else {"name": name}
    return {"metadata": metadata, "spec": {"resources": {"requests": {"storage": size}}}}


@pytest.mark.template_case(47)
@pytest.mark.pool_case(78, 79, 80)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"volumeClaimTemplates": [volume("a", "1024Mi"), volume("b")]}, True),
        ({"volumeClaimTemplates": [volume("a", x="y"), volume("b")]}, True),
        ({"volumeClaimTemplates": [volume("a", "2Gi"), volume("b")]}, False),
        ({"volumeClaimTemplates": [volume("b"), volume("a")]}, False),
        ({"volumeClaimTemplates": [volume("a"), volume("c")]}, False),
        ({"volumeClaimTemplates": [volume("a")]}, False),
        ({"volumeClaimTemplates": [volume("a"), volume("b"), volume("c")]}, False),
        ({"service": False}, False),
        ({"service": True}, False),
    ],
)
def test_claims_by_index_and_service_in_three_states(
    change: dict[str, Any],
    expected: bool,  # noqa: FBT001
) -> None:
    """Template case 47, Pool cases 78, 79, 80: size, order, name count; labels do not."""
    base: dict[str, Any] = {"volumeClaimTemplates": [volume("a"), volume("b")]}

    changed = made_from(template(**{**base, **change}))

    assert is_same_blueprint(template(**base), changed) is expected


# --- staleness -----------------------------------------------------------------------------------


def member(view: TemplateView, stamped: str | None = None, *, edits: int = 0) -> ObjectMeta:
    """Return the metadata of a member made from ``view``, whose spec was edited so many times."""
    stamp = view.blueprint_hash if stamped is None else stamped
    labels = {REF_HASH: view.ref_hash, TEMPLATE_HASH: stamp}
    return ObjectMeta(uid="u", generation=1 + edits, labels=labels)


def decided(judge: Staleness, found: ObjectMeta, spec: SandboxSpec) -> Freshness:
    """Return the verdict as a reconcile finds it."""
    verdict = judge.by_labels(found)
    if verdict is Freshness.UNDECIDED:
        verdict = judge.by_spec(found, spec)
    return verdict


@pytest.mark.pool_case(30)
def test_an_orphan_without_the_template_label_is_stale() -> None:
    """Pool case 30: without the label nothing is compared."""
    assert Staleness(template()).is_of_another(ObjectMeta())


@pytest.mark.pool_case(87)
def test_one_comparison_serves_all_members_of_one_old_hash() -> None:
    """Pool case 87: after the first of 500, labels decide; one without hash speaks for itself."""
    view = template()
    old = template({"containers": [{**MAIN, "image": "old"}]})
    judge = Staleness(view)
    assert decided(judge, member(old), made_from(old)) is Freshness.STALE

    assert {judge.by_labels(member(old)) for _ in range(499)} == {Freshness.STALE}
    assert decided(judge, member(view, ""), made_from(view)) is Freshness.RELABELLED
    assert judge.by_labels(member(view, "")) is Freshness.RELABELLED
    another = msgspec.structs.replace(member(view, ""), uid="v")
    assert judge.by_labels(another) is Freshness.UNDECIDED


@pytest.mark.pool_case(87)
def test_what_somebody_made_of_one_member_says_nothing_of_the_others() -> None:
    """An edited member and another of its stamp are both judged as they are, in either order."""
    view = template(metadata={"labels": {"new": "label"}})
    old = template()
    changed = made_from(template({"containers": [{**MAIN, "image": "edited"}]}))
    members = [
        (member(old, edits=1), changed, Freshness.STALE),
        (member(old), made_from(old), Freshness.RELABELLED),
    ]
    for order in (members, members[::-1]):
        judge = Staleness(view)
        for found, spec, verdict in order:
            assert decided(judge, found, spec) is verdict
        assert [judge.by_labels(found) for found, _, _ in order] == [
            verdict for _, _, verdict in order
        ]


def test_four_thousand_verdicts_are_remembered() -> None:
    """With one more all go: somebody who edits members without end takes no memory."""
    view = template()
    spec = made_from(view)
    judge = Staleness(view)
    members = [member(view, "other", edits=edits) for edits in range(4097)]
    for found in members[:-1]:
        judge.by_spec(found, spec)
    assert judge.by_hash(members[0]) is Freshness.RELABELLED
    judge.by_spec(members[-1], spec)
    left = [judge.by_hash(members[at]) for at in (0, -1)]
    assert left == [Freshness.UNDECIDED, Freshness.RELABELLED]


@given(PODS)
def test_every_sandbox_equals_the_template_it_was_made_from(spec: dict[str, Any]) -> None:
    """What a template makes is never stale, whatever is in it."""
    view = template(spec)
    again = msgspec.json.decode(msgspec.json.encode(made_from(view)), type=SandboxSpec)
    assert is_same_blueprint(view, again)
