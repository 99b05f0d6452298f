"""Import of OSWorld's tasks: a folder of `<domain>/<id>.json`, a single file, or a list {domain: [ids]} next to it.

The published trainer plays `new_examples`, the only folder whose scenes have several verifiers. A task that it lacks,
or that cannot be played from there, comes from `examples`. Tasks that cannot be played or judged here are left out with
a line for each, and the last line counts them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from rla.errors import UserError
from rla.store.records import Task
from rla_screens.desktop.official import official_names
from rla_screens.desktop.params import DesktopParams
from rla_screens.desktop.resources import is_plain_file
from rla_screens.desktop.scenarios import ScenarioError, scenario_of, scenario_of_json, task_of_scenario
from rla_screens.desktop.tasks import is_held_out_scene
from rla_screens.desktop.verifying import unplayable_reason

EXAMPLES = ("new_examples", "examples", "")  # folders of the listed files, the published trainer's first


def import_desktop_tasks(
    path: str,
    own: DesktopParams,
    *,
    split: str,
    held_out: bool | None,
    limit: int | None,
    tell: Callable[[str], None] | None,
) -> list[Task]:
    """Up to `limit` playable tasks, in the order of their files. `held_out`: if one list serves both sides, which side
    to take, decided by the digest of the ids as with our own tasks; None: all. Raises UserError.
    """

    def say(line: str) -> None:
        if tell is not None:
            tell(line.encode(errors="backslashreplace").decode())  # file names may be undecodable

    tasks, seen = list[Task](), set[str]()
    files = list(_task_files(Path(path)))  # report an unreadable list before a process is started
    official = official_names(own.osworld_python) if files and own.osworld_python else None
    read = playable = several = 0
    for domain, places in files:
        read += 1
        found = _first_playable(places, own, domain=domain, split=split, official=official, say=say)
        if found is None:
            continue
        task, held = found
        playable, several = playable + 1, several + (len(scenario_of(task).verifiers) > 1)
        if (held_out is None or held is held_out) and task.task_id not in seen:
            seen.add(task.task_id)
            tasks.append(task)
        if limit and len(tasks) == limit:
            break
    first = "" if read == len(files) else f", the first {read} read"
    say(
        f"{path}: {len(files)} tasks listed{first}, {playable} can be played here, {several} of them with several "
        f"verifiers; {len(tasks)} are for {split}"
    )
    if not tasks:
        raise UserError(_no_tasks(path, split=split, divided=held_out is not None))
    return tasks


class Unplayable(Exception):
    """A task that cannot be played or judged here; the message says why."""


def _first_playable(
    places: Sequence[Path],
    own: DesktopParams,
    *,
    domain: str,
    split: str,
    official: Collection[str] | None,
    say: Callable[[str], None],
) -> tuple[Task, bool] | None:
    """`read_task` of a task's first playable file; None, with the reason passed to `say`, if there is none."""
    flaws = list[str]()
    for place in places:
        try:
            found = read_task(place, own, domain=domain, split=split, official=official)
        except Unplayable as error:
            flaws.append(str(error))
            continue
        if flaws:
            say(f"{domain}/{place.stem}: from {place.parent.parent.name}; its first file is not supported: {flaws[0]}")
        return found
    say(f"{domain}/{places[0].stem}: left out, not supported: {flaws[0]}")
    return None


def read_task(
    place: Path, own: DesktopParams, *, domain: str, split: str, official: Collection[str] | None = None
) -> tuple[Task, bool]:
    """The task of a file, and whether its id is held out. `official`: as in `unplayable_reason`. Raises Unplayable, and
    UserError as `unplayable_reason` does.
    """
    try:
        scenario = scenario_of_json(json.loads(place.read_text(encoding="utf-8")), domain=domain)
        if reason := unplayable_reason(scenario, own, official):
            raise Unplayable(reason)
        return task_of_scenario(scenario, split=split), is_held_out_scene(scenario.id or place.stem)
    except UserError as error:
        raise UserError(f"tasks.path: {place}: {error}") from None
    except (OSError, ValueError, RecursionError, ScenarioError) as error:
        raise Unplayable(f"{place} cannot be read as a task ({error})") from None


def _no_tasks(path: str, *, split: str, divided: bool) -> str:
    """The message for a list without playable tasks, with a remedy."""
    remedy = "; with env.own.test_path each side has a list of its own" if divided else ""
    return f"{path} has no task for {split} that can be played here; see the lines above{remedy}"


def _task_files(path: Path) -> Iterator[tuple[str, Sequence[Path]]]:
    """Domain and files of each task; the first file is preferred. Raises UserError."""
    if path.is_dir():
        folder = next(place for name in EXAMPLES if (place := path / name).is_dir())
        for place in sorted(folder.glob("*/*.json")) or sorted(folder.glob("*.json")):
            yield place.parent.name if place.parent != folder else "desktop", [place]
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"tasks.path: {path} cannot be read as tasks of OSWorld ({error})") from None
    if isinstance(found, dict) and found and all(isinstance(ids, list) for ids in found.values()):
        yield from _listed_files(path.parent, found)
    else:
        yield path.parent.name, [path]


def _listed_files(folder: Path, listed: dict[str, list[object]]) -> Iterator[tuple[str, Sequence[Path]]]:
    for domain, ids in listed.items():
        for name in map(str, ids):
            if any(word in f"{domain}{name}" for word in ("/", "\\", "..")):
                raise UserError(f"tasks.path: {domain}/{name} is not the name of a task")
            places = [folder / base / domain / f"{name}.json" for base in EXAMPLES]
            yield domain, [place for place in places if is_plain_file(place)] or places[:1]
