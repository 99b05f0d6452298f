"""ALFWorld's tasks: drawn on built-in scenes, or imported from the games of its data folder.

Rooms of the training split can be held out, which makes them a split of their own:

    env.own.held_out_rooms: [FloorPlan301]   scenes, by the numbers in the names of the games' folders
    the training split                       its games except those of these rooms
    the split `held_out_rooms`               the games of the training split in these rooms
    any other split                          all games of its folder, including those of these rooms
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from rla.config.sections import TasksConfig
from rla.envs.alfworld.catalog import Room
from rla.envs.alfworld.engine import FastGame
from rla.envs.alfworld.game import ENV, Game, Layout, Verbs
from rla.envs.alfworld.goals import VARIANTS, Goal, TaskKind
from rla.envs.alfworld.scenes import Scene, Size, generate_scene
from rla.envs.alfworld.solver import solve
from rla.errors import UserError
from rla.seeds import derive
from rla.store.records import Status, Task

_ROOMS_OF: dict[TaskKind, tuple[Room, ...]] = {
    TaskKind.PLACE: tuple(Room),
    TaskKind.TWO: tuple(Room),
    TaskKind.CLEAN: (Room.KITCHEN, Room.BATHROOM),
    TaskKind.HEAT: (Room.KITCHEN,),
    TaskKind.COOL: (Room.KITCHEN,),
    TaskKind.LOOK: (Room.BEDROOM, Room.LIVING_ROOM),
}
_TEST = "valid_seen"  # imported for the split `test`, which the data does not have
_ROOMS_SPLIT = "held_out_rooms"
_ROOMS_KEY = f"env.own.{_ROOMS_SPLIT}"
_SKIPPED = ("movable", "Sliced")  # words in the paths of games that ALFWorld itself leaves out


def builtin_tasks(
    *,
    seed: int,
    scenes: int,
    tasks_per_scene: int,
    size: str,
    kinds: Sequence[str] = (),
    split: str = "train",
    held_out: bool = False,
) -> list[Task]:
    """`scenes` x `tasks_per_scene` solvable tasks (fewer if a scene offers fewer goals) with balanced kinds.

    `kinds` restricts the kinds (empty: all), by value ("pick_and_place_simple") or short name ("place"). Held-out
    scenes come from a random stream of their own, so they are never training scenes of this or another seed. Raises
    UserError for an unknown kind.
    """
    known = {kind.value: kind for kind in TaskKind} | {kind.name.lower(): kind for kind in TaskKind}
    if unknown := [name for name in kinds if name not in known]:
        raise UserError(f"tasks.kinds: {unknown[0]!r} is unknown; choose from {', '.join(TaskKind)}")
    wanted = list(dict.fromkeys(known[name] for name in kinds)) or list(TaskKind)
    stream = "held out" if held_out else "training"
    drawn: Counter[TaskKind] = Counter()
    tasks: list[Task] = []
    for number in range(scenes):
        rng = random.Random(derive("alfworld tasks", stream, seed, number))
        first = _rarest(rng, drawn, wanted)
        scene_seed = derive("alfworld scene", stream, seed, number)
        scene = generate_scene(seed=scene_seed, room=rng.choice(_ROOMS_OF[first]), size=Size(size))
        tasks.extend(_scene_tasks(rng, scene, wanted, drawn, count=tasks_per_scene, split=split))
    return tasks


def _scene_tasks(
    rng: random.Random, scene: Scene, kinds: list[TaskKind], drawn: Counter[TaskKind], *, count: int, split: str
) -> list[Task]:
    """Up to `count` tasks with different goals, of the kinds drawn least so far; updates `drawn`."""
    layout = Layout.of(scene.problem(Goal(TaskKind.PLACE, "", "")))
    left = {kind: layout.legal_goals(kind) for kind in kinds}
    tasks: list[Task] = []
    while len(tasks) < count and any(left.values()):
        kind = _rarest(rng, drawn, [kind for kind, goals in left.items() if goals])
        goal = left[kind].pop(rng.randrange(len(left[kind])))
        text = goal.sentence(rng.randrange(VARIANTS))
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


def task_from_game(game: Game, *, split: str, scene: str, **columns: Any) -> Task:
    """The task row of `game`; `columns` are further fields of `Task`. Without `slot` it is its own root."""
    task_id = game.digest()
    columns.setdefault("slot", task_id)
    columns.setdefault("status", Status.ACTIVE.value)
    return Task(
        task_id=task_id,
        env=ENV,
        split=split,
        kind=game.problem.goal.kind.value,
        scene=scene,
        instruction=game.sentence,
        payload=game.payload(),
        **columns,
    )


def check_rooms(tasks: TasksConfig, rooms: Collection[str]) -> None:
    """Raise UserError if rooms cannot be held out, or if the split of held-out rooms is asked for without rooms."""
    if rooms and not tasks.path:
        raise UserError(f"{_ROOMS_KEY}: built-in scenes are drawn anew by each seed; set tasks.path or leave it empty")
    if _ROOMS_SPLIT in tasks.test_splits and not rooms:
        raise UserError(
            f"{_ROOMS_KEY} is empty, and {_ROOMS_SPLIT} is a held-out split; name rooms such as FloorPlan301"
        )
    if tasks.train_split == _ROOMS_SPLIT:
        raise UserError(f"tasks.train_split: {_ROOMS_SPLIT} is what {_ROOMS_KEY} holds out; it cannot train")


def imported_games(tasks: TasksConfig, *, split: str, rooms: Collection[str] = ()) -> list[Task]:
    """The solvable games of a split of the data at `tasks.path`, duplicates left out, in the order of their paths.

    The folder holds `json_2.1.x/<split>/` or `<split>/`; the split `test` is the data's `valid_seen`. Raises UserError
    if there is no game, a file is not one, or a room in `rooms` (held out) is not in the training split.
    """
    folder, train = Path(tasks.path or ""), tasks.train_split
    if split in (train, _ROOMS_SPLIT):
        paths = _game_files(folder, train)
        plans = [_floor_plan(path) for path in paths]
        if absent := [room for room in rooms if room not in plans]:  # a misspelt room would hold nothing out
            raise UserError(
                f"{_ROOMS_KEY}: {folder / train} has no game in {absent[0]!r}; name rooms such as FloorPlan301"
            )
        paths = [path for path, plan in zip(paths, plans, strict=True) if (plan in rooms) == (split == _ROOMS_SPLIT)]
    else:
        paths = _game_files(folder, _TEST if split == "test" else split)
        split = _TEST if split == "test" else split
    found: dict[str, Task] = {}
    for path in paths:
        if tasks.limit is not None and len(found) >= tasks.limit:
            break
        if _solvable(path):
            task = task_from_game(Game.load(path), split=split, scene=_floor_plan(path))
            found.setdefault(task.task_id, task)
    return list(found.values())


def _game_files(folder: Path, split: str) -> list[Path]:
    parts = Path(split).parts
    if len(parts) != 1 or parts[0] in (".", "..", "/"):
        raise UserError(f"tasks: {split!r} is not the name of a split folder such as train or valid_seen")
    roots = [root for root in (folder, *sorted(folder.glob("json_*"), reverse=True)) if (root / split).is_dir()]
    found = sorted(roots[0].joinpath(split).glob("*/*/game.tw-pddl")) if roots else []
    files = [path for path in found if not any(word in str(path.relative_to(roots[0])) for word in _SKIPPED)]
    if not files:
        raise UserError(
            f"{folder / split}: no */*/game.tw-pddl in it; set tasks.path (--from) to the folder that holds "
            f"json_2.1.1/{split}/ or {split}/"
        )
    return files


def _solvable(path: Path) -> bool:
    """Whether the file says that its game has a plan. A file that is not a game is left to `load_game` to refuse."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        return True
    return not isinstance(content, dict) or content.get("solvable") is True


def _floor_plan(path: Path) -> str:
    """`FloorPlan301` of a game: folder names end in the scene's number (or a built-in scene's id)."""
    scene = path.parent.parent.name.rpartition("-")[2]
    return f"FloorPlan{int(scene)}" if scene.isdecimal() else scene
