"""Tasks of OSWorld's own files: a folder of `<domain>/<id>.json`, one such file, or a list {domain: [ids]} beside it.

What cannot be played or judged here is left out, and said, task by task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from rla.envs.desktop.params import DesktopParams
from rla.envs.desktop.scenarios import ScenarioError, scenario_of_json, task_of_scenario
from rla.envs.desktop.tasks import is_held_out_scene
from rla.envs.desktop.verifying import unsupported
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
    for domain, place in task_files(Path(path)):
        try:
            scenario = scenario_of_json(json.loads(place.read_text(encoding="utf-8")), domain=domain)
            reason = unsupported(scenario, own)
        except (OSError, ValueError, RecursionError, ScenarioError) as error:
            reason = f"it cannot be read ({error})"
        if reason:
            if tell is not None:
                tell(f"{domain}/{place.stem}: left out, not supported: {reason}")
            continue
        if held_out is not None and is_held_out_scene(scenario.id or place.stem) is not held_out:
            continue
        task = task_of_scenario(scenario, split=split)
        if task.task_id not in seen:
            seen.add(task.task_id)
            tasks.append(task)
        if limit and len(tasks) == limit:
            break
    if not tasks:
        raise UserError(no_tasks(path, split=split, divided=held_out is not None))
    return tasks


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
            yield domain, next((place for place in places if place.is_file()), places[0])
