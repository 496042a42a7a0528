"""The API resources this program speaks to, the paths they live at, and forms that all share.

Importing any of lightkube's resource classes costs about 8 MiB of resident memory; a test proves
these equal to them.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from lean_sandbox.kube.errors import Asked, NotFound, Status
from lean_sandbox.model import names
from lean_sandbox.model.meta import ObjectMeta
from lean_sandbox.model.wire import Lenient, OrNull

T = TypeVar("T")


class Resource(msgspec.Struct, frozen=True, gc=False):
    """A resource type: ``group`` is "" for the core API, ``plural`` is its name in paths."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects: ``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name RBAC and people use: ``pods`` or ``sandboxes.agents.x-k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _extension(plural: str, kind: str) -> Resource:
    return Resource(names.EXTENSIONS_GROUP, names.VERSION, plural, kind)


SANDBOXES = Resource(names.CORE_GROUP, names.VERSION, "sandboxes", names.SANDBOX_KIND)
SANDBOXCLAIMS = _extension("sandboxclaims", names.SANDBOX_CLAIM_KIND)
SANDBOXTEMPLATES = _extension("sandboxtemplates", names.SANDBOX_TEMPLATE_KIND)
SANDBOXWARMPOOLS = _extension("sandboxwarmpools", names.SANDBOX_WARM_POOL_KIND)
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
PVCS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
HPAS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
NETWORKPOLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")


def _segment(value: str, what: str, resource: Resource) -> str:
    # A name may come from another object's spec, so from a user. An empty one would turn a request
    # for one object into one for the whole collection; servers decode a segment before they route,
    # so that a slash, quoted or not, would lead to a subresource such as a proxy into a Pod.
    if not names.is_object_name(value):
        problem = f"{value[:64]!r} cannot be the {what} of an object; the request was not sent"
        answer = Status(reason="NotFound", message=problem)
        raise NotFound(404, answer, Asked(resource=resource.qualified))
    return value


def path(
    resource: Resource,
    namespace: str | None = None,
    name: str | None = None,
    subresource: str | None = None,
) -> str:
    """Return the path of a collection (``name`` None) or of one object or its subresource.

    ``namespace`` None means all namespaces; for a cluster-scoped resource it is ignored. Raises
    NotFound for names that no object can have.
    """
    at = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    if resource.namespaced and namespace is not None:
        at += f"/namespaces/{_segment(namespace, 'namespace', resource)}"
    at += f"/{resource.plural}"
    if name is not None:
        at += f"/{_segment(name, 'name', resource)}"
        if subresource is not None:
            at += f"/{subresource}"
    return at


JSON_ACCEPT = "application/json"

#: One object or the answer to a write as metadata only. The plain form follows for servers that
#: cannot; both decode as :class:`PartialObject`.
METADATA_ACCEPT = (
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;q=0.5"
)


class PartialObject(msgspec.Struct, frozen=True, gc=False):
    """Any object of the API, of which only the metadata matters."""

    metadata: ObjectMeta


class ListMeta(msgspec.Struct, frozen=True, gc=False):
    """The metadata of a list: its version, and where the next page begins ("" at the end)."""

    resourceVersion: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(Lenient, Generic[T], frozen=True):
    """One page of a list. Use ``Page[Pod]`` as the type to decode."""

    metadata: ListMeta = ListMeta()
    #: Lists made by conversion (metadata only) say null when they are empty.
    items: OrNull[tuple[T, ...]] = ()


class ObjectReference(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Which object an event regards."""

    apiVersion: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
