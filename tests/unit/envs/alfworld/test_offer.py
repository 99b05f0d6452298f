"""Commands that a task withholds: not offered, without effect, proven to leave it solvable, and given back."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace

import jsonschema  # type: ignore[import-untyped,unused-ignore]
import pytest

from rla.envs.alfworld.edits import OFFER_KEYS, SCENE_KEYS, Edit, InvalidEdit, apply_edit, parse_edit, verify
from rla.envs.alfworld.engine import KINDS, FastEngine, FastGame
from rla.envs.alfworld.environment import Alfworld
from rla.envs.alfworld.expert import Expert
from rla.envs.alfworld.game import Game, Layout, game_of
from rla.envs.alfworld.goals import Goal, TaskKind
from rla.envs.alfworld.prompts import EditPrompt
from rla.envs.alfworld.proposals import View, propose_edits
from rla.envs.alfworld.solver import solve
from rla.envs.alfworld.tasks import builtin_tasks, task_from_game
from rla.envs.alfworld.textworld import export_games
from rla.envs.protocols import ProposalView
from rla.errors import UserError
from rla.store.schema import load_schema
from tests.unit.builders import configured
from tests.unit.envs.alfworld.test_edits import games

from . import scenes
from .test_solver import SMALL, check

TO_TABLE = scenes.game(
    TaskKind.PLACE, "Mug", "SideTable"
)  # mug 2 on the countertop, mug 1 in cabinet 1 beside cabinet 2
APPLE = scenes.game(TaskKind.HEAT, "Apple", "CounterTop")


def plan(game: Game, *withheld: str) -> list[str] | None:
    return solve(FastGame(replace(game, withheld=withheld)))


def refusal(game: Game, edit: Edit) -> str:
    with pytest.raises(InvalidEdit) as refused:
        verify(apply_edit(game, edit), parent=game)
    return str(refused.value)


def test_a_withheld_command_is_not_offered_and_does_nothing() -> None:
    engine = FastEngine(FastGame(replace(TO_TABLE, withheld=("go to countertop 1", "look"))))
    first = engine.reset()
    assert "go to countertop 1" not in first.commands and "look" not in first.commands
    assert "go to fridge 1" in first.commands and "inventory" in first.commands
    assert "countertop 1" in first.text  # the place is still there
    for command in ("go to countertop 1", "look"):
        answer = engine.step(command)
        assert (answer.text, answer.commands) == ("Nothing happens.", first.commands)


def test_places_that_share_a_location_are_withheld_together() -> None:
    commands = FastEngine(FastGame(replace(TO_TABLE, withheld=("go to cabinet 1",)))).reset().commands
    assert not {"go to cabinet 1", "go to cabinet 2"} & set(commands)


def test_the_kind_of_both_wordings_of_putting_is_put() -> None:
    tables = FastGame(replace(TO_TABLE, withheld=("put",)))
    commands = ("move mug 1 to desk 1", "put mug 1 in/on desk 1", "go to desk 1")
    assert [tables.allows(command) for command in commands] == [False, False, True]


def test_plans_go_round_what_is_withheld() -> None:
    """The mug on the countertop is nearest. Without the way to it there is the other one, behind a door."""
    assert plan(TO_TABLE) == [
        "go to countertop 1",
        "take mug 2 from countertop 1",
        "go to sidetable 1",
        "put mug 2 in/on sidetable 1",
    ]
    assert plan(TO_TABLE, "go to countertop 1") == [
        "go to cabinet 1",
        "open cabinet 1",
        "take mug 1 from cabinet 1",
        "go to sidetable 1",
        "put mug 1 in/on sidetable 1",
    ]
    assert plan(TO_TABLE, "open") == plan(TO_TABLE)
    assert plan(TO_TABLE, "go to countertop 1", "open") is None


@pytest.mark.parametrize(
    ("game", "withheld"),
    [
        (TO_TABLE, ("take",)),
        (TO_TABLE, ("put",)),
        (TO_TABLE, ("go to sidetable 1",)),
        (scenes.game(TaskKind.PLACE, "Mug", "Fridge"), ("open",)),  # the target is shut
        (APPLE, ("heat",)),
        (APPLE, ("go to microwave 1",)),
        (scenes.game(TaskKind.LOOK, "Mug", "DeskLamp"), ("use",)),
        (scenes.game(TaskKind.LOOK, "Mug", "DeskLamp"), ("go to sidetable 1",)),
    ],
)
def test_what_the_task_needs_cannot_be_withheld(game: Game, withheld: tuple[str, ...]) -> None:
    assert refusal(game, Edit(withhold=withheld)) == "no plan reaches the goal"


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (Edit(withhold=("close", "close")), "twice"),
        (Edit(withhold=("close",), give=("close",)), "twice"),
        (Edit(withhold=("open",)), "withheld already"),
        (Edit(give=("close",)), "not withheld"),
        (Edit(withhold=("go to drawer 7",)), "no receptacle drawer 7"),
        (Edit(withhold=("go to mug 1",)), "no receptacle mug 1"),
        (Edit(withhold=("go to cabinet 1", "go to cabinet 2")), "shares its location"),
    ],
)
def test_an_edit_of_the_offer_that_changes_nothing_is_refused(edit: Edit, reason: str) -> None:
    assert reason in refusal(replace(TO_TABLE, withheld=("open",)), edit)


def test_what_a_scene_never_offers_cannot_be_withheld() -> None:
    bare = replace(TO_TABLE.problem, facts=tuple(f for f in TO_TABLE.problem.facts if f[0] != "heatable"))
    assert "never offers" in refusal(replace(TO_TABLE, problem=bare), Edit(withhold=("heat",)))


def test_commands_are_withheld_given_back_and_kept_by_other_edits() -> None:
    once = apply_edit(TO_TABLE, Edit(withhold=("open", "go to fridge 1")))
    assert once.withheld == ("go to fridge 1", "open")
    assert apply_edit(once, Edit(removes=("apple 1",))).withheld == once.withheld
    back = apply_edit(once, Edit(give=("open",), withhold=("close",)))
    assert back.withheld == ("close", "go to fridge 1")
    alike = apply_edit(once, Edit(give=("open", "go to fridge 1")))
    assert alike.likeness() == TO_TABLE.likeness() != once.likeness()


def test_a_payload_says_what_is_withheld_and_others_are_as_before() -> None:
    held = replace(TO_TABLE, withheld=("go to fridge 1", "open"))
    assert game_of(held.payload()) == held
    assert held.digest() != TO_TABLE.digest() and "withheld" not in TO_TABLE.payload()


def test_a_payload_that_withholds_something_else_is_refused() -> None:
    for told in ("fly", "go to nowhere 1", "go to fridge 1, __import__"):
        fields = json.loads(TO_TABLE.payload()) | {"withheld": told}
        with pytest.raises(UserError, match="no command of its scene"):
            FastGame(game_of(json.dumps(fields)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"withhold": "open"}', "list of 1 to 8"),
        ('{"withhold": []}', "list of 1 to 8"),
        ('{"withhold": ["fly"]}', "kinds of commands and ways"),
        ('{"give": [1]}', "kinds of commands and ways"),
        ('{"withhold": ["go to drawer 1\\n"]}', "kinds of commands and ways"),
        ('{"withhold": ["go to drawer 01"]}', "kinds of commands and ways"),
        ('{"withhold": ["go to nirvana 1"]}', "not a name"),
    ],
)
def test_other_texts_are_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidEdit, match=reason):
        parse_edit(text)


def test_an_edit_of_the_offer_survives_its_json_and_fits_the_schema() -> None:
    edit = Edit(withhold=("open", "go to drawer 1"), give=("close",))
    assert parse_edit(edit.to_json()) == edit
    jsonschema.validate(json.loads(edit.to_json()), load_schema("edit"))
    told = load_schema("edit")["$defs"]["command"]["pattern"]
    assert told == f"^({'|'.join(KINDS)}|go to [a-z]{{1,24}} [1-9][0-9]?)$"


LYING = (("Mug_bar_1", "CounterTop_bar_1"), ("Mug_bar_2", "Cabinet_bar_2"))


@pytest.mark.parametrize(
    ("kind", "withheld"),
    [
        (TaskKind.PLACE, ("open",)),
        (TaskKind.CLEAN, ("open", "close")),
        (TaskKind.CLEAN, ("go to fridge 1",)),
        (TaskKind.COOL, ("go to countertop 1",)),
        (TaskKind.TWO, ("close", "go to countertop 1")),
        (TaskKind.COOL, ("cool",)),
    ],
)
def test_the_remaining_distance_is_the_shortest_one_from_every_state(kind: TaskKind, withheld: tuple[str, ...]) -> None:
    """By search over every state that can be reached with what is offered."""
    game = scenes.game(kind, "Mug", "Cabinet", receptacles=SMALL, lying=LYING)
    check(FastGame(replace(game, withheld=withheld)))


@pytest.mark.parametrize("direction", ["harder", "easier"])
def test_rules_change_the_offer_alone_where_that_is_asked_for(direction: str) -> None:
    drawn = 0
    for seed, game in enumerate(games("small")):
        before = (View.of(game).effort(len(solve(FastGame(game)) or ())), 0)
        for edit in propose_edits(game, direction=direction, rng=random.Random(seed), count=4, fields=OFFER_KEYS):
            child = apply_edit(game, parse_edit(edit.to_json()))
            after = (View.of(child).effort(verify(child, parent=game)), -len(child.withheld))
            assert edit.fields().keys() <= OFFER_KEYS and (after > before) is (direction == "harder")
            assert (child.problem, child.sentence) == (game.problem, game.sentence)
            drawn += 1
    assert drawn >= (3 if direction == "harder" else 24)  # few scenes of this size have a second instance or target


def test_what_was_withheld_is_given_back_to_make_a_task_harder() -> None:
    eased = apply_edit(TO_TABLE, Edit(withhold=("close", "open")))
    found = propose_edits(eased, direction="harder", rng=random.Random(0), count=8, fields=frozenset({"give"}))
    assert {edit.give for edit in found} == {("close",), ("open",)}


def test_a_thing_in_two_places_is_found_at_the_one_that_can_be_reached() -> None:
    """Real scenes have such things: a pan that lies on two burners. Facts name both."""
    counter, side = ("Mug_bar_1", "CounterTop_bar_1"), ("Mug_bar_1", "SideTable_bar_1")
    both = scenes.game(TaskKind.PLACE, "Mug", "Cabinet", lying=(counter, side))
    for withheld, home in (("go to sidetable 1", counter), ("go to countertop 1", side)):
        held, alone = (
            replace(game, withheld=(withheld,))
            for game in (both, scenes.game(TaskKind.PLACE, "Mug", "Cabinet", lying=(home,)))
        )
        assert View.of(held).layout.inside == dict([home])
        steps = len(solve(FastGame(held)) or ())
        assert steps == len(solve(FastGame(alone)) or ()) == 5
        assert View.of(held).effort(steps) == View.of(alone).effort(steps)
    assert propose_edits(both, direction="easier", rng=random.Random(0), count=8, fields=OFFER_KEYS)


def test_a_goal_is_true_at_any_place_of_a_thing() -> None:
    both = (("Mug_bar_1", "CounterTop_bar_1"), ("Mug_bar_1", "SideTable_bar_1"))
    layout = Layout.of(scenes.game(TaskKind.PLACE, "Mug", "Cabinet", lying=both).problem)
    held = [kind for kind in scenes.CAN_CONTAIN if layout.holds(Goal(TaskKind.PLACE, "Mug", kind))]
    assert held == ["CounterTop", "SideTable"]


def test_without_being_asked_rules_change_the_scene_as_ever() -> None:
    for seed, game in enumerate(games(count=4)):
        for edit in propose_edits(game, direction="easier", rng=random.Random(seed), count=8):
            assert not edit.fields().keys() & OFFER_KEYS


def test_the_environment_proposes_what_the_parameters_name() -> None:
    (task,) = builtin_tasks(seed=5, scenes=1, tasks_per_scene=1, size="small")
    editor = Alfworld().configured(configured("adaptation.edits=[withhold,give]"))
    texts = editor.propose(task, direction="easier", critique="", seed=0, count=4)
    assert texts and all(set(json.loads(text)) <= OFFER_KEYS for text in texts)
    child = editor.apply(task, texts[0], root=task, taken=(), created=1)
    assert game_of(child.payload).withheld and child.instruction == task.instruction


def test_a_model_is_told_of_the_offer_only_where_that_is_asked_for() -> None:
    plain, held = (
        task_from_game(game, split="train", scene="kitchen")
        for game in (TO_TABLE, replace(TO_TABLE, withheld=("open",)))
    )
    assert "withhold" not in EditPrompt(SCENE_KEYS).schema(held)["properties"]
    asked = EditPrompt(OFFER_KEYS)
    schema = asked.schema(held)["properties"]
    assert set(schema) == OFFER_KEYS
    assert schema["give"]["items"] == {"enum": ["open"]} and "go to fridge 1" in schema["withhold"]["items"]["enum"]
    assert set(asked.schema(plain)["properties"]) == {"withhold"}
    (message,) = asked.messages(held, ProposalView(direction="harder", accuracy=1.0, critique=""))
    told, _, example = message["content"].partition("For example:\n")
    assert "Withheld now: open." in told and '"goal"' not in told
    assert set(json.loads(example.splitlines()[0])) == {"withhold"} and example.splitlines()[1] == ""


def played(game: Game, seeds: Sequence[int]) -> float:
    """The share of the expert's episodes that are won within 30 commands."""
    won = 0
    for seed in seeds:
        expert, engine = Expert(seed=seed), FastEngine(FastGame(game))
        seen = engine.reset()
        for _ in range(30):
            if seen.won:
                break
            seen = engine.step(expert.act(seen.text, seen.commands))
        won += seen.won
    return won / len(seeds)


def test_the_expert_finds_its_way_where_doors_stay_shut() -> None:
    assert played(replace(TO_TABLE, withheld=("open",)), range(8)) == 1.0
    assert played(replace(TO_TABLE, withheld=("close", "go to fridge 1", "go to microwave 1")), range(8)) == 1.0


def test_a_game_file_cannot_withhold_commands(tmp_path_factory: pytest.TempPathFactory) -> None:
    (task,) = builtin_tasks(seed=5, scenes=1, tasks_per_scene=1, size="tiny")
    held = replace(task, payload=replace(game_of(task.payload), withheld=("close",)).payload())
    with pytest.raises(UserError, match="withholds commands"):
        export_games([held], tmp_path_factory.mktemp("games"))
