"""The signals that end a command in good order."""

from __future__ import annotations

import signal


def ending() -> tuple[signal.Signals, ...]:
    """Return the signals that end a command: Ctrl-C, a request to end, a terminal that is closed.

    A hangup that is ignored, as by ``nohup``, stays ignored.
    """
    ends = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return tuple(one for one in ends if signal.getsignal(one) is not signal.SIG_IGN)


def interrupt() -> None:
    """Let all of them interrupt the program as Ctrl-C does, until a command hears them itself.

    A container's first process has no default actions: what it is told before would be lost.
    """
    for one in ending():
        if signal.getsignal(one) is signal.SIG_DFL:
            signal.signal(one, signal.default_int_handler)
