"""The ConfigMap agent-sandbox-config as it is mounted: its place among the sources, its keys."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import text

from lean_sandbox.cli import main
from lean_sandbox.config.declare import flag_of
from lean_sandbox.config.flags import TUNABLE
from lean_sandbox.config.options import Settings
from lean_sandbox.config.sources import EXIT_OK, Effective, Origin, effective, scan, variable_of
from lean_sandbox.errors import ConfigError
from tests.config.strategies import OPTIONS, assignments, written

MOUNTED = "lean_sandbox.config.sources.MOUNTED"


def mount(values: dict[str, str], folder: Path) -> Path:
    """Write a ConfigMap as a kubelet does: links to files of a hidden folder, which is a link."""
    (folder / "..2026_11_25").mkdir()
    (folder / "..data").symlink_to("..2026_11_25")
    for name, value in values.items():
        (folder / "..data" / name).write_text(value)
        (folder / name).symlink_to(f"..data/{name}")
    return folder


def tuned(
    values: dict[str, str],
    *arguments: str,
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
) -> Effective:
    """Return what a ConfigMap makes of a command line and an environment."""
    with TemporaryDirectory() as other, pytest.MonkeyPatch.context() as patch:
        patch.setattr(MOUNTED, mount(values, folder or Path(other)))
        return effective(scan(arguments), environment or {})


# -- its place among the sources -------------------------------------------------------------------


@given(entries=assignments(), variables=assignments(), flags=assignments())
def test_the_strongest_source_that_names_an_option_gives_its_value(
    entries: dict[str, Any], variables: dict[str, Any], flags: dict[str, Any]
) -> None:
    """Flags before variables before the ConfigMap, whatever they say but an empty list in it."""
    values = {
        name.replace("_", "-"): written(name, value)
        for name, value in entries.items()
        if name.replace("_", "-") in TUNABLE
    }
    environment = {
        variable_of(name.replace("_", "-")): written(name, value)
        for name, value in variables.items()
    }
    arguments = [f"{flag_of(name)}={written(name, value)}" for name, value in flags.items()]
    found = tuned(values, *arguments, environment=environment)
    origins = {name: given.origin for name, given in found.given.items()}
    for name, option in OPTIONS.items():
        origin = None
        value = option.default
        if name.replace("_", "-") in values and entries[name] != ():
            origin = Origin.CONFIG_MAP
            value = entries[name]
        for candidate, named in ((Origin.ENVIRONMENT, variables), (Origin.FLAG, flags)):
            if name in named:
                origin = candidate
                value = named[name]
        assert getattr(found.settings, name) == value
        assert origins.get(name) is origin
    assert {remark.flag for remark in found.remarks}.isdisjoint(values)


@pytest.mark.parametrize("is_there", [True, False], ids=["empty", "absent"])
def test_without_a_config_map_the_others_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    """A folder without keys is what an optional ConfigMap that does not exist leaves."""
    monkeypatch.setattr(MOUNTED, tmp_path if is_there else tmp_path / "nowhere")
    assert effective(scan(["--page-size=7"]), {}).settings == Settings(page_size=7)


# -- the domains of labels, the one key that the reference has -------------------------------------


@pytest.mark.parametrize("text", ["A.example\nb.example", "a.example,b.example\n"])
def test_the_domains_may_stand_in_lines(text: str) -> None:
    """As in the reference's file; the extensions are needed to use them, not to read them."""
    found = tuned({"allowed-label-domains": text})
    assert found.settings.allowed_label_domains == ("a.example", "b.example")
    found = tuned({"allowed-label-domains": text}, "--allowed-label-domains=c.example")
    assert found.settings.allowed_label_domains == ("c.example",)


@pytest.mark.parametrize("text", ["", " \n,"])
def test_domains_without_any_are_as_good_as_none(text: str) -> None:
    """The default holds; a flag or a variable that is empty allows no domain."""
    values = {"allowed-label-domains": text}
    assert tuned(values) == Effective(Settings(), {}, ())
    assert tuned(values, "--allowed-label-domains=").settings.allowed_label_domains == ()
    environment = {variable_of("allowed-label-domains"): ""}
    assert tuned(values, environment=environment).settings.allowed_label_domains == ()


# -- its keys --------------------------------------------------------------------------------------


def test_what_a_process_is_cannot_be_tuned() -> None:
    """Its server, scope, Lease, addresses, kinds and what it shows of itself are its own."""
    own = {name.replace("_", "-") for name in OPTIONS} - TUNABLE
    assert own == {
        *("kubeconfig", "context"),
        *("namespaces", "exclude-namespaces", "shard", "sandbox-label-selector", "extensions"),
        "companions",
        *("leader-elect", "leader-election-namespace", "leader-election-lease"),
        *("allow-second-controller", "metrics-bind-address", "health-probe-bind-address"),
        *("metrics-secure-serving", "metrics-cert-dir", "tls-min-version", "tls-cipher-suites"),
        *("enable-pprof", "enable-pprof-debug", "enable-tracing", "trace-entries"),
    }


# Of the reference, which takes no others; allowed-label-domains is a file of its own there.
THEIRS = {
    *("kube-api-qps", "kube-api-burst", "api-connections", "separate-watch-connection"),
    *("pprof-block-profile-rate", "pprof-mutex-profile-fraction"),
    *("sandbox-concurrent-workers", "sandbox-claim-concurrent-workers"),
    *("sandbox-warm-pool-concurrent-workers", "sandbox-template-concurrent-workers"),
    *("sandbox-warm-pool-max-batch-size", "sandbox-warm-pool-replenish-delay"),
    *("sandbox-warm-pool-max-refill-rate", "sandbox-warm-pool-readiness-grace-period"),
    "sandbox-warm-pool-unschedulable-recheck-interval",
    *("sandbox-claim-warm-candidate-grace-period", "enable-warm-pool-eviction"),
    *("disable-sandbox-events", "disable-claim-events", "disable-claim-observability-annotations"),
    "sandbox-write-behind-window",
}


def test_every_key_of_the_reference_is_taken() -> None:
    """What could be tuned under the reference can be tuned here."""
    assert len(THEIRS) == 21
    assert THEIRS <= TUNABLE


@pytest.mark.parametrize("key", ["_note", "_page-size", ".page-size"])
def test_a_key_that_begins_like_a_comment_is_one(key: str, tmp_path: Path) -> None:
    """It sets nothing, and nobody is told, whatever it holds: as in the reference."""
    found = tuned({key: "many", "page-size": "9"}, folder=tmp_path)
    assert found.remarks == ()
    assert found.settings == Settings(page_size=9)


@given(entries=assignments(), before=text(alphabet=" \t\r\n"), after=text(alphabet=" \t\r\n"))
def test_blanks_around_a_value_are_no_part_of_it(
    entries: dict[str, Any], before: str, after: str
) -> None:
    """A block of YAML ends with a line, and a hand leaves blanks: for values of every form."""
    values = {
        name.replace("_", "-"): written(name, value)
        for name, value in entries.items()
        if name.replace("_", "-") in TUNABLE
    }
    blank = {name: before + value + after for name, value in values.items()}
    assert tuned(blank).settings == tuned(values).settings


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("page-sise", "did you mean page-size?"),
        ("config.yaml", "unknown flag"),
        ("enable-webhook", "v1.0.0 removed it"),
        ("extensions", "only a flag or the environment"),
        ("watch-namespaces", "only a flag or the environment"),
        ("leader-election-lease", "only a flag or the environment"),
    ],
)
def test_a_key_that_sets_nothing_is_told_by_name(key: str, part: str, tmp_path: Path) -> None:
    """It is no reason not to start, and the other keys hold."""
    found = tuned({key: "1", "page-size": "9"}, folder=tmp_path)
    (remark,) = found.remarks
    assert remark.flag == key
    assert remark.place == f"ConfigMap {tmp_path / key}"
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
    with pytest.raises(ConfigError, match=r"ConfigMap /.*/page-size: .*page-size"):
        tuned({"page-size": value})


def test_what_is_no_text_is_a_value_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The binary data of a ConfigMap is mounted as well; only a key that sets something matters."""
    monkeypatch.setattr(MOUNTED, tmp_path)
    (tmp_path / "logo.png").write_bytes(b"\xff\xd8")
    (remark,) = effective(scan([]), {}).remarks
    assert remark.flag == "logo.png"
    (tmp_path / "page-size").write_bytes(b"\xff\xd8")
    with pytest.raises(ConfigError, match="page-size"):
        effective(scan([]), {})


def test_a_file_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing begins with settings that its operator has replaced."""
    monkeypatch.setattr(MOUNTED, tmp_path)
    (tmp_path / "page-size").mkdir()
    with pytest.raises(ConfigError, match="page-size: it cannot be read: Is a directory"):
        effective(scan([]), {})


# -- the commands ----------------------------------------------------------------------------------


def test_a_process_runs_by_the_config_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flags win, and what does not hold is logged; the log itself is as it says."""
    monkeypatch.setattr(MOUNTED, mount({"log-format": "json", "page-size": "9"}, tmp_path))
    (tmp_path / "extension").write_text("1")
    runs: list[Settings] = []

    async def run(settings: Settings, *, companions_only: bool) -> bool:
        assert not companions_only
        runs.append(settings)
        return True

    monkeypatch.setattr("lean_sandbox.manager.server.run_until_signalled", run)
    assert main(["run", "--page-size=5"]) == EXIT_OK
    assert runs == [Settings(log_format="json", page_size=5)]
    (line,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert (line["msg"], line["flag"]) == ("flag_warning", "extension")


def test_the_config_command_tells_what_the_config_map_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the Pod it tells all that is in effect there."""
    monkeypatch.setattr(MOUNTED, mount({"page-size": "9"}, tmp_path))
    assert main(["config"]) == EXIT_OK
    line = f"page-size: 9  # ConfigMap {tmp_path}/page-size, objects"
    assert line in capsys.readouterr().out.splitlines()
