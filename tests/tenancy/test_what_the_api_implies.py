"""The points of docs/security.md that follow from the contract: they are so, and stay so."""

from __future__ import annotations

from typing import Any

from tests.support.world import HASH_LABEL, NS, open_world, sandbox
from tests.tenancy.twins import TWINS

Json = dict[str, Any]


async def test_the_spec_of_a_pod_is_passed_on_as_written() -> None:
    """Privileged containers, folders of the node and any account: admission has to forbid them."""
    asked: Json = {
        "serviceAccountName": "powerful",
        "hostNetwork": True,
        "volumes": [{"name": "node", "hostPath": {"path": "/"}}],
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "securityContext": {"privileged": True},
                "volumeMounts": [{"name": "node", "mountPath": "/node"}],
            }
        ],
    }
    metadata = {"name": "powerful", "namespace": NS}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    async with open_world(before=(account,)) as world:
        await world.create(sandbox(pod_spec=asked))
        spec = world.pod()["spec"]
        for name in ("serviceAccountName", "hostNetwork"):
            assert spec[name] == asked[name]
        assert spec["volumes"][0]["hostPath"]["path"] == "/"
        assert spec["containers"][0]["securityContext"] == {"privileged": True}


async def test_the_service_of_a_name_selects_the_pods_of_all_names_of_its_hash() -> None:
    """Only within a namespace; so tenants are not to share one."""
    async with open_world() as world:
        for name in TWINS:
            await world.ready_sandbox(sandbox(name, spec={"service": True}))
        selector = world.plane.store.get("services", NS, TWINS[0])["spec"]["selector"]
        assert set(selector) == {HASH_LABEL}
        selected = [
            pod["metadata"]["name"]
            for pod in world.plane.store.list("pods", NS)
            if pod["metadata"]["labels"][HASH_LABEL] == selector[HASH_LABEL]
        ]
        assert sorted(selected) == sorted(TWINS)
