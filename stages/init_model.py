"""`init-model`: the initial models: small new ones with a tokenizer for the environment, or configured ones."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rla.envs.authoring import tokenizer_texts
from rla.envs.registry import environment
from rla.models.init import adopt, init_model, keep_or_make
from rla.pipeline import StageContext
from rla.pipeline.origins import origin, pool_of
from rla.store.reading import read_tasks


def run(ctx: StageContext) -> dict[str, Any]:
    """Write two Hugging Face folders. The files of a configured folder or hub id are linked, not copied."""
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
    """A small new model with a tokenizer of the environment's texts."""
    found = tokenizer_texts(environment(ctx.config.env.name), read_tasks(pool), ctx.config)
    init_model(folder, **asdict(found), config=ctx.config.model, seed=seed)
