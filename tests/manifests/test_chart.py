"""The Helm chart: what it renders, what it refuses, and its release on a real server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from lean_sandbox.config.flags import FLAGS
from lean_sandbox.config.options import Settings
from lean_sandbox.version import __version__
from lean_sandbox.watch.kind import Representation
from tests.controlplane.plugin import REAL
from tests.manifests.conftest import Run
from tests.manifests.files import ROOT, by_name, options
from tests.manifests.schema import FIXED, values
from tests.manifests.values import FREE, HOSTILE, NAMES, TEXTS

pytestmark = REAL

Json = dict[str, Any]

CHART = ROOT / "chart"
NAME = "agent-sandbox-controller"
NAMESPACE = "agent-sandbox-system"
EXTENSIONS = "controller.extensions=true"
# What the reference's release of v1.0 has for a selector.
THEIRS = {"app.kubernetes.io/name": "agent-sandbox", "app.kubernetes.io/instance": "theirs"}
OVERLAYS: list[tuple[str, list[str], Json]] = [
    ("drop-in", [], {}),
    ("drop-in-extensions", [], {"controller": {"extensions": True}}),
    (
        "drop-in-extensions",
        ["companions"],
        {
            "controller": {
                "extensions": True,
                "companions": "autosize,defaults,idle,recreate,rollout",
            }
        },
    ),
    ("drop-in", ["two-replicas"], {"replicaCount": 2}),
    ("drop-in", ["pod-security"], {"namespace": {"enforceRestricted": True}}),
    ("drop-in", ["network-policy"], {"networkPolicy": {"enabled": True}}),
    ("drop-in", ["service-monitor"], {"metrics": {"serviceMonitor": {"enabled": True}}}),
    ("drop-in", ["alerts"], {"metrics": {"prometheusRule": {"enabled": True}}}),
    (
        "drop-in",
        ["scrape-annotations"],
        {
            "podAnnotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "8080",
                "prometheus.io/path": "/metrics",
            }
        },
    ),
]


# -- rendered --------------------------------------------------------------------------------------


def rendered(helm: Run, folder: Path, values: Json, *arguments: str) -> list[Json]:
    """Return what the chart renders with values."""
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    text = helm("template", "ours", CHART, "--values", file, *arguments)
    return [one for one in yaml.safe_load_all(text) if one]


def arguments(helm: Run, folder: Path, values: Json) -> list[str]:
    """Return the arguments that the Deployment has with values of the controller."""
    found = by_name(rendered(helm, folder, {"controller": values}))
    (container,) = found["Deployment", NAMESPACE, NAME]["spec"]["template"]["spec"]["containers"]
    given: list[str] = container["args"]
    return given


@pytest.mark.parametrize(("overlay", "components", "values"), OVERLAYS)
def test_the_chart_renders_what_the_overlay_does(
    helm: Run, kubectl: Run, tmp_path: Path, overlay: str, components: list[str], values: Json
) -> None:
    """Each overlay and component has its values; the namespace alone is kept by an annotation."""
    body = {
        "resources": [os.path.relpath(ROOT / "overlays" / overlay, tmp_path)],
        "components": [os.path.relpath(ROOT / "components" / one, tmp_path) for one in components],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(body))
    wanted = by_name([one for one in yaml.safe_load_all(kubectl("kustomize", tmp_path)) if one])
    found = by_name(rendered(helm, tmp_path, values))
    namespace = found["Namespace", "", NAMESPACE]["metadata"]
    assert namespace.pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert found == wanted


def test_every_option_reaches_the_program(helm: Run, tmp_path: Path) -> None:
    """A value in each form is the argument that the program reads back."""
    values: Json = {
        "leaderElect": False,
        "extensions": True,
        "sandboxConcurrentWorkers": 2_000_000,
        "kubeApiQps": 12.5,
        "sandboxStatusWindow": "1m30s",
        "namespaces": "a,b",
        "watchRepresentation": "full",
        "extraArgs": ["--zap-log-level=error"],
    }
    assert options(arguments(helm, tmp_path, values)) == Settings(
        leader_elect=False,
        extensions=True,
        sandbox_concurrent_workers=2_000_000,
        kube_api_qps=12.5,
        sandbox_status_window=90.0,
        namespaces=("a", "b"),
        watch_representation=Representation.FULL,
        log_level="error",
    )


def test_the_name_of_every_value_is_that_of_its_flag(helm: Run, tmp_path: Path) -> None:
    """Camel case of a value is what the chart makes the flag of."""
    examples = {"boolean": True, "integer": 1, "string": "1s", "array": []}
    given = arguments(
        helm,
        tmp_path,
        {
            name: form["enum"][0] if "enum" in form else examples.get(str(form["type"]), 1)
            for name, form in values().items()
        }
        | {"companions": "idle", "sandboxLabelSelector": ""},
    )
    assert {one.removeprefix("--").partition("=")[0] for one in given} == FLAGS.keys() - FIXED


def test_values_go_to_their_place(helm: Run, tmp_path: Path) -> None:
    """Names, image, labels and rights follow the values; the selector's labels win."""
    values = {
        "namespace": {"create": False, "name": "mine"},
        "image": {"repository": "registry.example.com/lean", "tag": "t", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "podLabels": {"app": "other", "team": "red"},
        "controller": {
            "leaderElectionNamespace": "leases",
            "leaderElectionLease": "mine",
            "extensions": True,
        },
        "nodeSelector": {"disk": "ssd"},
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None},
        "service": {"name": "metrics"},
        "metrics": {
            "serviceMonitor": {
                "enabled": True,
                "additionalLabels": {"release": "r"},
                "scrapeTimeout": "5s",
            },
            "prometheusRule": {"enabled": True, "additionalGroups": [{"name": "more"}]},
        },
    }
    found = by_name(rendered(helm, tmp_path, values))
    assert {namespace for _, namespace, _ in found} == {"", "mine", "leases"}
    assert ("Service", "mine", "metrics") in found
    *_, to_hold = found["Role", "leases", f"{NAME}-leader-election"]["rules"]
    assert to_hold["resourceNames"] == ["mine"]
    monitor = found["ServiceMonitor", "mine", NAME]
    assert monitor["metadata"]["labels"] == {"app": NAME, "release": "r"}
    assert monitor["spec"]["endpoints"][0]["scrapeTimeout"] == "5s"
    *_, more = found["PrometheusRule", "mine", NAME]["spec"]["groups"]
    assert more == {"name": "more"}
    template = found["Deployment", "mine", NAME]["spec"]["template"]
    assert template["metadata"]["labels"] == {"app": NAME, "team": "red"}
    spec = template["spec"]
    assert spec["containers"][0]["image"] == "registry.example.com/lean:t"
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert "runAsUser" not in spec["securityContext"]
    bindings = [one for one in found.values() if one["kind"].endswith("Binding")]
    assert {one["subjects"][0]["namespace"] for one in bindings} == {"mine"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 2},
        {"image": {"tags": "x"}},
        {"controller": {"extension": True}},
        {"controller": {"extensions": "yes"}},
        {"controller": {"sandboxConcurrentWorkers": "many"}},
        {"controller": {"sandboxStatusWindow": "2 seconds"}},
        {"controller": {"companions": "idle,snapshots"}},
        {"controller": {"sandboxConcurrentWorkers": 0}},
        {"controller": {"sandboxWarmPoolMaxRefillRate": -1}},
        {"controller": {"sandboxStatusWindow": "-2s"}},
        {"controller": {"requestTimeout": "0s"}},
        {"controller": {"clusterDomain": "Cluster"}},
        # A name with nothing behind it takes the default away.
        {"controller": {"leaderElect": None}},
        {"image": {"repository": None}},
        {"service": None},
        # These would lead away from where the probes ask, Prometheus scrapes, and rights are given.
        {"controller": {"healthProbeBindAddress": ":9081"}},
        {"controller": {"metricsSecureServing": True}},
        {"controller": {"shard": "0/2"}},
        {"metrics": {"serviceMonitor": {"enable": True}}},
    ],
    ids=json.dumps,
)
def test_a_wrong_value_is_refused_by_its_name(helm: Run, tmp_path: Path, wrong: Json) -> None:
    """Nothing is rendered, and the message says which value it is."""
    file = tmp_path / "values.json"
    file.write_text(json.dumps(wrong))
    said = helm("template", "ours", CHART, "--values", file, refused=True)
    while isinstance(wrong, dict):
        ((name, wrong),) = wrong.items()
    assert name in said


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        # The controller would end at its start, over and over.
        ({"controller": {"companions": "idle, rollout"}}, "extensions': value must be true"),
        (
            {"controller": {"sandboxLabelSelector": "a=b", "extensions": True}},
            "extensions': value must be false",
        ),
        # All of them would work at once.
        (
            {"replicaCount": 2, "controller": {"leaderElect": False}},
            "leaderElect': value must be true",
        ),
    ],
)
def test_values_that_cannot_go_together_are_refused(
    helm: Run, tmp_path: Path, chosen: Json, said: str
) -> None:
    """Each may be right by itself."""
    file = tmp_path / "values.json"
    file.write_text(json.dumps(chosen))
    told = helm("template", "ours", CHART, "--values", file, refused=True)
    assert f"at '/controller/{said}" in told


def test_lists_with_nothing_in_them_are_empty(helm: Run, tmp_path: Path) -> None:
    """YAML reads a name with nothing but comments below it as null, and Helm as no value at all."""
    names = ("podLabels", "podAnnotations", "imagePullSecrets", "nodeSelector", "tolerations")
    observed: Json = {one: {"enabled": True} for one in ("serviceMonitor", "prometheusRule")}
    plain = rendered(helm, tmp_path, {"metrics": observed})
    for one in observed.values():
        one["additionalLabels"] = None
    observed["prometheusRule"]["additionalGroups"] = None
    assert rendered(helm, tmp_path, {"metrics": observed, **dict.fromkeys(names)}) == plain


def test_the_policy_is_of_the_pods_that_the_deployment_selects(helm: Run, tmp_path: Path) -> None:
    """In whatever namespace; other Pods there are nobody's business."""
    values = {"namespace": {"name": "mine"}, "networkPolicy": {"enabled": True}}
    found = by_name(rendered(helm, tmp_path, values))
    selector = found["Deployment", "mine", NAME]["spec"]["selector"]
    assert found["NetworkPolicy", "mine", NAME]["spec"]["podSelector"] == selector


def nested(path: str, value: Any) -> Json:
    """Return values of the chart in which one has a place."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return {"imagePullSecrets": [value["imagePullSecrets"]]} if "imagePull" in path else dict(value)


@pytest.mark.parametrize("path", NAMES)
def test_a_hostile_name_is_refused_by_its_place(helm: Run, tmp_path: Path, path: str) -> None:
    """What would end a line, a list or a quotation never reaches a template."""
    file = tmp_path / "values.json"
    for hostile in ('x", y: "z', "x]\nrules: []", "x y"):
        file.write_text(json.dumps(nested(path, hostile)))
        said = helm("template", "ours", CHART, "--values", file, refused=True)
        assert path.rpartition(".")[2] in said, said


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Return what is no list or object, by its place."""
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = dict(enumerate(value)).items()
    else:
        return {path: value}
    return {key: one for name, sub in pairs for key, one in leaves(sub, f"{path}/{name}").items()}


QUOTED = (" ".join(HOSTILE).replace("\x00", ""), 'x", y: "z', "'x': y", "- x", "~", "1", "{{ x }}")
PLAIN = "plain"


@pytest.mark.parametrize(
    "path",
    [
        *(path for path, said in TEXTS.items() if "pattern" not in said),
        # The schema can be skipped; what it checks is quoted all the same.
        *("namespace.name", "service.name", "image.tag", "image.pullPolicy", "image.repository"),
        *("controller.leaderElectionNamespace", "controller.leaderElectionLease"),
    ],
)
def test_a_text_is_written_as_it_is_and_changes_nothing_beside_it(
    helm: Run, tmp_path: Path, path: str
) -> None:
    """Whatever it holds, what is rendered differs from that of a plain text in this text alone."""

    def found(text: str) -> list[Json]:
        value: Any = {"key": text} if path in FREE else text
        values = nested(path, [text] if path == "controller.extraArgs" else value)
        if path.startswith("metrics."):
            values["metrics"][path.split(".")[1]]["enabled"] = True
        return [leaves(one) for one in rendered(helm, tmp_path, values, "--skip-schema-validation")]

    plain = found(PLAIN)
    assert PLAIN in str(plain)
    for text in QUOTED:
        assert found(text) == [
            {
                place: one.replace(PLAIN, text) if isinstance(one, str) else one
                for place, one in held.items()
            }
            for held in plain
        ]


# -- a release -------------------------------------------------------------------------------------


def test_a_release_is_installed_upgraded_and_taken_away(
    helm: Run, kubectl: Run, tmp_path: Path
) -> None:
    """A second upgrade changes no object; definitions and namespace outlive the release.

    Without an election the Pods of two versions never work at once.
    """
    kubectl("delete", "--ignore-not-found", "-k", ROOT / "overlays/drop-in-extensions")
    helm("install", "ours", CHART, "--set", EXTENSIONS)
    wanted = by_name(rendered(helm, tmp_path, {"controller": {"extensions": True}}))

    def versions() -> dict[str, str]:
        found = {}
        for kind, namespace, name in wanted:
            where = ["--namespace", namespace] if namespace else []
            one = json.loads(kubectl("get", kind, name, *where, "-o", "json"))
            found[f"{kind} {name}"] = one["metadata"]["resourceVersion"]
        return found

    first = versions()
    helm("upgrade", "ours", CHART, "--reuse-values")
    assert versions() == first
    helm("upgrade", "ours", CHART, "--reuse-values", "--set", "controller.leaderElect=false")
    deployment = json.loads(kubectl("get", "deployment", NAME, "-n", NAMESPACE, "-o", "json"))
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    helm("uninstall", "ours")
    left = kubectl("get", "deployments,roles,rolebindings,services", "-A", "-o", "name")
    assert f"/{NAME}" not in left
    kubectl("get", "namespace", NAMESPACE)
    kubectl("get", "customresourcedefinition", "sandboxes.agents.x-k8s.io")


def test_a_release_of_the_reference_is_upgraded_and_rolled_back(
    helm: Run, kubectl: Run, tmp_path: Path
) -> None:
    """Its Deployment keeps the selector that cannot be changed, its namespace is not deleted."""
    kubectl("delete", "--ignore-not-found", "-k", ROOT / "overlays/drop-in-extensions")
    where = ("--namespace", NAMESPACE)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    owner = {"meta.helm.sh/release-name": "theirs", "meta.helm.sh/release-namespace": NAMESPACE}
    notes = {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": owner}
    (tmp_path / "owned.json").write_text(
        json.dumps({**namespace, "metadata": {"name": NAMESPACE, **notes}})
    )
    kubectl("apply", "--server-side", "--force-conflicts", "-f", tmp_path / "owned.json")
    container = {"name": NAME, "image": "registry.k8s.io/agent-sandbox:v1.0.12"}
    template = {"metadata": {"labels": THEIRS}, "spec": {"containers": [container]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": THEIRS},
        "spec": {"selector": {"matchLabels": THEIRS}, "template": template},
    }
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: agent-sandbox, version: 0.1.5}")
    (tmp_path / "templates/all.yaml").write_text(yaml.safe_dump_all([namespace, deployment]))
    helm("install", "theirs", tmp_path, *where)

    def get(kind: str, name: str) -> Json:
        return dict(json.loads(kubectl("get", kind, name, *where, "-o", "json")))

    before = get("namespace", NAMESPACE)["metadata"]
    helm("upgrade", "theirs", CHART, *where, "--set", EXTENSIONS)
    found = get("deployment", NAME)["spec"]
    assert found["selector"]["matchLabels"] == THEIRS
    assert found["template"]["metadata"]["labels"] == THEIRS
    assert found["template"]["spec"]["containers"][0]["image"] == f"lean-sandbox:{__version__}"
    assert get("service", NAME)["spec"]["selector"] == THEIRS
    after = get("namespace", NAMESPACE)["metadata"]
    assert after["uid"] == before["uid"]
    # What it may hold beside the controller is admitted as before.
    assert "pod-security.kubernetes.io/enforce" not in after["labels"]
    helm("rollback", "theirs", "1", *where)
    container = get("deployment", NAME)["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.k8s.io/agent-sandbox:v1.0.12"
    assert get("namespace", NAMESPACE)["metadata"]["labels"].keys() == before["labels"].keys()
    helm("upgrade", "theirs", CHART, *where)
    helm("uninstall", "theirs", *where)
    assert get("namespace", NAMESPACE)["metadata"]["uid"] == before["uid"]
