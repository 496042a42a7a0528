"""Laws of what the official client gets when it asks for a Sandbox, and when it gives it back."""

from __future__ import annotations

from datetime import datetime

import pytest
from k8s_agent_sandbox.exceptions import SandboxNotFoundError
from k8s_agent_sandbox.sandbox import Sandbox
from k8s_agent_sandbox.sandbox_client import SandboxClient
from k8s_agent_sandbox.utils import extract_sandbox_name_hash
from kubernetes.client import ApiException

from lean_sandbox.model.names import name_hash
from tests.client.cluster import CLAIMS, CONTROLLER, LEFT_OPEN, SANDBOXES, VOLUME, Room
from tests.support.stored import is_ready

pytestmark = pytest.mark.filterwarnings(LEFT_OPEN)


Client = SandboxClient[Sandbox]


def test_a_claim_gets_a_ready_member_of_its_pool(client: Client, room: Room) -> None:
    """The client returns with a Sandbox that was in the pool before, Ready, with its address."""
    room.pool()
    before = room.members()
    sandbox = client.create_sandbox("pool", room.name)
    assert sandbox.sandbox_id in before
    assert sandbox.status()[0] == "SandboxReady"
    pod = room.pod(sandbox.get_pod_name())
    assert sandbox.get_pod_ip() == pod["status"]["podIP"]
    held = room.sandbox(sandbox.sandbox_id)
    assert extract_sandbox_name_hash(held) == name_hash(sandbox.sandbox_id)
    assert sandbox.get_sandbox_name_hash() == name_hash(sandbox.sandbox_id)


def test_a_pool_is_refilled_after_a_claim(client: Client, room: Room) -> None:
    """What a claim took out of its pool comes anew."""
    room.pool()
    before = room.members()
    taken = client.create_sandbox("pool", room.name).sandbox_id
    room.cluster.until("a third Sandbox", lambda: room.count() == 3)
    room.until_reported()
    assert before < room.members()
    assert is_ready(room.sandbox(taken))


def test_the_client_needs_one_write_and_one_watch(client: Client, room: Room) -> None:
    """Readiness comes by the first watch of the claim, without a repeated or a second one."""
    room.pool()
    client.create_sandbox("pool", room.name)
    assert room.cluster.asked("admin", room.name) == [
        "create sandboxclaims",
        "watch sandboxclaims",
    ]


def test_name_addresses_and_readiness_come_in_one_status(client: Client, room: Room) -> None:
    """The claim names its Sandbox, its address and Ready together: one write of the status."""
    room.pool()
    sandbox = client.create_sandbox("pool", room.name)
    claim = room.claim(sandbox.claim_name)
    assert claim["status"]["sandbox"]["name"] == sandbox.sandbox_id
    assert claim["status"]["sandbox"]["podIPs"] == [sandbox.get_pod_ip()]
    writes = [
        what for what in room.cluster.asked(CONTROLLER, room.name) if what == "patch sandboxclaims"
    ]
    # One for the status; one for when it was first seen.
    assert len(writes) <= 2


def test_what_the_client_wrote_into_the_claim_stays(client: Client, room: Room) -> None:
    """Labels, the client's own time stamp and its mark outlive the binding."""
    room.pool()
    sandbox = client.create_sandbox("pool", room.name, labels={"team": "blue"})
    metadata = room.claim(sandbox.claim_name)["metadata"]
    assert metadata["labels"]["team"] == "blue"
    assert metadata["labels"]["agents.x-k8s.io/created-by"] == "python-client"
    stamp = metadata["annotations"]["agents.x-k8s.io/client-first-requested-at"]
    assert datetime.fromisoformat(stamp).tzinfo is not None


def test_a_sandbox_is_found_again_by_its_claim(client: Client, room: Room) -> None:
    """A handle that was closed is opened again by the name of the claim."""
    room.pool()
    sandbox = client.create_sandbox("pool", room.name)
    assert sandbox.claim_name is not None
    sandbox.close_connection()
    again = client.get_sandbox(sandbox.claim_name, room.name)
    assert again is not sandbox
    assert again.sandbox_id == sandbox.sandbox_id
    assert client.get_sandbox_claim_warmpool_name(sandbox.claim_name, room.name) == "pool"


def test_claims_are_listed_by_their_labels(client: Client, room: Room) -> None:
    """A label selector finds the claims that carry the label."""
    room.pool()
    blue = client.create_sandbox("pool", room.name, labels={"team": "blue"}).claim_name
    red = client.create_sandbox("pool", room.name, labels={"team": "red"}).claim_name
    assert client.list_all_sandboxes(room.name, label_selector="team=blue") == [blue]
    assert set(client.list_all_sandboxes(room.name)) == {blue, red}


def test_deleting_takes_claim_sandbox_and_pod(client: Client, room: Room) -> None:
    """The client deletes the claim; Sandbox and Pod follow."""
    room.pool()
    sandbox = client.create_sandbox("pool", room.name)
    claim = sandbox.claim_name
    assert claim is not None
    client.delete_sandbox(claim, room.name)
    room.cluster.until_gone(CLAIMS, room.name, claim)
    room.cluster.until_gone(SANDBOXES, room.name, sandbox.sandbox_id)
    room.cluster.until_gone("pods", room.name, sandbox.sandbox_id)
    with pytest.raises(SandboxNotFoundError):
        client.get_sandbox(claim, room.name, resolve_timeout=1)


def test_a_pool_without_members_starts_cold(client: Client, room: Room) -> None:
    """With a pool of zero the claim gets a Sandbox made for it."""
    room.pool(replicas=0)
    sandbox = client.create_sandbox("pool", room.name)
    assert sandbox.sandbox_id == sandbox.claim_name
    assert sandbox.status()[0] == "SandboxReady"
    assert room.pod(sandbox.get_pod_name())["status"]["podIP"] == sandbox.get_pod_ip()


def test_more_claims_than_members_all_come_up(client: Client, room: Room) -> None:
    """Claims that find the pool empty get their Sandbox as well."""
    room.pool(replicas=1)
    made = {client.create_sandbox("pool", room.name).sandbox_id for _ in range(4)}
    assert len(made) == 4


def test_a_sandbox_goes_at_its_shutdown_time(client: Client, room: Room) -> None:
    """At the time asked for the claim goes, and Sandbox and Pod with it."""
    room.pool()
    sandbox = client.create_sandbox("pool", room.name, shutdown_after_seconds=2)
    claim = room.claim(sandbox.claim_name)
    assert claim["spec"]["lifecycle"]["shutdownPolicy"] == "Delete"
    room.cluster.until_gone(CLAIMS, room.name, claim["metadata"]["name"])
    room.cluster.until_gone(SANDBOXES, room.name, sandbox.sandbox_id)
    room.cluster.until_gone("pods", room.name, sandbox.sandbox_id)


def test_metadata_for_the_pod_arrives_there(client: Client, room: Room) -> None:
    """Labels and annotations asked for are on the Pod of the member."""
    room.pool()
    before = room.members()
    sandbox = client.create_sandbox(
        "pool",
        room.name,
        pod_labels={"sandbox.users.io/user": "ada"},
        pod_annotations={"notes.example.com/run": "7"},
    )
    assert sandbox.sandbox_id in before
    pod = room.cluster.until_object(
        "pods",
        room.name,
        sandbox.sandbox_id,
        lambda one: "sandbox.users.io/user" in one["metadata"].get("labels", {}),
    )
    assert pod["metadata"]["labels"]["sandbox.users.io/user"] == "ada"
    assert pod["metadata"]["annotations"]["notes.example.com/run"] == "7"


def test_variables_reach_the_container_where_the_template_allows(
    client: Client, room: Room
) -> None:
    """The Sandbox is made for the claim and its container has the variables."""
    room.template("open", envVarsInjectionPolicy="Allowed")
    room.pool(template="open")
    before = room.members()
    sandbox = client.create_sandbox("pool", room.name, env={"TASK": "count"})
    assert sandbox.sandbox_id not in before
    container = room.pod(sandbox.sandbox_id)["spec"]["containers"][0]
    assert {"name": "TASK", "value": "count"} in container["env"]


def test_volumes_are_made_where_the_template_allows(client: Client, room: Room) -> None:
    """The Sandbox is made for the claim and has a claim on a volume of its own."""
    room.template("open", volumeClaimTemplatesPolicy="Allowed")
    room.pool(template="open")
    before = room.members()
    sandbox = client.create_sandbox("pool", room.name, volume_claim_templates=[VOLUME])
    assert sandbox.sandbox_id not in before
    name = f"data-{sandbox.sandbox_id}"
    assert room.cluster.find("persistentvolumeclaims", room.name, name) is not None


def test_a_claim_is_taken_up_again_by_its_name(client: Client, room: Room) -> None:
    """The same name with adoption gives the same Sandbox; without it, a conflict."""
    room.pool()
    first = client.create_sandbox("pool", room.name, claim_name="mine")
    again = client.create_sandbox("pool", room.name, claim_name="mine", adopt_existing=True)
    assert again.sandbox_id == first.sandbox_id
    assert first.claim_name == "mine"
    with pytest.raises(ApiException, match="409"):
        client.create_sandbox("pool", room.name, claim_name="mine")
    with pytest.raises(ValueError, match="references warm pool"):
        client.create_sandbox("other", room.name, claim_name="mine", adopt_existing=True)


def test_a_named_claim_may_have_dots(client: Client, room: Room) -> None:
    """Names that are DNS subdomains work from claim to Pod, cold and warm."""
    room.pool(replicas=1)
    warm = client.create_sandbox("pool", room.name, claim_name="user.ada.session-1")
    room.pool("empty", replicas=0)
    cold = client.create_sandbox("empty", room.name, claim_name="user.ada.session-2")
    assert warm.sandbox_id != cold.sandbox_id == "user.ada.session-2"
