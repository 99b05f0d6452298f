"""Tables of the metrics that a design names, from hand-made outcomes of two arms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rla_study.ablation.curves import draw_curves, measured_mean
from rla_study.ablation.design import Arm
from rla_study.ablation.measures import MEASURE_COLUMNS, measure_table, measure_tables
from rla_study.ablation.outcomes import ArmOutcome, RunOutcome

WINS = {"a": [True]}


def metrics(value: float) -> dict[str, Any]:
    """Of an evaluation with eight answers to a question, as `rla evaluate` writes them."""
    at_k = {"n": 8, "avg": {"8": {"estimate": value}}, "pass": {"4": {"estimate": 2 * value}}}
    return {"at_k": at_k, "by_kind": {"aime": {"success": value}}}


def run(seed: int, *values: float, entropy: tuple[float, ...] = ()) -> RunOutcome:
    """avg@8 at iterations 0, 2, 4, and the entropy of iterations from 1 on."""
    return RunOutcome(
        seed=seed,
        evaluations={2 * number: WINS for number in range(len(values))},
        iterations=tuple({"iteration": 1 + number, "policy_entropy": one} for number, one in enumerate(entropy)),
        measured={2 * number: metrics(value) for number, value in enumerate(values)},
    )


def outcome(name: str, *runs: RunOutcome) -> ArmOutcome:
    return ArmOutcome(arm=Arm(name=name, title=name, changes={}), runs=runs)


TCR = outcome("tcr", run(0, 0.2, 0.4, 0.6), run(1, 0.2, 0.4, 0.8))
STITCHED = outcome("stitched", run(0, 0.1, 0.3, 0.5), run(1, 0.1, 0.5, 0.5))


def cells(measure: str, *arms: ArmOutcome, **options: Any) -> list[dict[str, str]]:
    table = measure_table(arms, measure, baseline="tcr", **options)
    return [dict(zip(MEASURE_COLUMNS, row, strict=True)) for row in table.rows]


def test_an_arm_has_its_mean_over_seeds_and_the_interval() -> None:
    """Seeds 0.6 and 0.8: standard error 0.1, t of one degree of freedom 12.706."""
    [line] = cells("avg@8", TCR)
    assert (line["warm start"], line["iteration"], line["value"], line["per seed"]) == ("0.2", "4", "0.7", "0.6 0.8")
    assert line["95% interval"] == "[-0.5706, 1.971]"
    assert line["over the baseline"] == line["over the baseline's"] == "-"


def test_arms_are_compared_after_the_start_and_after_the_loop() -> None:
    _, line = cells("avg@8", TCR, STITCHED)
    assert line["over the baseline's"] == "-0.1 [-0.1, -0.1]"
    assert line["over the baseline"] == "-0.2 [-1.471, +1.071]"


def test_an_arm_may_be_compared_with_another_than_the_baseline() -> None:
    real = outcome("real", run(0, 0.5, 0.6, 0.7), run(1, 0.5, 0.6, 0.7))
    stitched = replace(STITCHED, arm=replace(STITCHED.arm, against="real"))
    *_, line = cells("avg@8", TCR, real, stitched)
    assert line["over the baseline's"] == "-0.4 [-0.4, -0.4] over real"
    assert line["over the baseline"] == "-0.2 [-0.2, -0.2] over real"
    assert cells("avg@8", TCR, stitched)[-1]["over the baseline"] == "-"  # `real` was not run


def test_seeds_with_starts_of_their_own_are_paired() -> None:
    """0.5 - 0.6 and 0.7 - 0.8 are alike. Unpaired each side has standard error 0.1, and Welch's two degrees 4.303."""
    near = outcome("near", run(0, 0.1, 0.3, 0.5), run(1, 0.1, 0.5, 0.7))
    arms = [replace(one, own_starts=True) for one in (TCR, near)]
    assert cells("avg@8", *arms)[1]["over the baseline"] == "-0.1 [-0.1, -0.1]"
    apart = replace(arms[1], runs=(replace(arms[1].runs[0], seed=7), arms[1].runs[1]))
    assert cells("avg@8", arms[0], apart)[1]["over the baseline"] == "-0.1 [-0.7085, +0.5085]"
    assert cells("avg@8", TCR, near)[1]["over the baseline"] == "-0.1 [-0.7085, +0.5085]"


def test_all_arms_can_be_read_at_the_mean_of_some_iterations() -> None:
    lines = cells("avg@8", TCR, STITCHED, at=[4, 2])
    assert [(line["iteration"], line["per seed"]) for line in lines] == [("2 4", "0.5 0.6"), ("2 4", "0.4 0.5")]
    assert cells("avg@8", TCR, outcome("short", run(0, 0.1, 0.2)), at=[4])[1:] == []


def test_what_only_iterations_have_is_the_mean_of_the_last_of_them() -> None:
    """At 4 the iterations 2, 3, 4 count; the fifth is not played by then."""
    found = outcome("tcr", run(0, 0.2, 0.4, 0.6, entropy=(9.0, 1.0, 2.0, 3.0, 50.0)))
    [line] = cells("policy_entropy", found)
    assert (line["value"], line["warm start"], line["95% interval"]) == ("2", "-", "-")
    assert measured_mean(found, "policy_entropy") == ([1, 2, 3, 4, 5], [9.0, 1.0, 2.0, 3.0, 50.0])
    steps, values = measured_mean(TCR, "avg@8")
    assert steps == [0, 2, 4] and values == pytest.approx([0.2, 0.4, 0.7])


@pytest.mark.parametrize("measure", ["avg@16", "by_kind"])
def test_a_metric_that_no_arm_has_is_said_to_be_missing(measure: str) -> None:
    [table] = measure_tables([TCR], [measure], baseline="tcr")
    assert table.rows[0][MEASURE_COLUMNS.index("value")] == "-"
    assert table.note == "no evaluation and no iteration of any arm has this metric"


def test_figures_of_fewer_answers_are_measures_too() -> None:
    assert cells("pass@4", TCR)[0]["per seed"] == "1.2 1.6"


def test_a_nested_metric_is_named_with_dots() -> None:
    assert cells("by_kind.aime.success", TCR)[0]["per seed"] == "0.6 0.8"


def test_an_arm_of_which_a_seed_lacks_the_metric_has_no_value() -> None:
    partly = outcome("partly", run(0, 0.2, 0.4), RunOutcome(seed=1, evaluations={0: WINS, 2: WINS}, iterations=()))
    assert cells("avg@8", partly)[0]["value"] == "-"


def test_curves_have_a_panel_for_each_measure(tmp_path: Path) -> None:
    tcr = outcome("tcr", run(0, 0.2, 0.4, entropy=(1.0, 0.5)))
    draw_curves([tcr], tmp_path / "few.svg")
    draw_curves([tcr], tmp_path / "more.svg", measures=["avg@8", "policy_entropy", "no such metric"])
    few, more = ((tmp_path / name).read_text().count('id="axes_') for name in ("few.svg", "more.svg"))
    assert more == few + 2
