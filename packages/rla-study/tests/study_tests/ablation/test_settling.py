"""Pairs of arms seed by seed, from hand-made outcomes of two seeds on two games with two episodes each."""

from collections.abc import Sequence
from dataclasses import replace

from rla_study.ablation.design import Arm, Design
from rla_study.ablation.outcomes import ArmOutcome, RunOutcome
from rla_study.ablation.settling import settling_tables

BOTH, ONE, NEITHER = [True, True], [True, False], [False, False]


def arm(name: str, *seeds: dict[str, list[bool]], hours: float = 0.0, first: int = 0) -> ArmOutcome:
    runs = tuple(
        RunOutcome(seed=first + number, evaluations={0: won, 2: won}, iterations=(), hours=hours)
        for number, won in enumerate(seeds)
    )
    return ArmOutcome(arm=Arm(name=name, title=name, changes={}), runs=runs)


BASE = arm("base", {"a": NEITHER, "b": NEITHER}, {"a": NEITHER, "b": NEITHER}, hours=1.0)
FULL = arm("full", {"a": BOTH, "b": BOTH}, {"a": BOTH, "b": ONE}, hours=2.0)


def design(*comparisons: tuple[str, str]) -> Design:
    arms = (BASE.arm, FULL.arm)
    return Design(
        shared={}, iterations=2, evaluate_every=2, seeds=(0, 1), baseline="base", arms=arms, comparisons=comparisons
    )


def line(arms: Sequence[ArmOutcome], *comparisons: tuple[str, str]) -> dict[str, str]:
    (table,) = settling_tables(arms, design(*comparisons))
    return dict(zip(table.columns, table.rows[0], strict=True))


def test_a_pair_is_compared_seed_by_seed() -> None:
    """Differences 1, 1 and 1, 1/2: of seeds 1 and 3/4. Each cell departs by 1/8: all mean squares are 1/16. The noise
    of the one rate that is not 0 or 1 is 1/4, of four cells 1/16. So evaluation explains all, and Var = (1/16) / 4.
    """
    found = line([BASE, FULL])
    assert (found["arm"], found["over"], found["seeds"], found["iteration"]) == ("full", "base", "2", "2")
    assert found["per seed"] == "+100.0 +75.0"
    assert found["difference"] == "+87.5 [-71.3, +246.3]"  # 12.706 / 8 = 1.588 on either side
    assert (found["apart"], found["a seed's deviation"], found["of that, evaluation"]) == ("no", "17.68", "17.68")
    # (4.303 + 1.061) 0.25 / sqrt(6) = 0.547 is below 0.875, (12.706 + 1.376) 0.125 = 1.76 is not: three
    assert (found["seeds to settle"], found["with 4 x the episodes"]) == ("3", "3")
    assert (found["hours a seed"], found["hours to settle"]) == ("3.00", "9.0")


def test_a_design_names_its_pairs() -> None:
    found = line([BASE, FULL], ("base", "full"))
    assert (found["arm"], found["difference"].split()[0]) == ("base", "-87.5")


def test_seeds_that_one_arm_lacks_are_left_out() -> None:
    later = replace(FULL, runs=(*FULL.runs, replace(FULL.runs[0], seed=7)))
    assert line([BASE, later])["seeds"] == "2"
    assert settling_tables([BASE, arm("full", {"a": BOTH, "b": BOTH})], design()) == []
    assert settling_tables([BASE, replace(arm("full", *2 * [{"a": BOTH, "b": BOTH}], first=5))], design()) == []


def test_a_game_that_one_run_lacks_is_left_out() -> None:
    """Game c was broken in one run of the baseline."""
    more = replace(FULL, runs=tuple(replace(r, evaluations={2: {**r.evaluations[2], "c": BOTH}}) for r in FULL.runs))
    assert line([BASE, more])["per seed"] == "+100.0 +75.0"


def test_every_held_out_split_has_a_table() -> None:
    def on_two(found: ArmOutcome) -> ArmOutcome:
        runs = tuple(replace(run, split="seen", further={"unseen": run.evaluations}) for run in found.runs)
        return replace(found, runs=runs)

    titles = [table.title for table in settling_tables([on_two(BASE), on_two(FULL)], design())]
    assert titles == ["Seed by seed, seen", "Seed by seed, unseen"]


def test_arms_that_do_not_differ_at_all_cannot_be_settled() -> None:
    found = line([BASE, replace(BASE, arm=FULL.arm)])
    assert (found["apart"], found["seeds to settle"], found["hours to settle"]) == ("no", "none", "-")
