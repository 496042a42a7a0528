"""Flag, environment, default: the strongest that names an option gives its value."""

from __future__ import annotations

import pytest

from lean_sandbox.config import sources
from lean_sandbox.config.options import Settings
from lean_sandbox.config.sources import Effective, scan
from lean_sandbox.errors import ConfigError


def effective(*arguments: str, environment: dict[str, str] | None = None) -> Effective:
    """Return what a command line makes of an environment."""
    return sources.effective(scan(arguments), environment or {})


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


def test_a_variable_that_cannot_be_decoded_is_refused() -> None:
    """The message names the variable; what is not ours may hold any bytes."""
    with pytest.raises(ConfigError, match=r"LEAN_SANDBOX_NAMESPACES.*not valid UTF-8"):
        effective(environment={"LEAN_SANDBOX_NAMESPACES": "a\udcff"})
    assert effective(environment={"OTHER": "a\udcff"}) == effective()


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


@pytest.mark.parametrize("value", ["many", "0"])
def test_a_bad_value_is_told_with_its_source(value: str) -> None:
    """Whether it cannot be read or cannot work: which variable."""
    with pytest.raises(ConfigError) as refused:
        effective(environment={"LEAN_SANDBOX_PAGE_SIZE": value})
    assert "environment LEAN_SANDBOX_PAGE_SIZE" in str(refused.value)
    assert "--page-size" in str(refused.value)


def test_a_contradiction_between_sources_names_both() -> None:
    """A namespace watched by a flag and excluded by a variable."""
    with pytest.raises(ConfigError) as refused:
        effective("--namespaces=a,b", environment={"LEAN_SANDBOX_EXCLUDE_NAMESPACES": "b"})
    for named in ("LEAN_SANDBOX_EXCLUDE_NAMESPACES", "--namespaces"):
        assert named in str(refused.value)


def test_two_names_of_one_option_contradict_only_within_a_source() -> None:
    """A flag beats the environment whatever name either has."""
    environment = {"LEAN_SANDBOX_LOG_LEVEL": "error"}
    assert effective("--zap-log-level=debug", environment=environment).settings.log_level == "debug"
    environment = {"LEAN_SANDBOX_LOG_LEVEL": "error", "LEAN_SANDBOX_ZAP_LOG_LEVEL": "debug"}
    with pytest.raises(ConfigError, match="contradict"):
        effective(environment=environment)
