"""The maps from cases to tests tell the truth: complete, and every word of them is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import ROOT, TABLES, MarkerError, Row, Table, found_tests, read, render, updated

SANDBOXES = TABLES[0]
every_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.marker)


@every_table
def test_every_case_has_exactly_one_row_in_order(table: Table) -> None:
    """The numbers of the rows are those of the cases, none left out, none twice."""
    assert [row.number for row in read(table, table.path.read_text())] == list(table.cases)


@every_table
def test_every_row_states_a_law_and_its_proof(table: Table) -> None:
    """A law has words; a case without a test says why, in words as well."""
    for row in read(table, table.path.read_text()):
        assert len(row.law.split()) >= 4, row
        assert row.tests or len(row.open.split()) >= 3, row


@every_table
def test_the_table_lists_exactly_the_tests_that_carry_the_markers(table: Table) -> None:
    """No test is missing, none is made up; after a change run ``python -m tests.cases``."""
    text = table.path.read_text()
    rows = read(table, text)
    tests = found_tests(table)
    listed = {row.number: row.tests for row in rows if row.tests}
    assert listed == tests
    assert render(table, updated(rows, tests)) == text


def test_there_is_a_table_for_every_marker_of_cases(pytestconfig: pytest.Config) -> None:
    """A marker that pytest knows and no table reads would count and not be seen."""
    known = {line.partition("(")[0] for line in pytestconfig.getini("markers")}
    assert {name for name in known if name.endswith("case")} == {one.marker for one in TABLES}
    assert {one.path for one in TABLES} == set(ROOT.glob("*-cases.md"))


def test_the_markers_of_one_kind_do_not_count_for_another(tmp_path: Path) -> None:
    """Each table reads its own marker, whatever else stands above a test."""
    (tmp_path / "test_a.py").write_text(
        "@pytest.mark.case(1)\n@pytest.mark.claim_case(2)\ndef test_one(): ...\n"
    )
    by_marker = {table.marker: found_tests(table, tmp_path) for table in TABLES}
    assert by_marker == {
        "case": {1: ("test_a.py::test_one",)},
        "claim_case": {2: ("test_a.py::test_one",)},
        "pool_case": {},
        "template_case": {},
    }


def test_markers_are_found_above_tests_wherever_they_stand(tmp_path: Path) -> None:
    """Functions, coroutines, methods, folders; names that are no tests do not count."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "test_a.py").write_text(
        "@pytest.mark.case(1, 2)\ndef test_one(): ...\n"
        "@other\n@pytest.mark.case(2)\nasync def test_two(): ...\n"
        "class TestMany:\n    @pytest.mark.case(3)\n    def test_three(self): ...\n"
        "def test_without(): ...\n"
    )
    (tmp_path / "helpers.py").write_text("@pytest.mark.case(4)\ndef test_no(): ...\n")
    assert found_tests(SANDBOXES, tmp_path) == {
        1: ("deep/test_a.py::test_one",),
        2: ("deep/test_a.py::test_one", "deep/test_a.py::test_two"),
        3: ("deep/test_a.py::TestMany::test_three",),
    }


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.case(N)\ndef test_one(): ...\n",
        "@pytest.mark.case()\ndef test_one(): ...\n",
        "@pytest.mark.case(True)\ndef test_one(): ...\n",
        "@pytest.mark.case(153)\ndef test_one(): ...\n",
        "@pytest.mark.case(number=1)\ndef test_one(): ...\n",
        "@pytest.mark.case(1)\ndef helper(): ...\n",
        "pytestmark = pytest.mark.case(1)\n",
        "@pytest.mark.case(1)\nclass TestMany: ...\n",
    ],
)
def test_a_marker_that_the_map_could_not_show_is_an_error(source: str, tmp_path: Path) -> None:
    """Computed, unknown or misplaced markers are refused: they would count and not be seen."""
    (tmp_path / "test_a.py").write_text(source)
    with pytest.raises(MarkerError):
        found_tests(SANDBOXES, tmp_path)


def test_a_rewrite_fills_open_rows_and_keeps_what_was_said_by_hand() -> None:
    """New tests end ``open``, ``partly open`` stays, a case that lost its tests is open again."""
    rows = [
        Row(1, "law", (), "later"),
        Row(2, "law", ("a::b",), "the other half"),
        Row(3, "law", ("a::c",), ""),
        Row(4, "law", (), "comes with x"),
    ]
    new = updated(rows, {1: ("a::a",), 2: ("a::b", "a::z")})
    assert new == [
        Row(1, "law", ("a::a",), ""),
        Row(2, "law", ("a::b", "a::z"), "the other half"),
        Row(3, "law", (), "no test yet"),
        Row(4, "law", (), "comes with x"),
    ]
    assert read(SANDBOXES, render(SANDBOXES, new)) == new


def test_a_table_that_was_changed_into_something_else_is_refused() -> None:
    """A missing head, a broken row or a free text in place of a proof are errors, not skipped."""
    good = render(SANDBOXES, [Row(1, "some law", ("a::b",))])
    for bad in (
        good.replace("Law", "Rule"),
        good.replace("| 1 |", "| one |"),
        good.replace("`a::b`", "proved elsewhere"),
        good.replace("`a::b`", "open: x<br>`a::b`"),
    ):
        with pytest.raises(MarkerError):
            read(SANDBOXES, bad)
