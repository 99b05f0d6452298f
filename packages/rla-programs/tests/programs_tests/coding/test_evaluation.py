"""Best of n, UT accuracy and Detect against enumeration and hand-worked values."""

from __future__ import annotations

from itertools import combinations

import pytest
from rla_programs.coding.evaluation import agreeing, best_of, detecting, evaluate
from rla_programs.coding.rewards import Executions

from programs_tests.coding.test_rewards import HALF, table

LOST = Executions(given=table("10 00"), written=table("10 01"), parsed=[True, True])
WON = Executions(given=table("1 1"), written=table("10 10"), parsed=[True, False])


def test_best_of_n_is_the_mean_over_all_subsets_with_ties_shared() -> None:
    # Programs pass 3, 3, 2, 1 and 0 written tests; the last column did not parse and says nothing.
    executions = Executions(
        given=table("0 1 1 0 1"), written=table("1110 1110 1100 1000 0001"), parsed=table("1110")[0]
    )
    scores, right = [3, 3, 2, 1, 0], [0, 1, 1, 0, 1]
    for n in range(1, 6):
        values = []
        for subset in combinations(range(5), n):
            best = max(scores[j] for j in subset)
            tied = [right[j] for j in subset if scores[j] == best]
            values.append(sum(tied) / len(tied))
        assert best_of(executions, n) == pytest.approx(sum(values) / len(values))
    assert best_of(executions, 1) == pytest.approx(3 / 5)
    assert best_of(executions, 5) == 0.5


def test_a_test_agrees_if_the_reference_passes_it_or_else_all_right_programs() -> None:
    assert agreeing(HALF) == [True, True, True, False, False]
    asked = Executions(given=LOST.given, written=LOST.written, parsed=LOST.parsed, reference=[False, True])
    assert agreeing(asked) == [False, True]
    assert agreeing(LOST) == []


def test_a_test_detects_if_it_tells_all_right_from_all_wrong() -> None:
    assert detecting(HALF) == [False, True, False, False, False]
    assert detecting(LOST) == detecting(WON) == []


def test_metrics_carry_their_denominators() -> None:
    metrics = evaluate({"half": HALF, "lost": LOST, "won": WON}, k=[2, 4], n=[2])
    found = {name: (m.interval and round(m.interval.estimate, 6), m.tasks, m.trials) for name, m in metrics.items()}
    # pass@2 of half: 1 - C(2,2)/C(4,2) = 5/6. Best of 2 of half: scores 3 (4 with the wrong test 3), 3, 2, 3.
    assert found == {
        "pass@1": (0.5, 3, 8),  # (2 + 0 + 2) of 4 + 2 + 2
        "pass@2": (round((5 / 6 + 0 + 1) / 3, 6), 3, 3),
        "pass@4": (round(5 / 6 + 1 / 6, 6), 1, 1),  # 1 - C(2,4)/C(4,4) = 1
        "best_of_2": (round((best_of(HALF, 2) + 0 + 1) / 3, 6), 3, 3),
        "lead_of_2": (round((best_of(HALF, 2) - 0.5) / 3, 6), 3, 3),  # all or none right leaves nothing to choose
        "consensus_of_2": (0.5, 2, 2),  # half has four programs
        "consensus_lead_of_2": (0.0, 2, 2),
        "ut_accuracy": (round(4 / 7, 6), 2, 7),  # 3 of 5 and 1 of 2; nothing tells about lost
        "detect": (0.2, 1, 5),
    }


def test_best_of_two_by_hand() -> None:
    # HALF: programs pass 4, 3, 2 and 3 of the tests that parse; right are the first two. Of the 6 pairs
    # 01 -> 1, 02 -> 1, 03 -> 1, 12 -> 1, 13 -> tie 1/2, 23 -> 0.
    assert best_of(HALF, 2) == pytest.approx(4.5 / 6)


def test_intervals_count_tasks_and_not_programs() -> None:
    # pass@1 of half and won: rates 2/4 and 2/2, mean 4/6; u = (2 - 8/3)/6 and (2 - 4/3)/6, both 1/9 in size;
    # variance 2 * 2/81: worth (2/9) / (4/81) = 4.5 trials; (2/3 + z^2/9 -+ z sqrt((2/9)/4.5 + z^2/81)) / (1 + z^2/4.5).
    interval = evaluate({"half": HALF, "won": WON})["pass@1"].interval
    assert interval is not None
    assert (interval.estimate, interval.low, interval.high) == pytest.approx((2 / 3, 0.2609285, 0.9188961))
    assert evaluate({"lost": LOST})["detect"].interval is None


def test_the_lead_over_a_choice_at_random_counts_each_task_once() -> None:
    # Best of two of half is 3/4 and half of its programs are right: leads 1/4, 0 and 0, mean 1/12. Their squared
    # deviations are 1/36 + 2/144 = 1/24, so the standard error is sqrt(1/24 / 6) = 1/12 as well.
    lead = evaluate({"half": HALF, "lost": LOST, "won": WON}, n=[2])["lead_of_2"].interval
    assert lead is not None
    assert (lead.estimate, lead.low, lead.high) == pytest.approx((1 / 12, (1 - 1.959964) / 12, (1 + 1.959964) / 12))
    assert evaluate({"half": HALF}, n=[5])["lead_of_5"].interval is None
    one = evaluate({"half": HALF}, n=[2])["lead_of_2"].interval
    assert one is not None and (one.low, one.high) == (-1.0, 1.0)
    same = evaluate({"half": HALF, "also": HALF}, n=[2])["lead_of_2"].interval
    assert same is not None and (same.estimate, same.low, same.high) == (
        0.25,
        -1.0,
        1.0,
    )  # not a point
