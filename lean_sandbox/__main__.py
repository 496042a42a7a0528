"""What ``lean-sandbox`` and ``python -m lean_sandbox`` start."""

import sys


def main() -> int:
    """Run one command and return the exit code of the process."""
    try:
        # Whoever interrupts it meanwhile sees no traceback.
        from lean_sandbox import signals  # noqa: PLC0415

        signals.interrupt()
        from lean_sandbox import cli  # noqa: PLC0415
    except KeyboardInterrupt:
        return 130
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
