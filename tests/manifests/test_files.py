"""The manifests fit together, and fit the program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lean_sandbox.config.options import Settings
from lean_sandbox.config.sources import MOUNTED, UsageError
from lean_sandbox.local.controlplane import ControlPlane, LocalSettings
from lean_sandbox.manager.preflight import lease_of
from lean_sandbox.model.shard import parse_shard
from lean_sandbox.version import __version__
from tests.manifests.files import (
    ROOT,
    containers,
    documents,
    files,
    kustomizations,
    named,
    objects,
    options,
)
from tests.manifests.files import patches as all_patches
from tests.support.clock import FakeClock

Json = dict[str, Any]
LABELS = {"app": "agent-sandbox-controller"}
NAMESPACE = "agent-sandbox-system"
HOST = "sandbox-host"
SHARDS = "agent-sandbox-controller-shards"
DEPLOYMENT = named(objects("base"), "Deployment")
POD = DEPLOYMENT["spec"]["template"]
PATCH_FILES = [path for path, _ in all_patches()]


def argument_lists() -> Iterator[tuple[Path, list[str]]]:
    """Yield the arguments of every container, and those that a patch adds."""
    for path, container in containers():
        if "args" in container:
            yield path, container["args"]
    for path in PATCH_FILES:
        for document in documents(path):
            for step in document if isinstance(document, list) else []:
                if step["path"].endswith("/args/-"):
                    needed = ["--extensions"] if path.parent.name == "companions" else []
                    yield path, [*needed, step["value"]]


def whole_objects() -> Iterator[tuple[Path, Json]]:
    """Yield every object that is no patch of another."""
    for path in files():
        for one in documents(path) if path not in PATCH_FILES else []:
            if isinstance(one, dict):
                yield path, one


# -- kustomizations --------------------------------------------------------------------------------


def test_every_kustomization_lists_what_exists() -> None:
    """Resources are files or folders with a kustomization; components are components."""
    found = kustomizations()
    assert found
    for folder, body in found.items():
        for name in body.get("resources", []):
            path = (folder / name).resolve()
            assert path.is_file() or path in found, f"{folder}: {name}"
        for name in body.get("components", []):
            assert found[(folder / name).resolve()]["kind"] == "Component", f"{folder}: {name}"
        is_component = folder.parent.name == "components"
        assert body["kind"] == ("Component" if is_component else "Kustomization")


def test_every_file_is_listed_by_a_kustomization() -> None:
    """No YAML file lies there that nothing renders."""
    listed = {
        (folder / name).resolve()
        for folder, body in kustomizations().items()
        for name in (*body.get("resources", []), *(one["path"] for one in body.get("patches", [])))
    }
    assert files()
    assert set(files()) <= listed


def test_every_patch_names_a_target() -> None:
    """A patch goes to an object of the base by name, or, beside a host, to each Deployment."""
    patches = list(all_patches())
    assert patches
    for path, patch in patches:
        target = patch["target"]
        # That of shards is a StatefulSet.
        kind = target["kind"].removesuffix("|StatefulSet")
        if "sidecar" in path.parent.name or path.parent == ROOT / "components/companions":
            assert target.keys() == {"kind"}, path
            assert kind == "Deployment", path
        elif path.parent == ROOT / "overlays/companions":
            assert named(objects("components/companions"), target["kind"], target["name"]), path
        else:
            assert named(objects("base"), kind, target["name"]), path


def test_every_overlay_names_the_image_of_this_version() -> None:
    """Containers run the image of this version, of the node where it is there, as minikube's is."""
    for path, container in containers():
        assert container.get("image", f"lean-sandbox:{__version__}") == (
            f"lean-sandbox:{__version__}"
        ), path
    body = kustomizations()[ROOT / "overlays/minikube"]
    assert body["images"] == [{"name": "lean-sandbox", "newTag": "dev"}]
    assert POD["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"


# -- the drop-in -----------------------------------------------------------------------------------


def test_the_base_has_the_names_and_labels_of_the_reference() -> None:
    """Whoever looks for the reference's objects by name or label finds ours."""
    names = {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"])
        for one in objects("base", "components/extensions")
    }
    name = "agent-sandbox-controller"
    assert names == {
        ("Namespace", "", NAMESPACE),
        ("ServiceAccount", NAMESPACE, name),
        ("Service", NAMESPACE, name),
        ("Deployment", NAMESPACE, name),
        ("ClusterRole", "", name),
        ("ClusterRoleBinding", "", name),
        ("ClusterRole", "", f"{name}-extensions"),
        ("ClusterRoleBinding", "", f"{name}-extensions"),
        # In the place of a rule for every Lease of the cluster.
        ("Role", NAMESPACE, f"{name}-leader-election"),
        ("RoleBinding", NAMESPACE, f"{name}-leader-election"),
    }
    for kind in ("ServiceAccount", "Service", "Deployment"):
        assert named(objects("base"), kind)["metadata"]["labels"] == LABELS
    # The selector of a Deployment cannot be changed: with another one the drop-in is refused.
    assert DEPLOYMENT["spec"]["selector"] == {"matchLabels": LABELS}
    assert POD["metadata"]["labels"] == LABELS
    assert POD["spec"]["serviceAccountName"] == name
    (container,) = POD["spec"]["containers"]
    assert container["name"] == name
    assert container["args"] == ["--leader-elect=true"]


def test_only_what_somebody_chooses_refuses_the_pods_of_others() -> None:
    """The namespace may hold the client's router, pools and claims, as it may under the reference.

    A component enforces a standard; policies and budgets are of the controller's Pods alone.
    """
    for path in files():
        for body in documents(path) if "crds" not in path.parts else []:
            if isinstance(body, list):
                continue
            labels = body["metadata"].get("labels", {})
            refuses = [one for one in labels if one.endswith("/enforce")]
            assert bool(refuses) == (path.parent.name == "pod-security"), path
            assert body["kind"] not in {"LimitRange", "PriorityClass", "ResourceQuota"}, path
            assert not body["kind"].endswith(("WebhookConfiguration", "AdmissionPolicy")), path
            spec = body.get("spec", {})
            if body["kind"] in ("NetworkPolicy", "PodDisruptionBudget"):
                selector = spec.get("podSelector", spec.get("selector"))
                assert selector == {"matchLabels": LABELS}, path


def test_ports_are_those_of_the_reference_and_of_our_defaults() -> None:
    """Metrics 8080 and healthz 8081; the Service and the probes go to them by name."""
    (container,) = POD["spec"]["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    given = options(container["args"])
    assert ports == {"metrics": 8080, "healthz": 8081}
    assert given.metrics_bind_address == f":{ports['metrics']}"
    assert given.health_probe_bind_address == f":{ports['healthz']}"
    service = named(objects("base"), "Service")["spec"]
    assert service["selector"] == LABELS
    (port,) = service["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == ("metrics", 8080, "metrics")


def test_every_controller_mounts_the_config_map() -> None:
    """By the name and path of the reference, with the extensions or not; without it is no error.

    The chart renders what the overlays do.
    """
    (volume,) = POD["spec"]["volumes"]
    steps = documents(ROOT / "components/sidecar/volume.yaml")[0]
    (beside,) = steps["spec"]["template"]["spec"]["volumes"]
    mounting = [(path, one) for path, one in containers() if "image" in one]
    assert len(mounting) == 3
    for path, container in mounting:
        (mount,) = container["volumeMounts"]
        one = beside if "sidecar" in path.parts else volume
        assert mount == {"name": one["name"], "mountPath": str(MOUNTED), "readOnly": True}
        assert one["configMap"] == {"name": "agent-sandbox-config", "optional": True}
    # What is merged into a host's Pod must not be one of its own volumes.
    assert beside["name"].startswith("lean-sandbox-")


def test_bindings_join_roles_and_accounts_that_exist() -> None:
    """Each binding names a role of its folder and the account of the Pod."""
    for folder in ("base", "components/extensions"):
        bindings = [one for one in objects(folder) if one["kind"].endswith("RoleBinding")]
        assert bindings, folder
        for one in bindings:
            role = named(objects(folder), one["roleRef"]["kind"], one["roleRef"]["name"])
            assert role["metadata"].get("namespace") == one["metadata"].get("namespace")
            account = named(objects("base"), "ServiceAccount")["metadata"]
            (subject,) = one["subjects"]
            assert subject["name"] == account["name"] == POD["spec"]["serviceAccountName"]
            assert subject["namespace"] == account["namespace"] == NAMESPACE


def test_components_select_the_pods_of_the_base() -> None:
    """Budget, policy and monitor are of the Pods, and the port that the monitor asks exists."""
    budget = named(objects("components/two-replicas"), "PodDisruptionBudget")["spec"]
    policy = named(objects("components/network-policy"), "NetworkPolicy")["spec"]
    monitor = named(objects("components/service-monitor"), "ServiceMonitor")["spec"]
    assert budget["selector"] == policy["podSelector"] == monitor["selector"]
    assert budget["selector"] == {"matchLabels": LABELS}
    replicas = documents(ROOT / "components/two-replicas/replicas.yaml")[0]["spec"]["replicas"]
    assert replicas == 2 > budget["minAvailable"]
    (rule,) = policy["ingress"]
    ports = {one["name"] for one in POD["spec"]["containers"][0]["ports"]}
    assert {one["port"] for one in rule["ports"]} <= ports
    assert {one["port"] for one in monitor["endpoints"]} <= {"metrics"}
    annotations = documents(ROOT / "components/scrape-annotations/annotations.yaml")[0]
    scraped = annotations["spec"]["template"]["metadata"]["annotations"]
    assert scraped["prometheus.io/port"] == "8080"
    assert all(isinstance(value, str) for value in scraped.values())


# -- every container -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "arguments"), list(argument_lists()), ids=lambda one: getattr(one, "stem", None)
)
def test_the_program_takes_the_arguments(path: Path, arguments: list[str]) -> None:
    """Every argument of a manifest is one of the program's, and one more would be refused."""
    assert options(arguments).extensions == ("--extensions" in arguments), path
    with pytest.raises(UsageError):
        options([*arguments, "--no-such-flag"])


def test_containers_have_no_more_rights_than_they_need() -> None:
    """Not root, nothing writable, no capabilities, no way to more, the runtime's seccomp."""
    seen = 0
    for path, container in containers():
        if "image" not in container:
            continue
        seen += 1
        context = container["securityContext"]
        if container["name"] == "agent-sandbox-controller":
            context = {**POD["spec"]["securityContext"], **context}
        assert context == {
            "runAsNonRoot": True,
            # From the image's user a kubelet takes the uid alone: the group would be root.
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }, path
    assert seen == 3


def test_containers_are_probed_and_bounded() -> None:
    """Probes go to the health port by name; memory has a limit, CPU has none.

    The others begin once the startup probe has passed, a second or two after the start; until it
    fails for good a process has a minute, in which it answers even while it waits for the server.
    """
    whole = [(path, one) for path, one in containers() if "image" in one]
    assert whole
    for path, container in whole:
        ports = {one["name"]: f":{one['containerPort']}" for one in container["ports"]}
        startup = container["startupProbe"]
        assert (startup["periodSeconds"], startup["failureThreshold"]) == (1, 60)
        for probe, target in (
            ("startupProbe", "/healthz"),
            ("livenessProbe", "/healthz"),
            ("readinessProbe", "/readyz"),
        ):
            asked = container[probe]["httpGet"]
            assert asked["path"] == target, path
            listens = options(container["args"]).health_probe_bind_address
            assert ports[asked["port"]] == listens
        alive = container["livenessProbe"]
        # Two minutes of no answer within five seconds; a crowd of peers is over by then.
        assert alive["timeoutSeconds"] == 5
        assert alive["periodSeconds"] * alive["failureThreshold"] == 120
        resources = container["resources"]
        assert set(resources["limits"]) == {"memory"}
        assert _mebibytes(resources["requests"]) < _mebibytes(resources["limits"])


def _mebibytes(resources: Json) -> int:
    return int(resources["memory"].removesuffix("Mi"))


# -- shards ----------------------------------------------------------------------------------------


def test_each_shard_has_a_standby_and_may_write_its_lease() -> None:
    """As many Leases as shards, by the names that the program gives them; twice as many Pods."""
    steps = documents(ROOT / "overlays/shards/statefulset.yaml")[0]
    said = {step["path"]: step["value"] for step in steps}
    argument = said["/spec/template/spec/containers/0/args/-"]
    assert argument.startswith("--shard=$(POD_INDEX)/")
    count = int(argument.rpartition("/")[2])
    assert said["/spec/replicas"] == 2 * count
    (variable,) = said["/spec/template/spec/containers/0/env"]
    assert variable["name"] == "POD_INDEX"
    label = variable["valueFrom"]["fieldRef"]["fieldPath"]
    assert label == "metadata.labels['apps.kubernetes.io/pod-index']"
    assert "env" not in POD["spec"]["containers"][0]
    role = named(objects("overlays/shards"), "Role", SHARDS)
    (rule,) = role["rules"]
    wanted = {lease_of(Settings(shard=parse_shard(f"{pod}/{count}"))) for pod in range(2 * count)}
    assert set(rule["resourceNames"]) == wanted
    binding = named(objects("overlays/shards"), "RoleBinding", SHARDS)
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == (POD["spec"]["serviceAccountName"], NAMESPACE)


def test_a_drain_never_takes_both_replicas_of_a_shard() -> None:
    """Of all Pods of the shards one may be missing at a time."""
    budget = named(objects("overlays/shards"), "PodDisruptionBudget", SHARDS)["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= POD["metadata"]["labels"].items()


# -- the sidecar -----------------------------------------------------------------------------------


def test_the_sidecar_serves_its_own_namespace_and_holds_no_lease() -> None:
    """It is told the namespace of its Pod, needs no Lease, and takes no port of a usual one."""
    path = ROOT / "components/sidecar/container.yaml"
    (container,) = (one for where, one in containers() if where == path)
    assert [one["name"] for one in container["env"]] == ["POD_NAMESPACE"]
    assert "--namespaces=$(POD_NAMESPACE)" in container["args"]
    assert "--leader-elect=false" in container["args"]
    assert {one["containerPort"] for one in container["ports"]}.isdisjoint({8080, 8081})
    kinds = {one["kind"] for one in objects("components/sidecar", "components/sidecar-extensions")}
    assert kinds == {"Role", "RoleBinding"}


def test_the_sidecar_with_extensions_sets_one_variable() -> None:
    """The second component leaves the arguments of the first alone."""
    first, second = (
        next(one for where, one in containers() if where.parent == ROOT / "components" / name)
        for name in ("sidecar", "sidecar-extensions")
    )
    (variable,) = second.pop("env")
    assert second == {"name": first["name"]}
    assert options([], {variable["name"]: variable["value"]}) == Settings(extensions=True)


def test_the_host_of_the_sidecar_is_the_subject_of_its_roles() -> None:
    """The example's account, and not the one that Pods of Sandboxes have, gets the rights."""
    host = named(objects("overlays/sidecar"), "Deployment", "sandbox-host")
    account = host["spec"]["template"]["spec"]["serviceAccountName"]
    assert named(objects("overlays/sidecar"), "ServiceAccount", account)
    assert account != "default"
    for name in ("lean-sandbox", "lean-sandbox-extensions"):
        folder = "components/sidecar" + name.removeprefix("lean-sandbox")
        binding = named(objects(folder), "RoleBinding", name)
        assert [one["name"] for one in binding["subjects"]] == [account]
        assert (
            binding["roleRef"]["name"] == named(objects(folder), "Role", name)["metadata"]["name"]
        )
    # Two of them at once would reconcile the same Sandboxes.
    assert host["spec"]["replicas"] == 1
    assert host["spec"]["strategy"] == {"type": "Recreate"}


# -- a server --------------------------------------------------------------------------------------


async def test_a_server_takes_every_object_that_it_knows() -> None:
    """Each object passes validation and is stored with all that was written."""
    unknown: set[str] = set()
    async with ControlPlane(LocalSettings(), clock=FakeClock()) as plane:
        for name in (NAMESPACE, HOST):
            plane.store.create(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        for path, body in whole_objects():
            if body["kind"] in ("CustomResourceDefinition", "Namespace"):
                continue
            is_placed = "namespace" in body["metadata"] or body["kind"].startswith("Cluster")
            assert is_placed or "sidecar" in path.parent.name
            try:
                made = plane.store.create(body, None if is_placed else HOST)
            except KeyError:
                unknown.add(body["kind"])
                continue
            for field in ("rules", "roleRef", "spec"):
                if field in body:
                    assert _holds(made[field], body[field]), path
    assert unknown <= {"Deployment", "PodDisruptionBudget", "ServiceMonitor", "PrometheusRule"}


def _holds(made: Any, written: Any) -> bool:
    if isinstance(written, dict):
        return all(key in made and _holds(made[key], value) for key, value in written.items())
    if isinstance(written, list):
        return all(map(_holds, made, written)) and len(made) == len(written)
    return bool(made == written)
