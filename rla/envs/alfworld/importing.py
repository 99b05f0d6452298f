"""ALFWorld's data files as tasks: the games of a split folder, and rooms of the training split that are held out.

env.own.held_out_rooms: [FloorPlan301]   scenes, by the numbers in the names of the games' folders
the training split                       its games without those of these rooms
the split `held_out_rooms`               the games of the training split in these rooms, and no others
any other split                          all games of its folder, those rooms among them
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from rla.config.sections import TasksConfig
from rla.envs.alfworld.problem import load_game
from rla.envs.alfworld.tasks import task_from_game
from rla.errors import UserError
from rla.store.records import Task

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
    if ROOMS_SPLIT in tasks.held_out_splits and not rooms:
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
