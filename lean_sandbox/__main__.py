"""What ``lean-sandbox`` and ``python -m lean_sandbox`` start."""

import sys

from lean_sandbox import signals


def main() -> int:
    """Run one command and return the exit code of the process."""
    try:
        signals.interrupt()
        from lean_sandbox import cli  # noqa: PLC0415 -- whoever interrupts it sees no traceback
    except KeyboardInterrupt:
        return 130
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
