import random

import pytest

from rla.envs.alfworld.engine import FastEngine, FastGame
from rla.envs.alfworld.expert import Expert, Memory, read_goal
from rla.envs.alfworld.game import Verbs
from rla.envs.alfworld.goals import Goal, TaskKind
from rla.errors import UserError

from . import scenes

SENTENCES = {
    "put a mug in shelf.": (TaskKind.PLACE, "mug", "shelf"),
    "put some mug on shelf.": (TaskKind.PLACE, "mug", "shelf"),
    "put a clean mug in shelf.": (TaskKind.CLEAN, "mug", "shelf"),
    "clean some mug and put it in shelf.": (TaskKind.CLEAN, "mug", "shelf"),
    "put a hot mug in shelf.": (TaskKind.HEAT, "mug", "shelf"),
    "heat some mug and put it in shelf.": (TaskKind.HEAT, "mug", "shelf"),
    "put a cool mug in shelf.": (TaskKind.COOL, "mug", "shelf"),
    "cool some mug and put it in shelf.": (TaskKind.COOL, "mug", "shelf"),
    "put two mug in shelf.": (TaskKind.TWO, "mug", "shelf"),
    "find two mug and put them in shelf.": (TaskKind.TWO, "mug", "shelf"),
    "look at mug under the desklamp.": (TaskKind.LOOK, "mug", "desklamp"),
    "examine the mug with the desklamp.": (TaskKind.LOOK, "mug", "desklamp"),
}


@pytest.mark.parametrize(("sentence", "meaning"), SENTENCES.items())
def test_it_understands_every_wording(sentence: str, meaning: tuple[TaskKind, str, str]) -> None:
    assert read_goal(f"...\n\nYour task is to: {sentence}") == (Goal(*meaning), frozenset())


def test_it_takes_a_hint() -> None:
    _, hinted = read_goal("Your task is to: put a mug in shelf. you can find a mug in cabinet 3.")
    assert hinted == {"cabinet 3"}


def test_it_refuses_a_text_without_a_known_task() -> None:
    with pytest.raises(UserError, match="no task"):
        Expert(seed=0).act("Your task is to: sing.", ["look"])


def test_memory_follows_what_is_read() -> None:
    memory = Memory()
    memory.read("You arrive at loc 6. On the countertop 1, you see a apple 1, a knife 1, and a mug 2.")
    memory.read("You pick up the mug 2 from the countertop 1.")
    assert memory.held == "mug 2" and memory.where("mug") == []
    memory.read("You heat the mug 2 using the microwave 1.")
    memory.read("You cool the mug 2 using the fridge 1.")
    assert memory.treated == {("cool", "mug 2")}
    memory.read("You put the mug 2 in/on the fridge 1.")
    assert memory.held is None and memory.where("mug") == [("mug 2", "fridge 1")]


@pytest.mark.parametrize("verbs", Verbs)
@pytest.mark.parametrize("kind", TaskKind)
def test_it_wins_every_kind_also_when_half_of_the_actions_are_not_its_own(kind: TaskKind, verbs: Verbs) -> None:
    sentences = {meaning[0]: sentence for sentence, meaning in SENTENCES.items()}
    sentence = sentences[kind].replace("shelf", "cabinet")
    target = "DeskLamp" if kind is TaskKind.LOOK else "Cabinet"
    engine = FastEngine(FastGame(scenes.game(kind, "Mug", target, verbs=verbs, sentence=sentence)))
    for random_share, limit in ((0.0, 30), (0.5, 120)):
        rng, expert, observation = random.Random(1), Expert(seed=1), engine.reset()
        for _ in range(limit):
            action = expert.act(observation.text, observation.commands)
            assert action in observation.commands
            if rng.random() < random_share:
                action = rng.choice(observation.commands)
                expert.notice(action)
            observation = engine.step(action)
            if observation.won:
                break
        assert observation.won
