"""`init-model`: where both models start: small new ones with a tokenizer for the environment, or configured ones."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from rla.envs.plain_texts import plain_texts
from rla.envs.protocols import Vocabulary
from rla.envs.registry import environment
from rla.models.adopting import adopt, keep_or_make
from rla.pipeline.context import StageContext
from rla.pipeline.fallback import pool_of
from rla.pipeline.origins import origin
from rla.store.pools import read_tasks

SAMPLE = 64  # tasks that are played for the tokenizer's vocabulary


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes two Hugging Face folders; a configured folder or hub id is linked file by file, not copied."""
    pool = pool_of(ctx, "tasks")
    found = origin(ctx, [pool])
    made_from = found.as_json() | found.named()
    summary = {}
    chosen = (("policy", "model.policy", ctx.config.model.policy), ("rm", "model.reward", ctx.config.model.reward))
    for number, (option, key, configured) in enumerate(chosen):
        folder = ctx.path(option)
        if configured == "init":
            make = partial(make_model, ctx, pool=pool, seed=ctx.config.seed * 2 + number)
        else:
            make = partial(adopt, configured, key=key)
        keep_or_make(folder, made_from, make, overwrite=ctx.overwrite)
        summary[option] = str(folder)
    return summary


def make_model(ctx: StageContext, folder: Path, *, pool: Path, seed: int) -> None:
    """A small new model. An environment that knows its vocabulary gives the texts; of others every sign is a token."""
    from rla.models.init import fill_model

    chosen, tasks = environment(ctx.config.env.name), read_tasks(pool)[:SAMPLE]
    known = chosen if isinstance(chosen, Vocabulary) else None
    fill_model(
        folder,
        texts=list(known.tokenizer_texts(tasks, ctx.config) if known else plain_texts(chosen, tasks, ctx.config)),
        phrases=known.tokenizer_phrases(ctx.config) if known else (),
        exact=known.exact_text if known else True,
        config=ctx.config.model,
        seed=seed,
    )
