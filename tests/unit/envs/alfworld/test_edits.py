"""Edits are read strictly, change what they say, are proven, and move the effort the way they should."""

import json
import random
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped,unused-ignore]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rla.config.sections import TasksConfig
from rla.envs.alfworld.catalog import TYPES
from rla.envs.alfworld.edits import Edit, apply_edit, parse_edit, verify
from rla.envs.alfworld.engine import FastEngine, FastGame
from rla.envs.alfworld.game import Game, Layout, game_of, parse_problem
from rla.envs.alfworld.goals import Goal, Hint, TaskKind
from rla.envs.alfworld.proposals import propose_edits
from rla.envs.alfworld.tasks import builtin_tasks
from rla.envs.protocols import RejectedEdit

from . import scenes

SCHEMA = json.loads((Path(__file__).parents[4] / "schemas" / "edit.schema.json").read_text())
GOAL = {"kind": "pick_and_place_simple", "object_type": "Mug", "target_type": "Desk"}


def asking(kind: TaskKind, item: str, target: str) -> Edit:
    return {"goal": {"kind": kind, "object_type": item, "target_type": target}}


def games(size: str = "tiny", count: int = 12) -> list[Game]:
    return [
        game_of(t.payload) for t in builtin_tasks(TasksConfig(train_scenes=count, tasks_per_scene=1, size=size), seed=5)
    ]


def game_of_kind(kind: TaskKind, room: str = "") -> Game:
    return game_of(scenes.drawn(kind, room).payload)


def name_of(game: Game, identifier: str) -> str:
    return {found: name for name, found in Layout.of(game.problem).ids.items()}[identifier]


def first_view(game: Game) -> str:
    return FastEngine(FastGame(game)).reset().text


KITCHEN = game_of_kind(TaskKind.CLEAN, "kitchen")


@pytest.mark.parametrize(
    "edit",
    [
        asking(TaskKind.HEAT, "Egg", "Fridge"),
        {"move": [{"object": "mug 1", "to": "fridge 1"}, {"object": "knife 1", "to": "sinkbasin 1"}]},
        {
            "add": [{"object_type": "CD", "to": "cabinet 1", "count": 4}],
            "remove": [{"object": "apple 1"}],
            "hint": Hint.WHERE,
        },
        {"hint": Hint.NONE},
    ],
)
def test_edits_survive_their_json_and_fit_the_schema(edit: Edit) -> None:
    assert parse_edit(json.dumps(edit), scenes.game()) == edit
    jsonschema.validate(edit, SCHEMA)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("not json", "not a JSON object"),
        ("[]", "the edit breaks the rule 'type'"),
        ("{}", "the edit breaks the rule 'minProperties'"),
        ('{"hint": "none", "hint": "how"}', "twice"),
        ('{"shell": "rm"}', "the edit breaks the rule 'additionalProperties'"),
        ('{"hint": "be brave"}', "hint breaks the rule 'enum'"),
        (json.dumps({"goal": {**GOAL, "object_type": "Mug) (isClean"}}), "goal.object_type breaks the rule 'enum'"),
        (json.dumps({"goal": {**GOAL, "object_type": "mug"}}), "goal.object_type breaks the rule 'enum'"),
        (json.dumps({"goal": {"kind": "pick_and_place_simple"}}), "goal breaks the rule 'required'"),
        ('{"move": [{"object": "mug 1", "to": "fridge 1\\n"}]}', "move.0.to breaks the rule 'enum'"),
        ('{"move": [{"object": "mug 01", "to": "fridge 1"}]}', "move.0.object breaks the rule 'enum'"),
        ('{"move": [{"object": "mug \\u0661", "to": "fridge 1"}]}', "move.0.object breaks the rule 'enum'"),
        ('{"remove": []}', "remove breaks the rule 'minItems'"),
        ('{"remove": [{"object": "mug 77"}]}', "remove.0.object breaks the rule 'enum'"),
        ('{"remove": [{"object": "desklamp 1"}]}', "remove.0.object breaks the rule 'enum'"),
        ('{"add": [{"object_type": "Mug", "to": "fridge 9", "count": 1}]}', "add.0.to breaks the rule 'enum'"),
        ('{"add": [{"object_type": "Mug", "to": "fridge 1", "count": true}]}', "add.0.count breaks the rule 'type'"),
        ('{"add": [{"object_type": "Mug", "to": "fridge 1", "count": 1.0}]}', "whole number"),
        ('{"add": [{"object_type": "Mug", "to": "fridge 1", "count": 99}]}', "add.0.count breaks the rule 'maximum'"),
        ("[" * 3000, "not a JSON object"),
        ('{"hint": ' + "9" * 3900 + "}", "hint breaks the rule"),
        (" " * 5000, "longer than"),
    ],
)
def test_anything_else_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(RejectedEdit, match=reason):
        parse_edit(text, scenes.game())


HOSTILE = ("mug 1; rm -rf", "{41+1} 1", "../../x 1", "<|im_start|>", "mug 1\n", "agent1", "desk 0")
hostile = st.one_of(
    st.text(max_size=30),
    st.sampled_from((*HOSTILE, "mug 1", "desk 2", *sorted(TYPES))),
    st.integers(-2, 9),
    st.none(),
)
keys = st.sampled_from(["goal", "move", "add", "remove", "hint", "kind", "object_type", "object", "to"])
trees = st.recursive(
    hostile,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)
nearly = st.fixed_dictionaries(
    {},
    optional={
        "goal": st.fixed_dictionaries(
            {"kind": st.sampled_from([*TaskKind, "win"]), "object_type": hostile, "target_type": hostile}
        ),
        "move": st.lists(st.fixed_dictionaries({"object": hostile, "to": hostile}), max_size=2),
        "add": st.lists(st.fixed_dictionaries({"object_type": hostile, "to": hostile, "count": hostile}), max_size=2),
        "remove": st.lists(st.fixed_dictionaries({"object": hostile}), max_size=2),
        "hint": st.sampled_from([*Hint, "all"]),
    },
)


def spoken(edit: Edit) -> list[str]:
    """Every name of a thing in an edit."""
    entries = [entry for key in ("move", "add", "remove") for entry in edit.get(key, ())]
    return [entry[key] for entry in entries for key in ("object", "to") if key in entry]


@settings(max_examples=300)
@given(st.one_of(st.text(), trees.map(json.dumps), nearly.map(json.dumps)))
def test_whatever_comes_in_only_whitelisted_names_come_out(text: str) -> None:
    try:
        edit = parse_edit(text, KITCHEN)
    except RejectedEdit as refused:
        assert "rm -rf" not in str(refused)
        return
    jsonschema.validate(json.loads(text), SCHEMA)
    types = [add["object_type"] for add in edit.get("add", ())]
    if "goal" in edit:
        types += [edit["goal"]["object_type"], edit["goal"]["target_type"]]
    assert set(types) <= TYPES
    lowered = {name.lower() for name in TYPES}
    for name in spoken(edit):
        base, _, number = name.partition(" ")
        assert base in lowered
        assert number == str(int(number))


@settings(max_examples=60)
@given(nearly.map(json.dumps))
def test_applying_yields_a_playable_game_or_a_reason(text: str) -> None:
    try:
        child = apply_edit(KITCHEN, parse_edit(text, KITCHEN))
        assert verify(child, parent=KITCHEN) > 0
    except RejectedEdit:
        return
    assert parse_problem(child.problem.pddl()) == child.problem


def test_a_moved_object_lies_elsewhere_and_nothing_else_does() -> None:
    before, names = Layout.of(KITCHEN.problem), Layout.of(KITCHEN.problem).ids
    item, to = next(
        (item, place)
        for item in before.within_reach(KITCHEN.problem.goal.object_type)
        for place, kind in before.receptacles.items()
        if (kind, before.objects[item]) in before.can_contain and before.inside[item] != place
    )
    child = apply_edit(KITCHEN, {"move": [{"object": name_of(KITCHEN, item), "to": name_of(KITCHEN, to)}]})
    after = Layout.of(child.problem)
    assert after.inside == {**before.inside, item: to}
    assert after.location == {**before.location, item: before.location[to]}
    assert Layout.of(child.problem).ids == names


def test_an_object_of_a_new_type_is_declared_and_can_be_put_down() -> None:
    game = game_of_kind(TaskKind.LOOK, "bedroom")
    desk = next(name for name in Layout.of(game.problem).ids if name.startswith("desk "))
    absent = next(t for t in ("Vase", "Statue", "Watch") if t not in Layout.of(game.problem).objects.values())
    child = apply_edit(game, {"add": [{"object_type": absent, "to": desk, "count": 2}]})
    engine = FastEngine(FastGame(child))
    engine.reset()
    assert f"{absent.lower()} 2" in engine.step(f"go to {desk}").text
    taken = engine.step(f"take {absent.lower()} 1 from {desk}")
    assert f"move {absent.lower()} 1 to {desk}" in taken.commands


def test_a_removed_object_is_gone_from_objects_and_facts() -> None:
    game = KITCHEN
    layout = Layout.of(game.problem)
    item = next(i for i in layout.inside if layout.flag("pickupable", i))
    child = apply_edit(game, {"remove": [{"object": name_of(game, item)}]})
    assert item in game.problem.pddl()
    assert item not in child.problem.pddl()


def test_hints_are_true_and_say_where_and_how() -> None:
    for game in games():
        child = apply_edit(game, {"hint": Hint.WHERE_AND_HOW})
        goal, layout = child.problem.goal, Layout.of(child.problem)
        told = child.sentence.partition("you can find ")[2].partition(".")[0]
        for found in told.split(" and "):
            item, place = found.removeprefix("a ").split(" in ")
            assert item == goal.object_type.lower()
            homes = {layout.inside[i] for i in layout.within_reach(goal.object_type)}
            assert Layout.of(child.problem).ids[place] in homes
        assert child.sentence in first_view(child)
        assert apply_edit(child, {"hint": Hint.NONE}).sentence == game.sentence


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"remove": [{"object": "sink 1"}]}, "cannot be moved"),
        (
            {"add": [{"object_type": "Book", "to": "sinkbasin 1", "count": 1}]},
            "cannot contain a Book",
        ),
        ({"add": [{"object_type": "Sink", "to": "sinkbasin 1", "count": 1}]}, "cannot contain a Sink"),
        ({"remove": [{"object": "sink 1"}, {"object": "sink 1"}]}, "twice"),
    ],
)
def test_edits_that_do_not_fit_the_scene_are_refused(edit: Edit, reason: str) -> None:
    with pytest.raises(RejectedEdit, match=reason):
        apply_edit(KITCHEN, edit)


def test_verify_names_the_reason() -> None:
    goal = KITCHEN.problem.goal
    with pytest.raises(RejectedEdit, match="changes nothing"):
        verify(KITCHEN, parent=KITCHEN)
    impossible = apply_edit(KITCHEN, asking(TaskKind.LOOK, goal.object_type, "DeskLamp"))
    with pytest.raises(RejectedEdit, match="no DeskLamp"):
        verify(impossible, parent=KITCHEN)
    child = apply_edit(KITCHEN, propose_edits(KITCHEN, direction="harder", rng=random.Random(0), count=1)[0])
    assert verify(child, parent=KITCHEN) > 0
    with pytest.raises(RejectedEdit, match="in the pool"):
        verify(child, parent=KITCHEN, others={child.digest()})
    with pytest.raises(RejectedEdit, match="slot began with"):
        verify(KITCHEN, parent=child, root=KITCHEN)


def test_a_goal_that_is_true_at_the_start_is_refused() -> None:
    layout = Layout.of(KITCHEN.problem)
    item, place = next((i, p) for i, p in layout.inside.items() if layout.receptacles[p] == "CounterTop")
    done = {
        "goal": {"kind": TaskKind.PLACE, "object_type": layout.objects[item], "target_type": layout.receptacles[place]}
    }
    with pytest.raises(RejectedEdit, match="already true"):
        verify(apply_edit(KITCHEN, done), parent=KITCHEN)


def test_a_goal_is_true_at_any_place_of_an_object() -> None:
    both = (("Mug_bar_1", "CounterTop_bar_1"), ("Mug_bar_1", "SideTable_bar_1"))
    layout = Layout.of(scenes.game(TaskKind.PLACE, "Mug", "Cabinet", lying=both).problem)
    held = [kind for kind in scenes.CAN_CONTAIN if layout.holds(Goal(TaskKind.PLACE, "Mug", kind))]
    assert held == ["CounterTop", "SideTable"]


def test_an_object_that_holds_another_one_stays() -> None:
    game = scenes.game(extra=(("inReceptacleObject", "Apple_bar_1", "Mug_bar_2"),))
    for edit in ({"remove": [{"object": "mug 1"}]}, {"move": [{"object": "mug 1", "to": "countertop 1"}]}):
        with pytest.raises(RejectedEdit, match="holds another object"):
            apply_edit(game, edit)
    assert apply_edit(game, {"remove": [{"object": "apple 1"}, {"object": "mug 1"}]}).problem.goal == game.problem.goal


def test_the_schema_says_what_the_reader_reads() -> None:
    properties: dict[str, Any] = SCHEMA["properties"]
    assert properties["goal"]["properties"]["kind"]["enum"] == [kind.value for kind in TaskKind]
    assert properties["hint"]["enum"] == [hint.value for hint in Hint]
