"""The published estimators give the figures that the published code gave."""

from __future__ import annotations

import numpy as np
import pytest
from rla_programs.answering.published_at_k import best_values, bootstrap_draws, published_majority_values


def test_one_right_of_32_at_the_first_place() -> None:
    assert best_values([True] + [False] * 31, [32]) == [0.62]


def test_best_at_n_lies_below_pass_at_n() -> None:
    """1 - (1 - c/32)^32 in expectation: 0.638, 0.873, 0.986 for 1, 2 and 4 right. Draws miss by 0.05 at most."""
    for count, expected in ((1, 0.638), (2, 0.873), (4, 0.986)):
        assert 1 - (1 - count / 32) ** 32 == pytest.approx(expected, abs=5e-4)
        assert best_values([True] * count + [False] * (32 - count), [32])[0] == pytest.approx(expected, abs=0.05)


def test_three_classes_of_eight() -> None:
    assert published_majority_values(list("AAABBBCC"), [True] * 3 + [False] * 5, [8]) == [0.403]


def test_a_large_class_against_a_smaller_one() -> None:
    assert published_majority_values(["7"] * 20 + ["8"] * 12, [True] * 20 + [False] * 12, [32]) == [0.927]


def test_no_answer_is_a_class_of_its_own() -> None:
    """Seven that say nothing outvote the one that is right nearly always."""
    assert published_majority_values([None] * 7 + ["A"], [False] * 7 + [True], [8])[0] < 0.05


def test_a_tie_goes_to_the_class_that_was_drawn_first() -> None:
    """Of two answers that differ, two draws of which both come: the first one wins."""
    draws = bootstrap_draws(2, 2)
    assert published_majority_values(["A", "B"], [True, False], [2]) == [float((draws[:, 0] == 0).mean())]


def test_the_draws_are_those_of_a_thousand_calls_of_choice() -> None:
    for n, k in ((32, 32), (5, 3)):
        legacy = np.random.RandomState(42)
        assert (bootstrap_draws(n, k) == [legacy.choice(n, size=k, replace=True) for _ in range(1000)]).all()


def test_the_random_numbers_of_the_process_stay_as_they_are() -> None:
    before = np.random.get_state()[1].tolist()  # type: ignore[index,union-attr]
    best_values([True, False, False], [3])
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index,union-attr]
