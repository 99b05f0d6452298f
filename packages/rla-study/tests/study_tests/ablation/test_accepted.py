"""Accepted tasks over iterations, and who wins them, from hand-made iterations."""

from dataclasses import replace

from rla_study.ablation.accepted import accepted_course, accepted_table, straight_line, won_course
from rla_study.ablation.curves import curve_panels
from rla_study.ablation.design import Arm
from rla_study.ablation.outcomes import ArmOutcome, RunOutcome

FIRST = (
    {"iteration": 1, "pending": 0, "accepted": 0},
    {
        "iteration": 2,
        "pending": 4,
        "accepted": 2,
        "accepted_harder": 2,
        "expert_success": 0.5,
        "root_expert_success": 1,
    },
    {
        "iteration": 3,
        "pending": 4,
        "accepted": 2,
        "accepted_easier": 2,
        "expert_success": 1.0,
        "root_expert_success": 1,
    },
    {
        "iteration": 4,
        "pending": 4,
        "accepted": 2,
        "accepted_harder": 2,
        "expert_success": 0.0,
        "root_expert_success": 1,
    },
)
SECOND = tuple({"iteration": number, "pending": 0, "accepted": 0} for number in (1, 2, 3, 4))
EVALUATIONS = {0: {"a": [False]}, 4: {"a": [True]}}
RUNS = tuple(
    RunOutcome(seed=seed, evaluations=EVALUATIONS, iterations=rows) for seed, rows in enumerate((FIRST, SECOND))
)
FULL = ArmOutcome(arm=Arm(name="full", title="full", changes={}), runs=RUNS)
STILL = replace(FULL, runs=(replace(RUNS[1]),))


def test_the_course_is_the_mean_of_seeds() -> None:
    assert accepted_course(FULL) == ([1, 2, 3, 4], [0.0, 1.0, 2.0, 3.0])
    assert accepted_course(FULL, 2) == ([1, 2], [0.0, 1.0])


def test_the_line_has_its_slope_and_how_well_it_fits() -> None:
    """0, 1, 2, 3 is a straight line. Of 0, 0, 3: slope 3/2, r2 = 3/4."""
    assert straight_line([1, 2, 3, 4], [0, 1, 2, 3]) == (1.0, 1.0)
    slope, fit = straight_line([1, 2, 3], [0, 0, 3])
    assert slope == 1.5 and fit is not None and abs(fit - 0.75) < 1e-12
    assert straight_line([1, 2], [2, 2]) == straight_line([1], [2]) == (None, None)


def test_every_accepted_task_counts_alike_for_the_player() -> None:
    """Two tasks each of one half, all and none: half of six."""
    (row,) = accepted_table([FULL, STILL]).rows  # an arm that changes no task has no line
    cells = dict(zip(accepted_table([FULL]).columns, row, strict=True))
    assert (cells["judged"], cells["accepted"], cells["harder"], cells["easier"]) == ("6.0", "3.0", "2.0", "1.0")
    assert cells["so far, by iteration"] == "1: 0.0, 2: 1.0, 3: 2.0, 4: 3.0"
    assert (cells["an iteration"], cells["r2 of a line"]) == ("1.00", "1.00")
    assert (cells["won by the player"], cells["of their parents"], cells["of their roots"]) == ("50.0%", "-", "100.0%")
    assert won_course(FULL) == ([2, 3, 4], [50.0, 100.0, 0.0])


def test_a_report_at_an_iteration_counts_up_to_it() -> None:
    (row,) = accepted_table([FULL], until=2).rows
    assert row[2:5] == ("2.0", "1.0", "1.0")


def test_curves_have_a_panel_of_each() -> None:
    titles = [panel.title for panel in curve_panels([FULL])]
    assert titles == ["success on held-out tasks", "accepted tasks so far", "accepted tasks that the player wins"]
