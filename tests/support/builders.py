"""Templates, pools, claims and members as users and controllers write them."""

from __future__ import annotations

from typing import Any

import msgspec

from lean_sandbox.model.template import SandboxTemplate, view_of_template
from lean_sandbox.model.warmpool import SandboxWarmPool, build_member, view_of_pool
from tests.support.names import EXTENSIONS
from tests.support.world import NS

__all__ = ["claim", "member", "orphan", "placed", "pool", "template"]

Json = dict[str, Any]


def template(
    name: str = "tpl",
    *,
    image: str = "busybox",
    pod_spec: Json | None = None,
    metadata: Json | None = None,
    **spec: Any,
) -> Json:
    """Return a template of one container; ``metadata`` is that of its Pods."""
    pod: Json = {"spec": {"containers": [{"name": "main", "image": image}], **(pod_spec or {})}}
    if metadata is not None:
        pod["metadata"] = metadata
    return _object("SandboxTemplate", name, {"podTemplate": pod, **spec})


def placed(name: str = "tpl", *, pod_spec: Json | None = None, **more: Any) -> Json:
    """Return a template whose Pods need no scheduler; ``more`` is what :func:`template` takes."""
    return template(name, pod_spec={"nodeName": "node-1", **(pod_spec or {})}, **more)


def of_image(image: str) -> Json:
    """Return a change of a template to another image."""
    containers = [{"name": "main", "image": image}]
    return {"spec": {"podTemplate": {"spec": {"containers": containers}}}}


def pool(
    name: str = "pool",
    replicas: int | None = 0,
    *,
    template: str = "tpl",
    strategy: str | None = None,
    **spec: Any,
) -> Json:
    """Return a pool; without ``replicas`` the server sets their number."""
    wanted: Json = {"sandboxTemplateRef": {"name": template}, **spec}
    if replicas is not None:
        wanted["replicas"] = replicas
    if strategy is not None:
        wanted["updateStrategy"] = {"type": strategy}
    return _object("SandboxWarmPool", name, wanted)


def claim(
    name: str = "c", *, metadata: Json | None = None, pool: str = "pool", **spec: Any
) -> Json:
    """Return a claim, created at the epoch of the tests."""
    made = _object("SandboxClaim", name, {"warmPoolRef": {"name": pool}, **spec})
    made["metadata"].update(metadata or {})
    return made


def member(pool_body: Json, template_body: Json, name: str) -> Json:
    """Return a member as the pool controller makes it, but with a name of the test's choice."""
    view = view_of_pool(msgspec.convert(pool_body, SandboxWarmPool))
    source = msgspec.json.decode(msgspec.json.encode(template_body), type=SandboxTemplate)
    built = build_member(view, view_of_template(source), eviction=True)
    body: Json = msgspec.json.decode(msgspec.json.encode(built))
    del body["metadata"]["generateName"]
    body["metadata"]["name"] = name
    return body


def orphan(
    name: str,
    *,
    template_body: Json | None = None,
    pool_name: str = "pool",
    owner: Json | None = None,
    namespace: str = NS,
) -> Json:
    """Return a Sandbox as the pool makes them, with another owner or none at all."""
    made = member(pool(pool_name), template_body or placed(), name)
    del made["metadata"]["ownerReferences"]
    made["metadata"]["namespace"] = namespace
    if owner is not None:
        made["metadata"]["ownerReferences"] = [owner]
    return made


def _object(kind: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "namespace": NS}
    return {"apiVersion": EXTENSIONS, "kind": kind, "metadata": metadata, "spec": spec}
