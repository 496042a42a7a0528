"""Lives of Sandboxes, claims, pools and templates that need every right the controller has."""

from __future__ import annotations

from typing import Any

from lean_sandbox.model.times import format_rfc3339
from tests.support.builders import claim, pool, template
from tests.support.clock import EPOCH
from tests.support.extensions import member_names, ready_of, run_members
from tests.support.names import CLAIMS, POLICIES, POOLS, TEMPLATES
from tests.support.suspension import resume, suspend
from tests.support.volumes import ADOPTABLE, VOLUME_SPEC, WHOLE
from tests.support.world import NS, World, condition, pod_body, sandbox

__all__ = ["live_of_claims", "live_of_sandboxes"]

Json = dict[str, Any]
_PAST = format_rfc3339(EPOCH)


def _whole(name: str, **spec: Any) -> Json:
    return sandbox(name, spec={**WHOLE, **spec})


def _child(kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "namespace": NS, "labels": ADOPTABLE}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


async def live_of_sandboxes(world: World) -> None:
    """Cold start, edit, loss, suspend, resume, drift, adoption, refusal, expiry, deletion."""
    await world.ready_sandbox(_whole("sb-1"))
    edit = {"spec": {"podTemplate": {"metadata": {"labels": {"team": "red"}}}}}
    await world.patch("sandboxes", "sb-1", edit)
    await world.delete("pods", "sb-1")
    await world.run_pod("sb-1")
    stale = {"metadata": {"annotations": {"agents.x-k8s.io/pod-name": "elsewhere"}}}
    await world.patch("sandboxes", "sb-1", stale)
    await suspend(world)
    await world.delete("pods", "sb-1")
    await resume(world)
    await world.run_pod("sb-1")
    await world.patch("services", "sb-1", {"spec": {"selector": {"app": "x"}}})
    await world.patch("sandboxes", "sb-1", {"spec": {"service": False}})
    assert condition(world.get(), "Ready")["message"] == "Pod is Ready"
    await _adopt(world)
    await _collide(world)
    for name, policy in (("sb-3", "Retain"), ("sb-4", "Delete")):
        await world.ready_sandbox(_whole(name))
        past = {"shutdownPolicy": policy, "shutdownTime": _PAST}
        await world.patch("sandboxes", name, {"spec": past})
    await world.advance(1.0)
    assert condition(world.get("sb-3"), "Ready")["reason"] == "SandboxExpired"
    assert world.find("sandboxes", "sb-4") is None
    await world.delete("sandboxes", "sb-1")
    await world.advance(60.0)


async def _adopt(world: World) -> None:
    store = world.plane.store
    store.create(pod_body("sb-2", labels=ADOPTABLE))
    store.create(_child("Service", "sb-2", {"clusterIP": "None"}))
    store.create(_child("PersistentVolumeClaim", "data-sb-2", VOLUME_SPEC))
    await world.create(_whole("sb-2"))
    await world.run_pod("sb-2")
    assert condition(world.get("sb-2"), "Ready")["message"] == "Pod is Ready; Service Exists"


async def _collide(world: World) -> None:
    """Let a volume claim appear between look and create, and refuse a Pod again and again."""
    claim = _child("PersistentVolumeClaim", "data-sb-5", VOLUME_SPEC)
    world.meanwhile("create", "persistentvolumeclaims", lambda: world.plane.store.create(claim))
    world.plane.fail_next("create", "pods", 500, times=3)
    await world.create(_whole("sb-5"))
    await world.advance(120.0)
    await world.run_pod("sb-5")
    assert condition(world.get("sb-5"), "Ready")["status"] == "True"


async def live_of_claims(world: World) -> None:
    """Pool, warm and cold claim, policies of templates, missing pool and template, expiry."""
    await world.create(template())
    await world.create(pool(replicas=2))
    await world.advance(3.0)
    await run_members(world, *member_names(world))
    seen = {
        "type": "Seen",
        "status": "True",
        "reason": "WrittenByOthers",
        "message": "",
        "lastTransitionTime": _PAST,
    }
    world.meanwhile(
        "patch",
        "sandboxclaims/status",
        lambda: world.plane.store.patch(
            CLAIMS, NS, "warm", {"status": {"conditions": [seen]}}, subresource="status"
        ),
    )
    await world.create(claim("warm"))
    await world.advance(3.0)
    assert ready_of(world, "warm")[0] == "True"
    await _change_policy(world)
    await world.create(pool("empty", 0))
    await world.create(claim("cold", pool="empty"))
    await world.advance(3.0)
    await world.run_pod("cold")
    assert ready_of(world, "cold")[0] == "True"
    await world.create(pool("astray", 1, template="missing"))
    await world.create(claim("astray", pool="astray"))
    await world.create(claim("lost", pool="missing"))
    await world.advance(3.0)
    assert ready_of(world, "astray")[1] == "TemplateNotFound"
    assert ready_of(world, "lost")[1] == "WarmPoolNotFound"
    expired = {"shutdownTime": _PAST, "shutdownPolicy": "Delete"}
    await world.patch(CLAIMS, "warm", {"spec": {"lifecycle": expired}})
    await world.patch(POOLS, "pool", {"spec": {"replicas": 0}})
    await world.advance(60.0)
    assert world.find(CLAIMS, "warm") is None


async def _change_policy(world: World) -> None:
    name = "tpl-network-policy"
    assert world.find(POLICIES, name) is not None
    await world.patch(POLICIES, name, {"spec": {"ingress": None}})
    await world.patch(TEMPLATES, "tpl", {"spec": {"networkPolicyManagement": "Unmanaged"}})
    await world.advance(3.0)
    assert world.find(POLICIES, name) is None
