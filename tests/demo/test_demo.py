"""Laws of the demo: it reaches what it promises, its bill adds up, and it ends in the point."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from lean_sandbox.cli import main
from lean_sandbox.config.sources import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from lean_sandbox.demo.bill import Account, Bill, Burst, Launch, Step
from lean_sandbox.demo.show import FLOORS, REFERENCE_FLOORS, Show
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]


def requests(bill: Bill) -> int:
    """Return how many there were in all."""
    return bill.writes + bill.reads + bill.event_posts


def test_all_acts_are_played_billed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON has the steps, the launch and the burst without a conflict, the screen the point."""
    asked = ["demo", "--sandboxes", "2", "--pool", "3", "--claims", "2", "--output", "json"]
    assert main(asked) == EXIT_OK
    account = msgspec.json.decode(capsys.readouterr().out, type=Account)
    assert [step.bill.event_posts for step in account.steps] == [2, 1, 2, 1, 1]
    assert all(step.bill.writes >= 2 for step in account.steps)
    launch = account.launch
    burst = account.burst
    assert (launch.sandboxes, launch.bill.conflicts) == (2, 0)
    assert launch.bill.requests["create pods"] == 2
    assert launch.watch_events["pods"].passed >= 2
    # Events come late, and wait for more urgent requests: an act lasts until they are there.
    assert launch.bill.event_posts == launch.bill.requests["create events"] == 4
    assert burst is not None
    assert (burst.pool, burst.claims, burst.bill.conflicts) == (3, 2, 0)
    assert 0 < burst.usable_p50_s <= burst.usable_p99_s
    assert 0 <= burst.lag_max_s <= burst.usable_p99_s
    assert burst.bill.requests["patch sandboxclaims/status"] == 2
    assert burst.bill.requests["create sandboxes"] == 2
    assert burst.bill.passes["sandboxclaim"] >= 2
    assert burst.bill.event_posts == 6
    assert requests(burst.bill) == sum(burst.bill.requests.values())

    show = Show(quiet=False)
    show.before_life()
    show.life(account.steps)
    show.before_launch(2)
    show.launch(launch)
    show.before_burst(3, 2)
    show.burst(burst)
    show.close(account)
    lines = capsys.readouterr().out.splitlines()
    assert 25 <= len(lines) <= 35
    assert max(map(len, lines)) <= 80
    assert "\033" not in "".join(lines)
    text = " ".join(" ".join(lines).split())
    assert f"{20.3 / (requests(burst.bill) / 2):.1f} x fewer requests" in text
    assert f"usable in {FLOORS:g} x the time" in text
    assert "usable after" in next(line for line in lines if "2 claims at once" in line)
    assert "claims are Ready" not in text
    assert burst.cold == 0
    warm = f"{burst.alone_s * 1000:.0f} ms" if burst.alone_s < 1 else f"{burst.alone_s:.1f} s"
    assert f", warm {warm}: a claim on a full pool is usable" in text
    assert lines[-2:] == ["  lean-sandbox local up -d", "  lean-sandbox demo --output json"]


def bill(**more: object) -> Bill:
    """Return the bill of an act that took a second and ten requests."""
    nothing: dict[str, int] = {}
    values = {"took_s": 1.0, "requests": {"get pods": 10}, "writes": 10, "reads": 0}
    values |= {"event_posts": 0, "conflicts": 0, "passes": nothing}
    return msgspec.convert({**values, "sent_bytes": 1, "received_bytes": 1, **more}, Bill)


def burst(cold: int) -> Burst:
    """Return the account of a claim, of which so many found the pool empty."""
    times = {"filled_s": 1.0, "usable_p50_s": 0.1, "usable_p99_s": 0.1, "lag_max_s": 0.0}
    return Burst(pool=1, claims=1, cold=cold, alone_s=0.05, refilled_s=1.0, bill=bill(), **times)


@pytest.mark.parametrize("cold", [0, 1])
def test_a_claim_that_found_the_pool_empty_is_not_called_warm(
    cold: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said of the burst, and the close compares a claim that was alone on a full pool."""
    show, account = (
        Show(quiet=False),
        Account([Step("", bill())], Launch(1, bill(), {}), burst(cold)),
    )
    assert account.burst is not None
    show.burst(account.burst)
    show.close(account)
    text = " ".join(capsys.readouterr().out.split())
    assert "1 claim at once" in text
    assert (f"{cold} found the pool empty" in text) is bool(cold)
    assert ("a warm claim" in text) is not bool(cold)
    assert "Cold 1.0 s, warm 50 ms" in text


def test_a_narrow_terminal_shows_whole_figures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A figure that is cut would be another one."""
    monkeypatch.setenv("COLUMNS", "40")
    show = Show(quiet=False)
    show.life([Step("create until Ready", bill())])
    show.burst(burst(0))
    told = " ".join(capsys.readouterr().out.split())
    assert "create until Ready 1.00 10 0 0" in told
    assert "requests, with Events and refill 10.00 20.3" in told


def test_the_figures_of_the_close_are_those_that_were_measured() -> None:
    """300 claims at once on a pool of 600, here and with the reference."""
    page = (ROOT / "docs" / "performance.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| 300 claims at once"))
    cells = [cell.strip() for cell in row.split("|")]
    multiples = [float(cells[at].split(", ")[1].split(" x")[0]) for at in (2, 5)]
    assert [round(one, 1) for one in multiples] == [FLOORS, REFERENCE_FLOORS]


@pytest.mark.parametrize("words", ["--pool=-3", "--pool=0", "--sandboxes=x", "--claims=-1"])
def test_a_bad_count_is_refused_at_once(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything starts, with the usage."""
    with pytest.raises(SystemExit) as caught:
        main(["demo", words])
    assert caught.value.code == EXIT_USAGE
    assert "is not a number from" in capsys.readouterr().err


def test_an_interrupted_demo_says_no_more() -> None:
    """Ctrl-C in the middle ends it with 130 and without a traceback."""
    # A shell starts what runs in its background so that Python would not hear SIGINT.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    run = "from lean_sandbox.cli import main; raise SystemExit(main(['demo']))"
    command = [sys.executable, "-c", f"{heard}; {run}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:  # noqa: S603
        assert process.stdout is not None
        while b"1. A Sandbox" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (EXIT_INTERRUPTED, b"")
