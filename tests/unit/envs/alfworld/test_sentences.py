"""Instructions read as ALFWorld's, and hints say what they are asked to say."""

import json
import os
from pathlib import Path

import pytest

from rla.envs.alfworld.game import Game
from rla.envs.alfworld.goals import Goal, Hint, TaskKind

DATA = Path(os.environ.get("ALFWORLD_DATA", "~/.cache/alfworld")).expanduser() / "json_2.1.1" / "train"


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        (TaskKind.PLACE, "put a mug in desk.", "put some mug on desk."),
        (TaskKind.CLEAN, "put a clean mug in desk.", "clean some mug and put it in desk."),
        (TaskKind.HEAT, "put a hot mug in desk.", "heat some mug and put it in desk."),
        (TaskKind.COOL, "put a cool mug in desk.", "cool some mug and put it in desk."),
        (TaskKind.TWO, "put two mug in desk.", "find two mug and put them in desk."),
        (TaskKind.LOOK, "look at mug under the desk.", "examine the mug with the desk."),
    ],
)
def test_two_wordings_per_kind(kind: TaskKind, first: str, second: str) -> None:
    goal = Goal(kind, "Mug", "Desk")
    assert [goal.sentence(0), goal.sentence(1)] == [first, second]
    assert [goal.variant_of(first), goal.variant_of(second)] == [0, 1]


@pytest.mark.parametrize("kind", TaskKind)
@pytest.mark.parametrize("hint", Hint)
def test_a_hint_is_found_again_in_the_instruction(kind: TaskKind, hint: Hint) -> None:
    goal = Goal(kind, "CellPhone", "SideTable")
    text = f"{goal.sentence(1)} {goal.hint_text(hint, places=['bed 1'])}".strip()
    assert Hint.of(text) is hint
    assert ("bed 1" in text) == ("where" in hint.parts)
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789 ,.")


def test_both_places_of_a_pair_are_told() -> None:
    goal = Goal(TaskKind.TWO, "Mug", "Desk")
    text = goal.hint_text(Hint.WHERE, places=["shelf 2", "bed 1"])
    assert text == "you can find a mug in shelf 2 and a mug in bed 1."


@pytest.mark.skipif(not DATA.is_dir(), reason="needs the ALFWorld games (ALFWORLD_DATA)")
def test_real_games_are_worded_so() -> None:
    paths = sorted(DATA.glob("*/*/game.tw-pddl"))[::12]
    assert len(paths) > 200
    for path in paths:
        game, told = Game.load(path), json.loads((path.parent / "traj_data.json").read_text())
        goal = game.problem.goal
        assert game.sentence == goal.sentence(goal.variant_of(game.sentence))
        assert goal.kind.value == told["task_type"]
        assert goal.object_type == told["pddl_params"]["object_target"]
