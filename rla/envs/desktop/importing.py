"""Tasks of OSWorld's own files: a folder of `<domain>/<id>.json`, one such file, or a list {domain: [ids]} beside it.

What cannot be played or judged here is left out, and said, task by task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from rla.envs.desktop.official import official_names
from rla.envs.desktop.params import DesktopParams
from rla.envs.desktop.resources import is_plain_file
from rla.envs.desktop.scenarios import ScenarioError, scenario_of_json, task_of_scenario
from rla.envs.desktop.supporting import unsupported
from rla.envs.desktop.tasks import is_held_out_scene
from rla.errors import UserError
from rla.store.records import Task

EXAMPLES = ("examples", "new_examples", "")  # where OSWorld's lists have their files


def import_desktop_tasks(
    path: str,
    own: DesktopParams,
    *,
    split: str,
    held_out: bool | None,
    limit: int | None,
    tell: Callable[[str], None] | None,
) -> list[Task]:
    """At most `limit` of those that can be played, in the order of their files. `held_out`: of one list for both sides,
    those of that side by the digest of their ids, as with tasks of our own; None: all. Raises UserError.
    """
    tasks, seen = list[Task](), set[str]()
    files = list(task_files(Path(path)))  # a list that cannot be read is told before a process is started
    official = official_names(own.osworld_python) if files and own.osworld_python else None
    for domain, place in files:
        try:
            task, held = read_task(place, own, domain=domain, split=split, official=official)
        except Unplayable as error:
            if tell is not None:
                line = f"{domain}/{place.stem}: left out, not supported: {error}"
                tell(line.encode(errors="backslashreplace").decode())  # names of files may be no text
            continue
        if (held_out is None or held is held_out) and task.task_id not in seen:
            seen.add(task.task_id)
            tasks.append(task)
        if limit and len(tasks) == limit:
            break
    if not tasks:
        raise UserError(no_tasks(path, split=split, divided=held_out is not None))
    return tasks


class Unplayable(Exception):
    """A task that cannot be played or judged here; the message says why."""


def read_task(
    place: Path, own: DesktopParams, *, domain: str, split: str, official: Collection[str] | None = None
) -> tuple[Task, bool]:
    """The task of a file, and whether its id holds it out. `official`: as in `unsupported`. Raises Unplayable."""
    try:
        scenario = scenario_of_json(json.loads(place.read_text(encoding="utf-8")), domain=domain)
        if reason := unsupported(scenario, own, official):
            raise Unplayable(reason)
        return task_of_scenario(scenario, split=split), is_held_out_scene(scenario.id or place.stem)
    except (OSError, ValueError, RecursionError, ScenarioError) as error:
        raise Unplayable(f"{place} cannot be read as a task ({error})") from None


def no_tasks(path: str, *, split: str, divided: bool) -> str:
    """What is wrong with a list that gives no tasks, and what helps."""
    remedy = "; with env.own.test_path each side has a list of its own" if divided else ""
    return f"{path} has no task for {split} that can be played here; see the lines above{remedy}"


def task_files(path: Path) -> Iterator[tuple[str, Path]]:
    """Domain and file of each task. Raises UserError."""
    if path.is_dir():
        for place in sorted(path.glob("*/*.json")) or sorted(path.glob("*.json")):
            yield place.parent.name if place.parent != path else "desktop", place
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"tasks.path: {path} cannot be read as tasks of OSWorld ({error})") from None
    if isinstance(found, dict) and found and all(isinstance(ids, list) for ids in found.values()):
        yield from listed_files(path.parent, found)
    else:
        yield path.parent.name, path


def listed_files(folder: Path, listed: dict[str, list[object]]) -> Iterator[tuple[str, Path]]:
    for domain, ids in listed.items():
        for name in map(str, ids):
            if any(word in f"{domain}{name}" for word in ("/", "\\", "..")):
                raise UserError(f"tasks.path: {domain}/{name} is no name of a task")
            places = [folder / base / domain / f"{name}.json" for base in EXAMPLES]
            yield domain, next((place for place in places if is_plain_file(place)), places[0])
