"""The label of a template and the NetworkPolicy that its Sandboxes share."""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.model.names import name_hash
from tests.support.builders import claim, orphan, placed, pool
from tests.support.clock import FakeClock
from tests.support.extensions import change_template, fill, members, open_pools, pool_events, rest
from tests.support.names import CLAIMS, POLICIES, REF_HASH, SANDBOXES, TEMPLATES
from tests.support.world import CONTROLLER, NS, World, condition, controlled_by, sandbox

Json = dict[str, Any]
NAME = "tpl-network-policy"
UNMANAGED: Json = {"networkPolicyManagement": "Unmanaged"}
RULES: Json = {
    "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}],
    "egress": [{"to": [{"ipBlock": {"cidr": "1.2.3.0/24"}}], "ports": [{"port": 443}]}],
}
ROUTER = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "agent-sandbox-system"}},
    "podSelector": {"matchLabels": {"app": "sandbox-router"}},
}


def policy(world: World, name: str = NAME) -> Json | None:
    """Return a NetworkPolicy, ``None`` when there is none."""
    return world.find(POLICIES, name)


def spec_of(world: World) -> Json:
    """Return the spec of the template's policy."""
    found = policy(world)
    assert found is not None
    spec: Json = found["spec"]
    return spec


def theirs(**metadata: Any) -> Json:
    """Return a policy that somebody else made under the template's name."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": NAME, "namespace": NS, **metadata},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }


def errors(world: World) -> int:
    """Return how many reconciles over templates failed."""
    return world.controller.activity().errors["sandboxtemplate"]


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


@pytest.mark.template_case(13, 15)
async def test_rules_of_a_template_are_taken_word_for_word() -> None:
    """Template case 13, 15: nothing is added, and what is not given is denied."""
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


@pytest.mark.template_case(14)
async def test_no_rules_at_all_deny_everything() -> None:
    """Template case 14: an empty object is a policy without rules."""
    async with open_pools() as world:
        await world.create(placed(networkPolicy={}))
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


@pytest.mark.template_case(26, 29)
async def test_a_template_made_again_waits_for_the_old_policy_to_go() -> None:
    """Template case 26, 29: the old uid is not ours; once it is gone the POST follows at once."""
    async with open_pools(placed()) as world:
        await rest(world)
        hold = {"metadata": {"finalizers": ["example.com/hold"]}}
        world.plane.store.patch(POLICIES, NS, NAME, hold)
        old = world.plane.store.get(POLICIES, NS, NAME)["metadata"]["uid"]
        world.plane.store.delete(TEMPLATES, NS, "tpl")
        made = await world.create(placed())
        await world.advance(120.0)
        found = policy(world)
        assert found is not None
        assert found["metadata"]["uid"] == old
        assert 2 <= errors(world) <= 20
        await world.patch(POLICIES, NAME, {"metadata": {"finalizers": None}})
        found = policy(world)
        assert found is not None
        assert found["metadata"]["ownerReferences"] == [controlled_by(made)]


@pytest.mark.template_case(27)
async def test_unmanaged_a_foreign_policy_is_left_alone() -> None:
    """Template case 27: no request, no error."""
    async with open_pools(theirs()) as world:
        await world.create(placed(**UNMANAGED))
        await rest(world)
        assert world.writes() == {"patch sandboxtemplates": 1}
        assert policy(world) is not None
        assert errors(world) == 0


@pytest.mark.template_case(28, 30)
@pytest.mark.parametrize("kind", ["nobody's", "another's", "a friend of the template"])
async def test_managed_a_foreign_policy_is_refused_until_it_goes(kind: str) -> None:
    """Template case 28, 30: untouched and no POST; when its owner removes it, ours comes."""
    async with open_pools() as world:
        made = world.plane.store.create(placed(**UNMANAGED))
        owner = {
            "nobody's": [],
            "another's": [world.foreign_owner()],
            "a friend of the template": [{**controlled_by(made), "controller": False}],
        }[kind]
        stored = world.plane.store.create(theirs(ownerReferences=owner))
        await rest(world)
        world.forget_requests()
        await change_template(world, {"networkPolicyManagement": "Managed"})
        await world.advance(60.0)
        assert policy(world) == stored
        assert not world.writes()
        assert errors(world) >= 2
        await world.delete(POLICIES, NAME)
        assert spec_of(world)["ingress"] == [{"from": [ROUTER]}]


async def test_a_policy_replaced_by_a_foreign_one_costs_no_request() -> None:
    """However often the refusal is repeated: no policy is created, so the template is not read."""
    async with open_pools() as world:
        await world.create(placed())
        await rest(world)
        world.forget_requests()
        world.plane.store.delete(POLICIES, NS, NAME)
        world.plane.store.create(theirs())
        await world.advance(600.0)
        assert errors(world) >= 5
        assert world.asked() == {}


@pytest.mark.template_case(31)
async def test_the_old_policy_of_a_claim_of_the_same_name_makes_way() -> None:
    """Template case 31: refused while it is there; the claim controller deletes it, ours comes."""
    async with open_pools() as world:
        held = world.plane.store.create(claim("tpl", pool="missing"))
        world.plane.fail_next("delete", "networkpolicies", 500, times=1)
        world.plane.store.create(theirs(ownerReferences=[controlled_by(held)]))
        made = await world.create(placed())
        assert errors(world) >= 1
        assert not world.requests("create", "networkpolicies")
        await world.patch(CLAIMS, "tpl", {"spec": {"lifecycle": {"shutdownPolicy": "Delete"}}})
        await rest(world)
        found = policy(world)
        assert found is not None
        assert found["metadata"]["ownerReferences"] == [controlled_by(made)]
        assert spec_of(world)["ingress"] == [{"from": [ROUTER]}]


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


@pytest.mark.template_case(35)
async def test_a_policy_that_is_there_already_is_found_by_the_next_reconcile() -> None:
    """Template case 35: 409 on the POST; no duplicate, the one in the way is judged."""
    async with open_pools() as world:
        world.meanwhile("create", "networkpolicies", lambda: world.plane.store.create(theirs()))
        await world.create(placed())
        await rest(world)
        assert [one.code for one in world.requests("create", "networkpolicies")] == [409]
        assert errors(world) >= 2
        assert len(world.plane.store.list(POLICIES, NS)) == 1


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


@pytest.mark.template_case(39)
async def test_a_name_too_long_for_a_policy_starts_no_pods() -> None:
    """Template case 39: the label is set; no request is wasted; pool and claim say what helps."""
    name = "t" * 239
    async with open_pools() as world:
        await world.create(placed(name))
        await world.create(pool(replicas=2, template=name))
        await world.create(claim())
        await world.advance(60.0)
        stored = world.plane.store.get(TEMPLATES, NS, name)
        assert stored["metadata"]["labels"][REF_HASH] == name_hash(name)
        assert not world.requests("create", "networkpolicies")
        assert not world.plane.store.list("pods", NS)
        told = condition(world.plane.store.get(CLAIMS, NS, "c"), "Ready")
        assert (told["status"], told["reason"]) == ("False", "InvalidConfiguration")
        (event,) = pool_events(world)
        assert event[:2] == ("Warning", "WarmPoolNotProgressing")
        for text in (told["message"], event[2]):
            assert "metadata.name has 239 characters" in text
            assert "at most 238" in text
            assert "spec.networkPolicyManagement" in text
        await change_template(world, UNMANAGED, name)
        await rest(world)
        assert len(members(world)) == 2
        assert world.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]


async def test_the_longest_name_that_a_policy_can_follow_is_served() -> None:
    """238 characters are enough for a policy, and so for Pods."""
    name = "t" * 238
    async with open_pools() as world:
        await world.create(placed(name))
        await world.create(pool(replicas=1, template=name))
        await rest(world)
        assert len(members(world)) == 1


@pytest.mark.template_case(40)
@pytest.mark.parametrize("code", [403, 500])
async def test_pods_wait_for_the_policy_of_their_template(code: int) -> None:
    """Template case 40: the label is set; pool and claim say that they wait, and go on at once.

    The policy is tried with backoff, and nobody polls for it.
    """
    async with open_pools() as world:
        world.plane.fail_next("create", "networkpolicies", code, times=1000)
        await world.create(placed())
        await world.create(pool(replicas=2))
        await world.create(claim())
        await world.advance(60.0)
        assert not members(world)
        assert not world.plane.store.list("pods", NS)
        told = condition(world.plane.store.get(CLAIMS, NS, "c"), "Ready")
        assert (told["status"], told["reason"]) == ("False", "SandboxNotReady")
        assert told["message"] == f'waiting for NetworkPolicy "{NAME}" of SandboxTemplate "tpl"'
        waiting = ("Warning", "WarmPoolNotProgressing", told["message"])
        assert pool_events(world) == [waiting]
        stored = world.plane.store.get(TEMPLATES, NS, "tpl")
        assert stored["metadata"]["labels"][REF_HASH] == name_hash("tpl")
        assert len(world.requests("create", "networkpolicies")) <= 16
        await world.create(theirs(ownerReferences=[controlled_by(stored)]))
        assert world.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]
        await rest(world)
        assert len(members(world)) == 2
        assert [event[1] for event in pool_events(world)][-1] == "WarmPoolProgressing"


async def test_pods_start_once_the_server_takes_the_policy() -> None:
    """The policy that our own retry creates wakes pools and claims; policy before Pods, always."""
    async with open_pools() as world:
        world.plane.fail_next("create", "networkpolicies", 500, times=3)
        await world.create(placed())
        await world.create(pool(replicas=2))
        await world.create(claim())
        await world.advance(10.0)
        assert len(members(world)) == 2
        assert world.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]
        order = [
            entry.what
            for entry in world.plane.audit.select(user=CONTROLLER, verb="create")
            if entry.code < 400
        ]
        assert order.index("create networkpolicies") < order.index("create sandboxes")
        assert not pool_events(world)


@pytest.mark.parametrize("name", ["tpl", "t" * 239])
async def test_a_claim_waits_for_no_policy_of_a_template_that_is_gone(name: str) -> None:
    """Whether the policy was on its way or could never be: it misses the template at once."""
    async with open_pools() as world:
        world.plane.fail_next("create", "networkpolicies", 500, times=1000)
        await world.create(placed(name))
        await world.create(pool(replicas=0, template=name))
        await world.create(claim())
        await world.advance(2.0)
        before = condition(world.plane.store.get(CLAIMS, NS, "c"), "Ready")
        assert "NetworkPolicy" in before["message"]
        await world.delete(TEMPLATES, name)
        told = condition(world.plane.store.get(CLAIMS, NS, "c"), "Ready")
        assert (told["status"], told["reason"]) == ("False", "TemplateNotFound")


async def test_a_warm_claim_does_not_wait_for_a_policy() -> None:
    """Its Pod runs already; only what is new waits."""
    async with open_pools() as world:
        await fill(world, pool(replicas=1))
        world.plane.fail_next("create", "networkpolicies", 500, times=1000)
        world.plane.store.delete(POLICIES, NS, NAME)
        (member,) = members(world)
        await world.create(claim())
        bound = world.plane.store.get(CLAIMS, NS, "c")["status"]["sandbox"]["name"]
        assert bound == member["metadata"]["name"]
        await rest(world)
        assert not members(world)


async def test_pods_run_under_a_policy_of_somebody_else() -> None:
    """A foreign object of the policy's name is not touched, and holds nobody up."""
    async with open_pools(theirs()) as world:
        await world.create(placed())
        await world.create(pool(replicas=2))
        await rest(world)
        assert len(members(world)) == 2
        found = policy(world)
        assert found is not None
        assert found["spec"]["policyTypes"] == ["Ingress"]


async def test_a_restart_makes_members_without_waiting_for_what_is_there() -> None:
    """Policies are known before the first reconcile: members that are missing are made, no more."""
    clock = FakeClock()
    async with ControlPlane(LocalSettings(), clock=clock) as plane:
        async with open_pools(plane=plane, clock=clock) as first:
            await fill(first, pool(replicas=2))
            (gone, _) = members(first)
        plane.store.delete(SANDBOXES, NS, gone["metadata"]["name"])
        async with open_pools(plane=plane, clock=clock) as second:
            second.forget_requests()
            await rest(second)
            assert len(members(second)) == 2
            assert not second.requests("create", "networkpolicies")
            assert not pool_events(second)


async def test_the_owner_of_a_policy_may_be_stripped_and_given_back() -> None:
    """A policy that lost its owner is refused, not overwritten; with it back all is well."""
    async with open_pools(placed()) as world:
        await rest(world)
        found = policy(world)
        assert found is not None
        owners = found["metadata"]["ownerReferences"]
        world.forget_requests()
        await world.patch(POLICIES, NAME, {"metadata": {"ownerReferences": None}})
        await rest(world)
        assert not world.writes()
        assert errors(world) >= 1
        await world.patch(
            POLICIES, NAME, {"metadata": {"ownerReferences": owners}, "spec": {"egress": [{}]}}
        )
        await rest(world)
        assert spec_of(world)["egress"] == found["spec"]["egress"]
