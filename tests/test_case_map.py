"""Each numbered case has a test, and each marker names a case."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import LAWS, MarkerError, found_tests, laws, table


@pytest.mark.parametrize("marker", LAWS)
def test_every_case_has_a_law_in_words_and_a_test(marker: str) -> None:
    """A case that loses its last test is named here."""
    assert [number for number, law in LAWS[marker].items() if len(law.split()) < 4] == []
    assert sorted(set(LAWS[marker]) - set(found_tests(marker))) == []


def test_there_are_laws_for_every_marker_of_cases(pytestconfig: pytest.Config) -> None:
    """A marker that pytest knows and that has no laws would count and not be seen."""
    known = {line.partition("(")[0] for line in pytestconfig.getini("markers")}
    assert {name for name in known if name.endswith("case")} == set(LAWS)


def test_a_case_that_is_left_out_or_stands_twice_is_an_error() -> None:
    """The numbers of a kind are 1, 2, 3..."""
    head = "## Sandbox (`case`)\n\n1. One.\n"
    assert laws(f"{head}2. Two.\n") == {"case": {1: "One.", 2: "Two."}}
    for line in ("3. Three.", "1. One."):
        with pytest.raises(ValueError, match="case 2 is expected"):
            laws(f"{head}{line}\n")


def test_a_case_is_printed_with_its_tests() -> None:
    """Its law first, then one test a line."""
    law, *tests = table("case", 1).splitlines()
    assert law == f"case 1: {LAWS['case'][1]}"
    assert [test.strip() for test in tests] == list(found_tests("case")[1])


def test_the_markers_of_one_kind_do_not_count_for_another(tmp_path: Path) -> None:
    """Each kind has its own marker, whatever else stands above a test."""
    (tmp_path / "test_a.py").write_text(
        "@pytest.mark.case(1)\n@pytest.mark.claim_case(2)\ndef test_one(): ...\n"
    )
    assert {marker: found_tests(marker, tmp_path) for marker in LAWS} == {
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
    assert found_tests("case", tmp_path) == {
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
def test_a_marker_that_names_no_case_of_a_test_is_an_error(source: str, tmp_path: Path) -> None:
    """Computed, unknown or misplaced markers are refused: they would count and not be seen."""
    (tmp_path / "test_a.py").write_text(source)
    with pytest.raises(MarkerError):
        found_tests("case", tmp_path)
