"""Whether a process has its rights, and what it says if not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from lean_sandbox.clock import SystemClock
from lean_sandbox.config.options import Settings
from lean_sandbox.kube.connection import Connection
from lean_sandbox.kube.resources import PODS
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.manager import rights
from lean_sandbox.manager.rights import (
    CLAIM_NEEDS,
    SANDBOX_NEEDS,
    Need,
    Rule,
    missing,
    tell_missing_rights,
)
from tests.kube.server import in_turn, reply, serve
from tests.manifests.files import ROOT, Grant, grants
from tests.manifests.roles import CORE, EXTENSIONS, FOR_ADMISSION, bind, bind_in_namespace
from tests.support.clients import cluster_admin, connection_to
from tests.support.world import CONTROLLER, NS

Json = MutableMapping[str, Any]


def granted(needs: tuple[Need, ...]) -> set[Grant]:
    """Return the rights that needs are."""
    return {
        (one.resource.group, f"{one.resource.plural}/{one.subresource}".rstrip("/"), verb)
        for one in needs
        for verb in one.verbs
    }


def test_the_needs_are_the_rules_of_the_manifests() -> None:
    """But for those that only an admission plugin asks for."""
    assert granted(SANDBOX_NEEDS) == set(grants(CORE["rules"])) - FOR_ADMISSION
    assert granted(CLAIM_NEEDS) == set(grants(EXTENSIONS["rules"])) - FOR_ADMISSION


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (Rule(("*",), ("*",), ("*",)), []),
        (Rule(("get", "list"), ("",), ("pods", "pods/status")), []),
        (Rule(("list",), ("",), ("*",)), ["get pods"]),
        (Rule(("*",), ("apps",), ("pods",)), ["get, list pods"]),
        (Rule(("*",), ("",), ("pods/status",)), ["get, list pods"]),
        (Rule(("get", "list"), ("",), ("pods",), ("one",)), ["get, list pods"]),
    ],
)
def test_a_rule_permits_what_it_names(rule: Rule, left: list[str]) -> None:
    """Or all of it; a rule for objects of some names is not enough."""
    assert missing((Need(PODS, ("get", "list")),), (rule,)) == left


@pytest.mark.parametrize(
    ("resource", "is_enough"),
    [("pods/status", True), ("*/status", True), ("*", True), ("pods", False)],
)
def test_a_subresource_has_a_right_of_its_own(resource: str, *, is_enough: bool) -> None:
    """That of its object does not hold for it."""
    rule = Rule(("patch",), ("",), (resource,))
    left = missing((Need(PODS, ("patch",), "status"),), (rule,))
    assert left == ([] if is_enough else ["patch pods/status"])


@asynccontextmanager
async def served(grant: Callable[[ControlPlane], None]) -> AsyncIterator[ControlPlane]:
    """Run a server whose controller has the rights that ``grant`` gives it, and no others."""
    async with ControlPlane() as plane:
        plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
        plane.store.create(cluster_admin(CONTROLLER))
        grant(plane)
        yield plane


async def said(connection: Connection, **more: Any) -> list[Json]:
    """Return what a controller with these settings says of its rights."""
    with capture_logs() as lines:
        await tell_missing_rights(connection, Settings(**more), SystemClock())
    return list(lines)


async def test_who_has_the_rules_of_the_manifests_is_told_nothing() -> None:
    """In the whole cluster, and in a namespace; it costs one POST."""
    async with served(bind("base", "components/extensions")) as plane:
        assert await said(connection_to(plane, CONTROLLER), extensions=True) == []
        assert len(plane.audit.select(user=CONTROLLER)) == 1
    async with served(bind_in_namespace) as plane:
        connection = connection_to(plane, CONTROLLER)
        assert await said(connection, extensions=True, namespaces=(NS,)) == []


async def test_missing_rights_are_told_with_the_manifests_that_grant_them() -> None:
    """Only what is missing is named, and rights in a namespace are none in the cluster."""
    async with served(bind("base")) as plane:
        connection = connection_to(plane, CONTROLLER)
        (line,) = await said(connection, extensions=True)
        assert line["missing"].startswith("create sandboxes.agents.x-k8s.io; delete, get, ")
        assert line["fix"].endswith(" rules of manifests/components/extensions/clusterrole.yaml")
        assert await said(connection) == []
    async with served(bind_in_namespace) as plane:
        connection = connection_to(plane, CONTROLLER)
        (line,) = await said(connection)
        assert line["missing"].startswith("create, delete, get, list, patch, watch pods; ")
        (line,) = await said(connection, namespaces=(NS, "other"))
        assert line["namespace"] == "other"
        assert (ROOT.parent / line["fix"].rpartition(" ")[2]).is_file()


def test_each_manifest_that_is_told_to_grant_rights_is_a_file() -> None:
    """In the cluster and in a namespace, for Sandboxes and for claims."""
    files = {*rights._IN_CLUSTER, *rights._IN_NAMESPACE}
    assert len(files) == 4
    assert all((ROOT.parent / file).is_file() for file in files)


async def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    """Whatever needs it says so."""
    assert await said(Connection("http://127.0.0.1:9")) == []


@pytest.mark.parametrize(("incomplete", "told"), [(True, 0), (False, 1)])
async def test_what_a_server_cannot_list_is_not_told_to_be_missing(
    *, incomplete: bool, told: int
) -> None:
    """As with an authorizer that is a webhook: its rules are in no list."""
    answer = {"status": {"resourceRules": [], "incomplete": incomplete}}
    async with serve(in_turn(reply(201, answer))) as server:
        assert len(await said(Connection(server.url))) == told
