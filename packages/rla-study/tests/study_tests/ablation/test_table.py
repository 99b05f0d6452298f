"""The table of an ablation from hand-made outcomes of two arms on two games."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rla_study.ablation.curves import MOST_BESIDE, curve_panels, draw_curves, drawn_figure, series
from rla_study.ablation.design import Arm
from rla_study.ablation.outcomes import ArmOutcome, RunOutcome
from rla_study.ablation.table import COLUMNS, ablation_tables, arms_table

LOST, WON = {"a": [False], "b": [False]}, {"a": [True], "b": [True]}
METRICS = (
    {"iteration": 1, "mu": 1.0, "accepted": 2},
    {"iteration": 2, "mu": 1.2, "accepted": 1, "rm_process_accuracy": 0.6},
)
POOR = RunOutcome(seed=0, evaluations={0: LOST, 2: LOST}, iterations=())
GOOD = RunOutcome(seed=0, evaluations={0: LOST, 2: WON, 4: WON}, iterations=METRICS)
BASE = ArmOutcome(arm=Arm(name="outcome", title="outcome only", changes={}), runs=(POOR,))
FULL = ArmOutcome(arm=Arm(name="full", title="the full loop", changes={}), runs=(GOOD, replace(GOOD, seed=1)))


def cells(found: ArmOutcome) -> dict[str, str]:
    made = arms_table([BASE, found], baseline="outcome")
    return dict(zip(made.columns, made.rows[-1], strict=True))


def lines_of(arms: Sequence[ArmOutcome], at: Sequence[int] = ()) -> list[dict[str, str]]:
    made = arms_table(arms, baseline="outcome", at=at)
    return [dict(zip(made.columns, row, strict=True)) for row in made.rows]


def test_an_arm_is_read_where_all_its_seeds_were_evaluated() -> None:
    ahead = replace(FULL, runs=(GOOD, replace(POOR, seed=1)))
    assert ahead.shared_points == [0, 2]
    assert cells(ahead)["per seed"] == "100.0 0.0"
    assert FULL.shared_points == [0, 2, 4]


def test_gain_baseline_and_diagnostics() -> None:
    short = replace(FULL, runs=tuple(replace(run, evaluations={0: LOST, 2: WON}) for run in FULL.runs))
    line = cells(short)
    assert line["success"] == "100.0%" and line["warm start"] == "0.0%"
    assert line["gain"] == line["over the baseline"] == "+100.0 [+100.0, +100.0]"
    assert (line["mu"], line["process accuracy"], line["accepted tasks"]) == ("1.10", "60.0%", "3.0")
    assert "outcome accuracy" not in line  # nothing was measured of it


def test_columns_of_the_judge_and_of_changed_tasks_are_left_out_where_there_are_none() -> None:
    """As of a tool without a judge: its iterations have the keys, null or 0."""
    bare = {"iteration": 2, "mu": None, "rm_process_accuracy": None, "accepted": 0, "rejected": 0, "pending": 0}
    alone = replace(FULL, runs=(replace(GOOD, iterations=(bare,)),))
    assert arms_table([alone], baseline="outcome").columns == COLUMNS[: COLUMNS.index("mu")]
    tried = replace(FULL, runs=(replace(GOOD, iterations=({**bare, "pending": 3},)),))
    made = arms_table([alone, tried], baseline="outcome")
    assert made.columns[-1] == "accepted tasks" and [row[-1] for row in made.rows] == ["-", "0.0"]
    assert "mu and acc" not in made.note and "game" not in made.note


def test_an_arm_that_is_ahead_of_the_baseline_is_not_compared_with_it() -> None:
    assert cells(FULL)["over the baseline"] == "-"


def test_without_an_evaluation_of_the_start_there_is_no_gain() -> None:
    line = cells(replace(FULL, runs=(replace(GOOD, evaluations={2: WON, 4: WON}),)))
    assert (line["warm start"], line["gain"], line["success"]) == ("-", "-", "100.0%")


def test_all_arms_can_be_read_at_one_iteration() -> None:
    lines = lines_of([BASE, FULL], at=[2])
    assert [line["iteration"] for line in lines] == ["2", "2"]
    assert lines[1]["over the baseline"] == "+100.0 [+100.0, +100.0]"
    assert [row[0] for row in arms_table([BASE, FULL], baseline="outcome", at=[4]).rows] == ["the full loop"]


def test_the_mean_of_several_iterations_can_be_read() -> None:
    half = replace(GOOD, seed=1, evaluations={0: LOST, 2: LOST, 4: {"a": [True], "b": [False]}})
    arms = [
        replace(BASE, runs=(replace(POOR, evaluations={0: LOST, 2: LOST, 4: WON}),)),
        replace(FULL, runs=(GOOD, half)),
    ]
    lines = lines_of(arms, at=[4, 2])
    assert [line["iteration"] for line in lines] == ["2 4", "2 4"]
    # 1 and 1 of two games, of the second seed 0 and 1/2: 1 and 1/4, in the mean 5/8; the baseline 0 and 1
    assert (lines[1]["per seed"], lines[1]["success"]) == ("100.0 25.0", "62.5%")
    assert lines[1]["over the baseline"].startswith("+12.5 [")
    assert [row[0] for row in arms_table([BASE, FULL], baseline="outcome", at=[2, 4]).rows] == ["the full loop"]


def test_a_game_that_the_environment_broke_in_one_seed_is_left_out_of_the_comparison() -> None:
    """Game b was broken in every episode of the second seed: what is left is game a, won by both seeds."""
    broken = replace(GOOD, seed=1, evaluations={0: LOST, 2: {"a": [True]}})
    line = cells(replace(FULL, runs=(replace(GOOD, evaluations={0: LOST, 2: {"a": [True], "b": [False]}}), broken)))
    assert (line["success"], line["per seed"]) == ("100.0%", "100.0 100.0")
    assert line["gain"] == line["over the baseline"] == "+100.0 [+100.0, +100.0]"


def test_every_held_out_split_has_a_table() -> None:
    """On the main split the arm wins all, on the further one half of the games, and the baseline none."""
    half = {0: LOST, 2: {"a": [True], "b": [False]}}
    arms = [
        replace(BASE, runs=(replace(POOR, split="seen", further={"unseen": {0: LOST, 2: LOST}}),)),
        replace(FULL, runs=(replace(GOOD, evaluations={0: LOST, 2: WON}, split="seen", further={"unseen": half}),)),
    ]
    main, unseen = ablation_tables(arms, baseline="outcome")
    assert (main.title, unseen.title) == ("Ablation, seen", "Ablation, unseen")
    line = dict(zip(unseen.columns, unseen.rows[1], strict=True))
    assert (line["success"], main.rows[1][COLUMNS.index("success")]) == ("50.0%", "100.0%")
    assert line["gain"].startswith("+50.0 [") and line["over the baseline"] == line["gain"]
    assert "mu" not in line  # the reward model is measured on what was played to train
    assert [table.title for table in ablation_tables([BASE, FULL], baseline="outcome")] == ["Ablation"]


def test_a_seed_that_a_further_split_has_not_measured_yet_is_left_out_there() -> None:
    """Of two seeds the second stopped between the splits: the further one has the first alone, and is read at 2."""
    whole = replace(GOOD, evaluations={0: LOST, 2: WON}, split="seen", further={"unseen": {0: LOST, 2: WON}})
    begun = replace(whole, seed=1, further={"unseen": {0: LOST}})
    main, unseen = ablation_tables([replace(FULL, runs=(whole, begun))], baseline="outcome")
    shown = [dict(zip(table.columns, table.rows[0], strict=True)) for table in (main, unseen)]
    assert [(row["seeds"], row["iteration"], row["success"]) for row in shown] == [
        ("2", "2", "100.0%"),
        ("1", "2", "100.0%"),
    ]


def test_curves_are_drawn_of_what_there_is(tmp_path: Path) -> None:
    assert series(FULL, "mu") == ([1, 2], [100.0, 120.0])
    further = replace(FULL, runs=(replace(GOOD, further={"unseen": {2: LOST}}),))
    draw_curves([BASE, further], tmp_path / "curves.svg")
    assert "the full loop" in (tmp_path / "curves.svg").read_text() or (tmp_path / "curves.svg").stat().st_size > 5_000


def test_panels_without_data_are_left_out_and_the_others_are_wrapped_into_rows(tmp_path: Path) -> None:
    """GOOD has one iteration with a process accuracy and none with an outcome accuracy or success."""
    assert [panel.title for panel in curve_panels([BASE, FULL])] == [
        "success on held-out tasks",
        "judge: process accuracy",
        "accepted tasks so far",
    ]
    splits = {name: {2: LOST} for name in "abcdefgh"}
    shown = curve_panels([replace(FULL, runs=(replace(GOOD, further=splits),))], measures=["tool_calls"])
    assert len(shown) == 11  # the measure has no data
    figure = drawn_figure([FULL], shown)
    rows, columns = 3, 4
    assert columns <= MOST_BESIDE and len(figure.axes) == rows * columns
    assert [axes.axison for axes in figure.axes] == [True] * 11 + [False]
    assert figure.get_size_inches()[0] < 20
    draw_curves([replace(FULL, runs=())], tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()


def test_seeds_with_starts_of_their_own_are_compared_one_by_one() -> None:
    """Seed 0 goes from 0 to 1/2, seed 1 from 1/2 to 1, each in every game: each gains 50 points."""
    even = {"a": [True, False], "b": [True, False]}
    runs = (
        RunOutcome(seed=0, evaluations={0: LOST, 2: even}, iterations=()),
        RunOutcome(seed=1, evaluations={0: even, 2: WON}, iterations=()),
    )
    paired = replace(FULL, runs=runs, own_starts=True)
    assert cells(paired)["gain"] == "+50.0 [+50.0, +50.0]"
    assert cells(replace(paired, own_starts=False))["gain"] != "+50.0 [+50.0, +50.0]"
    behind = replace(
        BASE, runs=tuple(replace(run, evaluations={2: run.evaluations[0]}) for run in runs), own_starts=True
    )
    line = lines_of([behind, paired])[-1]
    assert line["over the baseline"] == "+50.0 [+50.0, +50.0]"
