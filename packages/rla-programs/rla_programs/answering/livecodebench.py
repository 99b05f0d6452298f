"""Held-out programs for the official runner of LiveCodeBench, which has the hidden tests.

    [{"question_id": "abc301_a", "code_list": ["print(1)", ...]}, ...]    sorted by question_id

Its `custom_evaluator` reads this file (`--custom_output_file`). A program is the last closed block fenced as python in
the reply, or else the last closed block; if the environment's replies are programs, it is the reply itself. A reply
without a program becomes an empty program, which fails. Every episode counts, even if our own sandbox failed in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.errors import UserError
from rla.store.atomic import write_json
from rla.store.layout import artifact, held_out_root, numbered_folders
from rla.store.manifest import is_complete
from rla.store.reading import read_tasks, stream_rows
from rla.store.records import Task
from rla_programs.coding.fences import fenced_blocks, lines_of
from rla_programs.coding.importing.livecode import LIVECODE
from rla_programs.coding.prompts import LONGEST_REPLY, TAGS

FILE = "livecodebench.json"
SOURCE = f"{LIVECODE}/"  # prefix of the question's id in a problem's source
READ = ("task_id", "rollout", *(f"steps.list.element.{name}" for name in ("reply", "action", "valid")))


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeQuestion:
    """`name`: the question's id if it is `known`, or else the task's. `bare`: the reply is the program itself."""

    name: str
    known: bool
    bare: bool


def export_livecodebench(
    run: Path, config: Config, *, iteration: int | None, split: str | None, out: Path | None
) -> list[str]:
    """Write the programs of one evaluation, by default the last one on the main split, to `out`, by default `FILE` next
    to its metrics. Returns lines for the user. Raises UserError if nothing was evaluated, or if no task asks for a
    program.
    """
    splits = config.tasks.test_splits
    name = split or splits[0]
    root = held_out_root(run, splits, name)
    places = {i: artifact(root, "eval_trajectories", i) for i in numbered_folders(root / "eval")}
    evaluated = [i for i, place in places.items() if is_complete(place)]
    number = max(evaluated, default=None) if iteration is None else iteration
    if number not in evaluated:
        which = "nothing was evaluated" if number is None else f"there is no complete evaluation {number}"
        raise UserError(f"{run}: {which} on {name}; call `rla evaluate` first")
    trajectories, pool = places[number], artifact(root, "test_tasks", 0)
    tasks = read_tasks(pool) if is_complete(pool) else []
    questions = {task.task_id: found for task in tasks if (found := code_question(task)) is not None}
    programs = _programs_of(trajectories, questions)
    if not programs:
        raise UserError(f"{trajectories}: none of its tasks asks for a program; LiveCodeBench judges programs")
    file = out or trajectories.with_name(FILE)
    rows = [{"question_id": questions[task].name, "code_list": code} for task, code in programs.items()]
    write_json(file, sorted(rows, key=lambda row: str(row["question_id"])))
    unknown = sum(not questions[task].known for task in programs)
    told = [f"{file}: {sum(map(len, programs.values()))} programs for {len(programs)} questions, evaluation {number}"]
    if unknown:
        told.append(
            f"{unknown} questions have no id of LiveCodeBench, so the id of the task stands there; the official runner "
            "knows only its own: import data that has the column question_id"
        )
    return told


def code_question(task: Task) -> CodeQuestion | None:
    """None for a task that does not ask for a program. The payload is a coding problem, or has one as JSON text."""
    own = _json_fields(task.payload)
    inner = own.get("problem")
    problem = _json_fields(inner) if isinstance(inner, str) else own
    if "tests" not in problem:
        return None
    source = problem.get("source")
    known = isinstance(source, str) and source.startswith(SOURCE)
    return CodeQuestion(
        name=str(source).removeprefix(SOURCE) if known else task.task_id, known=known, bare=problem is own
    )


def _json_fields(text: str) -> Mapping[str, Any]:
    """The JSON object in `text`; empty if it is not one."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _programs_of(folder: Path, questions: Mapping[str, CodeQuestion]) -> dict[str, list[str]]:
    """Task -> the program of each of its episodes, in order of their rollouts."""
    found: dict[str, dict[int, str]] = {}
    for row in stream_rows(folder, "trajectories", READ, keys=questions):
        code = program_of(row["steps"][-1], bare=questions[row["task_id"]].bare) if row["steps"] else ""
        found.setdefault(row["task_id"], {})[row["rollout"]] = code
    return {task: [code for _, code in sorted(own.items())] for task, own in found.items()}


def program_of(step: Mapping[str, Any], *, bare: bool) -> str:
    """The program in a reply, or an empty one."""
    reply = step["reply"]
    blocks = fenced_blocks(lines_of(reply)) if len(reply) <= LONGEST_REPLY else []
    chosen = [block for block in blocks if block.tag in TAGS] or blocks
    if chosen:
        return chosen[-1].text
    return str(step["action"]) if bare and step["valid"] else ""
