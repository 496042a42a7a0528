"""The exit codes of the program."""

from __future__ import annotations

from typing import Final

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
# As the reference has it, what cannot work is a failure, and what cannot be understood is not.
EXIT_CONFIG: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
