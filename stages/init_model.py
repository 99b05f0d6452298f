"""`init-model`: a small policy and reward model of the Qwen3 architecture, with the environment's own tokenizer."""

from __future__ import annotations

import shutil
from typing import Any

from rla.envs.registry import setting
from stages.common import read_tasks
from stages.context import StageContext
from stages.fallback import pool_of

SAMPLE = 64  # tasks that are played for the tokenizer's vocabulary


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes two Hugging Face folders with the same tokenizer and different initial weights."""
    from rla.models.init import init_model

    tasks = read_tasks(pool_of(ctx, "tasks"))
    environment = setting(ctx.config.env.name)
    texts = list(environment.tokenizer_texts(tasks[:SAMPLE], ctx.config))
    phrases = environment.tokenizer_phrases(ctx.config)
    summary = {}
    for number, option in enumerate(("policy", "rm")):
        folder = ctx.path(option)
        if ctx.overwrite:
            shutil.rmtree(folder, ignore_errors=True)
        if not (folder / "config.json").exists():
            init_model(
                folder,
                texts=texts,
                phrases=phrases,
                config=ctx.config.model,
                seed=ctx.config.seed * 2 + number,
            )
        summary[option] = str(folder)
    return summary
