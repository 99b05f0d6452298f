"""The history of every slot of a run: its root, the tasks proposed for it, the verdicts on them, and its returns.

Read from the shards of a run: candidates of iteration t, verdicts and standings of t + 1. Parts that an unfinished run
has not made yet are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.adaptation.acceptance import Decision
from rla.adaptation.drafting import edit_kind
from rla.envs.protocols import Adapts
from rla.envs.registry import environment
from rla.errors import UserError
from rla.report.tables import ABSENT, Table, number
from rla.store.layout import artifact, numbered_folders
from rla.store.manifest import is_complete
from rla.store.reading import read_rows

Row = dict[str, Any]
TASK = ("task_id", "kind", "instruction", "plan_length")
PROPOSAL = (*TASK, "slot", "parent_id", "depth", "created", "direction", "edit", "critique", "valid", "reason")
MEASURED = ("iteration", "held_id", "accuracy", "rollouts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """One slot. `versions`: every proposal in order, with its verdict, which is None if the proposal was refused before
    any rollout or is not judged yet. A version without an edit means that nothing was proposed. `measurements`: of the
    tasks that held the slot. `returns`: returns to the root. `standing`: the last one.
    """

    slot: str
    root: Row
    versions: tuple[Row, ...]
    measurements: tuple[Row, ...]
    returns: tuple[Row, ...]
    standing: Row | None

    def as_json(self) -> Row:
        return {
            "slot": self.slot,
            "root": self.root,
            "versions": list(self.versions),
            "measurements": list(self.measurements),
            "returns": list(self.returns),
            "standing": self.standing,
        }


def lineages(run: Path) -> dict[str, Lineage]:
    """slot -> its lineage, in the order of the first pool. Raises UserError if the run has no task pool."""
    iterations = [number for number in numbered_folders(run) if number > 0]
    proposals = by_slot(row for i in iterations for row in _kind_rows(run, "candidates", i))
    verdicts = {(row["iteration"], row["task_id"]): row for i in iterations for row in _kind_rows(run, "verdicts", i)}
    standings = by_slot(row for i in iterations for row in _kind_rows(run, "standings", i))
    return {
        root["slot"]: _slot_lineage(root, proposals.get(root["slot"], []), verdicts, standings.get(root["slot"], []))
        for root in read_rows(artifact(run, "train_tasks", 0), "tasks")
    }


def _kind_rows(run: Path, kind: str, iteration: int) -> list[Row]:
    folder = artifact(run, kind, iteration)
    return read_rows(folder, kind) if is_complete(folder) else []


def by_slot(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["slot"], []).append(row)
    return found


def _slot_lineage(
    root: Row, proposals: Sequence[Row], verdicts: Mapping[tuple[int, str], Row], standings: Sequence[Row]
) -> Lineage:
    """The lineage of one slot from its rows. A proposal of iteration t is judged in t + 1."""
    fields = _fields_of(root["env"])
    versions = [
        {name: row[name] for name in PROPOSAL}
        | {
            "edit_kind": edit_kind(row["edit"], fields),
            "parent_accuracy": row["parent_accuracy"],
            "verdict": verdicts.get((row["created"] + 1, row["task_id"])) if row["valid"] else None,
        }
        for row in proposals
    ]
    return Lineage(
        slot=root["slot"],
        root={name: root[name] for name in TASK},
        versions=tuple(versions),
        measurements=tuple({name: row[name] for name in MEASURED} for row in standings if row["rollouts"]),
        returns=tuple(
            {"iteration": row["iteration"], "task_id": row["held_id"], "root": row["task_id"], "reason": row["reason"]}
            for row in standings
            if row["decision"] == Decision.RETURNED
        ),
        standing=standings[-1] if standings else None,
    )


def _fields_of(env: str) -> frozenset[str]:
    """The fields that edits of an environment may have; empty if it is not installed or does not change tasks."""
    try:
        chosen = environment(env)
    except UserError:
        return frozenset()
    return chosen.edit_fields if isinstance(chosen, Adapts) else frozenset()


def find(found: Mapping[str, Lineage], *, slot: str | None = None, task: str | None = None) -> Lineage:
    """The lineage of a slot, or of the slot that a task was made for. Raises UserError if there is none."""
    if slot is not None:
        if slot not in found:
            raise UserError(f"--slot {slot}: no such slot; `rla lineage` without it lists the changed ones")
        return found[slot]
    for entry in found.values():
        if task == entry.slot or any(version["task_id"] == task for version in entry.versions):
            return entry
    raise UserError(f"--task {task}: no such task in the pool or among the candidates of this run")


def overview(found: Mapping[str, Lineage]) -> Table:
    """One line per slot that was asked to change."""
    rows = []
    for entry in found.values():
        if entry.versions:
            last = entry.standing or {}
            rows.append(
                (
                    entry.slot,
                    entry.root["kind"],
                    str(sum(version["edit"] is not None for version in entry.versions)),
                    number(last.get("accepted"), 0),
                    number(last.get("returned"), 0),
                    last.get("task_id") or entry.slot,
                    number(last.get("depth"), 0),
                    number(entry.measurements[-1]["accuracy"] if entry.measurements else None, 3),
                )
            )
    columns = ("slot", "kind of the root", "proposed", "accepted", "returned", "held by", "depth", "last accuracy")
    note = f"{len(rows)} of {len(found)} slots were asked to change; --slot ID shows one"
    return Table(title="Slots", columns=columns, rows=tuple(rows), note=note)


def history(entry: Lineage, *, refused: bool = False) -> list[Table]:
    """The tables of one slot: its tasks, and its measurements. `refused`: with proposals that gave no valid task."""
    root = entry.root
    made: list[tuple[int, tuple[str, ...]]] = [
        (0, ("0", "root", root["task_id"], "", root["instruction"], "", "", ABSENT, ABSENT, ""))
    ]
    for version in entry.versions:
        if version["valid"] or refused:
            made.append((version["created"], _version_cells(version)))
    for back in entry.returns:
        cells = (str(back["iteration"]), "returned", back["root"], "", "", "", "", ABSENT, ABSENT, back["reason"])
        made.append((back["iteration"], cells))
    columns = (
        "iteration",
        "decision",
        "task",
        "direction",
        "instruction",
        "edit",
        "critique",
        "parent",
        "accuracy",
        "why",
    )
    note = "iteration: proposed > judged; parent: its accuracy when asked > beside the task; accuracy: of the task"
    tasks = Table(
        title=f"Slot {entry.slot}",
        columns=columns,
        rows=tuple(cells for _, cells in sorted(made, key=lambda pair: pair[0])),
        note=note,
    )
    measured = tuple(
        (str(row["iteration"]), row["held_id"], number(row["accuracy"], 3), str(row["rollouts"]))
        for row in entry.measurements
    )
    return [tasks, Table(title="Measured", columns=("iteration", "task", "accuracy", "rollouts"), rows=measured)]


def _version_cells(version: Row) -> tuple[str, ...]:
    verdict = version["verdict"]
    decision = "refused" if not version["valid"] else "pending" if verdict is None else "rejected"
    when, parent, accuracy, why = str(version["created"]), number(version["parent_accuracy"], 3), ABSENT, ""
    if version["edit"] is None:
        decision = "none"
    if verdict is not None:
        decision = "accepted" if verdict["accepted"] else decision
        when = f"{when} > {verdict['iteration']}"
        accuracy, why = number(verdict["accuracy"], 3), verdict["reason"]
        if verdict["parent_accuracy_now"] is not None:
            parent = f"{parent} > {number(verdict['parent_accuracy_now'], 3)}"
    elif not version["valid"]:
        why = version["reason"]
    instruction = version["instruction"] if version["valid"] else ""
    told = (version["direction"] or "", instruction, version["edit"] or "", version["critique"])
    return (when, decision, version["task_id"], *told, parent, accuracy, why)
