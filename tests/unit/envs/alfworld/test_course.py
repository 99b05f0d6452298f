"""The phases of an episode, told from its texts."""

from typing import Any

from rla.envs.alfworld.goals import Goal, TaskKind
from rla.envs.alfworld.proposals import game_course
from rla.envs.protocols import Course
from rla.store.records import Direction

GOAL = Goal(TaskKind.CLEAN, "Mug", "CoffeeMachine")
WAY = [
    ("go to desk 1", "On the desk 1, you see a mug 2."),
    ("take mug 2 from desk 1", "You pick up the mug 2 from the desk 1."),
    ("go to sinkbasin 1", "On the sinkbasin 1, you see nothing."),
    ("clean mug 2 with sinkbasin 1", "You clean the mug 2 using the sinkbasin 1."),
    ("go to coffeemachine 1", "On the coffeemachine 1, you see nothing."),
    ("move mug 2 to coffeemachine 1", "You move the mug 2 to the coffeemachine 1."),
]


def episode(steps: int, *, outcome: int = -1) -> dict[str, Any]:
    """The first steps of the way."""
    texts = ["You are in the middle of a room. Your task is to: put a clean mug in coffeemachine."]
    texts += [text for _, text in WAY[:steps]]
    return {
        "outcome": outcome,
        "steps": [
            {"observation": text, "action": action} for text, (action, _) in zip(texts, WAY[:steps], strict=False)
        ],
        "final_observation": texts[-1],
    }


def numbers(course: Course) -> dict[str, tuple[int, int]]:
    return {phase.name: (phase.ended, phase.steps) for phase in course.phases}


def test_a_won_episode_passes_all_phases() -> None:
    course = game_course(GOAL, [episode(6, outcome=1)])
    assert numbers(course) == {"finding": (0, 1), "taking": (0, 1), "treating": (0, 2), "placing": (0, 2)}
    assert (course.won, course.episodes, course.steps) == (1, 1, 6)
    assert course.spent == (("go", 3), ("clean", 1), ("move", 1), ("take", 1))


def test_an_episode_ends_in_the_phase_that_it_did_not_leave() -> None:
    course = game_course(GOAL, [episode(0), episode(1), episode(3), episode(3), episode(5)])
    assert {name: ended for name, (ended, _) in numbers(course).items()} == {
        "finding": 1,
        "taking": 1,
        "treating": 2,
        "placing": 1,
    }
    assert course.focus(Direction.EASIER) == "treating"
    assert "failures ended at: finding a mug 1, taking a mug 1, cleaning the mug 2" in course.told()


def test_the_phase_that_took_the_fewest_steps_is_to_become_harder() -> None:
    assert game_course(GOAL, [episode(6, outcome=1)]).focus(Direction.HARDER) == "finding"


def test_without_episodes_there_is_nothing_to_say() -> None:
    course = game_course(GOAL, [])
    assert course.told() == ""
    assert [course.focus(direction) for direction in Direction] == ["", ""]


def test_only_treatments_have_a_phase_of_their_own() -> None:
    look, cool = Goal(TaskKind.LOOK, "Book", "DeskLamp"), Goal(TaskKind.COOL, "Pan", "Shelf")
    assert [phase.name for phase in game_course(look, []).phases] == ["finding", "taking", "placing"]
    assert game_course(cool, []).phases[2].about == "cooling the pan"
