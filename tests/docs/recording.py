"""Records what the README lets one do, as a picture that plays: `.ci/tasks recording`.

The commands are run, and each line is shown when it came; waits are cut to a second, which the
picture says. They need kubectl and, in KUBECONFIG, a cluster with nodes that run containers, where
the controller is installed and the default namespace is empty.
`python -m tests.docs.recording FILE COMMAND...` records other commands.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PICTURE: Final = ROOT / "docs" / "img" / "recording.svg"
COMMANDS: Final = (
    "lean-sandbox demo",
    "kubectl get nodes",
    "kubectl apply -f examples/pool.yaml",
    "kubectl wait sandboxwarmpool/python --for=jsonpath='{.status.readyReplicas}'=5",
    "kubectl apply -f examples/claim.yaml",
    "kubectl wait --for=condition=Ready sandboxclaim/mine",
    "name=$(kubectl get sandboxclaim mine -o jsonpath='{.status.sandbox.name}')",
    "kubectl exec $name -- python -c 'import platform; print(platform.node(), 6 * 7)'",
    "kubectl get sandboxclaims -o wide",
    "kubectl get sandboxwarmpools",
)
COLUMNS: Final = 88
ROWS: Final = 26
# What a wait is cut to, how fast is typed, and how long the end stays; seconds.
LONGEST_WAIT_S: Final = 1.0
KEY_S: Final = 0.03
END_S: Final = 6.0
# Of a character and a line, in pixels.
_WIDTH: Final = 7.3
_HEIGHT: Final = 16
_MARGIN: Final = 14
_NOTE: Final = "waits are cut to a second"
_MARK: Final = "recording-time"


class Shown(NamedTuple):
    """A line, and when it appears; ``is_typed`` if it is a command."""

    at_s: float
    text: str
    is_typed: bool = False


def recorded(commands: Sequence[str], folder: Path) -> list[tuple[float, str]]:
    """Run commands in one shell, as somebody types them; return when each line came.

    The line of a command comes before those that it prints.
    """
    script = "\n".join(f"echo; echo {_MARK}{number}\n{one}" for number, one in enumerate(commands))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": str(COLUMNS),
        "PYTHONUNBUFFERED": "1",
        "XDG_STATE_HOME": str(folder / "state"),
    }
    (folder / "examples").symlink_to(ROOT / "examples")
    with subprocess.Popen(  # noqa: S603 - commands of this module or of who calls it
        ["bash", "-euo", "pipefail", "-c", script],  # noqa: S607
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        found = [
            (time.monotonic(), line.rstrip("\n").replace(str(folder), "~"))
            for line in process.stdout
        ]
    assert process.returncode == 0, "\n".join(line for _, line in found)
    return found


def timed(lines: Iterable[tuple[float, str]], commands: Sequence[str]) -> list[Shown]:
    """Return the lines as they are shown: commands typed, waits cut, long lines folded."""
    shown: list[Shown] = []
    now_s = 0.0
    before: float | None = None
    for came, line in lines:
        if before is not None:
            now_s += min(came - before, LONGEST_WAIT_S)
        before = came
        if line.startswith(_MARK):
            command = commands[int(line.removeprefix(_MARK))]
            now_s += 0.6 + KEY_S * len(command)
            shown += (Shown(now_s, part, is_typed=True) for part in _folded(f"$ {command}"))
        else:
            shown += (Shown(now_s, part) for part in _folded(line))
    return shown[1:]


def _folded(line: str) -> list[str]:
    count = max(1, math.ceil(len(line) / COLUMNS))
    return [line[COLUMNS * at : COLUMNS * (at + 1)] for at in range(count)]


def as_svg(shown: Sequence[Shown]) -> str:
    """Return a picture that plays again and again, for light and for dark pages."""
    whole_s = shown[-1].at_s + END_S
    width = round(COLUMNS * _WIDTH) + 2 * _MARGIN
    shown_height = ROWS * _HEIGHT
    height = shown_height + 2 * _MARGIN
    times = ["0"]
    moves = ["0 0"]
    texts = []
    for number, one in enumerate(shown):
        kind = ' class="typed"' if one.is_typed else ""
        begin = f"play.begin+{one.at_s:.2f}s"
        appears = f'<set attributeName="opacity" to="1" begin="{begin}" end="play.end"/>'
        y = _MARGIN + _HEIGHT * (number + 1) - 4
        if one.text.strip():
            texts.append(
                f'<text x="{_MARGIN}" y="{y}" opacity="0"{kind}>{escape(one.text)}{appears}</text>'
            )
        if number >= ROWS:
            times.append(f"{one.at_s / whole_s:.4f}")
            moves.append(f"0 {-_HEIGHT * (number + 1 - ROWS)}")
    scroll = (
        '<animateTransform id="play" attributeName="transform" type="translate"'
        f' calcMode="discrete" begin="0s;play.end" dur="{whole_s:.2f}s"'
        f' keyTimes="{";".join(times)}"'
        f' values="{";".join(moves)}"/>'
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>lean-sandbox demo, then a claim on a real node and a command in its container</title>
<desc>{_NOTE}</desc>
<style>
rect {{ fill: #f6f8fa; stroke: #d1d9e0 }}
text {{ fill: #1f2328; font: 12px ui-monospace, Menlo, Consolas, monospace; white-space: pre }}
.typed {{ fill: #0550ae; font-weight: bold }}
.note {{ fill: #59636e; font-size: 10px; text-anchor: end }}
@media (prefers-color-scheme: dark) {{
  rect {{ fill: #0d1117; stroke: #3d444d }}
  text {{ fill: #f0f6fc }}
  .typed {{ fill: #79c0ff }}
  .note {{ fill: #9198a1 }}
}}
</style>
<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>
<svg y="{_MARGIN}" height="{shown_height}" viewBox="0 {_MARGIN} {width} {shown_height}">
<g>{scroll}
{chr(10).join(texts)}
</g></svg>
<text class="note" x="{width - _MARGIN}" y="{height - 5}">{_NOTE}</text>
</svg>
"""


def main() -> None:
    """Record the commands of the README, or those of the command line."""
    to = Path(sys.argv[1]) if sys.argv[1:] else PICTURE
    commands: Sequence[str] = sys.argv[2:] or COMMANDS
    with TemporaryDirectory() as name:
        lines = recorded(commands, Path(name))
    to.write_text(as_svg(timed(lines, commands)), encoding="utf-8")


if __name__ == "__main__":
    main()
