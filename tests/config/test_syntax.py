"""The syntax of the command line is that of Go's flag package."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lean_sandbox.config.forms import BOOLEAN, TEXT
from lean_sandbox.config.options import Settings
from lean_sandbox.config.sources import HelpRequested, UsageError, effective, scan


def settings(*arguments: str) -> Settings:
    """Return what a command line makes of the defaults."""
    return effective(scan(arguments), {}).settings


@pytest.mark.parametrize(
    "given", [["--page-size=7"], ["--page-size", "7"], ["-page-size=7"], ["-page-size", "7"]]
)
def test_a_value_follows_after_the_sign_or_as_the_next_argument(given: list[str]) -> None:
    """One dash or two, joined or not: the same."""
    assert settings(*given).page_size == 7


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_the_six_words_for_true(text: str) -> None:
    """Booleans are written as Go writes them, and a bare one is true."""
    assert settings(f"--extensions={text}").extensions
    assert settings("-extensions").extensions


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_the_six_words_for_false(text: str) -> None:
    """Booleans are written as Go writes them; ``--no-x`` is ours on top."""
    assert not settings(f"--enable-warm-pool-eviction={text}").enable_warm_pool_eviction
    assert not settings("--no-enable-warm-pool-eviction").enable_warm_pool_eviction


def test_a_boolean_takes_no_next_argument() -> None:
    """``--leader-elect false`` is true and ends the flags, which is worth a warning."""
    found = effective(scan(["--leader-elect", "false", "--extensions"]), {})
    assert found.settings.leader_elect is True
    assert not found.settings.extensions
    (remark,) = found.remarks
    assert remark.flag == "false --extensions"


def test_a_negative_value_is_a_value() -> None:
    """What begins with a dash is taken by the flag before it."""
    assert settings("--kube-api-qps", "-1").kube_api_qps == -1
    assert settings("--kubeconfig", "--extensions").kubeconfig == "--extensions"


def test_of_a_flag_given_twice_the_last_one_holds() -> None:
    """As with Go's flags, and whichever way each is written."""
    assert settings("--page-size=7", "-page-size", "8").page_size == 8


def test_two_dashes_end_the_flags() -> None:
    """Nothing behind them is looked at."""
    assert not settings("--", "--extensions").extensions


@pytest.mark.parametrize("bad", ["---page-size=7", "--=7", "-=7"])
def test_what_is_no_flag_is_refused(bad: str) -> None:
    """Three dashes and a name that is not there."""
    with pytest.raises(UsageError, match="unknown flag -"):
        settings(bad)


def test_a_flag_without_its_value_is_refused() -> None:
    """The last argument has no next one; a switched off boolean takes none."""
    with pytest.raises(UsageError, match="--page-size needs a value"):
        settings("--page-size")
    with pytest.raises(UsageError, match="--no-extensions takes no value"):
        settings("--no-extensions=true")


@pytest.mark.parametrize(
    ("text", "value"), [("0x10", 16), ("0b11", 3), ("0o17", 15), ("1_000", 1000), ("+5", 5)]
)
def test_whole_numbers_are_written_as_go_writes_them(text: str, value: int) -> None:
    """Bases by prefix, underscores between digits."""
    assert settings(f"--page-size={text}").page_size == value


@pytest.mark.parametrize("text", ["1_0", "1 0", "1_0.5"])
def test_other_numbers_have_digits_alone(text: str) -> None:
    """Go takes underscores in whole numbers only."""
    with pytest.raises(UsageError, match="--kube-api-qps"):
        settings(f"--kube-api-qps={text}")


@pytest.mark.parametrize("text", ["017", "007", "-01"])
def test_a_number_that_may_be_octal_is_refused(text: str) -> None:
    """It is 15 for Go and 17 for a person."""
    with pytest.raises(UsageError, match="without a 0 in front"):
        settings(f"--page-size={text}")


NAMES = st.sampled_from(["a", "b-c", "on", "d"])
VALUES = st.text(alphabet="-=x1 ", max_size=4)


@given(st.lists(st.tuples(NAMES, VALUES, st.booleans(), st.booleans()), max_size=6))
def test_what_was_written_is_what_is_read(written: list[tuple[str, str, bool, bool]]) -> None:
    """Any flags with any values, in any of the four forms, come back in their order."""
    arguments: list[str] = []
    for name, value, is_joined, has_two in written:
        flag = f"{'--' if has_two else '-'}{name}"
        arguments += [f"{flag}={value}"] if is_joined or name == "on" else [flag, value]

    scanned = scan(arguments, {"a": TEXT, "b-c": TEXT, "d": TEXT, "on": BOOLEAN})
    found = [(flag.name, flag.text, flag.where) for flag in scanned.flags]
    assert found == [
        (name, value, f"--{name}" if len(name) > 1 else f"-{name}") for name, value, *_ in written
    ]
    assert scanned.rest == ()


def test_a_dash_alone_is_no_flag() -> None:
    """It ends the flags, as any other word does."""
    found = scan(["--page-size=7", "-", "--extensions"])
    assert [one.name for one in found.flags] == ["page-size"]
    assert found.rest == ("-", "--extensions")


def test_help_is_asked_for_unless_a_command_has_a_flag_of_that_name() -> None:
    """In any form, anywhere before a mistake; a flag of its own goes first."""
    for word in ("-h", "--h", "-help", "--help", "--help=x"):
        with pytest.raises(HelpRequested):
            scan(["--page-size=7", word])
    assert scan(["--help"], {"help": BOOLEAN}).flags[0].text == "true"
