"""Candidates of an iteration: for each task that left the band, drafts by rules or by a model, and their proofs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.adaptation.drafting import Draft, Drafter, RulesDrafter, read_evidence, replies_of
from rla.adaptation.edits import NOT_TRIED, Choice, Counted, Taken, edit_tally, held_out_tasks, kept_to, prove
from rla.adaptation.standings import read_standings
from rla.config.sections import GeneratorConfig
from rla.envs.protocols import Adapts, Ask, AsksModel, Configurable, Env, Proof, Proves, need
from rla.errors import UserError
from rla.models.checkpoint import model_folder
from rla.pipeline.context import StageContext
from rla.pipeline.origins import policy_of, run_async
from rla.seeds import derive
from rla.store.pools import TASK_FIELDS, as_task, read_tasks
from rla.store.reading import part_rows
from rla.store.records import Direction
from rla.store.shards import ShardWriter


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
) -> tuple[str, ...]:
    """Write a part for each choice without one (without any choice: an empty part). Returns the names of the engines
    in which candidates are proven.
    """
    if not choices:
        writer.write(0, [])
        return ()
    editor: Adapts = env.configured(ctx.config) if isinstance(env, Configurable) else need(env, Adapts, "adapt-env")
    with drafter_of(ctx, env, editor, model) as (drafter, ask):
        proof = env.proof(ctx.config, ask) if isinstance(env, Proves) else None
        if proof is not None and proof.remark:
            ctx.progress.note(f"adapt-env: {proof.remark}")
        left = [index for index in range(len(choices)) if index not in writer.done]
        ctx.progress.start("adapt-env", total=len(left))
        run_async(_adapt_all(ctx, writer, choices, left, editor=editor, drafter=drafter, proof=proof))
    return proof.proven_in if proof is not None else ()


@contextmanager
def drafter_of(
    ctx: StageContext, env: Env, editor: Adapts, model: Path | str | None
) -> Iterator[tuple[Drafter, Ask | None]]:
    """The rules, or the language model `model` with a function that asks it other questions."""
    if model is None:
        yield RulesDrafter(editor), None
        return
    if isinstance(model, Path):
        model = model_folder(model)
    from rla.adaptation.drafting import ModelDrafter
    from rla.llm.chat import ChatFormat
    from rla.llm.factory import make_generator

    own = ctx.config.adaptation.llm
    chosen = editor if isinstance(editor, AsksModel) else need(env, AsksModel, "adaptation.proposer: llm")
    try:
        generator, tokenizer = make_generator(proposing(ctx), model=model, seed=ctx.config.seed, training=False)
    except UserError as error:
        raise UserError(f"adaptation.llm.model: {error}" if own.model else str(error)) from None
    try:
        drafter = ModelDrafter(
            generator=generator, chat=ChatFormat(tokenizer), prompt=chosen.proposal_prompt(), config=own
        )
        yield drafter, replies_of(drafter, seed=derive(ctx.config.seed, "proofs", ctx.iteration))
    finally:
        generator.close()


def proposing(ctx: StageContext) -> GeneratorConfig:
    """The `generator` section, changed by the keys of `adaptation.llm`."""
    config, own = ctx.config.generator, ctx.config.adaptation.llm
    if own.server:
        config = replace(config, backend="server", own=None, server=own.server, server_model="")
    return replace(config, context=own.context or config.context)


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
    evidence = read_evidence(
        {choices[index].task.task_id for index in left},
        trajectories=ctx.path("trajectories"),
        scores=ctx.path("scores"),
    )
    roots = {task.task_id: task for task in read_tasks(ctx.path("roots"))}
    taken = Taken(editor, [*read_tasks(ctx.path("pool")), *roots.values(), *held_out_tasks(ctx)])
    tried = {standing.slot: standing.tried for standing in read_standings(ctx.path("standings"))}
    for part in writer.parts():
        taken.add(*map(as_task, part_rows(part, ["valid", *TASK_FIELDS], keys={True})))  # the valid ones
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
                    kept_to(drafted.proposals, ctx.config.adaptation.edits, known=editor.edit_fields),
                    choice,
                    editor=editor,
                    root=roots.get(choice.task.slot, choice.task),
                    taken=taken.of(choice.task).union(tried[choice.task.slot]),
                    critique=drafted.critique,
                    created=ctx.iteration,
                    replay=proof,
                )
                taken.add(*(candidate.task for candidate in proven if candidate.valid))
                writer.write(index, [candidate.row() for candidate in proven])
                ctx.progress.advance(1)
    finally:
        if proof is not None:
            await proof.close()


def candidate_counts(choices: Sequence[Choice], parts: Sequence[Path], env: Env) -> dict[str, Any]:
    """Numbers of chosen tasks, by direction, and of their candidates, including those of an interrupted call."""
    rows = [row for part in parts for row in part_rows(part, ["valid", "reason", "direction", "edit"])]
    rows = [row for row in rows if row["edit"] is not None]  # a row without an edit says that nothing was proposed
    return {
        "chosen": len(choices),
        "proposed": len(rows),
        "tried": sum(row["reason"] != NOT_TRIED for row in rows),
        "valid": sum(row["valid"] for row in rows),
        "harder": sum(choice.direction is Direction.HARDER for choice in choices),
        "easier": sum(choice.direction is Direction.EASIER for choice in choices),
        "by_edit": edit_tally(
            (
                Counted(
                    row["direction"],
                    row["edit"],
                    {"proposed": True, "tried": row["reason"] != NOT_TRIED, "valid": row["valid"]},
                )
                for row in rows
            ),
            fields=env.edit_fields if isinstance(env, Adapts) else (),
        ),
    }
