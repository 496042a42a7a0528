"""``python -m lean_sandbox`` is ``lean-sandbox``."""

import sys

from lean_sandbox.cli import main

sys.exit(main())
