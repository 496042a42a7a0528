"""The label of a template and the NetworkPolicy that its Sandboxes share."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.kinds import Kind
from lean_sandbox.model.names import name_hash
from tests.controllers.policies import NAME, ROUTER, RULES, UNMANAGED, errors, policy, spec_of
from tests.support.builders import claim, orphan, placed, pool
from tests.support.extensions import change_template, fill, members, open_pools, rest
from tests.support.names import POLICIES, REF_HASH, SANDBOXES, TEMPLATES
from tests.support.webhooks import add_webhook
from tests.support.world import NS, controlled_by, sandbox

Json = dict[str, Any]


@pytest.mark.template_case(1, 2, 7, 9, 10, 11, 12)
async def test_a_new_template_costs_a_label_and_a_policy() -> None:
    """Template case 1, 2, 7, 9, 10, 11, 12: two writes, the default rules word for word, rest."""
    async with open_pools() as world:
        body = placed()
        body["metadata"]["labels"] = {"team": "blue"}
        made = await world.create(body)
        await rest(world)
        stored = world.plane.store.get(TEMPLATES, NS, "tpl")
        assert stored["metadata"]["labels"] == {"team": "blue", REF_HASH: name_hash("tpl")}
        found = policy(world)
        assert found is not None
        assert found["metadata"]["ownerReferences"] == [controlled_by(made)]
        assert found["spec"] == {
            "podSelector": {"matchLabels": {REF_HASH: name_hash("tpl")}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [ROUTER]}],
            "egress": [
                {
                    "to": [
                        {
                            "ipBlock": {
                                "cidr": "0.0.0.0/0",
                                "except": [
                                    "10.0.0.0/8",
                                    "172.16.0.0/12",
                                    "192.168.0.0/16",
                                    "169.254.0.0/16",
                                ],
                            }
                        },
                        {"ipBlock": {"cidr": "::/0", "except": ["fc00::/7", "fe80::/10"]}},
                    ]
                }
            ],
        }
        assert world.writes() == {"patch sandboxtemplates": 1, "create networkpolicies": 1}
        (label,) = world.requests("patch", "sandboxtemplates")
        assert label.content_type == "application/merge-patch+json"
        world.forget_requests()
        await world.advance(3600.0)
        assert not world.asked()


@pytest.mark.template_case(2)
async def test_a_restart_over_settled_templates_writes_nothing() -> None:
    """Template case 2: label and policy are as they should be; lists are all that is asked."""
    async with open_pools(placed(), placed("u", networkPolicy=RULES)) as first:
        await rest(first)
        async with open_pools(plane=first.plane, clock=first.clock) as second:
            second.forget_requests()
            await rest(second)
            assert not second.writes()
            assert not second.requests("get", "networkpolicies")


@pytest.mark.template_case(3)
@pytest.mark.parametrize("value", ["wrong", None])
async def test_a_label_that_was_changed_is_restored(value: str | None) -> None:
    """Template case 3: wrong or removed, one patch puts it right."""
    async with open_pools(placed()) as world:
        await rest(world)
        world.forget_requests()
        await world.patch(TEMPLATES, "tpl", {"metadata": {"labels": {REF_HASH: value}}})
        await rest(world)
        stored = world.plane.store.get(TEMPLATES, NS, "tpl")
        assert stored["metadata"]["labels"][REF_HASH] == name_hash("tpl")
        assert world.writes() == {"patch sandboxtemplates": 1}


@pytest.mark.template_case(4, 19)
async def test_an_unmanaged_template_gets_its_label_only() -> None:
    """Template case 4, 19: no policy, although it brings rules, and no error."""
    async with open_pools() as world:
        await world.create(placed(**{**UNMANAGED, "networkPolicy": RULES}))
        await rest(world)
        assert world.writes() == {"patch sandboxtemplates": 1}
        assert policy(world) is None
        assert errors(world) == 0


@pytest.mark.template_case(5, 25)
async def test_a_template_that_goes_costs_no_request() -> None:
    """Template case 5, 25: held by a finalizer it is not labelled anew; then its policy goes."""
    async with open_pools(placed()) as world:
        await rest(world)
        hold = {"metadata": {"finalizers": ["example.com/hold"]}}
        world.plane.store.patch(TEMPLATES, NS, "tpl", hold)
        await rest(world)
        world.forget_requests()
        world.plane.store.delete(TEMPLATES, NS, "tpl")
        await world.patch(TEMPLATES, "tpl", {"metadata": {"labels": {REF_HASH: None}}})
        await rest(world)
        assert policy(world) is not None
        await world.patch(TEMPLATES, "tpl", {"metadata": {"finalizers": None}})
        await rest(world)
        assert policy(world) is None
        assert not world.asked()


@pytest.mark.template_case(6)
async def test_without_the_label_there_is_no_policy_yet() -> None:
    """Template case 6: 500 on the label ends the reconcile; the next one does both."""
    async with open_pools() as world:
        world.plane.fail_next("patch", "sandboxtemplates", 500)
        await world.create(placed())
        assert errors(world) == 1
        assert not world.requests("create", "networkpolicies")
        await rest(world)
        assert policy(world) is not None
        assert len(world.requests("patch", "sandboxtemplates")) == 2


@pytest.mark.template_case(13, 14, 15)
async def test_rules_of_a_template_are_taken_word_for_word() -> None:
    """Template case 13, 14, 15: nothing is added, what is not given is denied, {} is no rule."""
    async with open_pools() as world:
        await world.create(placed(networkPolicy={"egress": RULES["egress"]}))
        await rest(world)
        spec = spec_of(world)
        assert "ingress" not in spec
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        await change_template(world, {"networkPolicy": RULES})
        await rest(world)
        assert spec_of(world)["ingress"] == RULES["ingress"]
        assert spec_of(world)["egress"][0]["to"] == RULES["egress"][0]["to"]
        assert spec_of(world)["podSelector"] == {"matchLabels": {REF_HASH: name_hash("tpl")}}
        await change_template(world, {"networkPolicy": {"ingress": None, "egress": None}})
        await rest(world)
        assert set(spec_of(world)) == {"podSelector", "policyTypes"}


@pytest.mark.template_case(16)
async def test_a_rule_without_a_protocol_settles() -> None:
    """Template case 16: the server writes TCP into it; that is no drift."""
    async with open_pools() as world:
        await world.create(placed(networkPolicy=RULES))
        await rest(world)
        world.forget_requests()
        stored = world.plane.store.get(POLICIES, NS, NAME)
        stored["spec"]["egress"][0]["ports"][0]["protocol"] = "TCP"
        await world.patch(
            POLICIES, NAME, {"spec": stored["spec"], "metadata": {"labels": {"a": "b"}}}
        )
        await world.advance(600.0)
        assert not world.writes()
        assert world.asked()["get networkpolicies"] <= 1


@pytest.mark.template_case(17, 21)
async def test_new_rules_cost_one_patch_and_touch_no_sandbox() -> None:
    """Template case 17, 21: from the default rules to own ones and back."""
    async with open_pools() as world:
        await fill(world, pool(replicas=2))
        default = spec_of(world)
        await change_template(world, {"networkPolicy": RULES})
        await rest(world)
        assert world.writes() == {"patch networkpolicies": 1}
        assert spec_of(world) != default
        await change_template(world, {"networkPolicy": None})
        await rest(world)
        assert world.writes() == {"patch networkpolicies": 2}
        assert spec_of(world) == default


@pytest.mark.template_case(18, 20)
async def test_opting_out_deletes_the_policy_and_opting_in_makes_it_again() -> None:
    """Template case 18, 20: one DELETE, whatever rules there are; one POST."""
    async with open_pools(placed(networkPolicy=RULES)) as world:
        await rest(world)
        world.forget_requests()
        await change_template(world, UNMANAGED)
        await rest(world)
        assert policy(world) is None
        assert world.writes() == {"delete networkpolicies": 1}
        await change_template(world, {"networkPolicyManagement": "Managed"})
        await rest(world)
        assert spec_of(world)["ingress"] == RULES["ingress"]
        assert world.writes()["create networkpolicies"] == 1


@pytest.mark.template_case(22, 23)
async def test_an_edit_by_hand_is_undone_and_metadata_is_kept() -> None:
    """Template case 22, 23: the whole spec is put back, with one GET and one PATCH."""
    async with open_pools(placed()) as world:
        await rest(world)
        before = spec_of(world)
        world.forget_requests()
        edit = {
            "metadata": {"labels": {"mine": "yes"}, "annotations": {"note": "x"}},
            "spec": {
                "egress": [{}],
                "podSelector": {"matchLabels": {"old": "selector"}},
            },
        }
        await world.patch(POLICIES, NAME, edit)
        await rest(world)
        assert spec_of(world) == before
        found = policy(world)
        assert found is not None
        assert found["metadata"]["labels"] == {"mine": "yes"}
        assert found["metadata"]["annotations"] == {"note": "x"}
        assert world.writes() == {"patch networkpolicies": 1}


@pytest.mark.template_case(24)
async def test_a_policy_deleted_by_hand_comes_back() -> None:
    """Template case 24: one POST."""
    async with open_pools(placed()) as world:
        await rest(world)
        world.forget_requests()
        await world.delete(POLICIES, NAME)
        await rest(world)
        assert policy(world) is not None
        assert world.writes() == {"create networkpolicies": 1}


@pytest.mark.template_case(32)
async def test_a_forged_hash_in_the_template_changes_nothing() -> None:
    """Template case 32: Sandbox and Pod carry the hash of the template's name."""
    async with open_pools(placed(metadata={"labels": {REF_HASH: "other"}})) as world:
        await world.create(pool(replicas=1))
        (one,) = members(world)
        assert one["metadata"]["labels"][REF_HASH] == name_hash("tpl")
        assert one["spec"]["podTemplate"]["metadata"]["labels"][REF_HASH] == name_hash("tpl")
        pod = world.pod(one["metadata"]["name"])
        assert pod["metadata"]["labels"][REF_HASH] == name_hash("tpl")


@pytest.mark.template_case(33)
async def test_a_bare_sandbox_cannot_join_a_policy() -> None:
    """Template case 33: neither its Pod template nor its own labels put the hash on a Pod."""
    async with open_pools(placed()) as world:
        forged = {"metadata": {"labels": {REF_HASH: name_hash("tpl")}}}
        await world.create(sandbox(template=forged, metadata=forged["metadata"]))
        await world.create(orphan("bare", pool_name="none"))
        await rest(world)
        for name in ("sb-1", "bare"):
            assert REF_HASH not in world.pod(name)["metadata"]["labels"]


@pytest.mark.template_case(34)
async def test_two_namespaces_have_two_policies() -> None:
    """Template case 34: the same name and hash, each in its own namespace."""
    async with open_pools(placed()) as world:
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
        world.plane.store.create(home)
        body = placed()
        body["metadata"]["namespace"] = "other"
        await world.create(body)
        await rest(world)
        here = world.plane.store.get(POLICIES, NS, NAME)
        there = world.plane.store.get(POLICIES, "other", NAME)
        assert here["spec"] == there["spec"]
        assert here["metadata"]["ownerReferences"] != there["metadata"]["ownerReferences"]


@pytest.mark.template_case(36)
async def test_a_conflict_is_run_again_and_undoes_nothing() -> None:
    """Template case 36: after a 409 on the PATCH; what others wrote meanwhile stays."""
    async with open_pools(placed()) as world:
        await rest(world)
        world.forget_requests()

        def label() -> None:
            patch = {"metadata": {"labels": {"a": "b"}}}
            world.plane.store.patch(POLICIES, NS, NAME, patch)

        world.meanwhile("patch", "networkpolicies", label)
        world.plane.fail_next("patch", "networkpolicies", 409)
        await change_template(world, {"networkPolicy": RULES})
        await rest(world)
        assert [one.code for one in world.requests("patch", "networkpolicies")] == [409, 200]
        assert spec_of(world)["ingress"] == RULES["ingress"]
        found = policy(world)
        assert found is not None
        assert found["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize("is_shown", [True, False])
async def test_a_policy_that_a_finalizer_keeps_is_used_again_while_it_is_there(
    *, is_shown: bool
) -> None:
    """One DELETE; opted in again, it gets the rules, claims are served, and another follows it.

    Whether the watch shows that it stays before the DELETE is answered, or after.
    """
    async with open_pools() as world:
        await world.create(placed())
        await world.create(pool(replicas=0))
        await world.patch(POLICIES, NAME, {"metadata": {"finalizers": ["example.com/hold"]}})
        if is_shown:
            held = world.plane.hold("delete", "networkpolicies", answers=True, times=1)
            world.plane.store.patch(TEMPLATES, NS, "tpl", {"spec": UNMANAGED})
            await world.until(lambda: any(one.is_deleting for one in world.whole.caches.policies))
            held.release()
        await change_template(world, UNMANAGED)
        await rest(world)
        assert world.writes()["delete networkpolicies"] == 1
        world.forget_requests()
        anywhere: Json = {"egress": [{}]}
        again = {"networkPolicyManagement": "Managed", "networkPolicy": anywhere}
        await change_template(world, again)
        await world.create(claim())
        await rest(world)
        assert spec_of(world)["egress"] == anywhere["egress"]
        assert world.find(SANDBOXES, "c") is not None
        assert world.writes()["create networkpolicies"] == 0
        await world.patch(POLICIES, NAME, {"metadata": {"finalizers": None}})
        found = policy(world)
        assert found is not None
        assert "deletionTimestamp" not in found["metadata"]
        assert errors(world) == 0


@pytest.mark.template_case(37)
async def test_a_policy_that_is_gone_already_need_not_be_deleted() -> None:
    """Template case 37: 404 is what was wanted."""
    async with open_pools(placed()) as world:
        await rest(world)
        world.forget_requests()
        world.meanwhile(
            "delete",
            "networkpolicies",
            lambda: world.plane.store.delete(POLICIES, NS, NAME, grace_s=0),
        )
        await change_template(world, UNMANAGED)
        await rest(world)
        assert policy(world) is None
        assert [one.code for one in world.requests("delete", "networkpolicies")] == [404]


@pytest.mark.template_case(38)
async def test_a_policy_that_cannot_be_read_is_not_written() -> None:
    """Template case 38: 500 on the GET at an edited policy; the next reconcile puts it right."""
    async with open_pools(placed()) as world:
        await rest(world)
        before = spec_of(world)
        world.forget_requests()
        world.plane.fail_next("get", "networkpolicies", 500)
        await world.patch(POLICIES, NAME, {"spec": {"egress": [{}]}})
        assert errors(world) == 1
        assert not world.writes()
        await rest(world)
        assert spec_of(world) == before


async def test_a_template_that_goes_before_it_is_labelled_costs_no_policy() -> None:
    """The patch finds nothing; that is no error, and nothing is made for it."""
    async with open_pools() as world:
        world.meanwhile(
            "patch",
            "sandboxtemplates",
            lambda: world.plane.store.delete(TEMPLATES, NS, "tpl", grace_s=0),
        )
        await world.create(placed())
        await world.advance(60.0)
        assert not errors(world)
        assert policy(world) is None
        assert world.writes() == {"patch sandboxtemplates": 1}


async def test_rules_that_a_webhook_changes_back_are_not_written_over_and_over() -> None:
    """Until the template or the policy is changed, one patch is enough to know."""
    is_on: list[bool] = []

    def change(kind: Kind, one: Json) -> None:
        if kind.plural == "networkpolicies" and is_on:
            one["spec"]["egress"] = [{}]

    async with open_pools(placed(), prepare=lambda plane: add_webhook(plane, change)) as world:
        await rest(world)
        is_on.append(True)
        world.forget_requests()
        await world.patch(POLICIES, NAME, {"metadata": {"labels": {"mine": "yes"}}})
        await world.advance(600.0)
        assert 1 <= world.writes()["patch networkpolicies"] <= 2
        # Somebody looks at the template again: it has the same generation, the policy its version.
        await world.patch(TEMPLATES, "tpl", {"metadata": {"labels": {REF_HASH: None}}})
        await world.advance(60.0)
        assert world.writes()["patch networkpolicies"] <= 2
        is_on.clear()
        await change_template(world, {"networkPolicy": RULES})
        await rest(world)
        assert spec_of(world)["egress"][0]["to"] == RULES["egress"][0]["to"]
