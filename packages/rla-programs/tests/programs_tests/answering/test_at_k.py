"""avg@k, pass@k and maj@k against enumeration and hand-worked values."""

from __future__ import annotations

from itertools import combinations
from math import comb, sqrt
from statistics import mean

import numpy as np
import pytest
from rla_programs.answering.at_k import (
    Answered,
    clustered_mean,
    figures_at_k,
    majority_values,
    pass_at,
    sizes_up_to,
)

from rla.metrics.intervals import wilson


def random() -> np.random.Generator:
    return np.random.default_rng(0)


def vote(votes: list[str | None], right: list[bool]) -> float:
    """One vote, counted by hand: the mean result of the answers of each class that has the most votes."""
    counts = {name: votes.count(name) for name in votes if name is not None}
    winners = [name for name, count in counts.items() if count == max(counts.values())]
    own = [mean(ok for ok, each in zip(right, votes, strict=True) if each == name) for name in winners]
    return mean(own) if own else 0.0


def test_sizes_are_powers_of_two_and_n() -> None:
    assert [sizes_up_to(n) for n in (0, 1, 8, 12)] == [[], [1], [1, 2, 4, 8], [1, 2, 4, 8, 12]]


def test_pass_at_k_is_the_mean_over_all_subsets() -> None:
    right = [True, False, False, True, False]
    for k in range(1, 6):
        subsets = list(combinations(right, k))
        assert pass_at(right, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))
    with pytest.raises(ValueError, match="pass@3 of 2"):
        pass_at([True, False], 3)


def test_pass_at_k_keeps_its_digits_where_binomials_are_huge() -> None:
    """One of 5000 right: the chance that 2000 hold it is 2000/5000, though C(5000, 2000) has 1460 digits."""
    assert len(str(comb(5000, 2000))) > 1400
    assert pass_at([True] + [False] * 4999, 2000) == 0.4


def test_one_of_32_is_right_for_certain_among_all_32() -> None:
    assert pass_at([True] + [False] * 31, 32) == 1.0


def test_a_vote_of_all_is_won_by_the_largest_class() -> None:
    """Three A (right), two B: A wins."""
    assert majority_values(list("ABABA"), [True, False] * 2 + [True], [5], random()) == [1.0]


def test_ties_are_shared() -> None:
    """Two A (right), two B, one C: A wins half of the time."""
    assert majority_values(list("ABCAB"), [True, False, False, True, False], [5], random()) == [0.5]


def test_a_vote_of_one_is_the_mean_result() -> None:
    assert majority_values(["A", "B", None, "A"], [True, False, False, True], [1], random()) == [0.5]


def test_what_has_no_class_does_not_vote() -> None:
    """Three without an answer do not outvote two that agree; where nobody votes the vote is lost."""
    assert majority_values([None, "A", None, "A", None], [False, True] * 2 + [False], [5], random()) == [1.0]
    assert majority_values([None, None], [False, False], [1, 2], random()) == [0.0, 0.0]


def test_a_class_whose_answers_were_judged_differently_is_worth_their_mean() -> None:
    assert majority_values(list("AAAB"), [True, True, False, False], [4], random()) == [pytest.approx(2 / 3)]


def test_votes_of_some_are_the_mean_over_subsets() -> None:
    """1,000 subsets have a standard error of 0.016 at most; 0.05 is three of them."""
    votes: list[str | None] = [*"AAABBC", None]
    right = [name == "A" for name in votes]
    for k in (2, 3, 5):
        subsets = list(combinations(range(7), k))
        exact = mean(vote([votes[i] for i in each], [right[i] for i in each]) for each in subsets)
        assert majority_values(votes, right, [k], random()) == [pytest.approx(exact, abs=0.05)]


def test_a_vote_of_more_answers_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="maj@k of 2 answers"):
        majority_values(["A", "B"], [True, False], [3], random())


def test_sources_have_means_and_a_mean_of_their_own() -> None:
    """a: 1 and 1/2, b: 0. Over questions 1/2, over sources (3/4 + 0) / 2."""
    found = figures_at_k(
        {
            "q1": Answered(source="a", right=[True, True]),
            "q2": Answered(source="a", right=[True, False]),
            "q3": Answered(source="b", right=[False, False]),
        }
    )
    average = found["avg"]["2"]
    assert (average["estimate"], average["macro"], average["questions"]) == (0.5, 0.375, 3)
    assert {source: one["estimate"] for source, one in average["by_source"].items()} == {"a": 0.75, "b": 0.0}
    assert average["low"] < 0.5 < average["high"]
    assert found["pass"]["2"]["estimate"] == pytest.approx(2 / 3)
    assert found["pass"]["1"]["estimate"] == 0.5 and "maj" not in found


def test_rollouts_of_a_question_narrow_its_interval_only_as_far_as_questions_go() -> None:
    """One question won always, one never: the same interval with 2 answers as with 200."""

    def bounds(n: int) -> tuple[float, float]:
        questions = {"a": Answered(source="s", right=[True] * n), "b": Answered(source="s", right=[False] * n)}
        found = figures_at_k(questions)["avg"][str(n)]
        return found["low"], found["high"]

    assert bounds(2) == bounds(200) == pytest.approx((0.0546, 0.9454), abs=1e-4)


def test_a_question_with_too_few_answers_has_no_value_for_k() -> None:
    found = figures_at_k(
        {"a": Answered(source="s", right=[True] * 4), "b": Answered(source="s", right=[False] * 3)},
        estimator="unbiased",
    )
    assert [found["pass"][k]["questions"] for k in ("1", "2", "4")] == [2, 2, 1]


def test_the_same_questions_give_the_same_votes_in_any_order() -> None:
    one = Answered(source="s", right=[True, True, False, False], votes=list("AABC"))
    other = Answered(source="s", right=[False, True, False, False], votes=list("ABAC"))
    found = figures_at_k({"1": one, "2": other})
    assert found == figures_at_k({"2": other, "1": one}) and set(found["maj"]) == {"1", "2", "4"}


def test_the_published_estimators_have_their_own_names() -> None:
    right = [True] + [False] * 31
    found = figures_at_k({"q": Answered(source="s", right=right, votes=["7"] + ["8"] * 31)}, estimator="published")
    assert found["best"]["32"]["estimate"] == pytest.approx(0.62) and "pass" not in found
    assert found["avg"]["32"]["estimate"] == 1 / 32 and found["maj"]["32"]["estimate"] == 0.0


def test_nothing_was_answered() -> None:
    assert figures_at_k({}) == {"estimator": "unbiased", "n": 0, "avg": {}, "pass": {}}


def test_clustered_mean_counts_a_task_as_one_draw() -> None:
    # Sums 2, 0 and 1.5 of 2 values each: mean 3.5/6; u = (2 - 7/6)/6, (-7/6)/6, (1.5 - 7/6)/6 = 5/36, -7/36, 2/36;
    # variance 3/2 * 78/1296: worth (7/12 * 5/12) / variance = 70/26 independent trials, of which 7/12 succeed.
    interval = clustered_mean({"a": [True, True], "b": [False, False], "c": [1.0, 0.5], "none": []})
    assert interval is not None
    n, z2 = 70 / 26, 1.959964**2
    centre, scale = 3.5 / 6 + z2 / (2 * n), 1 + z2 / n
    half = sqrt(z2 * (35 / 144 / n + z2 / (4 * n * n)))
    expected = (3.5 / 6, (centre - half) / scale, (centre + half) / scale)
    assert (interval.estimate, interval.low, interval.high) == pytest.approx(expected, abs=1e-6)


def test_clustered_mean_of_tasks_that_do_not_differ_is_not_a_point() -> None:
    # Five tasks, all lost: Wilson's interval of 0 of 5, whatever the number of rollouts.
    assert clustered_mean({str(task): [False] * 8 for task in range(5)}) == wilson(0, 5)
    assert clustered_mean({"one": [True]}) == wilson(1, 1)
    assert clustered_mean({"none": []}) is None
    with pytest.raises(ValueError, match="between 0 and 1"):
        clustered_mean({"a": [2.0]})
