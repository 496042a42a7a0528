"""Flag, environment, file, default: the strongest that names an option gives its value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from lean_sandbox.config import sources
from lean_sandbox.config.options import Settings, flag_of
from lean_sandbox.config.sources import Effective, Origin, scan, variable_of
from lean_sandbox.kube.errors import ConfigError
from tests.settings.strategies import OPTIONS, assignments

NOWHERE = Path("/nowhere/allowed-label-domains")


def effective(
    *arguments: str, environment: dict[str, str] | None = None, mounted: Path = NOWHERE
) -> Effective:
    """Return what a command line makes of an environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "MOUNTED_DOMAINS", mounted)
        return sources.effective(scan(arguments), environment or {})


def written(name: str, value: Any) -> str:
    """Return a value as every source has it."""
    return OPTIONS[name].form.write(value)


def file_of(values: dict[str, Any], path: Path) -> Path:
    """Write a config file, every value between single quotes."""
    lines = []
    for name, value in values.items():
        quoted = written(name, value).replace("'", "''")
        lines.append(f"{name.replace('_', '-')}: '{quoted}'\n")
    path.write_text("".join(lines))
    return path


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(flags=assignments(), variables=assignments(), entries=assignments())
def test_the_strongest_source_that_names_an_option_gives_its_value(
    tmp_path: Path, flags: dict[str, Any], variables: dict[str, Any], entries: dict[str, Any]
) -> None:
    """For any values in any sources, and the source is told as well."""
    file = file_of(entries, tmp_path / "config.yaml")
    environment = {
        variable_of(name.replace("_", "-")): written(name, value)
        for name, value in variables.items()
    }
    arguments = [f"{flag_of(name)}={written(name, value)}" for name, value in flags.items()]
    found = effective(f"--config={file}", *arguments, environment=environment)
    for name, option in OPTIONS.items():
        origin, value = Origin.DEFAULT, option.default
        for candidate, values in (
            (Origin.FILE, entries),
            (Origin.ENVIRONMENT, variables),
            (Origin.FLAG, flags),
        ):
            if name in values:
                origin, value = candidate, values[name]
        assert getattr(found.settings, name) == value
        assert found.place(name).origin is origin


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(entries=assignments())
def test_a_folder_says_what_a_file_says(tmp_path: Path, entries: dict[str, Any]) -> None:
    """One file for each flag, as a ConfigMap is mounted, is the same as one file."""
    folder = tmp_path / "mounted"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, value in entries.items():
        (folder / name.replace("_", "-")).write_text(written(name, value) + "\n")
    file = file_of(entries, tmp_path / "config.yaml")
    assert effective(f"--config={folder}").settings == effective(f"--config={file}").settings


def test_a_mounted_config_map_is_read_as_kubernetes_lays_it_out(tmp_path: Path) -> None:
    """The links and the folders that begin with a dot are Kubernetes' own."""
    version = tmp_path / "..2026_01_02"
    version.mkdir()
    (version / "page-size").write_text("7\n")
    (version / "allowed-label-domains").write_text("a.example\nb.example\n")
    (tmp_path / "..data").symlink_to(version.name)
    for name in ("page-size", "allowed-label-domains"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    found = effective("--config", str(tmp_path))
    assert found.settings == Settings(page_size=7, allowed_label_domains=("a.example", "b.example"))
    assert found.place("page_size").where == str(tmp_path / "page-size")


def test_the_config_file_can_be_named_in_the_environment(tmp_path: Path) -> None:
    """A flag beats the environment here too, and an empty one means no file."""
    first = file_of({"page_size": 1}, tmp_path / "first")
    second = file_of({"page_size": 2}, tmp_path / "second")
    environment = {"LEAN_SANDBOX_CONFIG": str(first)}
    assert effective(environment=environment).settings.page_size == 1
    assert effective(f"--config={second}", environment=environment).settings.page_size == 2
    assert effective("--config=", environment=environment).settings == Settings()


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("LEAN_SANDBOX_PAGESIZE", "LEAN_SANDBOX_PAGE_SIZE"),
        ("LEAN_SANDBOX_NAMESPACE", "LEAN_SANDBOX_NAMESPACES"),
        ("LEAN_SANDBOX_METRICS_PORT", ""),
        ("LEAN_SANDBOX_", ""),
    ],
)
def test_an_unknown_variable_with_our_prefix_is_refused(variable: str, near: str) -> None:
    """A misspelt name is told with the nearest; other programs' variables are not ours."""
    with pytest.raises(ConfigError) as refused:
        effective(environment={variable: "1", "LEANSANDBOX": "1", "PAGE_SIZE": "x"})
    assert variable in str(refused.value)
    assert near in str(refused.value)


def test_the_variables_of_a_service_of_our_name_are_nobodys_settings() -> None:
    """Kubernetes sets them in every Pod of a namespace that has a Service called lean-sandbox."""
    environment = {
        "LEAN_SANDBOX_SERVICE_HOST": "10.0.0.1",
        "LEAN_SANDBOX_SERVICE_PORT": "8080",
        "LEAN_SANDBOX_SERVICE_PORT_METRICS": "8080",
        "LEAN_SANDBOX_PORT": "tcp://10.0.0.1:8080",
        "LEAN_SANDBOX_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "LEAN_SANDBOX_PORT_8080_TCP_PROTO": "tcp",
        "LEAN_SANDBOX_PORT_8080_TCP_PORT": "8080",
        "LEAN_SANDBOX_PORT_8080_TCP_ADDR": "10.0.0.1",
        "LEAN_SANDBOX_METRICS_PORT": "udp://10.0.0.1:53",
    }
    assert effective(environment=environment) == Effective(Settings(), {}, ())


@pytest.mark.parametrize("name", ["pagesize", "page_size", "config", "version", "webhook-port"])
def test_an_unknown_key_is_refused_with_its_file_and_line(tmp_path: Path, name: str) -> None:
    """A file is checked as the command line is."""
    file = tmp_path / "config.yaml"
    file.write_text(f"# first\n{name}: 3\n")
    with pytest.raises(ConfigError) as refused:
        effective(f"--config={file}")
    assert refused.value.source == f"{file} line 2"
    assert refused.value.field == name
    assert ("page-size" in refused.value.way_out) is name.startswith("page")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A config file that was named must be there, and be text."""
    with pytest.raises(ConfigError, match="/nowhere/config"):
        effective("--config=/nowhere/config")
    (tmp_path / "binary").write_bytes(b"page-size: \xff")
    with pytest.raises(ConfigError, match="binary: it cannot be read"):
        effective(f"--config={tmp_path / 'binary'}")


@pytest.mark.parametrize("value", ["many", "0"])
def test_a_bad_value_is_told_with_its_source(tmp_path: Path, value: str) -> None:
    """Whether it cannot be read or cannot work: which variable, which file and line."""
    with pytest.raises(ConfigError) as refused:
        effective(environment={"LEAN_SANDBOX_PAGE_SIZE": value})
    assert "environment LEAN_SANDBOX_PAGE_SIZE" in str(refused.value)
    assert "--page-size" in str(refused.value)
    file = tmp_path / "config.yaml"
    file.write_text(f"page-size: {value}")
    with pytest.raises(ConfigError) as refused:
        effective(f"--config={file}")
    assert f"file {file} line 1" in str(refused.value)


def test_a_contradiction_between_sources_names_both(tmp_path: Path) -> None:
    """A namespace watched by a file and excluded by a variable."""
    file = tmp_path / "config.yaml"
    file.write_text("namespaces: [a, b]")
    with pytest.raises(ConfigError) as refused:
        effective(f"--config={file}", environment={"LEAN_SANDBOX_EXCLUDE_NAMESPACES": "b"})
    for named in (str(file), "LEAN_SANDBOX_EXCLUDE_NAMESPACES", "--namespaces"):
        assert named in str(refused.value)


def test_two_names_of_one_option_contradict_only_within_a_source() -> None:
    """A flag beats the environment whatever name either has."""
    environment = {"LEAN_SANDBOX_LOG_LEVEL": "error"}
    assert effective("--zap-log-level=debug", environment=environment).settings.log_level == "debug"
    environment = {"LEAN_SANDBOX_LOG_LEVEL": "error", "LEAN_SANDBOX_ZAP_LOG_LEVEL": "debug"}
    with pytest.raises(ConfigError, match="contradict"):
        effective(environment=environment)


def test_the_mounted_file_of_the_reference_is_weaker_than_every_other_source(
    tmp_path: Path,
) -> None:
    """Read with the extensions, it replaces the default; an empty one does not."""
    mounted = tmp_path / "allowed-label-domains"
    default = Settings().allowed_label_domains
    assert effective("--extensions", mounted=mounted).settings.allowed_label_domains == default
    mounted.write_text(" \n,")
    assert effective("--extensions", mounted=mounted).settings.allowed_label_domains == default
    mounted.write_text("A.example\nb.example")
    found = effective("--extensions", mounted=mounted)
    assert found.settings.allowed_label_domains == ("a.example", "b.example")
    assert str(found.place("allowed_label_domains")) == f"file {mounted}"
    assert effective(mounted=mounted).settings.allowed_label_domains == default
    found = effective("--extensions", "--allowed-label-domains=c.example", mounted=mounted)
    assert found.settings.allowed_label_domains == ("c.example",)


def test_a_mounted_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Any error but that it does not exist ends the start."""
    with pytest.raises(ConfigError, match="it cannot be read"):
        effective("--extensions", mounted=tmp_path)
