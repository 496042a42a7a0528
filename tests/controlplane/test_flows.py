"""The flows of Sandboxes, pools and claims on a real control plane, and what each costs.

Requests are those of the controller's service account in the audit log, without watches and
Events. The budgets are the ones that ``tests/controllers/sandbox/test_flow_budgets.py`` and
``tests/controllers/claim/test_budgets.py`` hold over the embedded server.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import answers
from tests.controlplane.objects import all_ready, condition, extension, filled, sandbox
from tests.controlplane.plugin import REAL
from tests.controlplane.scene import Scene, Spent

pytestmark = [pytest.mark.asyncio(loop_scope="module"), REAL]

LAUNCH = {"get sandboxes": 1, "create pods": 1, "get pods": 1, "patch sandboxes/status": 1}
BIND = ["patch sandboxes", "patch pods", "patch sandboxclaims/status"]
# The metadata of the claim: sent beside its status, so that either may arrive first.
BESIDE = "patch sandboxclaims"


async def launched(scene: Scene, **spec: Any) -> Spent:
    """Create a Sandbox, wait until it is Ready, and return what that cost."""
    await scene.create("sandboxes", sandbox(**spec))
    await scene.until("sandboxes", all_ready(1))
    return await scene.spent()


async def test_a_cold_sandbox_costs_one_post_and_one_status(scene: Scene) -> None:
    """Case 20: a GET of Sandbox and Pod, POST Pod, one status at Ready."""
    spent = await launched(scene)
    assert spent.asked == LAUNCH
    assert not spent.refused
    (pod,) = await scene.objects("pods")
    (made,) = await scene.objects("sandboxes")
    assert made["status"]["podIPs"] == [one["ip"] for one in pod["status"]["podIPs"]]
    assert pod["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]


async def test_suspension_and_resumption(scene: Scene) -> None:
    """Cases 108, 109, 111: DELETE and two statuses down, a launch and one status more up."""
    await launched(scene)
    await scene.patch("sandboxes", "sb", {"spec": {"operatingMode": "Suspended"}})
    await scene.until("sandboxes", lambda found: condition(found[0], "Suspended") == "True")
    spent = await scene.spent()
    assert spent.asked == {"get sandboxes": 1, "delete pods": 1, "patch sandboxes/status": 2}
    assert not spent.refused
    assert await scene.objects("pods") == []
    await scene.patch("sandboxes", "sb", {"spec": {"operatingMode": "Running"}})
    await scene.until("sandboxes", all_ready(1))
    spent = await scene.spent()
    assert spent.asked == {**LAUNCH, "patch sandboxes/status": 2}
    assert not spent.refused


async def test_an_expired_sandbox_loses_its_pod(scene: Scene) -> None:
    """Retain: the Pod goes, the Sandbox stays and says so, in at most two statuses."""
    await launched(scene)
    await scene.patch("sandboxes", "sb", {"spec": {"shutdownTime": "2020-01-01T00:00:00Z"}})
    await scene.until("pods", lambda found: not found)
    spent = await scene.spent()
    assert not spent.refused
    assert spent.writes["delete pods"] == 1
    assert spent.writes["patch sandboxes/status"] <= 2
    assert set(spent.writes) == {"delete pods", "patch sandboxes/status"}
    (left,) = await scene.objects("sandboxes")
    assert condition(left, "Ready") == "False"


async def test_a_deleted_sandbox_costs_nothing(scene: Scene) -> None:
    """Case 130: its Pod and Service go by their owner references."""
    await launched(scene, service=True)
    await scene.delete("sandboxes", "sb")
    await scene.until("pods", lambda found: not found)
    await scene.until("services", lambda found: not found)
    spent = await scene.spent()
    assert spent.asked == {}
    assert not spent.refused


async def test_a_pool_fills_with_three_writes_a_member(scene: Scene) -> None:
    """POST Sandbox, POST Pod and one status for each; nothing is refused."""
    spent = await filled(scene, 3)
    writes = spent.writes
    assert not spent.refused
    assert writes["create sandboxes"] == writes["create pods"] == 3
    assert writes["patch sandboxes/status"] == 3
    assert writes["patch sandboxwarmpools/status"] <= 4
    assert writes["patch sandboxtemplates"] == writes["create networkpolicies"] == 1
    assert sum(writes.values()) <= 3 * 3 + 4 + 2, writes


async def test_a_warm_claim_takes_two_writes_and_the_pool_is_full_again(scene: Scene) -> None:
    """Claim case 52: bind first; 8 writes and 1 read with the replacement, nothing refused."""
    await filled(scene, 2)
    await scene.create("sandboxclaims", extension("SandboxClaim", "c", warmPoolRef={"name": "p"}))
    (claim,) = await scene.until("sandboxclaims", all_ready(1))
    await scene.until("sandboxes", all_ready(3))
    spent = await scene.spent()
    assert [write for write in spent.order if write != BESIDE][:3] == BIND
    assert sum(spent.writes.values()) <= 8, spent.writes
    assert sum(spent.writes.values()) + spent.events <= 11, spent
    assert sum(spent.reads.values()) <= 1, spent.reads
    assert not spent.refused
    taken = claim["status"]["sandbox"]["name"]
    bound = (await scene.room.api.get(f"{scene.path('sandboxes')}/{taken}")).ok()
    assert "managedFields" not in bound["metadata"]
    await scene.delete("sandboxclaims", "c")
    await answers(scene.room.api, f"{scene.path('sandboxes')}/{taken}", 404)
    await scene.until("pods", lambda found: len(found) == 2)
    spent = await scene.spent()
    assert not spent.refused
    assert not spent.writes, spent.writes


async def test_a_member_of_which_the_pool_is_not_the_first_owner_is_taken(scene: Scene) -> None:
    """Claim case 78: the patch guarded by the pool is refused, the one by the version is not."""
    await filled(scene, 1)
    (member,) = await scene.until("sandboxes", all_ready(1))
    (template,) = await scene.objects("sandboxtemplates")
    first = {key: template[key] for key in ("apiVersion", "kind")}
    first |= {key: template["metadata"][key] for key in ("name", "uid")}
    owners = [first, *member["metadata"]["ownerReferences"]]
    name = member["metadata"]["name"]
    await scene.patch("sandboxes", name, {"metadata": {"ownerReferences": owners}})
    await scene.spent()
    await scene.create("sandboxclaims", extension("SandboxClaim", "c", warmPoolRef={"name": "p"}))
    (claim,) = await scene.until("sandboxclaims", all_ready(1))
    assert claim["status"]["sandbox"]["name"] == name
    spent = await scene.spent()
    assert spent.refused == ["422 patch sandboxes"]
