"""What the roles permit is what the controller uses, no more and no less."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest

from lean_sandbox.manager.leaderelection import Elector
from lean_sandbox.manager.preflight import LEASE_NAME
from tests.manager.rig import Rig, open_rig
from tests.manifests.files import ROOT, Grant, grants, named, objects
from tests.manifests.flows import live_of_claims, live_of_sandboxes
from tests.manifests.roles import (
    COMPANIONS,
    CORE,
    EXTENSIONS,
    FOR_ADMISSION,
    LEADER,
    REFERENCE,
    REFERENCE_EXTENSIONS,
    asked,
    bind,
    bind_in_namespace,
)
from tests.support.extensions import settings
from tests.support.world import CONTROLLER, NS, World, open_world

Json = dict[str, Any]
SIDECAR = named(objects("components/sidecar"), "Role", "lean-sandbox")
SIDECAR_EXTENSIONS = named(
    objects("components/sidecar-extensions"), "Role", "lean-sandbox-extensions"
)


def of_controller(world: World) -> set[Grant]:
    """Return the rights that the controller needed."""
    return asked(world.plane.audit.select(user=CONTROLLER))


@pytest.mark.case(150)
async def test_the_core_role_is_what_sandboxes_need() -> None:
    """With the core role no request is forbidden, and each of its rights is used or excepted."""
    async with open_world(settings(extensions=False), prepare=bind("base")) as world:
        await live_of_sandboxes(world)
        assert of_controller(world) | FOR_ADMISSION >= set(grants(CORE["rules"]))
        assert of_controller(world) <= set(grants(CORE["rules"]))


async def test_both_roles_are_what_the_extensions_need() -> None:
    """With both roles no request is forbidden, and each right is used or excepted."""
    granted = set(grants(CORE["rules"] + EXTENSIONS["rules"]))
    prepare = bind("base", "components/extensions")
    async with open_world(settings(), prepare=prepare) as world:
        await live_of_claims(world)
        await live_of_sandboxes(world)
        assert granted - of_controller(world) == FOR_ADMISSION
        assert of_controller(world) <= granted


@pytest.mark.case(150)
async def test_the_sidecar_gets_by_with_rights_in_its_namespace() -> None:
    """With Roles alone, told its namespace, no request is forbidden in any flow."""
    given = settings(namespaces=(NS,))
    async with open_world(given, prepare=bind_in_namespace) as world:
        await live_of_claims(world)
        await live_of_sandboxes(world)
        refused = world.plane.audit.codes(CONTROLLER, at_least=401)
        assert not {what for what in refused if what.startswith(("401", "403"))}


async def test_the_lease_is_taken_and_kept_with_its_role_alone() -> None:
    """An elector with the role for the Lease creates, reads and renews it, and needs all of it."""
    async with open_rig() as rig:
        for body in objects("base"):
            if body["kind"] in ("Namespace", "Role", "RoleBinding"):
                rig.plane.store.create(body)
        await _lead(rig)
        entries = rig.plane.audit.select(user=CONTROLLER, resource="leases")
        assert asked(entries) == set(grants(LEADER["rules"]))


async def _lead(rig: Rig) -> None:
    namespace = LEADER["metadata"]["namespace"]
    client = rig.client(CONTROLLER)
    elector = Elector(client, namespace=namespace, identity="one", clock=rig.clock)
    async with anyio.create_task_group() as group:
        group.start_soon(elector.run)
        await rig.advance(5.0)
        assert elector.is_leader
        group.cancel_scope.cancel()


def test_the_lease_is_named_in_its_role() -> None:
    """The role lets no other Lease of the namespace be read or changed."""
    by_verb = {verb: rule for rule in LEADER["rules"] for verb in rule["verbs"]}
    assert by_verb["get"]["resourceNames"] == by_verb["update"]["resourceNames"] == [LEASE_NAME]
    # No name can be told for a create.
    assert by_verb["create"]["verbs"] == ["create"]


def test_the_sidecar_has_the_rules_of_the_cluster_roles() -> None:
    """Role and ClusterRole differ in reach alone."""
    assert SIDECAR["rules"] == CORE["rules"]
    assert SIDECAR_EXTENSIONS["rules"] == EXTENSIONS["rules"]


def test_nothing_is_permitted_that_the_reference_does_not_permit() -> None:
    """Every right is one of the reference's, and they are fewer."""
    lease = set(grants(LEADER["rules"]))
    assert set(grants(CORE["rules"])) | lease < REFERENCE
    assert set(grants(EXTENSIONS["rules"])) < REFERENCE_EXTENSIONS
    ours = {right for role in (CORE, LEADER, EXTENSIONS) for right in grants(role["rules"])}
    said = f"{len(ours)} rights where the reference has {len(REFERENCE | REFERENCE_EXTENSIONS)}"
    assert said in (ROOT.parent / "docs" / "install.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "role", [CORE, EXTENSIONS, LEADER, COMPANIONS], ids=lambda role: role["metadata"]["name"]
)
def test_no_right_is_written_twice(role: Json) -> None:
    """No role names a right twice, and none has a wildcard."""
    each = grants(role["rules"])
    assert len(each) == len(set(each))
    assert not any("*" in part for right in each for part in right)


def test_the_table_explains_each_right() -> None:
    """manifests/README.md has a row for each resource of each role: our verbs and the others'."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `([a-z./8-]*)` \| `([\w/]+)` \| ([a-z, ]*) \| ([a-z, ]*) \| .+ \|$",
        text,
        flags=re.MULTILINE,
    )
    for column, rights in (
        (2, [CORE, EXTENSIONS, LEADER, COMPANIONS]),
        (3, [REFERENCE | REFERENCE_EXTENSIONS]),
    ):
        wanted = {
            right
            for one in rights
            for right in (one if isinstance(one, set) else grants(one["rules"]))
        }
        listed = {
            ("" if row[0] == "core" else row[0], row[1], verb.strip())
            for row in rows
            for verb in row[column].split(",")
            if verb.strip() not in ("", "none")
        }
        assert listed == wanted
