"""Laws of suspending and resuming through the official client's snapshot extension."""

from __future__ import annotations

import pytest
from k8s_agent_sandbox.gke_extensions.snapshots.podsnapshot_client import PodSnapshotSandboxClient
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig
from kubernetes.client import ApiClient

from tests.client.cluster import LEFT_OPEN, SANDBOXES, Cluster, Room
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.filterwarnings(LEFT_OPEN)


_GROUP = "podsnapshot.gke.io"


@pytest.fixture(scope="module", autouse=True)
def snapshots(cluster: Cluster) -> None:
    """Serve the kind the client looks for; nobody takes snapshots."""
    cluster.serve(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"podsnapshots.{_GROUP}"},
            "spec": {
                "group": _GROUP,
                "scope": "Namespaced",
                "names": {
                    "kind": "PodSnapshot",
                    "listKind": "PodSnapshotList",
                    "plural": "podsnapshots",
                    "singular": "podsnapshot",
                },
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {
                            "openAPIV3Schema": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            }
                        },
                    }
                ],
            },
        }
    )


def test_a_claimed_sandbox_is_suspended_and_resumed(api: ApiClient, room: Room) -> None:
    """The Pod goes and comes again under its name; the claim keeps its Sandbox all the time."""
    room.pool()
    client = PodSnapshotSandboxClient(
        SandboxDirectConnectionConfig(api_url="http://127.0.0.1:9"), api_client=api
    )
    sandbox = client.create_sandbox("pool", room.name)
    pod = room.pod(sandbox.sandbox_id)["metadata"]["uid"]

    done = sandbox.suspend(snapshot_before_suspend=False, wait_timeout=PATIENCE_S)
    assert done.success, done
    assert sandbox.is_suspended()
    room.cluster.until_object(
        SANDBOXES, room.name, sandbox.sandbox_id, lambda one: not one["status"].get("podIPs")
    )
    assert sandbox.get_pod_ip() is None
    assert sandbox.status()[0] == "SandboxNotReady"
    assert room.claim(sandbox.claim_name)["status"]["sandbox"]["name"] == sandbox.sandbox_id

    back = sandbox.resume(wait_timeout=PATIENCE_S)
    assert back.success, back
    assert not sandbox.is_suspended()
    assert sandbox.get_pod_name() == sandbox.sandbox_id
    assert room.pod(sandbox.sandbox_id)["metadata"]["uid"] != pod
    room.cluster.until_object(
        SANDBOXES, room.name, sandbox.sandbox_id, lambda one: one["status"].get("podIPs")
    )
    assert room.claim(sandbox.claim_name)["status"]["sandbox"]["name"] == sandbox.sandbox_id


def test_an_annotation_of_a_claim_reaches_a_suspended_sandbox_and_goes_again(
    api: ApiClient, room: Room
) -> None:
    """The restore's mark, set on and taken off the claim, is followed by the Sandbox's template."""
    room.pool()
    client = PodSnapshotSandboxClient(
        SandboxDirectConnectionConfig(api_url="http://127.0.0.1:9"), api_client=api
    )
    sandbox = client.create_sandbox("pool", room.name)
    assert sandbox.suspend(snapshot_before_suspend=False, wait_timeout=PATIENCE_S).success
    key = f"{_GROUP}/ps-name"

    def mark(value: str | None) -> None:
        assert sandbox.claim_name is not None
        client.k8s_helper.patch_sandbox_claim(
            sandbox.claim_name,
            room.name,
            {"spec": {"additionalPodMetadata": {"annotations": {key: value}}}},
        )
        room.cluster.until_object(
            SANDBOXES,
            room.name,
            sandbox.sandbox_id,
            lambda one: (
                one["spec"]["podTemplate"].get("metadata", {}).get("annotations", {}).get(key)
                == value
            ),
        )

    mark("snapshot-1")
    mark(None)
