"""The resident engine over TCP: a subset of the OpenAI API with vLLM's fields for token ids, for one model.

`GET /v1/models`, and `POST /v1/completions` with a prompt of token ids. Understood: max_tokens, temperature, seed, n,
logprobs, stop_token_ids, allowed_token_ids (one token at a time), return_token_ids, response_format
(json_schema; vLLM holds a reply to it, transformers does not). Sampling that would change the distribution in another
way is refused: log-probabilities are those that were sampled from. Only this machine is
listened to, and only the model that was named at the start can be asked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from aiohttp import web

from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.llm.base import Completion, FinishReason, Request
from rla.llm.chat import ChatFormat
from rla.llm.refusals import ContextOverflow
from rla.llm.resident.seats import Seats, Wanted
from rla.llm.trie import TokenTrie

HOST = "127.0.0.1"
LARGEST_BODY = 1 << 26
# What leaves the distribution alone, as servers spell it.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1, None),
    "top_k": (0, -1, None),
    "min_p": (0, None),
    "repetition_penalty": (1, None),
    "presence_penalty": (0, None),
    "frequency_penalty": (0, None),
    "stream": (False, None),
    "echo": (False, None),
    "best_of": (1, None),
    "stop": (None, [], ""),
    "logit_bias": (None, {}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The model that is served; `touch` is told of every request."""

    seats: Seats
    wanted: Wanted
    chat: ChatFormat
    touch: Callable[[], None]


class Refusal(Exception):
    """A request that cannot be answered, and its HTTP status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def application(served: ServedModel) -> web.Application:
    """The routes."""
    names = count()
    started = int(time.time())

    async def models(_: web.Request) -> web.Response:
        card = {
            "id": served.wanted.model,
            "object": "model",
            "created": started,
            "owned_by": "rla",
            "root": served.wanted.model,
            "max_model_len": served.wanted.config.context,
        }
        return web.json_response({"object": "list", "data": [card]})

    async def completions(call: web.Request) -> web.Response:
        served.touch()
        try:
            body = await body_of(call)
            request = web_request(body, served)
            answered = await web_sample(request, served)
        except Refusal as refusal:
            error = {"message": str(refusal), "type": "invalid_request_error", "code": refusal.status}
            return web.json_response({"error": error}, status=refusal.status)
        finally:
            served.touch()
        choices = [choice(index, one, body, served.chat) for index, one in enumerate(answered)]
        prompt, sampled = len(request.prompt_ids), sum(len(one.token_ids) for one in answered)
        return web.json_response(
            {
                "id": f"cmpl-{next(names)}",
                "object": "text_completion",
                "created": int(time.time()),
                "model": served.wanted.model,
                "choices": choices,
                "usage": {
                    "prompt_tokens": prompt,
                    "completion_tokens": sampled,
                    "total_tokens": prompt + sampled,
                },
            }
        )

    app = web.Application(client_max_size=LARGEST_BODY)
    app.add_routes([web.get("/v1/models", models), web.post("/v1/completions", completions)])
    return app


async def body_of(call: web.Request) -> dict[str, Any]:
    try:
        body = await call.json()
    except ValueError:
        raise Refusal("the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refusal("the body is not a JSON object")
    return body


def web_request(body: Mapping[str, Any], served: ServedModel) -> Request:
    """The request of a body. Raises Refusal."""
    if body.get("model") not in (None, served.wanted.model):
        raise Refusal(f"model {body['model']} is not served; {served.wanted.model} is", 404)
    for key, neutral in NEUTRAL.items():
        if body.get(key) not in neutral:
            raise Refusal(f"{key}: {body[key]!r} would change the distribution or the reply; leave it out")
    allowed, limit = body.get("allowed_token_ids"), body.get("max_tokens", 16)
    if allowed is not None and limit != 1:
        raise Refusal("allowed_token_ids needs max_tokens: 1")
    stops = body.get("stop_token_ids")
    if stops is not None and allowed is None and set(stops) != set(served.wanted.stop_ids):
        raise Refusal(f"stop_token_ids: only the model's own, {sorted(served.wanted.stop_ids)}")
    prompt = body.get("prompt")
    if not isinstance(prompt, list) or not all(type(token) is int and token >= 0 for token in prompt):
        raise Refusal("prompt: a list of token ids is needed")
    try:
        temperature = float(body.get("temperature", 1.0))
        request = Request(
            prompt_ids=prompt,
            max_tokens=int(limit),
            temperature=temperature,
            seed=int(body.get("seed") or 0),
            samples=int(body.get("n", 1)),
            allowed=None if allowed is None else TokenTrie([int(token)] for token in allowed),
            json_schema=schema_of(body.get("response_format")),
        )
    except (TypeError, ValueError) as error:
        raise Refusal(str(error)) from None
    if not (math.isfinite(temperature) and temperature >= 0) or allowed == []:
        raise Refusal("temperature must be 0 or more, allowed_token_ids not empty")
    return request


def schema_of(wanted: Any) -> dict[str, Any] | None:
    """The JSON Schema of OpenAI's `response_format`. Raises Refusal for other formats than that and plain text."""
    if wanted is None or wanted == {"type": "text"}:
        return None
    try:
        return dict(wanted["json_schema"]["schema"])
    except (KeyError, TypeError, ValueError):
        raise Refusal('response_format: {"type": "json_schema", "json_schema": {"schema": ...}} is needed') from None


async def web_sample(request: Request, served: ServedModel) -> list[Completion]:
    """The completions. Raises Refusal."""
    try:
        async with served.seats.lease(served.wanted, object(), _at_once) as engine:
            if engine is None:
                raise Refusal("the engine is in use with other weights; ask again later", 503)
            return await engine.generate(request)
    except (ContextOverflow, UserError, ValueError) as error:
        raise Refusal(str(error)) from None


def choice(index: int, completion: Completion, body: Mapping[str, Any], chat: ChatFormat) -> dict[str, Any]:
    """A completion in vLLM's fields; a restricted token was cut by max_tokens, like there."""
    tokens = completion.token_ids
    reason = FinishReason.LENGTH if body.get("allowed_token_ids") is not None else completion.finish_reason
    logprobs = {
        "tokens": [f"token_id:{token}" for token in tokens],
        "token_logprobs": completion.logprobs,
        "top_logprobs": None,
        "text_offset": [],
    }
    return {
        "index": index,
        "text": chat.decode(tokens),
        "finish_reason": reason.value,
        "logprobs": None if body.get("logprobs") is None else logprobs,
        "token_ids": tokens if body.get("return_token_ids") else None,
    }


async def start_web(served: ServedModel, port: int) -> web.AppRunner:
    """Listen on this machine's own address. Raises OSError where the port is taken."""
    runner = web.AppRunner(application(served), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, port).start()
    return runner


def served_model(
    model: str, config: GeneratorConfig, seed: int, *, seats: Seats, touch: Callable[[], None]
) -> ServedModel:
    """What `rla serve start --port N --model folder` serves. Raises UserError where there is no tokenizer."""
    from rla.models.load import load_tokenizer

    chat = ChatFormat(load_tokenizer(model))
    wanted = Wanted(model=model, config=config, stop_ids=tuple(sorted(chat.stop_ids)), seed=seed)
    return ServedModel(seats=seats, wanted=wanted, chat=chat, touch=touch)


async def _at_once() -> None:
    """A request that comes by itself keeps no pass waiting."""
