"""The files of ``examples/`` are what the pages show; ``tests/client`` applies them."""

from __future__ import annotations

import re

from tests.docs.pages import EXAMPLES, PAGES, ROOT, blocks, code, name


def test_what_a_page_shows_of_a_file_is_the_file() -> None:
    """A block whose first line names a file is that file, so that nobody has to cut it out."""
    shown = set()
    for page in PAGES:
        for block in blocks(page, "yaml"):
            first = re.match(r"# (\S+\.yaml)\n", block.text)
            if first is not None:
                assert block.text[first.end() :] == (ROOT / first[1]).read_text(), name(page)
                shown.add(ROOT / first[1])
    assert shown == set(EXAMPLES)


def test_every_example_is_in_the_list_of_them() -> None:
    """Whoever opens the folder finds what each file shows, and nothing that is not there."""
    listed = {one for one in code(ROOT / "examples/README.md") if one.endswith(".yaml")}
    assert listed - {"kubectl apply -f examples/NAME.yaml"} == {one.name for one in EXAMPLES}
