"""What this controller leaves behind holds everything the reference looks for.

Where the reference looks is listed in ``manifests/migration.md``: labels, annotations, owner
references, conditions and fields of statuses.
"""

from __future__ import annotations

from typing import Any

import pytest

from lean_sandbox.model.names import name_hash
from tests.controlplane.objects import all_ready, condition, extension, fill, sandbox
from tests.controlplane.plugin import REAL
from tests.controlplane.reference import DOMAIN, owner
from tests.controlplane.scene import Scene
from tests.support.names import SAFE_TO_EVICT
from tests.support.volumes import VOLUME

pytestmark = [pytest.mark.asyncio(loop_scope="module"), REAL]

Json = dict[str, Any]

TRACKING = f"{DOMAIN}/sandbox-name-hash"
REF_HASH = f"{DOMAIN}/sandbox-template-ref-hash"
POOL = f"{DOMAIN}/warm-pool-sandbox"
UID = f"{DOMAIN}/claim-uid"
LAUNCH = f"{DOMAIN}/launch-type"
CREATED_BY = f"{DOMAIN}/created-by"
REF = f"{DOMAIN}/sandbox-template-ref"
HASHES = (f"{DOMAIN}/sandbox-template-hash", f"{DOMAIN}/sandbox-pod-template-hash")
PODS = {"conditions", "selector", "podIPs", "nodeName"}
UP = {"Suspended": "NotSuspended", "PodScheduled": "PodScheduled", "Ready": "DependenciesReady"}


async def one(scene: Scene, plural: str, name: str) -> Json:
    """Return an object."""
    return dict((await scene.room.api.get(f"{scene.path(plural)}/{name}")).ok())


def labels(obj: Json) -> Json:
    """Return the labels of an object, or of a Pod template."""
    return dict(obj["metadata"].get("labels", {}))


def notes(obj: Json) -> Json:
    """Return the annotations of an object, or of a Pod template."""
    return dict(obj["metadata"].get("annotations", {}))


def reasons(obj: Json) -> dict[str, str]:
    """Return the reason of each condition; all are about the present generation."""
    found = obj["status"]["conditions"]
    generation = obj["metadata"]["generation"]
    assert {entry["observedGeneration"] for entry in found} == {generation}
    assert all(entry["lastTransitionTime"] for entry in found)
    return {entry["type"]: entry["reason"] for entry in found}


async def test_a_sandbox_with_all_its_children(scene: Scene) -> None:
    """Pod, Service and volume claim by name, tracking label and owner; the whole status."""
    template = {
        "metadata": {"labels": {"team": "blue"}, "annotations": {"note": "n"}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    wanted = {"podTemplate": template, "service": True, "volumeClaimTemplates": [VOLUME]}
    await scene.create("sandboxes", sandbox("full", **wanted))
    (made,) = await scene.until("sandboxes", all_ready(1))
    tracking = {TRACKING: name_hash("full")}
    pod = await one(scene, "pods", "full")
    assert labels(pod) == {"team": "blue", **tracking}
    assert notes(pod) == {
        "note": "n",
        f"{DOMAIN}/propagated-labels": "team",
        f"{DOMAIN}/propagated-annotations": "note",
    }
    service = await one(scene, "services", "full")
    assert labels(service) == service["spec"]["selector"] == tracking
    assert service["spec"]["clusterIP"] == "None"
    volume = await one(scene, "persistentvolumeclaims", "data-full")
    assert labels(volume) == tracking
    for child in (pod, service, volume):
        assert child["metadata"]["ownerReferences"] == owner(made)
    assert notes(made) == {}
    assert "finalizers" not in made["metadata"]
    assert made["status"].keys() == PODS | {"service", "serviceFQDN"}
    assert made["status"]["selector"] == f"{TRACKING}={name_hash('full')}"
    assert made["status"]["podIPs"] == [entry["ip"] for entry in pod["status"]["podIPs"]]
    assert made["status"]["nodeName"] == pod["spec"]["nodeName"]
    assert made["status"]["service"] == "full"
    assert made["status"]["serviceFQDN"] == f"full.{scene.room.name}.svc.cluster.local"
    assert reasons(made) == UP


async def test_sandboxes_at_rest_say_what_the_reference_reads(scene: Scene) -> None:
    """Suspended, finished and expired: each by its conditions, and without a Pod nothing of it."""
    await scene.create("sandboxes", sandbox("asleep"))
    await scene.until("sandboxes", all_ready(1))
    await scene.patch("sandboxes", "asleep", {"spec": {"operatingMode": "Suspended"}})
    await scene.until("sandboxes", lambda found: condition(found[0], "Suspended") == "True")
    made = await one(scene, "sandboxes", "asleep")
    assert made["status"].keys() == {"conditions", "selector"}
    assert reasons(made) == {"Suspended": "PodTerminated", "Ready": "SandboxSuspended"}
    assert notes(made) == {}

    containers = [{"name": "main", "image": "busybox"}]
    template = {
        "metadata": {"annotations": {"kubelet.lean-sandbox/complete-after": "1s"}},
        "spec": {"containers": containers, "restartPolicy": "Never"},
    }
    await scene.create("sandboxes", sandbox("done", podTemplate=template))
    await scene.until(
        "sandboxes", lambda found: any(condition(each, "Finished") == "True" for each in found)
    )
    made = await one(scene, "sandboxes", "done")
    assert made["status"].keys() == PODS
    assert reasons(made) == {**UP, "Ready": "PodSucceeded", "Finished": "PodSucceeded"}

    await scene.patch("sandboxes", "done", {"spec": {"shutdownTime": "2020-01-01T00:00:00Z"}})
    await scene.until("pods", lambda found: not found)
    await scene.until(
        "sandboxes", lambda found: all(each["status"].keys() < {*PODS} for each in found)
    )
    made = await one(scene, "sandboxes", "done")
    assert made["status"].keys() == {"conditions"}
    # What is told of the time before keeps its generation.
    found = {entry["type"]: entry for entry in made["status"]["conditions"]}
    assert {
        kind: (entry["reason"], entry["observedGeneration"]) for kind, entry in found.items()
    } == {
        "Suspended": ("NotSuspended", 1),
        "Finished": ("PodSucceeded", 1),
        "Ready": ("SandboxExpired", 2),
    }


async def test_templates_pools_and_members_say_what_the_reference_reads(scene: Scene) -> None:
    """The hashes of names on each, the owner of each, the defaults that members are judged by."""
    pool = await pool_of(scene, 2)
    template = await one(scene, "sandboxtemplates", "t")
    assert labels(template) == {REF_HASH: name_hash("t")}
    policy = await one(scene, "networkpolicies", "t-network-policy")
    assert policy["metadata"]["ownerReferences"] == owner(template)
    assert policy["spec"]["podSelector"] == {"matchLabels": labels(template)}
    assert pool["status"] == {
        "replicas": 2,
        "readyReplicas": 2,
        "selector": f"{POOL}={name_hash('p')}",
        "observedGeneration": pool["metadata"]["generation"],
    }
    shared = {POOL: name_hash("p"), REF_HASH: name_hash("t")}
    for member in await scene.objects("sandboxes"):
        hashes = {key: labels(member).get(key) for key in HASHES}
        assert all(hashes.values())
        own = {**shared, LAUNCH: "warm", CREATED_BY: "controller"}
        assert labels(member) == {**own, **hashes}
        assert notes(member) == {REF: "t"}
        assert member["metadata"]["ownerReferences"] == owner(pool)
        pod_template = member["spec"]["podTemplate"]
        assert labels(pod_template) == {**shared, **hashes}
        assert notes(pod_template) == {SAFE_TO_EVICT: "true"}
        secured = {"automountServiceAccountToken": False, "dnsPolicy": "None"}
        assert pod_template["spec"].items() >= secured.items()
        name = member["metadata"]["name"]
        pod = await one(scene, "pods", name)
        assert labels(pod) == {**shared, CREATED_BY: "controller", TRACKING: name_hash(name)}
        assert notes(pod).items() >= {SAFE_TO_EVICT: "true"}.items()
        assert reasons(member) == UP


@pytest.mark.parametrize("launch", ["warm", "cold"])
async def test_claims_and_their_sandboxes_say_what_the_reference_reads(
    scene: Scene, launch: str
) -> None:
    """The claim names its Sandbox, the Sandbox its claim, and no mark of the pool is left."""
    await pool_of(scene, 1 if launch == "warm" else 0)
    body = extension("SandboxClaim", "c", warmPoolRef={"name": "p"})
    body["metadata"]["labels"] = {CREATED_BY: "python-client"}
    await scene.create("sandboxclaims", body)
    stamps = {f"{DOMAIN}/controller-first-observed-at", f"{DOMAIN}/claim-first-ready-at"}
    # The annotations go out beside the status that tells of Ready: either may arrive first.
    (claim,) = await scene.until(
        "sandboxclaims", lambda found: all_ready(1)(found) and notes(found[0]).keys() >= stamps
    )
    bound = claim["status"]["sandbox"]["name"]
    assert (bound == "c") == (launch == "cold")
    noted = {f"{DOMAIN}/sandbox-name"} if launch == "warm" else set()
    assert notes(claim).keys() == stamps | noted
    assert notes(claim).get(f"{DOMAIN}/sandbox-name", bound) == bound
    assert reasons(claim) == {"Ready": "DependenciesReady"}
    made = await one(scene, "sandboxes", bound)
    assert claim["status"]["sandbox"] == {"name": bound, "podIPs": made["status"]["podIPs"]}
    shared = {REF_HASH: name_hash("t"), CREATED_BY: "python-client"}
    identity = {UID: claim["metadata"]["uid"]}
    assert labels(made) == {**shared, **identity, LAUNCH: launch}
    assert labels(made["spec"]["podTemplate"]) == {**shared, **identity}
    assert notes(made) == {REF: "t"}
    assert made["metadata"]["ownerReferences"] == owner(claim)
    told = {**shared, **identity, TRACKING: name_hash(bound)}
    pods = await scene.until("pods", lambda found: told in [labels(each) for each in found])
    (pod,) = (each for each in pods if each["metadata"]["name"] == bound)
    assert labels(pod) == told
    assert pod["metadata"]["ownerReferences"] == owner(made)


async def pool_of(scene: Scene, replicas: int) -> Json:
    """Fill a pool, wait until it reports that, and return it."""
    await fill(scene, replicas)
    (pool,) = await scene.until(
        "sandboxwarmpools",
        lambda found: found[0].get("status", {}).get("readyReplicas", 0) == replicas,
    )
    return pool
