from dataclasses import replace

import pytest

from rla.envs.alfworld.engine import FastEngine, FastGame
from rla.envs.alfworld.game import Verbs
from rla.envs.alfworld.goals import TaskKind
from rla.envs.observation import Observation
from rla.errors import UserError

from . import scenes


def play(engine: FastEngine, *actions: str) -> Observation:
    observation = engine.reset()
    for action in actions:
        assert action in observation.commands, (action, observation.commands)
        observation = engine.step(action)
    return observation


def engine(*args: object, **changes: object) -> FastEngine:
    return FastEngine(FastGame(scenes.game(*args, **changes)))  # type: ignore[arg-type]


def test_the_first_observation_lists_the_room_in_the_order_of_ids_with_numbers_counting_down() -> None:
    first = engine().reset()
    assert first.text == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a cabinet 2, a cabinet 1, "
        "a countertop 1, a fridge 1, a microwave 1, a sidetable 1, and a sinkbasin 1.\n\n"
        "Your task is to: put a mug in sidetable."
    )
    assert first.commands == (
        "go to cabinet 1",
        "go to cabinet 2",
        "go to countertop 1",
        "go to fridge 1",
        "go to microwave 1",
        "go to sidetable 1",
        "go to sinkbasin 1",
        "inventory",
        "look",
    )


def test_a_shelf_without_door_is_read_on_arrival_in_either_dialect() -> None:
    seen = "On the countertop 1, you see a apple 1, a knife 1, and a mug 2."
    assert play(engine(), "go to countertop 1").text == f"You arrive at loc 7. {seen}"
    packaged = engine(verbs=Verbs.MOVE)
    assert play(packaged, "go to countertop 1").text == f"You arrive at countertop 1. {seen}"
    assert "help" in packaged.reset().commands


def test_receptacles_that_share_a_location_are_acted_on_without_going() -> None:
    here = play(engine(), "go to cabinet 1")
    assert here.text == "You arrive at loc 6. The cabinet 1 is closed."
    assert {"open cabinet 1", "open cabinet 2", "examine cabinet 2"} <= set(here.commands)
    assert "go to cabinet 2" not in here.commands


def test_doors_hide_what_is_behind_them() -> None:
    game = engine()
    assert "take mug 1 from cabinet 1" not in play(game, "go to cabinet 1").commands
    opened = play(game, "go to cabinet 1", "open cabinet 1")
    assert opened.text == "You open the cabinet 1. The cabinet 1 is open. In it, you see a mug 1."
    assert "take mug 1 from cabinet 1" in opened.commands
    assert game.step("close cabinet 1").text == "You close the cabinet 1."


def test_an_object_moved_next_door_lies_next_to_it() -> None:
    game = engine(verbs=Verbs.MOVE)
    play(game, "go to cabinet 1", "open cabinet 1", "open cabinet 2", "take mug 1 from cabinet 1")
    assert game.step("inventory").text == "You are carrying: a mug 1."
    assert game.step("move mug 1 to cabinet 2").text == "You move the mug 1 to the cabinet 2."
    assert game.step("look").text == "You are facing the cabinet 2, and cabinet 1. Next to it, you see a mug 1."


def test_heat_drives_out_cold_and_words_depend_on_what_else_is_true() -> None:
    game = engine()
    play(
        game,
        "go to countertop 1",
        "take apple 1 from countertop 1",
        "go to fridge 1",
        "cool apple 1 with fridge 1",
    )
    assert game.step("examine apple 1").text == "This is a cold apple 1."
    game.step("go to sinkbasin 1")
    assert game.step("clean apple 1 with sinkbasin 1").text == "You clean the apple 1 using the sinkbasin 1."
    assert game.step("examine apple 1").text == "This is a cool and clean apple 1."
    game.step("go to microwave 1")
    game.step("heat apple 1 with microwave 1")
    assert game.step("examine apple 1").text == "This is a hot and clean apple 1."


def test_slicing_needs_a_knife_in_hand_and_reaches_what_lies_here() -> None:
    game = engine()
    sliced = play(game, "go to countertop 1", "take knife 1 from countertop 1", "slice apple 1 with knife 1")
    assert sliced.text == "You sliced the apple 1 with the knife 1."
    play(game, "go to countertop 1", "take knife 1 from countertop 1", "slice apple 1 with knife 1")
    game.step("put knife 1 in/on countertop 1")
    game.step("take apple 1 from countertop 1")
    assert game.step("examine apple 1").text == "This is a sliced apple 1."


def test_a_mug_is_a_vessel_and_stays_normal_whatever_was_done_to_it() -> None:
    game = engine(extra=(("inReceptacleObject", "Apple_bar_1", "Mug_bar_1"),))
    play(game, "go to countertop 1", "take mug 2 from countertop 1")
    assert game.step("examine mug 2").text == "This is a normal mug 2. In it, you see a apple 1."


@pytest.mark.parametrize("action", ["go to mars 1", "take mug 2 from countertop 1", "Look", "", "go to countertop 1 "])
def test_only_an_exact_admissible_command_changes_anything(action: str) -> None:
    game = engine()
    before = game.reset()
    after = game.step(action)
    if action.strip() in before.commands:
        assert after.text.startswith("You arrive at")
    else:
        assert after == replace(before, text="Nothing happens.")


WINS = {
    TaskKind.PLACE: ("SideTable", ["go to sidetable 1", "put mug 2 in/on sidetable 1"]),
    TaskKind.CLEAN: (
        "SideTable",
        [
            "go to sinkbasin 1",
            "clean mug 2 with sinkbasin 1",
            "go to sidetable 1",
            "put mug 2 in/on sidetable 1",
        ],
    ),
    TaskKind.HEAT: (
        "SideTable",
        [
            "go to microwave 1",
            "heat mug 2 with microwave 1",
            "go to sidetable 1",
            "put mug 2 in/on sidetable 1",
        ],
    ),
    TaskKind.COOL: (
        "SideTable",
        ["go to fridge 1", "cool mug 2 with fridge 1", "go to sidetable 1", "put mug 2 in/on sidetable 1"],
    ),
    TaskKind.TWO: ("Cabinet", ["go to cabinet 1", "open cabinet 1", "put mug 2 in/on cabinet 1"]),
    TaskKind.LOOK: ("DeskLamp", ["go to sidetable 1", "use desklamp 1"]),
}


@pytest.mark.parametrize("kind", TaskKind)
def test_each_goal_is_won_by_its_last_command_and_not_before(kind: TaskKind) -> None:
    target, ending = WINS[kind]
    game = engine(kind, "Mug", target)
    actions = ["go to countertop 1", "take mug 2 from countertop 1", *ending]
    assert not play(game, *actions[:-1]).won
    last = play(game, *actions)
    assert last.won and last.done
    assert game.reset().won is False


def test_a_snapshot_brings_back_everything() -> None:
    game = engine()
    before = play(game, "go to cabinet 1", "open cabinet 1")
    state = game.state
    play(game, "go to countertop 1", "take mug 2 from countertop 1")
    game.restore(state)
    assert game.step("nonsense").commands == before.commands
    assert hash(state) == hash(game.state) and state == game.state


def test_a_scene_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UserError, match="agent positions"):
        engine(extra=(("atLocation", "agent1", "loc_bar_1"),))
    with pytest.raises(UserError, match="another type"):
        engine(extra=(("openable", "Mug_bar_1"),))
