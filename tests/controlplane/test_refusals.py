"""How a real server refuses with 422, and what the controller makes of it.

``tests/support/refusals.py`` holds these answers for the tests over the embedded server.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme
from aiohttp import web

from lean_sandbox.kube.errors import ApiError, Forbidden, from_response
from tests.conformance.api import JSON_PATCH, Reply, until
from tests.conformance.objects import pod
from tests.controlplane.objects import all_ready, condition, extension, fill, sandbox
from tests.controlplane.plugin import REAL
from tests.controlplane.scene import Scene
from tests.support import refusals

pytestmark = [pytest.mark.asyncio(loop_scope="module"), REAL]

Json = dict[str, Any]
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_POLICIES = f"{_ADMISSION}/validatingadmissionpolicies"
_BINDINGS = f"{_ADMISSION}/validatingadmissionpolicybindings"
_WEBHOOKS = f"{_ADMISSION}/validatingwebhookconfigurations"


def error_of(reply: Reply) -> ApiError:
    """Return the error that the controller would make of an answer."""
    return from_response(reply.status, reply.body, {})


def shape(status: Json) -> Json:
    """Return what of a refusal tells who has refused: all but names, messages and the kind."""
    details = status.get("details") or {}
    causes = [sorted(cause) for cause in details.get("causes") or ()]
    head = status["message"].split('"')[0]
    return {"head": head, "reason": status.get("reason") or "", "causes": causes}


@asynccontextmanager
async def policy(
    scene: Scene, resource: str, reason: str = "", *, admits: str = "false"
) -> AsyncIterator[None]:
    """Refuse updates and creates of a kind in the namespace but those that CEL ``admits``."""
    group, _, plural = resource.rpartition("/")
    if plural == "status":
        group = "agents.x-k8s.io"
        plural = "sandboxes/status"
    rule = {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [plural],
    }
    validation = {"expression": admits, "message": "not now"}
    room = scene.room
    spec: Json = {
        "matchConstraints": {
            "resourceRules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": room.name}},
        },
        "validations": [validation | ({"reason": reason} if reason else {})],
    }
    name = {"metadata": {"name": room.name}}
    (await room.api.post(_POLICIES, {**name, "spec": spec})).ok()
    bound = {"policyName": room.name, "validationActions": ["Deny"]}
    (await room.api.post(_BINDINGS, {**name, "spec": bound})).ok()
    try:
        yield
    finally:
        (await room.api.delete(f"{_BINDINGS}/{room.name}")).ok()
        (await room.api.delete(f"{_POLICIES}/{room.name}")).ok()


@asynccontextmanager
async def webhook(scene: Scene, said: Json | None) -> AsyncIterator[None]:
    """Let a webhook refuse the Pods of the namespace with a Status."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def answer(request: web.BaseRequest) -> web.Response:
        review = await request.json()
        response = {"uid": review["request"]["uid"], "allowed": False}
        if said is not None:
            response["status"] = said
        return web.json_response({**review, "response": response})

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    room = scene.room
    hook = {
        "name": "w.example.com",
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/",
            "caBundle": base64.b64encode(authority.cert_pem.bytes()).decode(),
        },
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": room.name}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    try:
        body = {"metadata": {"name": room.name}, "webhooks": [hook]}
        (await room.api.post(_WEBHOOKS, body)).ok()
        yield
    finally:
        (await room.api.delete(f"{_WEBHOOKS}/{room.name}")).ok()
        await runner.cleanup()


def _said(code: int, reason: str) -> Json:
    return {"code": code, "reason": reason, "message": "not now"}


async def refused_pod(scene: Scene) -> Reply:
    """Try to create a Pod until it is refused: a policy comes into force after a moment."""
    found: list[Reply] = []

    async def is_refused() -> bool:
        body = pod("trial")
        found[:] = [await scene.room.api.post(scene.room.pods, body, dryRun="All")]
        return found[0].status >= 300

    await until(is_refused, every_s=0.2)
    return found[0]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("", 422),
        ("Invalid", 422),
        ("Forbidden", 403),
        ("RequestEntityTooLarge", 413),
    ],
)
async def test_a_policy_refuses_with_a_cause_without_a_field(
    scene: Scene, reason: str, code: int
) -> None:
    """422, unless it gives another reason; an object that breaks a rule is refused first."""
    async with policy(scene, "pods", reason):
        reply = await refused_pod(scene)
    assert reply.status == code
    denial = refusals.denied_by_policy(code, reason or "Invalid")
    assert shape(reply.json) == shape(denial) | {"head": "pods "}
    error = error_of(reply)
    assert isinstance(error, Forbidden)
    assert error.is_refusal
    assert not error.is_schema_refusal


@pytest.mark.parametrize(
    ("said", "status", "expected"),
    [
        (None, 400, None),
        ({"code": 422, "message": "not now"}, 422, refusals.BY_WEBHOOK),
        (refusals.BY_SCHEMA, 422, refusals.INVALID_BY_WEBHOOK),
        (_said(404, "NotFound"), 404, refusals.denied_by_webhook(404, "NotFound")),
        (_said(409, "AlreadyExists"), 409, refusals.denied_by_webhook(409, "AlreadyExists")),
        (_said(401, "Unauthorized"), 401, refusals.denied_by_webhook(401, "Unauthorized")),
    ],
)
async def test_what_a_webhook_refuses_begins_with_its_name(
    scene: Scene, said: Json | None, status: int, expected: Json | None
) -> None:
    """The rest of its answer is passed on, fields included."""
    async with webhook(scene, said):
        reply = await refused_pod(scene)
    assert reply.status == status
    assert reply.message.startswith('admission webhook "w.example.com" denied the request')
    assert expected is None or shape(reply.json) == shape(expected)
    error = error_of(reply)
    assert isinstance(error, Forbidden)
    assert error.is_refusal
    assert not error.is_schema_refusal


async def test_what_breaks_a_rule_of_its_kind_is_refused_with_fields(scene: Scene) -> None:
    """Of a built-in kind, by a schema, and by a rule of a whole object, whose field is <nil>."""
    api = scene.room.api
    room = scene.room
    port = {"ports": [{"containerPort": 70000}]}
    body = pod("trial")
    body["spec"]["containers"][0] |= port
    broken = await api.post(room.pods, body)
    assert shape(broken.json) == shape(refusals.BY_SCHEMA)
    long = sandbox("n" * 64, service=True)
    odd = sandbox(service="yes")
    for reply in (broken, *[await api.post(scene.path("sandboxes"), one) for one in (long, odd)]):
        assert reply.status == 422
        assert error_of(reply).is_schema_refusal, reply.body


async def test_a_test_that_does_not_hold_is_no_schema_refusal(scene: Scene) -> None:
    """Of a JSON patch."""
    await scene.create("sandboxes", sandbox())
    test = [{"op": "test", "path": "/metadata/name", "value": "another"}]
    path = f"{scene.path('sandboxes')}/sb"
    reply = await scene.room.api.ask("PATCH", path, test, content=JSON_PATCH)
    assert reply.status == 422
    assert shape(reply.json) == shape(refusals.TEST_FAILED)
    assert not error_of(reply).is_schema_refusal


async def test_a_pod_that_a_policy_refuses_is_made_once_the_policy_is_gone(scene: Scene) -> None:
    """Refused with 422: told as an error and tried again."""
    async with policy(scene, "pods"):
        await refused_pod(scene)
        await scene.create("sandboxes", sandbox())
        await scene.until("sandboxes", lambda found: condition(found[0], "Ready") == "False")
        (made,) = await scene.objects("sandboxes")
        ready = next(one for one in made["status"]["conditions"] if one["type"] == "Ready")
        assert ready["reason"] == "ReconcilerError", json.dumps(ready)
    await scene.until("sandboxes", all_ready(1))


async def test_a_status_that_a_policy_refuses_is_written_once_the_policy_is_gone(
    scene: Scene,
) -> None:
    """Refused with 422: tried again, and the Sandbox becomes Ready."""
    async with policy(scene, "status"):
        trial = await scene.create("sandboxes", sandbox("trial", operatingMode="Suspended"))
        path = f"{scene.path('sandboxes')}/{trial['metadata']['name']}/status"

        async def is_refused() -> bool:
            change = {"status": {"nodeName": "n"}}
            return (await scene.room.api.patch(path, change, dryRun="All")).status == 422

        await until(is_refused, every_s=0.2)
        await scene.create("sandboxes", sandbox())
        await scene.until("pods", lambda found: len(found) == 1)
    await scene.until(
        "sandboxes", lambda found: any(condition(one, "Ready") == "True" for one in found)
    )


@pytest.mark.parametrize("reason", ["", "Forbidden"])
async def test_members_that_a_policy_lets_nobody_have_are_passed_over(
    scene: Scene, reason: str
) -> None:
    """It came after the members were made: the claim gets a Sandbox of its own within seconds."""
    await fill(scene, 3)
    passes = "!object.metadata.name.startsWith('p-')"
    async with policy(scene, "agents.x-k8s.io/sandboxes", reason, admits=passes):
        (member, *_) = await scene.objects("sandboxes")
        path = f"{scene.path('sandboxes')}/{member['metadata']['name']}"

        async def is_refused() -> bool:
            change = {"metadata": {"labels": {"trial": "x"}}}
            return (await scene.room.api.patch(path, change, dryRun="All")).status >= 300

        await until(is_refused, every_s=0.2)
        claim = extension("SandboxClaim", "c", warmPoolRef={"name": "p"})
        await scene.create("sandboxclaims", claim)
        (bound,) = await scene.until("sandboxclaims", all_ready(1))
        assert bound["status"]["sandbox"]["name"] == "c"


async def test_pools_whose_pods_a_policy_refuses_make_few_members_and_are_filled_once_it_is_gone(
    scene: Scene,
) -> None:
    """Four pools of twenty: each stops at the first Pod that is refused."""
    async with policy(scene, "pods"):
        await refused_pod(scene)
        spec = {"podTemplate": {"spec": sandbox()["spec"]["podTemplate"]["spec"]}}
        await scene.create("sandboxtemplates", extension("SandboxTemplate", "t", **spec))
        for number in range(4):
            wanted = {"replicas": 20, "sandboxTemplateRef": {"name": "t"}}
            made = extension("SandboxWarmPool", f"p-{number}", **wanted)
            await scene.create("sandboxwarmpools", made)

        def are_all_told(found: list[Json]) -> bool:
            owners = {one["metadata"]["ownerReferences"][0]["name"] for one in found}
            return len(owners) == 4 and all(condition(one, "Ready") == "False" for one in found)

        found = await scene.until("sandboxes", are_all_told)
        assert len(found) <= 40
    await scene.until("sandboxes", all_ready(80))
