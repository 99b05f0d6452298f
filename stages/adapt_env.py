"""`adapt-env`: for tasks whose accuracy left the band, propose harder or easier ones, each proven solvable."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.adaptation.choose import Choice, choose
from rla.adaptation.drafting import Draft, Drafter, RulesDrafter, replies_of
from rla.adaptation.evidence import Evidence, read_evidence
from rla.adaptation.kinds import Counted
from rla.adaptation.kinds import tally as by_edit
from rla.adaptation.playing import places
from rla.adaptation.propose import NOT_TRIED, prove
from rla.adaptation.standings import leading_slots, resting_slots
from rla.adaptation.taken import Taken
from rla.adaptation.verify import engines, replays, settled
from rla.config.sections import GeneratorConfig
from rla.envs.protocols import Ask, Setting
from rla.envs.registry import setting
from rla.pipeline.common import model_folder, origin, read_tasks, run_async
from rla.pipeline.context import StageContext
from rla.pipeline.fallback import policy_of
from rla.seeds import derive
from rla.store.atomic import write_json
from rla.store.records import Direction, Task
from rla.store.shards import ShardWriter, part_rows, read_manifest, read_rows
from stages.validate_tasks import accuracies, read_standings

MODEL = ("policy", "generator")  # what is read of reads and sections only where a language model proposes


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes all candidates with the reason of those that are not valid; one valid candidate per slot at the most.

    A part of the shard is a chosen task: what an interrupted call has proven stays. In which engines tasks are proven
    is part of the origin: what was proven in one alone is not carried on as if it were proven in both.
    """
    asked = ctx.config.adaptation
    editor = setting(ctx.config.env.name)
    if asked.enabled:
        ctx = replace(ctx, config=settled(ctx.config, editor))
    model = model_of(ctx)
    inputs = [ctx.path(name) for name, _ in ctx.spec.reads if name not in MODEL]
    inputs += [model] if isinstance(model, Path) else []
    sections = [name for name in ctx.spec.sections if model is not None or name not in MODEL]
    folder = ctx.path("out")
    made_from = origin(ctx, inputs, sections=sections)
    writer = ShardWriter(folder, "candidates", made_from, overwrite=ctx.overwrite)
    if not writer.complete:
        choices = chosen(ctx) if ctx.config.adaptation.enabled else []
        in_engines = choices and not editor.own_proof
        proven_in = engines(ctx.config, editor) if in_engines else []  # refused before anything is asked
        if in_engines and asked.verify_engines == "auto" and len(proven_in) == 1:
            ctx.progress.note(
                f"adapt-env: no second engine is installed, so tasks are proven in {proven_in[0]} alone; "
                "run pip install 'rla[alfworld]' for both"
            )
        adapt(ctx, writer, choices, model)
        writer.finish({**tally(choices, writer.parts()), "engines": proven_in})
    counts = read_manifest(folder, "candidates")["counts"]
    write_json(folder / "metrics.json", counts)
    return {"candidates": str(folder), **counts}


def model_of(ctx: StageContext) -> Path | str | None:
    """The folder or hub id of the language model that proposes; None where rules do, or nothing is proposed."""
    config = ctx.config.adaptation
    if not config.enabled or config.proposer != "llm":
        return None
    own = config.llm.model
    folder = Path(own).expanduser() if own else policy_of(ctx)
    return model_folder(folder) if not own or folder.is_dir() else own


def chosen(ctx: StageContext) -> list[Choice]:
    """The tasks to change."""
    config = ctx.config.adaptation
    standings = read_standings(ctx.path("standings"))
    played = read_rows(ctx.path("trajectories"), "trajectories", ["task_id", "outcome", "stop_reason"])
    return choose(
        read_tasks(ctx.path("pool")),
        {task: accuracy for task, (accuracy, _) in accuracies(played).items()},
        config=config,
        limit=places(ctx.config.rollout, config.acceptance),
        resting=resting_slots(standings, iteration=ctx.iteration),
        leading=leading_slots(standings, config=config),
        seed=derive(ctx.config.seed, "choose", ctx.iteration),
    )


def adapt(ctx: StageContext, writer: ShardWriter, choices: Sequence[Choice], model: Path | str | None) -> None:
    """A part for each choice that has none yet; the part of no choice at all is empty."""
    if not choices:
        writer.write(0, [])
        return
    left = [index for index in range(len(choices)) if index not in writer.done]
    if not left:
        return
    editor = setting(ctx.config.env.name)
    ctx.progress.start("adapt-env", total=len(left))
    evidence = read_evidence(
        {choices[index].task.task_id for index in left},
        trajectories=ctx.path("trajectories"),
        scores=ctx.path("scores"),
    )
    with drafter_of(ctx, editor, model) as (drafter, ask):
        run_async(adapt_all(ctx, writer, choices, left, editor=editor, drafter=drafter, ask=ask, evidence=evidence))


@contextmanager
def drafter_of(ctx: StageContext, editor: Setting, model: Path | str | None) -> Iterator[tuple[Drafter, Ask | None]]:
    """Rules, or the language model `model`; and how that is asked for anything else."""
    if model is None:
        yield RulesDrafter(editor), None
        return
    from rla.adaptation.drafting import ModelDrafter
    from rla.llm.chat import ChatFormat
    from rla.llm.factory import make_generator

    own = ctx.config.adaptation.llm
    generator, tokenizer = make_generator(proposing(ctx), model=model, seed=ctx.config.seed, training=False)
    try:
        chat, prompt = ChatFormat(tokenizer), editor.proposal_prompt()
        drafter = ModelDrafter(generator=generator, chat=chat, prompt=prompt, config=own)
        yield drafter, replies_of(drafter, seed=derive(ctx.config.seed, "proofs", ctx.iteration))
    finally:
        generator.close()


def proposing(ctx: StageContext) -> GeneratorConfig:
    """The `generator` section as the proposer's own keys change it."""
    config, own = ctx.config.generator, ctx.config.adaptation.llm
    if own.server:
        config = replace(config, backend="server", server=own.server, server_model=own.server_model)
    return replace(config, context=own.context or config.context)


async def adapt_all(
    ctx: StageContext,
    writer: ShardWriter,
    choices: Sequence[Choice],
    left: Sequence[int],
    *,
    editor: Setting,
    drafter: Drafter,
    ask: Ask | None,
    evidence: Mapping[str, Evidence],
) -> None:
    """Drafts are made side by side; they are proven in the order of the choices, for each must differ from those
    before it.
    """
    roots = {task.task_id: task for task in read_tasks(ctx.path("roots"))}
    taken = Taken(editor, [*read_tasks(ctx.path("pool")), *roots.values()])
    tried = {standing.slot: standing.tried for standing in read_standings(ctx.path("standings"))}
    for part in writer.parts():
        taken.add(*valid_tasks(part))

    async def draft(index: int) -> Draft:
        choice = choices[index]
        known = evidence[choice.task.task_id]
        return await drafter.draft(
            choice,
            known,
            editor.course(choice.task, known.episodes),
            count=ctx.config.adaptation.proposals_per_task,
            seed=derive(ctx.config.seed, "edits", choice.task.task_id, ctx.iteration),
        )

    async with AsyncExitStack() as stack:
        replay = stack.enter_context(replays(ctx.config, editor))
        proof = editor.proof(ctx.config, ask)
        if proof is not None:
            stack.push_async_callback(proof.close)
            replay = proof
        async with asyncio.TaskGroup() as tasks:
            drafts = {index: tasks.create_task(draft(index)) for index in left}
            for index in left:
                drafted, choice = await drafts.pop(index), choices[index]
                root = roots.get(choice.task.slot, choice.task)
                proven = await prove(
                    drafted.proposals,
                    choice,
                    editor=editor,
                    root=root,
                    taken=taken.of(choice.task).union(tried[choice.task.slot]),
                    critique=drafted.critique,
                    created=ctx.iteration,
                    replay=replay,
                )
                taken.add(*(candidate.task for candidate in proven if candidate.valid))
                writer.write(index, [candidate.row() for candidate in proven])
                ctx.progress.advance(1)


def valid_tasks(part: Path) -> list[Task]:
    """The tasks of the valid candidates of one part."""
    columns = ["valid", *Task.__dataclass_fields__]
    return [Task(**{name: row[name] for name in columns[1:]}) for row in part_rows(part, columns, keys={True})]


def tally(choices: Sequence[Choice], parts: Sequence[Path]) -> dict[str, Any]:
    """Tasks chosen, by direction, and their candidates, those of an interrupted call included."""
    rows = [row for part in parts for row in part_rows(part, ["valid", "reason", "direction", "edit"])]
    rows = [row for row in rows if row["edit"] is not None]  # the others say that nothing was proposed
    return {
        "chosen": len(choices),
        "proposed": len(rows),
        "tried": sum(row["reason"] != NOT_TRIED for row in rows),
        "valid": sum(row["valid"] for row in rows),
        "harder": sum(choice.direction is Direction.HARDER for choice in choices),
        "easier": sum(choice.direction is Direction.EASIER for choice in choices),
        "by_edit": by_edit(
            Counted(
                row["direction"],
                row["edit"],
                {"proposed": True, "tried": row["reason"] != NOT_TRIED, "valid": row["valid"]},
            )
            for row in rows
        ),
    }
