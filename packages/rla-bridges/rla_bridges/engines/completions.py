"""An OpenAI-compatible completions server as a Generator: `vllm serve` and compatible servers.

Prompts are sent as token ids; sampled ids come back by `return_token_ids`, their log-probabilities by `logprobs`.
Training data needs both (`_probe` checks before anything is played); otherwise missing ids are taken from the text and
missing log-probabilities are UNKNOWN. Every option that could have a server-side default (top_p, top_k, penalties, stop
tokens) is sent with every request. The server's prefix cache takes the place of sessions.

A prompt with images is sent as messages, because `/completions` takes no images. The token ids that the server makes
must equal those of the request, image tokens included: stored ids are those that the model has read.
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
from rla.models.checkpoint import ADAPTER, ADAPTER_SETTINGS, base_of
from rla.pictures.vision import load_vision
from rla.store.manifest import folder_digest
from rla_bridges.engines.chat_server import JsonClient, ServerFailure, TransientFailure, parts_message

API_KEY = "RLA_SERVER_API_KEY"
SECTION = "generator.own"
CONNECTIONS = 256  # requests at once
UNKNOWN = -9999.0  # finite, as the schema requires; if a server reports it, it is vLLM's notation for minus infinity
WHOLE_DISTRIBUTION = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
FLAG = "start vLLM with --logprobs-mode processed_logprobs (docs/guide/engines.md)"
PROMPT = [0, 1, 2, 3]  # ids in every vocabulary
PAIRS = ([4, 5], [5, 6], [6, 7], [4, 7])
TEMPERATURES = (1.0, 2.0)
CERTAIN = 1e-3  # largest |log q| of the only token allowed
MAX_DIFFERENCE = 10.0  # logits further apart leave too few digits of log q to compare
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
        """`training` refuses replies without ids or log-probabilities. `banned` are ids that no reply may contain."""
        self.context = context
        self._client, self._model, self._chat, self._training = client, model, chat, training
        self._stop: dict[str, Any] = {"stop_token_ids": sorted(chat.stop_ids)}
        if banned:
            self._stop["logit_bias"] = {str(token): NEVER for token in banned}

    async def generate(self, request: Request) -> list[Completion]:
        """Sample `request.samples` completions.

        Raises ValueError as `check_request` does, UserError if the server refuses, does not answer, or
        leaves out data that training needs, and UnusableReply for impossible numbers.
        """
        check_request(request, context=self.context)
        if self._training and request.json_schema is not None:
            raise ValueError("json_schema is for replies that do not train")
        if self._training and request.top_p < 1:
            raise ValueError("a top_p below 1 is for replies that do not train")
        if request.allowed is None or request.images:
            return usable_completions(await self._unrestricted(request))

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
        own["logprobs"] = 0  # of the sampled token only
        _, choices = await self._asked("/completions", samples, own | params)
        return choices

    async def _asked(self, path: str, samples: int, params: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The prompt's token ids as the server made them, and the choices."""
        body = {
            "model": self._model,
            "n": samples,
            "return_token_ids": True,
            "ignore_eos": True,  # the model's own end of text; ours are in stop_token_ids
            "stream": False,
            **WHOLE_DISTRIBUTION,
            **params,
        }
        answer = await self._client.ask(path, body, check=_refuse_aborted)
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if not isinstance(choices, list) or sorted(map(_index_of, choices)) != list(range(samples)):
            raise self.lacking(f"does not answer with {samples} choices", "use an OpenAI-compatible server")
        return answer.get("prompt_token_ids"), sorted(choices, key=_index_of)

    def release(self, session: str) -> None:
        """Does nothing: the server's prefix cache evicts by itself."""

    def close(self) -> None:
        """Does nothing: connections end with the event loop."""

    async def _unrestricted(self, request: Request) -> list[Completion]:
        params: dict[str, Any] = {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_tokens": request.max_tokens,
            **self._stop,
        }
        if request.images:
            choices = await self._with_images(request, params)
        else:
            if request.json_schema is not None:  # OpenAI's field; servers that do not know it ignore the schema
                schema = {"name": "reply", "schema": dict(request.json_schema)}
                params["response_format"] = {"type": "json_schema", "json_schema": schema}
            choices = await self.ask(list(request.prompt_ids), request.samples, seed=request.seed, **params)
        return [self._completion(choice, request.temperature) for choice in choices]

    async def _with_images(self, request: Request, params: dict[str, Any]) -> list[Any]:
        if request.allowed is not None:
            raise self.lacking(
                "cannot hold a reply to commands beside pictures", "set decoding: free, or use generator.backend vllm"
            )
        if not request.turns:
            raise self.lacking(
                "takes pictures in new conversations alone", "set policy.history: window, or use generator.backend vllm"
            )
        messages = {"messages": list(map(parts_message, request.turns)), "logprobs": True}
        seed = {"seed": request.seed & SEED_MASK}
        made, choices = await self._asked("/chat/completions", request.samples, messages | seed | params)
        if made is None or list(made) != list(request.prompt_ids):
            count = "no" if made is None else len(made)
            raise self.lacking(
                f"made {count} token ids of a prompt with pictures that has {len(request.prompt_ids)}",
                "start it with the folder of this stage's checkpoint, its chat template and its image processor",
            )
        return choices

    def _completion(self, choice: dict[str, Any], temperature: float) -> Completion:
        tokens, logprobs = self.sampled(choice, temperature)
        reason = choice.get("finish_reason")
        if reason not in tuple(FinishReason):
            raise self.lacking(f"ended a reply with finish_reason {reason!r}", "see the server's log")
        return Completion(
            token_ids=tokens, logprobs=logprobs, allowed=[[] for _ in tokens], finish_reason=FinishReason(reason)
        )

    def sampled(self, choice: dict[str, Any], temperature: float) -> tuple[list[int], list[float]]:
        """Ids including the stop token, and log-probabilities, which are 0 for a greedy choice."""
        tokens = choice.get("token_ids")
        if tokens is None and not self._training:
            tokens = self._chat.encode(str(choice.get("text", "")))
            tokens += [self._chat.end_id] if choice.get("finish_reason") == "stop" else []
        if tokens is None:
            raise self.lacking(
                "returns no token ids, which training data needs", "use a server that knows return_token_ids"
            )
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise UnusableReply("the server's token_ids are not a list of integers")
        reported = _token_logprobs(choice.get("logprobs") or {})
        known = len(reported) == len(tokens) and (not tokens or any(value is not None for value in reported))
        if not known and self._training:
            raise self.lacking(
                "returns no log-probability for each token, which training data needs",
                "start it with --logprobs-mode processed_logprobs",
            )
        values = [_reported_logprob(value) for value in reported] if known else [UNKNOWN] * len(tokens)
        return tokens, [0.0] * len(tokens) if temperature == 0 else values

    def lacking(self, fault: str, remedy: str) -> UserError:
        """The error for a server that cannot do what is needed."""
        return UserError(f"{SECTION}.url {self._client.url}: {fault}; {remedy}")


def _token_logprobs(reported: Mapping[str, Any]) -> list[Any]:
    """The log-probabilities of a chat completion (`content`) or a completion (`token_logprobs`)."""
    content = reported.get("content")
    if isinstance(content, list):
        return [one.get("logprob") if isinstance(one, dict) else None for one in content]
    return list(reported.get("token_logprobs") or [])


def _reported_logprob(value: Any) -> float:
    """NaN for a value that is not a number (some servers write NaN as null); vLLM's -9999 is minus infinity."""
    number = float(value) if type(value) in (int, float) else math.nan
    return -math.inf if number <= UNKNOWN else number


def _index_of(choice: Any) -> int:
    return int(choice.get("index", -1)) if isinstance(choice, dict) else -1


def _refuse_aborted(answer: Any) -> None:
    """A reply that the server aborted, because it was stopped or swaps its weights, is requested again."""
    if isinstance(answer, dict):
        for choice in answer.get("choices") or ():
            if isinstance(choice, dict) and choice.get("finish_reason") == "abort":
                raise TransientFailure("the server aborted the request")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """An entry of GET /v1/models. `root` is the path it was loaded from; `context` is in tokens, if reported."""

    name: str
    root: str | None
    context: int | None


def connect(
    url: str, named: str, config: GeneratorConfig, *, model: Path | str, chat: ChatFormat, training: bool
) -> ServerGenerator:
    """A Generator over the server at `url`, which serves the checkpoint `model` under the name `named`.

    Raises UserError if the server does not answer, serves other weights or a shorter context, or, for `training`, does
    not return token ids and the log-probabilities that were sampled from.
    """
    client = JsonClient(url, section=SECTION, secret=API_KEY, connections=CONNECTIONS)
    vision = load_vision(model)
    banned = () if vision is None else vision.banned

    async def introduce() -> ServerGenerator:
        # A reply that may train needs a server that says what it serves; any other is trusted to serve `model`.
        cards = await _served_models(client, named or ("" if training else str(model)))
        served = _chosen_model(cards, url, named, config, model)
        engine = ServerGenerator(
            client, model=served.name, context=config.context, chat=chat, training=training, banned=banned
        )
        if training:
            await _probe(engine, chat)
        return engine

    return asyncio.run(introduce())


async def _served_models(client: JsonClient, named: str) -> list[_Served]:
    """The served models. A server without a list of models is trusted to serve `named`."""
    try:
        answer = await client.ask("/models")
    except ServerFailure as failure:
        if named and failure.status in (404, 405):
            return [_Served(name=named, root=None, context=None)]
        raise
    cards = answer.get("data") if isinstance(answer, dict) else None
    return [
        _Served(name=str(card["id"]), root=card.get("root"), context=card.get("max_model_len"))
        for card in cards or ()
        if isinstance(card, dict) and "id" in card
    ]


def _chosen_model(
    served: Sequence[_Served], url: str, named: str, config: GeneratorConfig, model: Path | str
) -> _Served:
    """The served model to use: the one named, else the one loaded from `model` or called so, else the only one."""
    server, names = f"{SECTION}.url {url}", ", ".join(card.name for card in served) or "nothing"
    found = [card for card in served if card.name == named]
    if not named:
        loaded = [card for card in served if _same_folder(card.root, model)]
        found = loaded or [card for card in served if card.name == str(model)] or list(served)
    if len(found) != 1:
        wanted = f"not {named}" if named else "and none of them is known to be the one"
        raise UserError(f"{server} serves {names}, {wanted}; set {SECTION}.model to the name of {model}")
    (card,) = found
    if _other_weights(card.root, model):
        raise UserError(f"{server} serves {card.root}, not this stage's checkpoint {model}; start it with that folder")
    if card.context is not None and card.context < config.context:
        raise UserError(
            f"{server} holds {card.context} tokens and generator.context is {config.context}; start it with "
            f"--max-model-len {config.context}, or set generator.context to {card.context}"
        )
    return card


def _same_folder(root: str | None, model: Path | str) -> bool:
    """Whether the server loaded the folder (or hub id) `model`, or the adapter of that checkpoint."""
    if root is None:
        return False
    if base_of(model) is not None and (Path(root) / ADAPTER_SETTINGS).is_file():
        return Path(root).samefile(Path(model).parent / ADAPTER)
    return root == str(model) or (_is_local(root) and Path(model).is_dir() and Path(root).samefile(model))


def _other_weights(root: str | None, model: Path | str) -> bool:
    """Whether both are local model folders with different weights. The base and other adapters of a LoRA checkpoint
    differ from it; the output of `rla merge` is not compared.
    """
    if root is None or _same_folder(root, model):
        return False
    base = base_of(model)
    if base is not None and (Path(root) / ADAPTER_SETTINGS).is_file():
        return True
    if not _is_local(root) or not _is_local(str(Path(model).absolute())):
        return False
    if base is not None:
        return base.folder.is_dir() and Path(root).samefile(base.folder)
    return folder_digest(Path(root)) != folder_digest(Path(model))


def _is_local(root: str) -> bool:
    """A relative path is one of the server's own, and an adapter's folder contains no whole model."""
    return Path(root).is_absolute() and (Path(root) / "config.json").is_file()


async def _probe(engine: ServerGenerator, chat: ChatFormat) -> None:
    """Raises UserError unless replies carry token ids and the log-probabilities that they were sampled from.

    A policy gradient needs log q(token), q being the distribution that was sampled from: softmax(logits / T) over the
    allowed tokens. Restricted tokens show whether a server reports that, or the model's own distribution at T = 1:

    - if one token is allowed, log q = 0;
    - if two are, the difference of their logits, d = T log(q / (1 - q)), is the same at every temperature.
    """
    (free,) = await engine.ask(PROMPT, 1, seed=0, temperature=1.0, max_tokens=2, stop_token_ids=sorted(chat.stop_ids))
    engine.sampled(free, 1.0)
    if free.get("prompt_token_ids") not in (None, PROMPT):
        raise engine.lacking("changes a prompt of token ids", "use a server that takes token ids as they are")
    single = (engine.one_of(PROMPT, seed=0, choices=[token], temperature=1.0) for token in PAIRS[0])
    if any(abs(logprob) > CERTAIN for _, logprob in await asyncio.gather(*single)):
        raise engine.lacking("reports the log-probabilities of the model, not those that it samples from", FLAG)
    for pair in PAIRS:
        cool, hot = await asyncio.gather(*(_logit_difference(engine, pair, heat) for heat in TEMPERATURES))
        if max(abs(cool), abs(hot)) < MAX_DIFFERENCE and abs(cool - hot) > TOLERANCE + SHARE * abs(cool):
            raise engine.lacking("reports log-probabilities that are not at the sampling temperature", FLAG)


async def _logit_difference(engine: ServerGenerator, pair: list[int], temperature: float) -> float:
    """The first token's logit minus the second's, from the log-probability of the one drawn."""
    token, logprob = await engine.one_of(PROMPT, seed=0, choices=pair, temperature=temperature)
    other = -math.expm1(min(logprob, 0.0))
    if other == 0.0 or logprob > CERTAIN:
        return math.inf
    d = temperature * (logprob - math.log(other))
    return d if token == pair[0] else -d
