"""The ConfigMap agent-sandbox-config: its place among the sources, its keys, and its one GET."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from structlog.testing import capture_logs

from lean_sandbox.config.options import TUNABLE, Settings, flag_of
from lean_sandbox.config.sources import (
    CONFIG_MAP,
    EXIT_CONFIG,
    EXIT_OK,
    ConfigMap,
    Effective,
    Origin,
    effective,
    scan,
    variable_of,
)
from lean_sandbox.kube.client import Client
from lean_sandbox.kube.errors import ConfigError
from lean_sandbox.kube.kubeconfig import own_namespace
from lean_sandbox.local.controlplane import ControlPlane
from lean_sandbox.manager.preflight import read_config_map
from tests.settings.strategies import OPTIONS, assignments
from tests.settings.test_sources import written
from tests.support.clients import connected, connection_to
from tests.support.clock import FakeClock
from tests.support.process import controller_process
from tests.support.world import NS

Json = dict[str, Any]
NOWHERE = Path("/nowhere/allowed-label-domains")
_PATIENCE_S = 30.0


def tuned(
    values: dict[str, str],
    *arguments: str,
    environment: dict[str, str] | None = None,
    mounted: Path = NOWHERE,
) -> Effective:
    """Return what a ConfigMap makes of a command line and an environment."""
    scanned = scan(arguments)
    config_map = ConfigMap(f"{NS}/{CONFIG_MAP}", values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lean_sandbox.config.sources.MOUNTED_DOMAINS", mounted)
        return effective(scanned, environment or {}, config_map=config_map)


# -- its place among the sources -------------------------------------------------------------------


@given(entries=assignments(), flags=assignments())
def test_a_config_map_beats_the_defaults_and_nothing_else(
    entries: dict[str, Any], flags: dict[str, Any]
) -> None:
    """For any values in it but an empty list: flags win, and the source of each is told."""
    values = {
        name.replace("_", "-"): written(name, value)
        for name, value in entries.items()
        if name.replace("_", "-") in TUNABLE
    }
    found = tuned(values, *(f"{flag_of(n)}={written(n, v)}" for n, v in flags.items()))
    origins = {name: given.origin for name, given in found.given.items()}
    for name, option in OPTIONS.items():
        origin, value = None, option.default
        if name.replace("_", "-") in values and entries[name] != ():
            origin, value = Origin.CONFIG_MAP, entries[name]
        if name in flags:
            origin, value = Origin.FLAG, flags[name]
        assert getattr(found.settings, name) == value
        assert origins.get(name) is origin
    assert {remark.flag for remark in found.remarks}.isdisjoint(values)


def test_a_variable_wins_over_the_config_map() -> None:
    """What is told to one process is nearer to it than what is told to all."""
    environment = {variable_of("page-size"): "7"}
    found = tuned({"page-size": "9", "kube-api-burst": "11"}, environment=environment)
    assert (found.settings.page_size, found.settings.kube_api_burst) == (7, 11)
    assert str(found.given["kube_api_burst"]) == f"ConfigMap {NS}/{CONFIG_MAP} key kube-api-burst"


def test_the_config_map_wins_over_the_mounted_file_of_domains(tmp_path: Path) -> None:
    """The key of that name may have lines, as the file has; without it the file holds."""
    mounted = tmp_path / "allowed-label-domains"
    mounted.write_text("mounted.example\n")
    flags = ["--extensions"]
    found = tuned({"allowed-label-domains": "a.example\nb.example\n"}, *flags, mounted=mounted)
    assert found.settings.allowed_label_domains == ("a.example", "b.example")
    found = tuned({}, *flags, mounted=mounted)
    assert found.settings.allowed_label_domains == ("mounted.example",)


def test_an_empty_key_of_domains_is_as_an_empty_file(tmp_path: Path) -> None:
    """Neither sets anything; a flag or a variable that is empty allows no domain."""
    mounted = tmp_path / "allowed-label-domains"
    mounted.write_text("")
    flags = ["--extensions"]
    for empty in ("", " \n,"):
        found = tuned({"allowed-label-domains": empty}, *flags, mounted=mounted)
        assert found.settings.allowed_label_domains == ("sandbox.users.io",)
        assert "allowed_label_domains" not in found.given
    found = tuned({}, *flags, "--allowed-label-domains=", mounted=mounted)
    assert found.settings.allowed_label_domains == ()


# -- its keys --------------------------------------------------------------------------------------


def test_what_a_process_is_cannot_be_tuned() -> None:
    """Its server, scope, Lease, addresses, kinds and what it shows of itself are its own."""
    own = {name.replace("_", "-") for name in OPTIONS} - TUNABLE
    assert own == {
        *("kubeconfig", "context", "config-map-namespace"),
        *("namespaces", "exclude-namespaces", "shard", "sandbox-label-selector", "extensions"),
        *("leader-elect", "leader-election-namespace", "leader-election-lease"),
        *("allow-second-controller", "metrics-bind-address", "health-probe-bind-address"),
        *("metrics-secure-serving", "metrics-cert-dir", "tls-min-version", "tls-cipher-suites"),
        *("enable-pprof", "enable-pprof-debug", "enable-tracing", "trace-entries"),
    }


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("page-sise", "did you mean page-size?"),
        ("config.yaml", "unknown flag"),
        ("enable-webhook", "v1.0.0 removed it"),
        ("extensions", "only a flag or the environment"),
        ("leader-election-lease", "only a flag or the environment"),
    ],
)
def test_a_key_that_sets_nothing_is_told_by_name(key: str, part: str) -> None:
    """It is no reason not to start, and the other keys hold."""
    found = tuned({key: "1", "page-size": "9"})
    (remark,) = found.remarks
    assert remark.flag == key
    assert remark.place == f"ConfigMap {NS}/{CONFIG_MAP} key {key}"
    assert part in remark.why
    assert found.settings == Settings(page_size=9)


def test_a_flag_without_meaning_is_told_as_elsewhere() -> None:
    """And the words of the reference for the log are understood."""
    found = tuned({"api-connections": "4", "zap-log-level": "debug\n"})
    (remark,) = found.remarks
    assert remark.flag == "--api-connections"
    assert found.settings == Settings(log_level="debug")


@pytest.mark.parametrize("value", ["many", "0"])
def test_a_value_that_cannot_be_is_refused_with_its_place(value: str) -> None:
    """One that cannot be read, and one that cannot work, as from any other source."""
    with pytest.raises(ConfigError, match=rf"{CONFIG_MAP} key page-size.*page-size"):
        tuned({"page-size": value})


# -- how it is read --------------------------------------------------------------------------------


def config_map(values: dict[str, str], namespace: str = NS) -> Json:
    """Return the ConfigMap."""
    metadata = {"name": CONFIG_MAP, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": values}


@asynccontextmanager
async def cluster(
    user: str = "admin",
) -> AsyncIterator[tuple[ControlPlane, Client, FakeClock]]:
    """Run a control plane with a namespace, and a client of it."""
    clock = FakeClock()
    async with ControlPlane(clock=clock) as plane:
        plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
        async with connected(connection_to(plane, user), clock=clock) as client:
            yield plane, client, clock


async def test_it_is_read_by_one_get() -> None:
    """Where there is none, that is all there is to know."""
    async with cluster() as (plane, client, clock):
        assert await read_config_map(client, clock, NS) is None
        assert dict(plane.audit.counts()) == {"get configmaps": 1}
        plane.store.create(config_map({"page-size": "9"}))
        assert await read_config_map(client, clock, NS) == ConfigMap(
            f"{NS}/{CONFIG_MAP}", {"page-size": "9"}
        )
        assert dict(plane.audit.counts()) == {"get configmaps": 2}


async def test_who_may_not_read_it_begins_and_is_told() -> None:
    """Roles of before, in which it is not named, go on working."""
    async with cluster("system:serviceaccount:ns:narrow") as (plane, client, clock):
        plane.store.create(config_map({"page-size": "9"}))
        with capture_logs() as logs:
            assert await read_config_map(client, clock, NS) is None
    assert [line["event"] for line in logs] == ["config_map_unknown"]


async def test_a_server_in_trouble_is_asked_again_until_it_answers() -> None:
    """Nothing begins with settings that its operator has replaced."""
    async with cluster() as (plane, client, clock):
        plane.store.create(config_map({"page-size": "9"}))
        plane.fail_next("get", "configmaps", 503, times=2)
        found: list[ConfigMap | None] = []

        async def look() -> None:
            found.append(await read_config_map(client, clock, NS))

        async with anyio.create_task_group() as group:
            group.start_soon(look)
            with anyio.fail_after(_PATIENCE_S):
                for pause_s in (1.0, 2.0):
                    while clock.next_s is None:
                        await anyio.lowlevel.checkpoint()
                    await clock.advance(pause_s)
        assert found == [ConfigMap(f"{NS}/{CONFIG_MAP}", {"page-size": "9"})]


def test_the_namespace_of_a_pod_is_told_by_its_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of a cluster there is none, and nothing is read."""
    monkeypatch.setattr("lean_sandbox.kube.kubeconfig.SERVICE_ACCOUNT", tmp_path)
    assert own_namespace() == ""
    (tmp_path / "namespace").write_text("here\n")
    assert own_namespace() == "here"


# -- the process -----------------------------------------------------------------------------------


async def lines_of(plane: ControlPlane, folder: Path, *flags: str) -> tuple[int, list[Json]]:
    """Run a controller until its caches are in sync or it ends; return its exit code and log."""
    log = folder / "log"
    kubeconfig = plane.kubeconfig(folder / "config", "admin")
    async with controller_process(kubeconfig, *flags, log=log) as process:
        with anyio.fail_after(_PATIENCE_S):
            while process.returncode is None and "caches_synced" not in log.read_text():  # noqa: ASYNC110
                await anyio.sleep(0.02)
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            code = await process.wait()
    texts = log.read_text().splitlines()
    return code, [json.loads(line) for line in texts if line.startswith("{")] or [{"msg": texts}]


async def test_a_process_runs_by_the_config_map_of_the_namespace_it_is_told(
    tmp_path: Path,
) -> None:
    """One GET at its start; what holds and what does not is logged; flags win."""
    async with ControlPlane() as plane:
        plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
        plane.store.create(config_map({"log-level": "debug", "page-size": "9", "extension": "1"}))
        plane.audit.reset()
        code, lines = await lines_of(
            plane, tmp_path, f"--config-map-namespace={NS}", "--page-size=5"
        )
        assert len(plane.audit.select(verb="get", resource="configmaps")) == 1
    assert code == EXIT_OK
    (told,) = [line for line in lines if line["msg"] == "config_map_read"]
    assert (told["source"], told["flags"]) == (f"{NS}/{CONFIG_MAP}", ["--log-level"])
    (doubtful,) = [line for line in lines if line["msg"] == "flag_warning"]
    assert doubtful["flag"] == "extension"


async def test_outside_of_a_cluster_none_is_read_unless_its_namespace_is_named(
    tmp_path: Path,
) -> None:
    """A kubeconfig says where the server is, not whose settings to take."""
    async with ControlPlane() as plane:
        code, _ = await lines_of(plane, tmp_path)
        assert not plane.audit.select(resource="configmaps")
    assert code == EXIT_OK


async def test_a_process_refuses_a_config_map_that_cannot_work(tmp_path: Path) -> None:
    """It ends as with such a flag, and says which key of which object to mend."""
    async with ControlPlane() as plane:
        plane.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
        plane.store.create(config_map({"page-size": "none"}))
        code, _ = await lines_of(plane, tmp_path, f"--config-map-namespace={NS}")
        assert not plane.audit.select(verb="list")
    assert code == EXIT_CONFIG
    assert f"{NS}/{CONFIG_MAP} key page-size" in (tmp_path / "log").read_text()
