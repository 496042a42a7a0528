"""Regular expressions as Kubernetes has them: RE2, whose time is linear in the length of a text."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import re2

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
# What C++ says, and Go.
_GO: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
}


class PatternError(ValueError):
    """A text is no regular expression of RE2."""


@lru_cache(maxsize=512)
def compile_pattern(text: str) -> Any:
    """Return a compiled pattern, to be asked by `search`. Raises PatternError."""
    try:
        return re2.compile(text, _OPTIONS)
    except re2.error as error:
        said = error.args[0]
        said = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        what, _, where = said.partition(": ")
        raise PatternError(f"error parsing regexp: {_GO.get(what, what)}: `{where}`") from None
