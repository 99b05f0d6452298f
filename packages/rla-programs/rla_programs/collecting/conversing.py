"""Warm start of the policy from conversations instead of demonstrations: each conversation is one example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rla.config.training import SftConfig
from rla.errors import UserError
from rla.pipeline import StageContext
from rla.pipeline.origins import ensure
from rla.store.layout import artifact
from rla.store.manifest import digest, is_complete
from rla.store.reading import read_manifest
from rla_programs.coding.importing.hub import PREFIX, fetched
from rla_programs.collecting.command import COLLECT, CONVERSATIONS
from rla_programs.collecting.published import conversations_at, parts_of_source

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rla.training.sequences import Example

COLLECTED = "collected"  # the shard that `rla collect` makes for the run


def given_conversations(ctx: StageContext) -> tuple[list[Path], Callable[..., list[Example]]]:
    """The files of the conversations that `warm_start.conversations` names, and a function that makes their examples
    for a tokenizer and an `SftConfig`.
    """
    sources = _conversations_source(ctx)
    return [one for path in sources for one in parts_of_source(path)], partial(_conversation_examples, ctx, sources)


def _conversations_source(ctx: StageContext) -> list[Path]:
    """The paths of the conversations that the policy learns from. `collected` ones are made if they are missing. A
    shard that the user chose with options of `rla collect` is taken as it is; a shard that a teacher has played must
    have these parameters.
    """
    named = ctx.config.warm_start.conversations
    if named != COLLECTED:
        return named_conversations(named, where="warm_start.conversations")
    folder = artifact(ctx.run, CONVERSATIONS, 0)
    if not (is_complete(folder) and chosen(ctx, folder)):
        ensure(ctx, COLLECT, overwrite=ctx.overwrite)
    return [folder]


def named_conversations(named: str, *, where: str) -> list[Path]:
    """The shard, file or folder with a name, or the files of the split `train` of a data set on the Hub. Raises
    UserError, prefixed with `where`, if there is none.
    """
    if named.startswith(PREFIX):
        return fetched(named, "train")
    path = Path(named).expanduser()
    if not path.exists():
        raise UserError(
            f"{where}: {path}: no such file or folder; `rla collect` makes one, and a data set of the Hub is "
            "hub:owner/name"
        )
    return [path]


def chosen(ctx: StageContext, folder: Path) -> bool:
    """Whether a shard was chosen from earlier episodes. A shard that a teacher has played names the pool."""
    pool, inputs = artifact(ctx.run, "train_tasks", 0), read_manifest(folder, "conversations").get("input_digests", {})
    return not pool.exists() or digest(pool) not in inputs.values()


def _conversation_examples(
    ctx: StageContext, sources: Sequence[Path], tokenizer: PreTrainedTokenizerBase, config: SftConfig
) -> list[Example]:
    """All conversations of `sources`; `config.examples` applies to demonstrations only. Conversations that are longer
    than the model's context, or that its chat template cannot print, are left out; with `max_length` they are cut.
    """
    from rla_programs.collecting.chat_tokens import ChatTokens, NotRendered

    tokens = ChatTokens(tokenizer)
    found = [one for path in sources for one in conversations_at(path, tell=ctx.progress.note)]
    examples: list[Example] = []
    refused: list[str] = []
    for one in found:
        try:
            example = tokens.example(one, most=config.max_length)
        except NotRendered as reason:
            refused.append(str(reason))
            continue
        if (config.max_length or len(example.token_ids) <= ctx.config.model.context) and any(example.weights[1:]):
            examples.append(example)
    if refused:
        ctx.progress.note(f"warm-start: {len(refused)} conversations cannot be printed: {refused[0]}")
    if tokens.thoughtless:
        ctx.progress.note(f"warm-start: the chat template leaves thoughts out of {tokens.thoughtless} conversations")
    if len(examples) + len(refused) < len(found):
        left = len(found) - len(examples) - len(refused)
        ctx.progress.note(f"warm-start: {left} conversations are too long; see model.context and max_length")
    if not examples:
        raise UserError(
            f"{sources[0]}: no conversation trains: {(refused or ['all are too long; raise model.context'])[0]}"
        )
    return examples
