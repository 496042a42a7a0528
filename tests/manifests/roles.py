"""The rights that the manifests grant, and those that a controller asked for."""

from __future__ import annotations

from collections.abc import Callable

from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.local.request import AuditEntry
from tests.manifests.files import Grant, grants, named, objects
from tests.support.world import CONTROLLER, NS

GROUP = "rbac.authorization.k8s.io"
CORE = named(objects("base"), "ClusterRole")
EXTENSIONS = named(
    objects("components/extensions"), "ClusterRole", "agent-sandbox-controller-extensions"
)


COMPANIONS = named(objects("components/companions"), "ClusterRole", "lean-sandbox-companions")
LEADER = named(objects("base"), "Role", "agent-sandbox-controller-leader-election")
AGENTS = "agents.x-k8s.io"
EXTENDED = "extensions.agents.x-k8s.io"


# Asked for by the admission plugin OwnerReferencesPermissionEnforcement where it is on, and by
# nobody else: whoever sets an owner that blocks deletion must be allowed to update the owner's
# finalizers, and to delete the object that gets the owner.
FOR_ADMISSION: set[Grant] = {
    ("", "persistentvolumeclaims", "delete"),
    (AGENTS, "sandboxes/finalizers", "update"),
    (EXTENDED, "sandboxclaims/finalizers", "update"),
    (EXTENDED, "sandboxtemplates/finalizers", "update"),
    (EXTENDED, "sandboxwarmpools/finalizers", "update"),
}


# The published rules of the reference, v1.0.8, by role.
EVERYTHING = ("create", "delete", "get", "list", "patch", "update", "watch")
UPDATING = ("get", "patch", "update")


def _published(*rules: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]) -> set[Grant]:
    named = ("apiGroups", "resources", "verbs")
    return set(grants([dict(zip(named, rule, strict=True)) for rule in rules]))


REFERENCE = _published(
    (("",), ("persistentvolumeclaims", "pods", "services"), EVERYTHING),
    (("", "events.k8s.io"), ("events",), ("create", "patch")),
    ((AGENTS,), ("sandboxes",), EVERYTHING),
    ((AGENTS,), ("sandboxes/finalizers", "sandboxes/status"), UPDATING),
    (("coordination.k8s.io",), ("leases",), ("create", "get", "list", "patch", "update", "watch")),
)


REFERENCE_EXTENSIONS = _published(
    (("",), ("pods",), ("get", "list", "patch", "update", "watch")),
    (("", "events.k8s.io"), ("events",), ("create", "patch", "update")),
    ((AGENTS,), ("sandboxes",), EVERYTHING),
    (("coordination.k8s.io",), ("leases",), EVERYTHING),
    ((EXTENDED,), ("sandboxclaims", "sandboxtemplates", "sandboxwarmpools"), EVERYTHING),
    (
        (EXTENDED,),
        (
            "sandboxclaims/finalizers",
            "sandboxclaims/status",
            "sandboxtemplates/finalizers",
            "sandboxwarmpools/finalizers",
            "sandboxwarmpools/status",
        ),
        UPDATING,
    ),
    (("networking.k8s.io",), ("networkpolicies",), EVERYTHING),
)


def asked(entries: list[AuditEntry]) -> set[Grant]:
    """Return the rights that requests needed; no request may have been refused for want of one."""
    refused = [f"{one.code} {one.what}" for one in entries if one.code in (401, 403)]
    assert refused == []
    return {
        (one.group, f"{one.resource}/{one.subresource}".rstrip("/"), one.verb) for one in entries
    }


def bind(*folders: str) -> Callable[[ControlPlane], None]:
    """Return what takes the controller's rights away and gives it those of the manifests."""

    def act(plane: ControlPlane) -> None:
        plane.store.delete(f"clusterrolebindings.{GROUP}", "", "controller")
        for body in objects(*folders):
            if body["kind"] != "Deployment":
                plane.store.create(body)

    return act


def bind_in_namespace(plane: ControlPlane) -> None:
    """Give the controller the roles of the sidecar in one namespace, and nothing else."""
    plane.store.delete(f"clusterrolebindings.{GROUP}", "", "controller")
    *_, namespace, name = CONTROLLER.split(":")
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    for body in objects("components/sidecar", "components/sidecar-extensions"):
        placed = {**body, "metadata": {**body["metadata"], "namespace": NS}}
        if body["kind"] == "RoleBinding":
            placed["subjects"] = [subject]
        plane.store.create(placed)
