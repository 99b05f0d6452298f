"""`init-model`: the initial models: small new ones with a tokenizer for the environment, or configured ones."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.envs.authoring import tokenizer_texts
from rla.envs.registry import environment
from rla.models.init import adopt, init_model, keep_or_make, new_tokenizer
from rla.pipeline import StageContext
from rla.pipeline.origins import origin, pool_of
from rla.store.reading import read_tasks

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def run(ctx: StageContext) -> dict[str, Any]:
    """Write two Hugging Face folders. The files of a configured folder or hub id are linked, not copied."""
    pool = pool_of(ctx, "tasks")
    found = origin(ctx, [pool])
    made_from = found.as_json() | found.named()
    model, summary = ctx.config.model, {}

    @cache  # both models have it
    def tokenizer() -> PreTrainedTokenizerFast:
        texts = tokenizer_texts(environment(ctx.config.env.name), read_tasks(pool), ctx.config)
        return new_tokenizer(**asdict(texts), context=model.context)

    def fill(folder: Path, *, key: str, configured: str, seed: int) -> None:
        if configured == "init":
            init_model(folder, tokenizer=tokenizer(), config=model, seed=seed)
        else:
            adopt(configured, folder, key=key)

    chosen = (("policy", "model.policy", model.policy), ("rm", "model.reward", model.reward))
    for number, (option, key, configured) in enumerate(chosen):
        make = partial(fill, key=key, configured=configured, seed=ctx.config.seed * 2 + number)
        keep_or_make(ctx.path(option), made_from, make, overwrite=ctx.overwrite)
        summary[option] = str(ctx.path(option))
    return summary
