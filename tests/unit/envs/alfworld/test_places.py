"""What ALFWorld takes for the same place: location, what is held and its condition, open doors there."""

from __future__ import annotations

from rla.envs.alfworld.engine import FastEngine, FastGame
from rla.envs.fork_server import from_observation, to_observation

from . import scenes

CARRYING = ("go to countertop 1", "take mug 2 from countertop 1")


def place_after(*actions: str) -> str:
    game = FastEngine(FastGame(scenes.game()))
    seen = game.reset()
    for action in actions:
        seen = game.step(action)
    assert seen.place is not None
    return seen.place


def test_carrying_and_empty_hands_are_two_places_although_they_read_alike() -> None:
    empty, carrying = ("go to sidetable 1",), (*CARRYING, "go to sidetable 1")
    texts = []
    for actions in (empty, carrying):
        game = FastEngine(FastGame(scenes.game()))
        game.reset()
        texts.append([game.step(action).text for action in actions][-1])
    assert texts[0] == texts[1]
    assert place_after(*empty) != place_after(*carrying)


def test_a_command_that_does_nothing_leaves_the_place_as_it_was() -> None:
    """The same "Nothing happens." is another place where it is said elsewhere."""
    assert place_after("go to sidetable 1", "sing") == place_after("go to sidetable 1")
    assert place_after("sing") == place_after() != place_after("go to sidetable 1", "sing")


def test_what_was_done_to_the_held_thing_counts_and_what_lies_around_does_not() -> None:
    at_sink = (*CARRYING, "go to sinkbasin 1")
    assert place_after(*at_sink) != place_after(*at_sink, "clean mug 2 with sinkbasin 1")
    emptied = (*CARRYING, "go to sidetable 1", "put mug 2 in/on sidetable 1", "go to countertop 1")
    assert place_after(*emptied) == place_after("go to countertop 1")


def test_a_door_counts_where_it_is_and_nowhere_else() -> None:
    opened = ("go to fridge 1", "open fridge 1")
    assert place_after(*opened) != place_after("go to fridge 1")
    assert place_after(*opened, "go to countertop 1") == place_after("go to countertop 1")


def test_a_place_crosses_to_another_process() -> None:
    seen = FastEngine(FastGame(scenes.game())).reset()
    assert to_observation(from_observation(seen)) == seen and seen.place is not None
