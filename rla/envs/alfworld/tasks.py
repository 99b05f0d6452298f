"""ALFWorld tasks: drawn on built-in scenes, read from ALFWorld's data files, and the payload of a task row.

The payload of a task is a JSON object {"problem": PDDL text, "sentence", "verbs"}, with "withheld" (commands that are
not offered, joined by ", ") where there are such. Its id is a digest of what matters to play: scene facts, goal, hint,
verbs and what is withheld, not the wording.

Data files are the games of a split folder, and rooms of the training split can be held out:

    env.own.held_out_rooms: [FloorPlan301]   scenes, by the numbers in the names of the games' folders
    the training split                       its games without those of these rooms
    the split `held_out_rooms`               the games of the training split in these rooms, and no others
    any other split                          all games of its folder, those rooms among them
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.config.sections import TasksConfig
from rla.envs.alfworld.catalog import Room
from rla.envs.alfworld.engine import FastGame
from rla.envs.alfworld.goals import VARIANTS, hint_of, sentence
from rla.envs.alfworld.layout import layout_of, legal_goals
from rla.envs.alfworld.problem import Game, Goal, TaskKind, Verbs, load_game, parse_problem, render_problem
from rla.envs.alfworld.scenes import Scene, Size, generate_scene
from rla.envs.alfworld.solver import solve
from rla.errors import UserError
from rla.seeds import derive
from rla.store.records import Status, Task, content_id

ENV = "alfworld"
CAN = "canContain"
REQUIRED = frozenset({"problem", "sentence", "verbs"})
BETWEEN = ", "  # withheld commands of a payload

ROOMS_OF: dict[TaskKind, tuple[Room, ...]] = {
    TaskKind.PLACE: tuple(Room),
    TaskKind.TWO: tuple(Room),
    TaskKind.CLEAN: (Room.KITCHEN, Room.BATHROOM),
    TaskKind.HEAT: (Room.KITCHEN,),
    TaskKind.COOL: (Room.KITCHEN,),
    TaskKind.LOOK: (Room.BEDROOM, Room.LIVING_ROOM),
}


def builtin_tasks(
    *,
    seed: int,
    scenes: int,
    tasks_per_scene: int,
    size: str | Size,
    kinds: Sequence[str] = (),
    rooms: Sequence[str] = (),
    split: str = "train",
    held_out: bool = False,
) -> list[Task]:
    """`scenes` x `tasks_per_scene` solvable tasks (fewer where a scene offers fewer goals), kinds balanced.

    `kinds` and `rooms` restrict what is drawn (empty: all). Held-out scenes come from a stream of their own,
    so they share none with the others of the same or any other seed. Raises `UserError` for unknown or
    incompatible names.
    """
    wanted, allowed = _kinds(kinds), _rooms(rooms)
    homes = {kind: [room for room in ROOMS_OF[kind] if room in allowed] for kind in wanted}
    homes = {kind: where for kind, where in homes.items() if where}
    if not homes:
        raise UserError(f"tasks.kinds {list(kinds)} do not occur in the rooms {list(rooms)}; name others")
    stream = "held out" if held_out else "training"
    drawn: Counter[TaskKind] = Counter()
    tasks: list[Task] = []
    for number in range(scenes):
        rng = random.Random(derive("alfworld tasks", stream, seed, number))
        first = _rarest(rng, drawn, list(homes))
        scene_seed = derive("alfworld scene", stream, seed, number)
        scene = generate_scene(seed=scene_seed, room=rng.choice(homes[first]), size=Size(size))
        tasks.extend(_scene_tasks(rng, scene, list(homes), drawn, count=tasks_per_scene, split=split))
    return tasks


def _scene_tasks(
    rng: random.Random,
    scene: Scene,
    kinds: list[TaskKind],
    drawn: Counter[TaskKind],
    *,
    count: int,
    split: str,
) -> list[Task]:
    """Up to `count` tasks with different goals, of the kinds drawn least so far; `drawn` is kept up to
    date.
    """
    layout = layout_of(scene.problem(Goal(TaskKind.PLACE, "", "")))
    left = {kind: legal_goals(kind, layout) for kind in kinds}
    tasks: list[Task] = []
    while len(tasks) < count and any(left.values()):
        kind = _rarest(rng, drawn, [kind for kind, goals in left.items() if goals])
        goal = left[kind].pop(rng.randrange(len(left[kind])))
        text = sentence(goal, variant=rng.randrange(VARIANTS))
        game = Game(problem=scene.problem(goal), sentence=text, verbs=Verbs.MOVE)
        plan = solve(FastGame(game))
        if plan is None:
            continue
        drawn[kind] += 1
        tasks.append(task_from_game(game, split=split, scene=scene.scene_id, plan_length=len(plan)))
    return tasks


def _rarest(rng: random.Random, drawn: Counter[TaskKind], kinds: list[TaskKind]) -> TaskKind:
    least = min(drawn[kind] for kind in kinds)
    return rng.choice([kind for kind in kinds if drawn[kind] == least])


def _kinds(names: Sequence[str]) -> list[TaskKind]:
    """Members by value ("pick_and_place_simple") or by short name ("place"); all when none is named."""
    known = {kind.value: kind for kind in TaskKind} | {kind.name.lower(): kind for kind in TaskKind}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UserError(f"tasks.kinds: {unknown[0]!r} is unknown; choose from {', '.join(TaskKind)}")
    return list(dict.fromkeys(known[name] for name in names)) or list(TaskKind)


def _rooms(names: Sequence[str]) -> list[Room]:
    unknown = [name for name in names if name not in set(Room)]
    if unknown:
        raise UserError(f"tasks.rooms: {unknown[0]!r} is unknown; choose from {', '.join(Room)}")
    return [Room(name) for name in names] or list(Room)


def task_from_game(game: Game, *, split: str, scene: str, **columns: Any) -> Task:
    """The task row of `game`; `columns` are further fields of `Task`. Without `slot` it is its own root."""
    task_id = game_digest(game)
    columns.setdefault("slot", task_id)
    columns.setdefault("status", Status.ACTIVE.value)
    return Task(
        task_id=task_id,
        env=ENV,
        split=split,
        kind=game.problem.goal.kind.value,
        scene=scene,
        instruction=game.sentence,
        payload=game_payload(game),
        **columns,
    )


def game_digest(game: Game) -> str:
    """Identity of a game: objects, facts, goal, hint, verbs and what it withholds, whatever the order and wording."""
    goal = game.problem.goal
    objects = sorted(" ".join(entry) for entry in game.problem.objects)
    facts = sorted(" ".join(fact) for fact in game.problem.facts)
    head = (goal.kind.value, goal.object_type, goal.target_type, hint_of(game.sentence).value)
    return content_id(ENV, *head, game.verbs.value, "\n".join(objects), "\n".join(facts), *game.withheld)


def game_likeness(game: Game) -> str:
    """Equal for games that ask the same in the same scene, whatever their objects' ids.

    An object counts by its type, its own facts and where it lies: two mugs that lie in the same place are one as good
    as the other. What the catalogue says of types (`canContain`) is left out: it follows an added object.
    """
    goal = game.problem.goal
    own: dict[str, list[str]] = {}
    place: dict[str, str] = {}
    objects = {identifier for identifier, kind in game.problem.objects if kind == "object"}
    for fact in game.problem.facts:
        if len(fact) == 2 or fact[0] == "objectType":
            own.setdefault(fact[1], []).append(" ".join((fact[0], *fact[2:])))
        elif fact[0] in ("inReceptacle", "inReceptacleObject"):
            place[fact[1]] = fact[2]
    label = {name: ",".join([*sorted(own.get(name, ())), place.get(name, "")]) for name in objects}
    facts = sorted(" ".join(label.get(part, part) for part in fact) for fact in game.problem.facts if fact[0] != CAN)
    head = (goal.kind.value, goal.object_type, goal.target_type, hint_of(game.sentence).value)
    return content_id("alike", *head, "\n".join(facts), *game.withheld)


def game_payload(game: Game) -> str:
    """The JSON text that `game_of` reads back."""
    fields = {"problem": render_problem(game.problem), "sentence": game.sentence, "verbs": game.verbs.value}
    if game.withheld:
        fields["withheld"] = BETWEEN.join(game.withheld)
    return json.dumps(fields, sort_keys=True)


def game_of(payload: str, *, force_packaged: bool = False) -> Game:
    """The game in a task's payload. Raises `UserError` when it is not an ALFWorld payload."""
    fields = _fields(payload)
    withheld = fields.get("withheld", "")
    game = Game(
        problem=parse_problem(fields["problem"]),
        sentence=fields["sentence"],
        verbs=Verbs(fields["verbs"]),
        withheld=tuple(sorted(withheld.split(BETWEEN))) if withheld else (),
    )
    return replace(game, verbs=Verbs.MOVE) if force_packaged else game


def _fields(payload: str) -> dict[str, str]:
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise UserError("the task's payload is not JSON; make or import the tasks again") from error
    texts = isinstance(fields, dict) and all(isinstance(value, str) for value in fields.values())
    if not texts or not set(fields) >= REQUIRED or fields["verbs"] not in set(Verbs):
        raise UserError("the task's payload is not an ALFWorld game; make or import the tasks again")
    return {str(key): str(value) for key, value in fields.items()}


TEST = "valid_seen"  # the data's own held-out split: it has none that is called test
ROOMS_SPLIT = "held_out_rooms"
ROOMS_KEY = f"env.own.{ROOMS_SPLIT}"
SKIPPED = ("movable", "Sliced")
"""Kinds of real games that ALFWorld itself leaves out, by a word in their path."""

Keep = Callable[[Path], bool]


def check_rooms(tasks: TasksConfig, rooms: Collection[str]) -> None:
    """Raises UserError where rooms cannot be held out, or a split of them has none."""
    if rooms and tasks.source == "builtin":
        raise UserError(
            f"{ROOMS_KEY}: built-in scenes are drawn anew by each seed; set tasks.source: files or leave it empty"
        )
    if ROOMS_SPLIT in tasks.test_splits and not rooms:
        raise UserError(f"{ROOMS_KEY} is empty, and {ROOMS_SPLIT} is a held-out split; name rooms such as FloorPlan301")
    if tasks.train_split == ROOMS_SPLIT:
        raise UserError(f"tasks.train_split: {ROOMS_SPLIT} is what {ROOMS_KEY} holds out; it cannot train")


def split_games(tasks: TasksConfig, *, split: str, rooms: Collection[str]) -> list[Task]:
    """The tasks of a split of the data at `tasks.path`. A split `test` is the data's `valid_seen`.

    Raises UserError as `imported_games` does, and for a room of which the training split has no game.
    """
    folder, train = Path(tasks.path or ""), tasks.train_split
    if split not in (train, ROOMS_SPLIT):
        return list(imported_games(folder, split=TEST if split == "test" else split, limit=tasks.limit))
    refuse_absent_rooms(folder, train, rooms)
    wanted = split == ROOMS_SPLIT

    def keep(path: Path) -> bool:
        return (_floor_plan(path) in rooms) == wanted

    return list(imported_games(folder, split=train, limit=tasks.limit, keep=keep, named=split))


def refuse_absent_rooms(folder: Path, split: str, rooms: Collection[str]) -> None:
    """UserError for the first room without a game: a name that is mistyped would hold nothing out."""
    known = {_floor_plan(path) for path in _game_files(folder, split)} if rooms else set()
    if absent := [room for room in rooms if room not in known]:
        raise UserError(f"{ROOMS_KEY}: {folder / split} has no game in {absent[0]!r}; name rooms such as FloorPlan301")


def imported_games(
    folder: Path, *, split: str, limit: int | None = None, keep: Keep | None = None, named: str = ""
) -> Iterator[Task]:
    """The solvable games of an ALFWorld data folder's `split`, each content once, in path order.

    `folder` holds `json_2.1.x/<split>/`, or `<split>/`. `keep`: which files; all where it is not given. `named`: the
    split that the tasks say they are of, where it is another. Raises `UserError` when there is no game or a file is
    not one.
    """
    seen: set[str] = set()
    for path in _game_files(folder, split):
        if limit is not None and len(seen) >= limit:
            return
        if (keep is not None and not keep(path)) or not _solvable(path):
            continue
        task = task_from_game(load_game(path), split=named or split, scene=_floor_plan(path))
        if task.task_id not in seen:
            seen.add(task.task_id)
            yield task


def _game_files(folder: Path, split: str) -> list[Path]:
    parts = Path(split).parts
    if len(parts) != 1 or parts[0] in (".", "..", "/"):
        raise UserError(f"tasks: {split!r} is not the name of a split folder such as train or valid_seen")
    roots = [root for root in (folder, *sorted(folder.glob("json_*"), reverse=True)) if (root / split).is_dir()]
    found = sorted(roots[0].joinpath(split).glob("*/*/game.tw-pddl")) if roots else []
    files = [path for path in found if not any(word in str(path.relative_to(roots[0])) for word in SKIPPED)]
    if not files:
        raise UserError(
            f"{folder / split}: no */*/game.tw-pddl in it; set tasks.path (--from) to the folder that holds "
            f"json_2.1.1/{split}/ or {split}/"
        )
    return files


def _solvable(path: Path) -> bool:
    """Whether the file says that its game has a plan; what is no game at all is left to `load_game`."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        return True
    return not isinstance(content, dict) or content.get("solvable") is True


def _floor_plan(path: Path) -> str:
    """`FloorPlan301` of a game: folder names end in the scene's number (or a built-in scene's id)."""
    scene = path.parent.parent.name.rpartition("-")[2]
    return f"FloorPlan{int(scene)}" if scene.isdecimal() else scene
