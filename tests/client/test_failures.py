"""Laws of what the official client is told when a claim cannot be served: promptly, and what."""

from __future__ import annotations

import pytest
from k8s_agent_sandbox.exceptions import (
    SandboxClaimFailedError,
    SandboxTemplateNotFoundError,
    SandboxWarmPoolNotFoundError,
)
from k8s_agent_sandbox.sandbox import Sandbox
from k8s_agent_sandbox.sandbox_client import SandboxClient

from tests.client.cluster import LEFT_OPEN, VOLUME, Room
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.filterwarnings(LEFT_OPEN)

Client = SandboxClient[Sandbox]


def test_variables_are_refused_where_the_template_forbids_them(client: Client, room: Room) -> None:
    """The client fails with the reason and a message that speaks of the template's policy."""
    room.pool()
    with pytest.raises(SandboxClaimFailedError, match="EnvVarsInjectionRejected") as caught:
        client.create_sandbox("pool", room.name, PATIENCE_S, env={"TASK": "count"})
    assert "environment variable" in str(caught.value)


def test_volumes_are_refused_where_the_template_forbids_them(client: Client, room: Room) -> None:
    """The client fails with the reason, as for variables."""
    room.pool()
    with pytest.raises(SandboxClaimFailedError, match="VolumeClaimTemplatesError"):
        client.create_sandbox("pool", room.name, PATIENCE_S, volume_claim_templates=[VOLUME])


def test_a_reserved_label_for_the_pod_is_refused(client: Client, room: Room) -> None:
    """A label of the controllers' own domain fails the claim, and nothing is made for it."""
    room.pool()
    with pytest.raises(SandboxClaimFailedError, match="InvalidMetadata"):
        client.create_sandbox(
            "pool", room.name, PATIENCE_S, pod_labels={"agents.x-k8s.io/claim-uid": "forged"}
        )


def test_a_missing_pool_is_named(client: Client, room: Room) -> None:
    """The client's own error for a missing pool, before its patience ends."""
    with pytest.raises(SandboxWarmPoolNotFoundError, match="nowhere"):
        client.create_sandbox("nowhere", room.name, PATIENCE_S)


def test_a_missing_template_is_named(client: Client, room: Room) -> None:
    """The client's own error for a missing template, before its patience ends."""
    room.pool("orphan", replicas=0, template="lost")
    with pytest.raises(SandboxTemplateNotFoundError, match="lost"):
        client.create_sandbox("orphan", room.name, PATIENCE_S)


def test_a_failed_claim_leaves_nothing_behind(client: Client, room: Room) -> None:
    """The client takes a claim back that failed, and the namespace is empty again."""
    with pytest.raises(SandboxWarmPoolNotFoundError):
        client.create_sandbox("nowhere", room.name, PATIENCE_S)
    assert client.list_all_sandboxes(room.name) == []
    assert room.members() == set()


def test_a_named_claim_recovers_when_its_pool_comes(client: Client, room: Room) -> None:
    """A claim that failed for want of a pool is served once there is one."""
    with pytest.raises(SandboxWarmPoolNotFoundError):
        client.create_sandbox("late", room.name, PATIENCE_S, claim_name="patient")
    room.pool("late", replicas=1)
    # The client judges what it reads first, so it is asked once the old failure is overwritten.
    room.cluster.until_object(
        "sandboxclaims.extensions.agents.x-k8s.io",
        room.name,
        "patient",
        lambda claim: claim["status"].get("sandbox", {}).get("name"),
    )
    sandbox = client.create_sandbox(
        "late", room.name, PATIENCE_S, claim_name="patient", adopt_existing=True
    )
    assert sandbox.status()[0] == "SandboxReady"
