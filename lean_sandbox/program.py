"""How this program was started, so that the commands it prints can be pasted as they are."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Final

NAME: Final = "lean-sandbox"


def called(*, elsewhere: bool = False) -> str:
    """Return what to type to start this program again: its name, its path, or ``python -m``.

    It has no path where the shell finds the name by itself. ``elsewhere`` is another terminal: it
    may be in another folder, and no virtual environment is active there.
    """
    places = os.get_exec_path()
    if elsewhere and sys.prefix != sys.base_prefix:
        places = [one for one in places if Path(one) != Path(sys.prefix, "bin")]
    path = Path(sys.argv[0])
    if path == Path(__file__).with_name("__main__.py"):
        return f"{_typed(sys.orig_argv[0], places, elsewhere=elsewhere)} -m {__package__}"
    if path.name != NAME:
        # Started by another program, such as a test.
        return NAME
    return _typed(sys.argv[0], places, elsewhere=elsewhere)


def _typed(word: str, places: list[str], *, elsewhere: bool) -> str:
    # Only who reads a message needs it: it imports what unpacks archives.
    import shutil  # noqa: PLC0415

    path = shutil.which(word) or word
    name = Path(word).name
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is not None and Path(found).absolute() == Path(path).absolute():
        return name
    return shlex.quote(str(Path(path).absolute()) if elsewhere else word)
