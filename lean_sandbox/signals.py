"""The signals that end a command in good order."""

from __future__ import annotations

import signal


def ending() -> tuple[signal.Signals, ...]:
    """Return the signals that end a command: Ctrl-C, a request to end, a terminal that is closed.

    A hangup that is ignored, as by ``nohup``, stays ignored.
    """
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return tuple(one for one in ends if signal.getsignal(one) is not signal.SIG_IGN)
