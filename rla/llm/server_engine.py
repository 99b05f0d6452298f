"""An OpenAI-compatible completions server as a Generator: `vllm serve`, and what answers like it.

Prompts go out as token ids; sampled ids come back by `return_token_ids`, their log-probabilities by `logprobs`. For
training data both are required (`rla.llm.server_probe` asks before anything is played); elsewhere missing ids are
taken from the text and missing log-probabilities are UNKNOWN. All that a server could have defaults for (top_p, top_k,
penalties, stop tokens) is sent with every request. The server's prefix cache takes the place of sessions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rla.errors import UserError
from rla.llm.base import Completion, FinishReason, Request
from rla.llm.chat import ChatFormat
from rla.llm.http import JsonClient, TransientFailure
from rla.llm.refusals import UnusableReply, check_request, usable_completions
from rla.llm.restricted import SEED_MASK, restricted
from rla.llm.server_pictures import ask_with_pictures
from rla.llm.vllm_pictures import bias_against

UNKNOWN = -9999.0  # a finite number, as the schema wants; as a server's own it is vLLM's way to write minus infinity
WHOLE_DISTRIBUTION = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


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
        body = {
            "model": self._model,
            "prompt": prompt,
            "n": samples,
            "seed": seed & SEED_MASK,
            "logprobs": 0,  # the sampled token's alone
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "ignore_eos": True,  # the model's own end of text; ours are in stop_token_ids
            "stream": False,
            **WHOLE_DISTRIBUTION,
            **params,
        }
        return self._choices(await self._client.ask("/completions", body, check=refuse_aborted), samples)

    async def ask_chat(self, messages: list[dict[str, Any]], samples: int, **params: Any) -> tuple[Any, list[Any]]:
        """The token ids of the prompt as the server made it, and the choices, of one request in messages."""
        body = {
            "model": self._model,
            "messages": messages,
            "n": samples,
            "logprobs": True,
            "return_token_ids": True,
            "ignore_eos": True,
            "stream": False,
            **WHOLE_DISTRIBUTION,
            **params,
        }
        answer = await self._client.ask("/chat/completions", body, check=refuse_aborted)
        choices = self._choices(answer, samples)
        return answer.get("prompt_token_ids"), choices

    def _choices(self, answer: Any, samples: int) -> list[Any]:
        """Sample by sample."""
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if not isinstance(choices, list) or sorted(map(index_of, choices)) != list(range(samples)):
            raise self.lacking(f"does not answer with {samples} choices", "use an OpenAI-compatible server")
        return sorted(choices, key=index_of)

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


def index_of(choice: Any) -> int:
    """Which sample it is; -1 for what is no choice."""
    return int(choice.get("index", -1)) if isinstance(choice, dict) else -1


def refuse_aborted(answer: Any) -> None:
    """A reply that the server gave up (it was stopped, or swaps its weights) is asked for again."""
    if isinstance(answer, dict):
        for choice in answer.get("choices") or ():
            if isinstance(choice, dict) and choice.get("finish_reason") == "abort":
                raise TransientFailure("the server aborted the request")
