"""``python -m lean_sandbox.bench`` is ``lean-sandbox bench``."""

from __future__ import annotations

import sys

from lean_sandbox.bench.command import main

sys.exit(main(sys.argv[1:]))
