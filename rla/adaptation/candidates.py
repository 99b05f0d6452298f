"""Candidates of an iteration: for each task that left the band, edits that the environment proves, or refuses.

The environment parses, applies and verifies each edit in turn, and proves it further if it can (`Proves`). The first
proven edit becomes the slot's pending task. All others are kept as invalid, with the reason, under an id of their own;
if nothing was proposed, a row holds the critique.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rla.adaptation.acceptance import read_standings
from rla.adaptation.drafting import (
    EPISODE_COLUMNS,
    NONE,
    SCORE_COLUMNS,
    UNREADABLE,
    Choice,
    Draft,
    Drafter,
    ModelDrafter,
    Proposal,
    RulesDrafter,
    edit_kind,
    edit_tally,
    evidence_of,
)
from rla.config.load import proposing_server
from rla.envs.protocols import Adapts, Ask, AsksModel, Configurable, Env, Proof, Proves, RejectedEdit, need
from rla.errors import UserError
from rla.models.checkpoint import model_folder
from rla.pipeline import StageContext
from rla.pipeline.origins import policy_of, run_async
from rla.seeds import derive
from rla.store.layout import artifact, held_out_root
from rla.store.manifest import is_complete
from rla.store.reading import TASK_FIELDS, as_task, part_rows, read_tasks, stream_rows
from rla.store.records import Direction, Task, content_id
from rla.store.shards import ShardWriter

NOT_TRIED = "not tried: an earlier proposal was proven"
Replay = Callable[[Task], Awaitable[str]]  # a further proof (`rla.envs.protocols.Proof`)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One row of a `candidates` shard. An invalid one has its parent's content, its own id and the refused edit; no
    edit if nothing was proposed.
    """

    task: Task
    valid: bool
    reason: str
    parent_accuracy: float
    critique: str

    def row(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("valid", "reason", "parent_accuracy", "critique")}
        return self.task.row() | own


async def prove(
    proposals: Iterable[Proposal],
    choice: Choice,
    *,
    editor: Adapts,
    root: Task,
    taken: Collection[str],
    critique: str,
    created: int,
    allowed: Collection[str] = (),
    replay: Replay | None = None,
) -> list[Candidate]:
    """Candidates of one task, one for each proposal, at most one of them valid.

    `root`: the task that the slot began with. `taken`: ids and likenesses of the tasks that exist. `created`: the
    iteration. `allowed`: the names that an edit may have; empty: any. An edit that is proposed twice is tried once.
    """
    candidates, asked = [], dict[str | None, str]()
    for proposal in proposals:
        kind = edit_kind(proposal.edit, editor.edit_fields)
        # The environment gives its own reason for an edit that cannot be read.
        named = {*kind.split("+")} if kind not in (NONE, UNREADABLE) else set[str]()
        other = f"adaptation.edits allows {', '.join(allowed)} alone" if allowed and named - {*allowed} else ""
        asked.setdefault(proposal.edit, proposal.refused or other)
    proven, parent = False, choice.task
    for edit, known in asked.items():
        child, reason = None, known or (NOT_TRIED if proven else "")
        if edit is not None and not reason:
            try:
                child = editor.apply(parent, edit, root=root, taken=taken, created=created)
                reason = await replay(child) if replay is not None else ""
            except RejectedEdit as refused:
                reason = str(refused) or "refused"
        if child is None or reason:
            child = replace(
                parent,
                task_id=content_id("refused", parent.task_id, edit or "", str(created)),  # an id that no task can have
                parent_id=parent.task_id,
                depth=parent.depth + 1,
                created=created,
                edit=edit,
                plan_length=None,
            )
        candidates.append(
            Candidate(
                task=replace(child, direction=choice.direction.value),
                valid=not reason,
                reason=reason,
                parent_accuracy=choice.accuracy,
                critique=critique,
            )
        )
        proven |= not reason
    return candidates


class ExistingTasks:
    """The tasks that exist, held-out ones included: a changed task must not equal a task of the evaluation.

    Two tasks are alike if they ask the same in the same state of a scene. Likenesses are computed scene by scene, on
    demand, because reading a pool of thousands of games for a few proposals would take long.
    """

    def __init__(self, editor: Adapts, tasks: Iterable[Task]) -> None:
        self._editor = editor
        self._ids: set[str] = set()
        self._scenes: dict[str, list[Task]] = {}
        self._alike: dict[str, set[str]] = {}
        self.add(*tasks)

    def add(self, *tasks: Task) -> None:
        for task in tasks:
            if task.task_id not in self._ids:
                self._ids.add(task.task_id)
                self._scenes.setdefault(task.scene, []).append(task)

    def of(self, task: Task) -> set[str]:
        """All ids, and the likenesses of the tasks in the scene of `task`."""
        known = self._alike.setdefault(task.scene, set())
        known.update(self._editor.likeness(other) for other in self._scenes.pop(task.scene, ()))
        return self._ids | known


def proposing_model(ctx: StageContext) -> Path | str | None:
    """The checkpoint, model folder or hub id of the language model that proposes; None if rules do, or nobody does."""
    config = ctx.config.adaptation
    if not config.enabled or config.proposer != "llm":
        return None
    own = config.llm.model
    folder = Path(own).expanduser() if own else policy_of(ctx)
    return folder if not own or folder.is_dir() else own


def write_candidates(
    ctx: StageContext, writer: ShardWriter, choices: Sequence[Choice], model: Path | str | None, env: Env
) -> None:
    """Write a part for each choice without one; an empty part if nothing was chosen."""
    if not choices:
        writer.write(0, [])
        return
    editor: Adapts = env.configured(ctx.config) if isinstance(env, Configurable) else need(env, Adapts, "adapt-env")
    with _drafter_of(ctx, env, editor, model) as (drafter, ask):
        proof = env.proof(ctx.config, ask) if isinstance(env, Proves) else None
        left = [index for index in range(len(choices)) if index not in writer.done]
        ctx.progress.start("adapt-env", total=len(left))
        run_async(_adapt_all(ctx, writer, choices, left, editor=editor, drafter=drafter, proof=proof))


@contextmanager
def _drafter_of(
    ctx: StageContext, env: Env, editor: Adapts, model: Path | str | None
) -> Iterator[tuple[Drafter, Ask | None]]:
    """The rules, or the language model `model` with a function that asks it other questions."""
    if model is None:
        yield RulesDrafter(editor), None
        return
    from rla.llm.chat import ChatFormat
    from rla.llm.factory import make_generator

    own = ctx.config.adaptation.llm
    chosen = editor if isinstance(editor, AsksModel) else need(env, AsksModel, "adaptation.proposer: llm")
    found = model_folder(model) if isinstance(model, Path) else model
    engine = replace(ctx.config.generator, context=own.context or ctx.config.generator.context)
    if own.server:
        engine = replace(engine, backend="server", own=proposing_server(own.server))
    try:
        generator, tokenizer = make_generator(engine, model=found, seed=ctx.config.seed, training=False)
    except UserError as error:
        raise UserError(f"adaptation.llm.model: {error}" if own.model else str(error)) from None
    try:
        drafter = ModelDrafter(
            generator=generator, chat=ChatFormat(tokenizer), prompt=chosen.proposal_prompt(), config=own
        )
        yield drafter, partial(drafter.answers, seed=derive(ctx.config.seed, "proofs", ctx.iteration))
    finally:
        generator.close()


async def _adapt_all(
    ctx: StageContext,
    writer: ShardWriter,
    choices: Sequence[Choice],
    left: Sequence[int],
    *,
    editor: Adapts,
    drafter: Drafter,
    proof: Proof | None,
) -> None:
    """Drafts are made concurrently, but proven in the order of the choices: each must differ from the earlier ones."""
    wanted = {choices[index].task.task_id for index in left}
    episodes = stream_rows(ctx.path("trajectories"), "trajectories", EPISODE_COLUMNS, keys=wanted) if wanted else ()
    scores = stream_rows(ctx.path("scores"), "scores", SCORE_COLUMNS, keys=wanted) if wanted else ()
    evidence = evidence_of(wanted, episodes, scores)
    roots = {task.task_id: task for task in read_tasks(ctx.path("roots"))}
    # Held-out tasks are not inputs of the shard: training does not depend on them.
    splits = ctx.config.tasks.test_splits
    places = (artifact(held_out_root(ctx.run, splits, split), "test_tasks", 0) for split in splits)
    held_out = [task for folder in places if is_complete(folder) for task in read_tasks(folder)]
    existing = ExistingTasks(editor, [*read_tasks(ctx.path("pool")), *roots.values(), *held_out])
    tried = {standing.slot: standing.tried for standing in read_standings(ctx.path("standings"))}
    for part in writer.parts():
        existing.add(*map(as_task, part_rows(part, ["valid", *TASK_FIELDS], keys={True})))  # the valid ones
    try:
        async with asyncio.TaskGroup() as tasks:
            drafts: dict[int, asyncio.Task[Draft]] = {}
            for index in left:
                choice = choices[index]
                known = evidence[choice.task.task_id]
                asked = drafter.draft(
                    choice,
                    known,
                    editor.course(choice.task, known.episodes),
                    count=ctx.config.adaptation.proposals_per_task,
                    seed=derive(ctx.config.seed, "edits", choice.task.task_id, ctx.iteration),
                )
                drafts[index] = tasks.create_task(asked)
            for index in left:
                drafted, choice = await drafts.pop(index), choices[index]
                proven = await prove(
                    drafted.proposals,
                    choice,
                    editor=editor,
                    root=roots.get(choice.task.slot, choice.task),
                    taken=existing.of(choice.task).union(tried[choice.task.slot]),
                    critique=drafted.critique,
                    created=ctx.iteration,
                    allowed=ctx.config.adaptation.edits,
                    replay=proof,
                )
                existing.add(*(candidate.task for candidate in proven if candidate.valid))
                writer.write(index, [candidate.row() for candidate in proven])
                ctx.progress.advance(1)
    finally:
        if proof is not None:
            await proof.close()


def candidate_counts(choices: Sequence[Choice], parts: Sequence[Path], env: Env) -> dict[str, Any]:
    """Numbers of chosen tasks, by direction, and of their candidates, including parts of an interrupted call."""
    rows = [row for part in parts for row in part_rows(part, ["valid", "reason", "direction", "edit"])]
    rows = [row for row in rows if row["edit"] is not None]  # a row without an edit says that nothing was proposed
    marks = [{"proposed": True, "tried": row["reason"] != NOT_TRIED, "valid": row["valid"]} for row in rows]
    counted = ((row["direction"], row["edit"], its) for row, its in zip(rows, marks, strict=True))
    return {
        "chosen": len(choices),
        **{name: sum(its[name] for its in marks) for name in ("proposed", "tried", "valid")},
        "harder": sum(choice.direction is Direction.HARDER for choice in choices),
        "easier": sum(choice.direction is Direction.EASIER for choice in choices),
        "by_edit": edit_tally(counted, fields=env.edit_fields if isinstance(env, Adapts) else ()),
    }
