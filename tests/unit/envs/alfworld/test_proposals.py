"""Edits that rules draw: proven, in the direction asked for, in order; what is usual; how effort is counted."""

import json
import random
from collections import Counter

import pytest

from rla.envs.alfworld.catalog import share
from rla.envs.alfworld.edits import Edit, apply_edit, parse_edit, verify
from rla.envs.alfworld.game import Game
from rla.envs.alfworld.goals import Hint, TaskKind
from rla.envs.alfworld.proposals import FINDING, PLACING, View, elsewhere, propose_edits
from tests.unit.envs.alfworld.test_edits import KITCHEN, asking, game_of_kind, games


@pytest.mark.parametrize("direction", ["harder", "easier"])
def test_proposals_are_proven_and_go_the_right_way(direction: str) -> None:
    drawn = 0
    for seed, game in enumerate(games()):
        before = View.of(game).effort(plan_length(game))
        for edit in propose_edits(game, direction=direction, rng=random.Random(seed), count=3):
            child = apply_edit(game, parse_edit(json.dumps(edit), game))
            after = View.of(child).effort(verify(child, parent=game))
            told_otherwise = Hint.of(child.sentence) is not Hint.of(game.sentence)
            shift = after - before if direction == "harder" else before - after
            assert shift > 0 or (shift == 0 and told_otherwise)
            drawn += 1
    assert drawn > 24


@pytest.mark.parametrize("direction", ["harder", "easier"])
def test_the_order_of_edits(direction: str) -> None:
    """No hints, then usual ones, then those of the same kind of task, then of the goal alone, then by effort left."""
    orders, seen = 0, set[tuple[bool, bool, bool, bool]]()
    for seed, plain in enumerate(games()):
        game = apply_edit(plain, {"hint": Hint.HOW})  # there is more to tell, and something to take away
        ranks = []
        for edit in propose_edits(game, direction=direction, rng=random.Random(seed), count=8):
            child = apply_edit(game, edit)
            told = Hint.of(child.sentence) is not Hint.of(game.sentence)
            other_kind = child.problem.goal.kind is not game.problem.goal.kind
            left = View.of(child).effort(verify(child, parent=game))
            scene = not edit.keys().isdisjoint({"move", "add", "remove"})
            ranks.append((told, not View.of(game).usual(edit), other_kind, scene, left))
        assert ranks == sorted(ranks)
        orders += len(set(ranks)) > 1
        seen |= {rank[:4] for rank in ranks}
    assert orders > 8
    assert all({rank[key] for rank in seen} == {False, True} for key in range(4))


@pytest.mark.parametrize(("focus", "kept"), [(FINDING, "target_type"), (PLACING, "object_type")])
def test_the_phase_says_what_of_the_goal_changes(focus: str, kept: str) -> None:
    """Another object where finding failed, another target where placing did, before other usual goals of the kind."""
    beside, leads = 0, 0
    for seed, game in enumerate(games("small", 20)):
        view = View.of(game)
        edits = propose_edits(game, direction="easier", rng=random.Random(seed), count=16, focus=focus)
        usual = [edit["goal"] for edit in edits if "goal" in edit and view.usual(edit)]
        goals = [goal for goal in usual if goal["kind"] == view.goal.kind]
        focused = [goal[kept] == getattr(view.goal, kept) for goal in goals]
        assert focused == sorted(focused, reverse=True)
        beside += len(set(focused)) > 1
        leads += edits[0].get("goal") in goals and focused[0]
    assert beside > 1
    assert leads > 4


def test_an_edit_is_usual_where_training_games_have_such_things() -> None:
    view = View.of(KITCHEN)
    kinds = {**view.layout.receptacles, **view.layout.objects}
    names = {kinds[identifier]: name for identifier, name in view.layout.names.items()}
    # Of a hundred fridges 53 hold a tomato, of a hundred sink basins 11, of a hundred cabinets less than two.
    for place, expected in (("Fridge", True), ("SinkBasin", True), ("Cabinet", False)):
        assert view.usual({"add": [{"object_type": "Tomato", "to": names[place], "count": 1}]}) is expected
        assert view.usual({"move": [{"object": names["Tomato"], "to": names[place]}]}) is expected
    assert view.usual(asking(TaskKind.COOL, "Tomato", "CounterTop"))
    assert not view.usual(asking(TaskKind.PLACE, "Tomato", "Cabinet"))
    assert view.usual(asking(TaskKind.LOOK, "Tomato", "DeskLamp"))  # nothing is placed
    assert view.usual({"hint": Hint.HOW, "remove": [{"object": names["Tomato"]}]})
    one_of_two = (
        {"object": names["Tomato"], "to": names["Fridge"]},
        {"object": names["Tomato"], "to": names["Cabinet"]},
    )
    assert not view.usual({"move": [*one_of_two]})


def test_things_are_put_elsewhere_as_often_as_training_games_have_them_there() -> None:
    view = View.of(KITCHEN)
    item, kinds = view.goal.object_type.lower(), Counter[str]()
    rng = random.Random(0)
    for _ in range(2000):
        edit = elsewhere(view, rng)
        assert edit is not None and {move["object"] for move in edit["move"]} == {
            view.layout.names[i] for i in view.instances
        }
        kinds.update(move["to"].rsplit(" ", 1)[0] for move in edit["move"])
    places = [place for place in view.layout.receptacles.values() if place != view.goal.target_type]
    fitting = Counter[str]()
    for place in places:
        if (place, view.goal.object_type) in view.layout.can_contain:
            fitting[place.lower()] += share(item, place.lower())  # type: ignore[assignment]
    assert len(fitting) > 1 and set(kinds) <= set(fitting)
    for kind, weight in fitting.items():
        assert kinds[kind] / kinds.total() == pytest.approx(weight / fitting.total(), abs=0.04)


def plan_length(game: Game) -> int:
    """Of a game that is a task already: the parent stands in as another game."""
    other = apply_edit(game, {"hint": Hint.HOW})
    return verify(game, parent=other)


def test_proposals_depend_on_the_seed_alone() -> None:
    def draw(seed: int) -> list[Edit]:
        return propose_edits(KITCHEN, direction="harder", rng=random.Random(seed), count=3)

    assert draw(1) == draw(1)


def test_effort_counts_commands_and_places_to_look_into() -> None:
    game = game_of_kind(TaskKind.PLACE)
    told = apply_edit(game, {"hint": Hint.WHERE})
    assert View.of(told).effort(4) == 4
    assert View.of(game).effort(4) >= 4
