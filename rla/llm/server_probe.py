"""What is asked of a server before anything is played: which model it serves, and whether its log-probabilities train.

A policy gradient needs log q(token), q being the distribution that was sampled from: softmax(logits / T) over the
tokens that were allowed. That a server reports those, and not the model's own at T = 1, shows on restricted tokens:

- where one token is allowed, log q = 0;
- where two are, their logits' difference d = T log(q / (1 - q)) is the same at every temperature.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.llm.chat import ChatFormat
from rla.llm.http import JsonClient, ServerRefusal
from rla.llm.server_engine import ServerGenerator
from rla.models.vision import banned_tokens
from rla.store.digests import folder_digest

FLAG = "start vLLM with --logprobs-mode processed_logprobs (docs/guide/engines.md)"
PROMPT = [0, 1, 2, 3]  # ids that every vocabulary has
PAIRS = ([4, 5], [5, 6], [6, 7], [4, 7])
TEMPERATURES = (1.0, 2.0)
CERTAIN = 1e-3  # largest |log q| of the only token allowed
STEEPEST = 10.0  # logits further apart leave too little of log q to tell
TOLERANCE, SHARE = 0.5, 0.05  # of d, in logits and as a share: two requests round differently in bfloat16


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One entry of GET /v1/models. `root`: what the server loaded it from; `context`: tokens, where it says so."""

    name: str
    root: str | None
    context: int | None


def connect(config: GeneratorConfig, *, model: Path | str, chat: ChatFormat, training: bool) -> ServerGenerator:
    """A Generator over the server of `config`, which serves the checkpoint `model`.

    Raises UserError where the server does not answer, serves other weights or a shorter context, or, for `training`,
    lacks token ids or the log-probabilities that were sampled from.
    """
    client = JsonClient(
        config.server,
        connections=config.server_connections,
        timeout=config.server_timeout,
        patience=config.server_patience,
    )

    banned = banned_tokens(model)

    async def introduce() -> ServerGenerator:
        served = chosen_model(await models(client, config.server_model), config, model)
        engine = ServerGenerator(
            client, model=served.name, context=config.context, chat=chat, training=training, banned=banned
        )
        if training:
            await probe(engine, chat)
        return engine

    return asyncio.run(introduce())


async def models(client: JsonClient, named: str) -> list[Served]:
    """What is served. A server that keeps no list serves what `named` says."""
    try:
        answer = await client.ask("/models")
    except ServerRefusal as refusal:
        if named and refusal.status in (404, 405):
            return [Served(name=named, root=None, context=None)]
        raise
    cards = answer.get("data") if isinstance(answer, dict) else None
    return [
        Served(name=str(card["id"]), root=card.get("root"), context=card.get("max_model_len"))
        for card in cards or ()
        if isinstance(card, dict) and "id" in card
    ]


def chosen_model(served: Sequence[Served], config: GeneratorConfig, model: Path | str) -> Served:
    """The served model to ask for: the one named, else the one loaded from `model`, else the only one."""
    where, names = f"generator.server {config.server}", ", ".join(card.name for card in served) or "nothing"
    found = [card for card in served if card.name == config.server_model]
    if not config.server_model:
        found = [card for card in served if same_folder(card.root, model)] or list(served)
    if len(found) != 1:
        wanted = f"not {config.server_model}" if config.server_model else "and none of them is known to be the one"
        raise UserError(f"{where} serves {names}, {wanted}; set generator.server_model to the name of {model}")
    (card,) = found
    if other_weights(card.root, model):
        raise UserError(f"{where} serves {card.root}, not this stage's checkpoint {model}; start it with that folder")
    if card.context is not None and card.context < config.context:
        raise UserError(
            f"{where} holds {card.context} tokens and generator.context is {config.context}; start it with "
            f"--max-model-len {config.context}, or set generator.context to {card.context}"
        )
    return card


def same_folder(root: str | None, model: Path | str) -> bool:
    """Whether the server loaded the very folder (or hub id) `model`."""
    if root is None:
        return False
    return root == str(model) or (is_local(root) and Path(model).is_dir() and Path(root).samefile(model))


def other_weights(root: str | None, model: Path | str) -> bool:
    """Whether both are model folders that can be seen from here, and differ."""
    if root is None or same_folder(root, model) or not is_local(root) or not is_local(str(Path(model).absolute())):
        return False
    return folder_digest(Path(root)) != folder_digest(Path(model))


def is_local(root: str) -> bool:
    """A relative path is one of the server's own, and an adapter's folder holds no whole model."""
    return Path(root).is_absolute() and (Path(root) / "config.json").is_file()


async def probe(engine: ServerGenerator, chat: ChatFormat) -> None:
    """Raises UserError unless replies carry token ids and the log-probabilities that they were sampled from."""
    (free,) = await engine.ask(PROMPT, 1, seed=0, temperature=1.0, max_tokens=2, stop_token_ids=sorted(chat.stop_ids))
    engine.sampled(free, 1.0)
    if free.get("prompt_token_ids") not in (None, PROMPT):
        raise engine.lacking("changes a prompt of token ids", "use a server that takes token ids as they are")
    only = await asyncio.gather(*(lone(engine, token) for token in PAIRS[0]))
    if any(abs(logprob) > CERTAIN for logprob in only):
        raise engine.lacking("reports the log-probabilities of the model, not those that it samples from", FLAG)
    for pair in PAIRS:
        cool, hot = await asyncio.gather(*(model_difference(engine, pair, heat) for heat in TEMPERATURES))
        if max(abs(cool), abs(hot)) < STEEPEST and abs(cool - hot) > TOLERANCE + SHARE * abs(cool):
            raise engine.lacking("reports log-probabilities that are not at the sampling temperature", FLAG)


async def lone(engine: ServerGenerator, token: int) -> float:
    """log q of the only token allowed."""
    _, logprob = await engine.one_of(PROMPT, seed=0, choices=[token], temperature=1.0)
    return logprob


async def model_difference(engine: ServerGenerator, pair: list[int], temperature: float) -> float:
    """Logit of the pair's first token less that of its second, from the log-probability of the one drawn."""
    token, logprob = await engine.one_of(PROMPT, seed=0, choices=pair, temperature=temperature)
    other = -math.expm1(min(logprob, 0.0))
    if other == 0.0 or logprob > CERTAIN:
        return math.inf
    d = temperature * (logprob - math.log(other))
    return d if token == pair[0] else -d
