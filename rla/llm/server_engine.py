"""An OpenAI-compatible completions server as a Generator: `vllm serve`, and what answers like it.

Prompts go out as token ids; sampled ids come back by `return_token_ids`, their log-probabilities by `logprobs`. For
training data both are required (`probe` asks before anything is played); elsewhere missing ids are
taken from the text and missing log-probabilities are UNKNOWN. All that a server could have defaults for (top_p, top_k,
penalties, stop tokens) is sent with every request. The server's prefix cache takes the place of sessions.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.llm.base import (
    NEVER,
    SEED_MASK,
    Completion,
    FinishReason,
    Request,
    UnusableReply,
    check_request,
    restricted,
    usable_completions,
)
from rla.llm.chat import ChatFormat
from rla.llm.http import JsonClient, ServerRefusal, TransientFailure
from rla.llm.picture_chat import parts_message
from rla.models.adapters import SETTINGS, base_of
from rla.models.checkpoint import ADAPTER
from rla.models.vision import banned_tokens
from rla.store.digests import folder_digest

CONNECTIONS = 256  # requests at once
UNKNOWN = -9999.0  # a finite number, as the schema wants; as a server's own it is vLLM's way to write minus infinity
WHOLE_DISTRIBUTION = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
FLAG = "start vLLM with --logprobs-mode processed_logprobs (docs/guide/engines.md)"
PROMPT = [0, 1, 2, 3]  # ids that every vocabulary has
PAIRS = ([4, 5], [5, 6], [6, 7], [4, 7])
TEMPERATURES = (1.0, 2.0)
CERTAIN = 1e-3  # largest |log q| of the only token allowed
STEEPEST = 10.0  # logits further apart leave too little of log q to tell
TOLERANCE, SHARE = 0.5, 0.05  # of d, in logits and as a share: two requests round differently in bfloat16


class ServerGenerator:
    """Generator over one served model. `chat` is the format of its tokenizer."""

    def __init__(
        self,
        client: JsonClient,
        *,
        model: str,
        context: int,
        chat: ChatFormat,
        training: bool,
        banned: tuple[int, ...] = (),
    ) -> None:
        """`training`: replies without ids or log-probabilities are refused. `banned`: ids that no reply may hold."""
        self.banned = banned
        self.context = context
        self._client, self._model, self._chat, self._training = client, model, chat, training
        self.stop_ids = sorted(chat.stop_ids)

    async def generate(self, request: Request) -> list[Completion]:
        """Sample `request.samples` completions. Raises ContextOverflow, ValueError for an empty prompt, UserError
        when the server refuses, stays away, or leaves out what training data needs, UnusableReply for a reply whose
        numbers cannot be."""
        check_request(request, context=self.context)
        if request.json_schema is not None and self._training:
            raise ValueError("json_schema is for replies that do not train")
        if request.top_p < 1 and self._training:
            raise ValueError("a top_p below 1 is for replies that do not train")
        if request.images:
            return usable_completions(await ask_with_pictures(self, request))
        if request.allowed is None:
            return usable_completions(await self._free(request))

        async def choose(prompt: list[int], seed: int, choices: list[int]) -> tuple[int, float]:
            return await self.one_of(
                prompt, seed=seed, choices=choices, temperature=request.temperature, top_p=request.top_p
            )

        return usable_completions(await restricted(request, choose))

    async def one_of(
        self, prompt: list[int], *, seed: int, choices: list[int], temperature: float, top_p: float = 1.0
    ) -> tuple[int, float]:
        """One of the tokens `choices` and its log-probability among them."""
        (choice,) = await self.ask(
            prompt, 1, seed=seed, temperature=temperature, top_p=top_p, max_tokens=1, allowed_token_ids=choices
        )
        tokens, logprobs = self.sampled(choice, temperature)
        if len(tokens) != 1 or tokens[0] not in choices:
            raise self.lacking("does not restrict a reply to allowed_token_ids", "set decoding: free, or use vLLM")
        return tokens[0], logprobs[0]

    async def ask(self, prompt: list[int], samples: int, *, seed: int, **params: Any) -> list[dict[str, Any]]:
        """The choices of one request, sample by sample."""
        own = {"prompt": prompt, "seed": seed & SEED_MASK, "return_tokens_as_token_ids": True}
        own["logprobs"] = 0  # the sampled token's alone
        _, choices = await self._asked("/completions", samples, own | params)
        return choices

    async def ask_chat(self, messages: list[dict[str, Any]], samples: int, **params: Any) -> tuple[Any, list[Any]]:
        """The token ids of the prompt as the server made it, and the choices, of one request in messages."""
        return await self._asked("/chat/completions", samples, {"messages": messages, "logprobs": True} | params)

    async def _asked(self, path: str, samples: int, params: dict[str, Any]) -> tuple[Any, list[Any]]:
        body = {
            "model": self._model,
            "n": samples,
            "return_token_ids": True,
            "ignore_eos": True,  # the model's own end of text; ours are in stop_token_ids
            "stream": False,
            **WHOLE_DISTRIBUTION,
            **params,
        }
        answer = await self._client.ask(path, body, check=refuse_aborted)
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if not isinstance(choices, list) or sorted(map(index_of, choices)) != list(range(samples)):
            raise self.lacking(f"does not answer with {samples} choices", "use an OpenAI-compatible server")
        return answer.get("prompt_token_ids"), sorted(choices, key=index_of)

    def release(self, session: str) -> None:
        """Nothing is kept by session: the server's prefix cache evicts by itself."""

    def close(self) -> None:
        """Nothing to stop: connections end with the event loop."""

    async def _free(self, request: Request) -> list[Completion]:
        choices = await self.ask(
            list(request.prompt_ids),
            request.samples,
            seed=request.seed,
            temperature=request.temperature,
            top_p=request.top_p,
            max_tokens=request.max_tokens,
            stop_token_ids=self.stop_ids,
            **held_to(request.json_schema),
            **bias_against(self.banned),
        )
        return [self.completion(choice, request.temperature) for choice in choices]

    def completion(self, choice: dict[str, Any], temperature: float) -> Completion:
        tokens, logprobs = self.sampled(choice, temperature)
        reason = choice.get("finish_reason")
        if reason not in tuple(FinishReason):
            raise self.lacking(f"ended a reply with finish_reason {reason!r}", "see the server's log")
        return Completion(
            token_ids=tokens, logprobs=logprobs, allowed=[[] for _ in tokens], finish_reason=FinishReason(reason)
        )

    def sampled(self, choice: dict[str, Any], temperature: float) -> tuple[list[int], list[float]]:
        """Ids, the stop token included, and log-probabilities. A greedy choice is certain: log-probability 0."""
        tokens = choice.get("token_ids")
        if tokens is None and not self._training:
            tokens = self._from_text(choice)
        if tokens is None:
            raise self.lacking(
                "returns no token ids, which training data needs", "use a server that knows return_token_ids"
            )
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise UnusableReply("the server's token_ids are not a list of integers")
        reported = token_logprobs(choice.get("logprobs") or {})
        known = len(reported) == len(tokens) and (not tokens or any(value is not None for value in reported))
        if not known and self._training:
            raise self.lacking(
                "returns no log-probability for each token, which training data needs",
                "start it with --logprobs-mode processed_logprobs",
            )
        values = [reported_logprob(value) for value in reported] if known else [UNKNOWN] * len(tokens)
        return tokens, [0.0] * len(tokens) if temperature == 0 else values

    def _from_text(self, choice: dict[str, Any]) -> list[int]:
        tokens = self._chat.encode(str(choice.get("text", "")))
        return [*tokens, self._chat.end_id] if choice.get("finish_reason") == "stop" else tokens

    def lacking(self, what: str, remedy: str) -> UserError:
        """The refusal of what the server does not do."""
        return UserError(f"generator.server {self._client.url}: {what}; {remedy}")


def token_logprobs(reported: Mapping[str, Any]) -> list[Any]:
    """Of a completion, or of a chat completion."""
    content = reported.get("content")
    if isinstance(content, list):
        return [one.get("logprob") if isinstance(one, dict) else None for one in content]
    return list(reported.get("token_logprobs") or [])


def reported_logprob(value: Any) -> float:
    """NaN for a value that is not a number (some servers write NaN as null), and vLLM's -9999 as minus infinity."""
    number = float(value) if type(value) in (int, float) else math.nan
    return -math.inf if number <= UNKNOWN else number


def held_to(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """OpenAI's field, which vLLM reads as `structured_outputs: {json: ...}`; a server without it ignores the schema."""
    if schema is None:
        return {}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "reply", "schema": dict(schema)}}}


def bias_against(banned: Sequence[int]) -> dict[str, Any]:
    """What keeps a reply free of these tokens, in a request to a server, whose keys are texts."""
    return {"logit_bias": {str(token): NEVER for token in banned}} if banned else {}


def index_of(choice: Any) -> int:
    """Which sample it is; -1 for what is no choice."""
    return int(choice.get("index", -1)) if isinstance(choice, dict) else -1


def refuse_aborted(answer: Any) -> None:
    """A reply that the server gave up (it was stopped, or swaps its weights) is asked for again."""
    if isinstance(answer, dict):
        for choice in answer.get("choices") or ():
            if isinstance(choice, dict) and choice.get("finish_reason") == "abort":
                raise TransientFailure("the server aborted the request")


async def ask_with_pictures(server: ServerGenerator, request: Request) -> list[Completion]:
    """The completions of a request with pictures, which is sent as messages: `/completions` takes no pictures.

    The server makes token ids of them by itself and returns them. They have to be those of the request, picture tokens
    included: what is stored is what the model has read. Raises UserError for what a server cannot do with pictures.
    """
    if request.allowed is not None:
        raise server.lacking(
            "cannot hold a reply to commands beside pictures", "set decoding: free, or use generator.backend vllm"
        )
    if not request.turns:
        raise server.lacking(
            "takes pictures in new conversations alone", "set policy.history: window, or use generator.backend vllm"
        )
    made, choices = await server.ask_chat(
        list(map(parts_message, request.turns)),
        request.samples,
        seed=request.seed & SEED_MASK,
        temperature=request.temperature,
        top_p=request.top_p,
        max_tokens=request.max_tokens,
        stop_token_ids=server.stop_ids,
        **bias_against(server.banned),
    )
    if made is None or list(made) != list(request.prompt_ids):
        count = "no" if made is None else len(made)
        raise server.lacking(
            f"made {count} token ids of a prompt with pictures that has {len(request.prompt_ids)}",
            "start it with the folder of this stage's checkpoint, its chat template and its image processor",
        )
    return [server.completion(choice, request.temperature) for choice in choices]


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
    client = JsonClient(config.server, connections=CONNECTIONS)
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
    """Whether the server loaded the very folder (or hub id) `model`, or the adapter of that checkpoint."""
    if root is None:
        return False
    if base_of(model) is not None and (Path(root) / SETTINGS).is_file():
        return Path(root).samefile(Path(model).parent / ADAPTER)
    return root == str(model) or (is_local(root) and Path(model).is_dir() and Path(root).samefile(model))


def other_weights(root: str | None, model: Path | str) -> bool:
    """Whether both are model folders that can be seen from here, and differ. Of a LoRA checkpoint, base and other
    adapters do; what `rla merge` wrote of it is not compared.
    """
    if root is None or same_folder(root, model):
        return False
    base = base_of(model)
    if base is not None and (Path(root) / SETTINGS).is_file():
        return True
    if not is_local(root) or not is_local(str(Path(model).absolute())):
        return False
    if base is not None:
        return base.folder.is_dir() and Path(root).samefile(base.folder)
    return folder_digest(Path(root)) != folder_digest(Path(model))


def is_local(root: str) -> bool:
    """A relative path is one of the server's own, and an adapter's folder holds no whole model."""
    return Path(root).is_absolute() and (Path(root) / "config.json").is_file()


async def probe(engine: ServerGenerator, chat: ChatFormat) -> None:
    """Raises UserError unless replies carry token ids and the log-probabilities that they were sampled from.

    A policy gradient needs log q(token), q being the distribution that was sampled from: softmax(logits / T) over the
    tokens that were allowed. That a server reports those, and not the model's own at T = 1, shows on restricted tokens:

    - if one token is allowed, log q = 0;
    - if two are, their logits' difference d = T log(q / (1 - q)) is the same at every temperature.
    """
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
