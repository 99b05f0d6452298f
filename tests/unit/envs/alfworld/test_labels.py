"""What helped and what did not, in the kitchen of `scenes`: the task is to put a mug in the sidetable."""

from random import Random

from rla.envs.alfworld.engine import FastGame
from rla.envs.alfworld.solver import (
    AGAIN,
    LIKELY,
    PROGRESS,
    REFUSED,
    UNLIKELY,
    USELESS,
    WAYS,
    Search,
    contrast,
    label_steps,
    to_compare,
)
from rla.envs.protocols import Labelled

from . import scenes

GAME = scenes.game()
TABLES = FastGame(GAME)


def marks(*actions: str) -> list[tuple[int, str]]:
    return [(steps[0].score, steps[0].reason) for steps in label_steps(TABLES, actions)]


def test_the_way_to_the_goal_helps_step_by_step() -> None:
    assert marks(
        "go to countertop 1", "take mug 2 from countertop 1", "go to sidetable 1", "put mug 2 in/on sidetable 1"
    ) == [(1, PROGRESS["go"]), (1, PROGRESS["take"]), (1, PROGRESS["go"]), (1, PROGRESS["put"])]


def test_the_wrong_thing_does_not_help_nor_does_a_command_that_does_not_exist() -> None:
    assert marks("go to countertop 1", "take knife 1 from countertop 1", "fly") == [
        (1, PROGRESS["go"]),
        (-1, USELESS),
        (-1, REFUSED),
    ]


def test_a_look_into_a_new_place_helps_once_and_only_while_the_object_is_unseen() -> None:
    assert marks("go to fridge 1", "go to microwave 1", "go to fridge 1") == [(1, LIKELY), (1, LIKELY), (-1, AGAIN)]
    assert marks("go to countertop 1", "go to fridge 1")[1] == (-1, AGAIN)


def test_a_look_into_a_new_place_helps_where_the_object_is_half_as_often_as_in_the_likeliest_place_left() -> None:
    # a mug is in 27% of the fridges, 25% of the sidetables, 24% of the countertops, 15% of the microwaves, 3% of the
    # cabinets
    assert marks("go to cabinet 2", "open cabinet 2") == [(-1, UNLIKELY), (-1, UNLIKELY)]
    assert marks("go to fridge 1", "open fridge 1") == [(1, LIKELY), (1, LIKELY)]


def test_an_unlikely_place_becomes_likely_when_the_better_ones_have_been_visited() -> None:
    search = Search(GAME.problem.goal)
    offered = ["go to fridge 1", "go to microwave 1", "go to cabinet 1", "take knife 1 from countertop 1"]
    assert [search.judge(one, offered) for one in offered] == [LIKELY, LIKELY, UNLIKELY, None]
    search.read("go to fridge 1", "The fridge 1 is closed.")
    search.read("go to microwave 1", "The microwave 1 is closed.")
    assert [search.judge(one, offered) for one in offered] == [None, None, LIKELY, None]
    assert search.judge("open fridge 1", offered) == LIKELY
    search.read("go to countertop 1", "On the countertop 1, you see a mug 2.")
    assert search.judge("go to cabinet 1", offered) is None


def test_ground_that_was_lost_is_won_only_once() -> None:
    assert marks(
        "go to countertop 1",
        "take mug 2 from countertop 1",
        "put mug 2 in/on countertop 1",
        "take mug 2 from countertop 1",
        "go to sidetable 1",
    ) == [(1, PROGRESS["go"]), (1, PROGRESS["take"]), (-1, USELESS), (-1, USELESS), (1, PROGRESS["go"])]


def test_other_actions_are_judged_in_the_same_state_and_leave_no_trace() -> None:
    actions = ["go to countertop 1", "take mug 2 from countertop 1"]
    steps = label_steps(TABLES, actions, others=99, omit=["look"])
    assert [step[0] for step in steps] == [step[0] for step in label_steps(TABLES, actions)]
    first, second = ({one.action: one for one in step[1:]} for step in steps)
    assert "go to countertop 1" not in first and "take knife 1 from countertop 1" not in first
    assert "take mug 2 from countertop 1" not in second and "look" not in first | second
    assert second["take knife 1 from countertop 1"] == Labelled(
        action="take knife 1 from countertop 1",
        next_observation="You pick up the knife 1 from the countertop 1.",
        score=-1,
        reason=USELESS,
        before=3.0,  # take mug 2, go, put it
        after=4.0,  # the knife has to be laid down first
    )


def test_what_helps_is_contrasted_with_what_does_not_by_the_same_verb() -> None:
    def one(action: str, score: int) -> Labelled:
        return Labelled(action=action, next_observation="", score=score, reason="", before=1, after=1)

    labelled = [one("go to bed 1", -1), one("take mug 1", 1), one("take cup 1", -1), one("open drawer 1", -1)]
    for seed in range(9):
        assert [x.action for x in contrast(Random(seed), labelled, 2)] == ["take mug 1", "take cup 1"]
    assert len(contrast(Random(0), labelled, 9)) == 4
    assert contrast(Random(0), [], 2) == []


def test_few_of_the_many_ways_are_candidates() -> None:
    ways = [f"go to cabinet {number}" for number in range(40)]
    chosen = to_compare(Random(0), [*ways, "take mug 1", "open drawer 1"])
    assert chosen[:2] == ["take mug 1", "open drawer 1"] and len(chosen) == 2 + WAYS
