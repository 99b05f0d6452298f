"""Built-in scenes obey ALFRED's rules, hold what their size promises and depend on the seed alone."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from rla.envs.alfworld import catalog
from rla.envs.alfworld.catalog import ROOMS, Room
from rla.envs.alfworld.game import Layout, PddlProblem, mangled, parse_problem
from rla.envs.alfworld.goals import Goal, TaskKind
from rla.envs.alfworld.tasks import BOUNDS, Size, generate_scene

EVERY = [(room, size) for room in Room for size in Size]
SEEDS = range(8)


def scenes(room: Room, size: Size) -> list[PddlProblem]:
    return [generate_scene(seed=seed, room=room, size=size) for seed in SEEDS]


def layouts(room: Room, size: Size) -> list[Layout]:
    return [Layout.of(scene) for scene in scenes(room, size)]


def test_ids_are_alfreds() -> None:
    mug = "Mug_bar__plus_00_dot_38_bar__plus_00_dot_90_bar__minus_01_dot_24"
    assert mangled("Mug", (0.38, 0.9, -1.24)) == mug
    assert mangled("Sink", (1, 1, 1), "SinkBasin").endswith("_bar__plus_01_dot_00_bar_SinkBasin")


@pytest.mark.parametrize(("room", "size"), EVERY)
def test_everything_lies_where_it_may(room: Room, size: Size) -> None:
    for layout in layouts(room, size):
        for item, place in layout.inside.items():
            kind, home = layout.objects[item], layout.receptacles[place]
            assert kind in catalog.CAN_CONTAIN.get(home, ()) or home in catalog.STANDS[kind]
            assert layout.location[item] == layout.location[place]


@pytest.mark.parametrize(("room", "size"), [(room, size) for room in Room for size in BOUNDS])
def test_sizes_keep_their_bounds(room: Room, size: Size) -> None:
    (least_places, most_places), (least_items, most_items) = BOUNDS[size]
    for layout in layouts(room, size):
        movable = [kind for kind in layout.objects.values() if kind not in catalog.FIXED]
        assert least_places <= len(layout.receptacles) <= most_places
        assert least_items <= len(movable) <= most_items
        assert set(ROOMS[room].essential) <= set(layout.receptacles.values())
        assert set(ROOMS[room].fixtures) <= set(layout.objects.values())


def test_full_kitchens_are_as_large_as_real_ones() -> None:
    drawn = [generate_scene(seed=seed, room=Room.KITCHEN, size=Size.FULL) for seed in range(60)]
    full = [Layout.of(scene) for scene in drawn]
    assert sum(len(layout.receptacles) for layout in full) / 60 == pytest.approx(33.4, abs=2.0)
    assert sum(len(layout.objects) for layout in full) / 60 == pytest.approx(54.1, abs=4.0)


@pytest.mark.parametrize(("room", "size"), EVERY)
def test_ids_are_unique_and_the_agent_starts_where_nothing_stands(room: Room, size: Size) -> None:
    for scene in scenes(room, size):
        ids = [identifier.lower() for identifier, _ in scene.objects]
        assert len(set(ids)) == len(ids)
        (start,) = [fact[2] for fact in scene.facts if fact[0] == "atLocation"]
        assert start not in Layout.of(scene).location.values()
        assert all(re.fullmatch(r"\w+", argument) for fact in scene.facts for argument in fact)


def test_some_doors_are_closed_and_some_things_share_a_place() -> None:
    drawn = layouts(Room.KITCHEN, Size.FULL)
    cabinets = [layout.closed(place) for layout in drawn for place in layout.of_type("Cabinet")]
    assert 0.7 < sum(cabinets) / len(cabinets) < 0.95
    places = [[layout.location[place] for place in layout.receptacles] for layout in drawn]
    assert any(len(set(of_scene)) < len(of_scene) for of_scene in places)


@pytest.mark.parametrize("room", Room)
def test_a_scene_survives_its_pddl(room: Room) -> None:
    problem = replace(generate_scene(seed=5, room=room, size=Size.SMALL), goal=Goal(TaskKind.PLACE, "Mug", "Desk"))
    assert parse_problem(problem.pddl()) == problem


def test_scenes_do_not_depend_on_the_process() -> None:
    code = (
        "from rla.envs.alfworld.tasks import Room, Size, generate_scene; "
        "print(generate_scene(seed=7, room=Room.KITCHEN, size=Size.FULL))"
    )
    texts = set()
    for hash_seed in ("1", "2"):
        env = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-c", code]
        texts.add(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
    assert texts == {f"{generate_scene(seed=7, room=Room.KITCHEN, size=Size.FULL)}\n"}


def test_seeds_give_different_scenes() -> None:
    facts = {scene.facts for scene in scenes(Room.KITCHEN, Size.TINY)}
    assert len(facts) == len(SEEDS)
