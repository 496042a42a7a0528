"""The figures of docs/companions.md are those of replays, and say what the page says of them."""

from __future__ import annotations

import math

import pytest

from tests.bench.autosize_replay import Compared, compared, replay, steady
from tests.bench.companions_pictures import FOLDER, PAGE, pictures, table


@pytest.fixture(scope="module")
def loads() -> list[Compared]:
    """Give each load, replayed."""
    return compared()


def test_the_table_and_the_pictures_of_the_page_are_of_today(loads: list[Compared]) -> None:
    """`python -m tests.bench.companions_pictures` writes the pictures and prints the table."""
    page = PAGE.read_text(encoding="utf-8")
    assert table(loads) in page
    for file, picture in pictures(loads).items():
        assert (FOLDER / file).read_text(encoding="utf-8") == picture
        assert f"(img/{file})" in page


def test_a_tenth_of_the_cold_claims_of_a_fixed_pool_is_left(loads: list[Compared]) -> None:
    """Of one of the same mean size where the load changes; of one that is too small where not.

    A fixed pool that is large enough does as well there: chance cannot be foreseen.
    """
    even, bursts, day = loads
    assert bursts.sized.cold <= 0.1 * bursts.same.cold
    assert day.sized.cold <= 0.1 * day.same.cold
    assert even.sized.cold <= 0.1 * even.supplied.cold
    assert even.sized.cold <= 0.01 * even.sized.claims


def test_after_an_hour_a_steady_load_is_served_as_by_a_fixed_pool(loads: list[Compared]) -> None:
    """Of the mean size, rounded down: the size is found, and chance cannot be foreseen."""
    sized = loads[0].sized
    claims = steady()
    while_learning = replay([at_s for at_s in claims if at_s < 3600.0]).cold
    assert sized.cold - while_learning <= replay(claims, math.floor(sized.mean)).cold
