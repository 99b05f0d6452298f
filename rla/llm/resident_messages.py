"""Messages between a stage and the resident engine: frames of 4 bytes of length (network order) and JSON.

A connection opens with one frame of the client, {magic, code, kind: open | ping | stop, ...}. The answer is
{magic, accepted}. An `open` that is accepted is answered once more when its weights are in place: {context} or
{error}. From then on the client sends {turn, calls} and the server {turn, replies}. A call is a request with an `id`,
a `release` of a session or a `cancel` of an id. `turn` in a client's frame says which replies it has acted upon: an
engine that computes in passes waits for that, so that a pass holds what it would hold in the stage's own process.

Nothing here is executed or unpickled. Floats are written with all their digits: log-probabilities arrive as they were.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
from collections.abc import Iterator
from typing import Any, NoReturn

from rla.errors import UserError
from rla.llm.base import Completion, FinishReason, Request
from rla.llm.refusals import ContextOverflow
from rla.llm.trie import TokenTrie
from rla.processes.prefork.handover import fingerprint, receive_exactly

MAGIC = "rla-engine/1"
OPEN, PING, STOP = "open", "ping", "stop"
VARIABLE = "RLA_ENGINE"  # names the server's socket
LONGEST = 1 << 28  # bytes of a frame; a longer one is no frame of ours

Message = dict[str, Any]


def code() -> str:
    """Equal for processes of the same code. Their environments may differ: the engine's is the server's."""
    return fingerprint({})


class NotOurs(Exception):
    """What came over the socket is no message of this protocol."""


def pack_message(message: Message) -> bytes:
    """The frame of a message."""
    data = json.dumps(message, separators=(",", ":")).encode()
    return len(data).to_bytes(4, "big") + data


def unpack(data: bytes) -> Message:
    """The message of a frame's body. Raises NotOurs."""
    try:
        message = json.loads(data, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise NotOurs(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise NotOurs("not a JSON object")
    return message


def refuse_constant(name: str) -> NoReturn:
    """Python's JSON knows NaN and Infinity, JSON does not. Raises ValueError."""
    raise ValueError(f"{name} is no number")


def receive_message(connection: socket.socket) -> Message:
    """The next message on a blocking socket. Raises EOFError, OSError, NotOurs."""
    return unpack(receive_exactly(connection, length_of(receive_exactly(connection, 4))))


async def read_message(reader: asyncio.StreamReader) -> Message:
    """The next message of a stream. Raises EOFError (IncompleteReadError), OSError, NotOurs."""
    return unpack(await reader.readexactly(length_of(await reader.readexactly(4))))


def length_of(head: bytes) -> int:
    length = int.from_bytes(head, "big")
    if length > LONGEST:
        raise NotOurs(f"a frame of {length} bytes")
    return length


def request_data(request: Request) -> Message:
    """A request as plain data; its trie as the list of its paths."""
    allowed = None if request.allowed is None else list(paths(request.allowed.root))
    return {
        "prompt": list(map(int, request.prompt_ids)),
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        "samples": request.samples,
        "session": request.session,
        "allowed": allowed,
        "json_schema": None if request.json_schema is None else dict(request.json_schema),
        "top_p": request.top_p,
    }


def request_of(data: Message, *, owner: str) -> Request:
    """The request of plain data; sessions of different owners are different. Raises NotOurs."""
    try:
        allowed, session, schema = data["allowed"], data["session"], data["json_schema"]
        return Request(
            prompt_ids=[int(token) for token in data["prompt"]],
            max_tokens=int(data["max_tokens"]),
            temperature=float(data["temperature"]),
            seed=int(data["seed"]),
            samples=int(data["samples"]),
            session=None if session is None else session_of(session, owner=owner),
            allowed=None if allowed is None else TokenTrie([int(token) for token in path] for path in allowed),
            json_schema=None if schema is None else dict(schema),
            top_p=float(data["top_p"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise NotOurs(f"a malformed request ({type(error).__name__}: {error})") from error


def session_of(name: str, *, owner: str) -> str:
    return f"{owner}:{name}"


def paths(node: dict[int, Any], before: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Every path of a trie from its root to a leaf."""
    if not node:
        yield before
    for token, below in node.items():
        yield from paths(below, (*before, token))


def completion_data(completion: Completion) -> Message:
    """Raises UserError where a log-probability is none, as those of weights that are not finite: JSON has no NaN."""
    if not all(map(math.isfinite, completion.logprobs)):
        raise UserError("the model gave a log-probability that is not finite; take an earlier checkpoint")
    return {
        "tokens": completion.token_ids,
        "logprobs": completion.logprobs,
        "allowed": completion.allowed if any(completion.allowed) else None,
        "finish": completion.finish_reason.value,
    }


def completion_of(data: Message) -> Completion:
    tokens = data["tokens"]
    return Completion(
        token_ids=tokens,
        logprobs=data["logprobs"],
        allowed=[[] for _ in tokens] if data["allowed"] is None else data["allowed"],
        finish_reason=FinishReason(data["finish"]),
    )


def error_data(error: BaseException) -> Message:
    """An exception as plain data: what a Generator may raise keeps its kind."""
    if isinstance(error, ContextOverflow):
        return {"kind": "context", "prompt": error.prompt, "max_tokens": error.max_tokens, "context": error.context}
    kinds = {"user": UserError, "value": ValueError}
    kind = next((name for name, found in kinds.items() if isinstance(error, found)), "failure")
    return {"kind": kind, "text": str(error) if kind != "failure" else f"{type(error).__name__}: {error}"}


def error_of(data: Message) -> Exception:
    """The exception that `error_data` was given; another defect of the server is a RuntimeError."""
    if data["kind"] == "context":
        return ContextOverflow(prompt=data["prompt"], max_tokens=data["max_tokens"], context=data["context"])
    if data["kind"] == "user":
        return UserError(data["text"])
    if data["kind"] == "value":
        return ValueError(data["text"])
    return RuntimeError(f"the engine failed: {data['text']} (its own log says more)")
