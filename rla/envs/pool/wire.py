"""What stage, nursery and workers say to each other: JSON objects, each after its length.

JSON and not pickle: a worker may run what a model has written, and nothing that it answers is executed here.

| to | message | answer |
|---|---|---|
| nursery | `{"sys_path", "target", "argument"}` | `{"ready": true}` or `{"refused": why}` |
| nursery | one byte with a socket | none: the worker that it starts speaks first on that socket, `{"pid"}` |
| worker | `{"reset": task}`, `{"step": action}` | `{"observation"}`, `{"failure": why}`, `{"refused": why}` |
| worker | `{"close": true}` | none |

A `failure` with `"last": true` is a worker's last answer; one with `"malformed": true` says that an answer was not an
observation.

An actor that a launcher keeps on a cluster holds many episodes and speaks as a worker does, with these beside:

| message | answer |
|---|---|
| `{"stopped": true}`; `"recall": [actions, answers]` beside `step` or `stopped` | as to a step |
| any, of an episode that it does not know | `{"unknown": true}`: it has started again since |
| `{"reset": task}` | has `"abilities"` beside: `stopped`, `recall` |
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from io import BufferedRWPair
from typing import Any

from rla.envs.observation import CallResult, EnvironmentFailure, MalformedObservation, Observation

HEAD = 4  # bytes of a length

PoolMessage = dict[str, Any]


def packed(message: Mapping[str, Any]) -> bytes:
    """The bytes of a message."""
    data = json.dumps(message).encode()
    return len(data).to_bytes(HEAD, "big") + data


def parsed_message(data: bytes) -> PoolMessage:
    """The message of what follows a head."""
    message: PoolMessage = json.loads(data)
    return message


def length(head: bytes) -> int:
    """How many bytes follow the head."""
    return int.from_bytes(head, "big")


def receive_pool_message(stream: BufferedRWPair) -> PoolMessage | None:
    """The next message; None where the other end has closed."""
    head = stream.read(HEAD)
    data = stream.read(length(head)) if len(head) == HEAD else b""
    if not data or len(data) < length(head):
        return None
    return parsed_message(data)


def send(stream: BufferedRWPair, message: Mapping[str, Any]) -> None:
    """Write a message and flush it. Raises OSError where the other end is gone."""
    stream.write(packed(message))
    stream.flush()


def failure_message(failure: EnvironmentFailure) -> PoolMessage:
    """What `failure_in` reads."""
    kind = {"malformed": True} if isinstance(failure, MalformedObservation) else {}
    return {"failure": str(failure), **kind}


def failure_in(message: PoolMessage) -> EnvironmentFailure:
    """The failure that a message tells of."""
    kind = MalformedObservation if message.get("malformed") else EnvironmentFailure
    return kind(message["failure"])


def from_observation(seen: Observation) -> PoolMessage:
    """What `to_observation` reads; images as base64."""
    images = [b64encode(image).decode() for image in seen.images]
    flags = {"won": seen.won, "done": seen.done, "reward": seen.reward, "place": seen.place}
    calls = {"results": [[one.text, one.status] for one in seen.results], "understood": seen.understood}
    return {"text": seen.text, "commands": list(seen.commands), **flags, "images": images, **calls}


def to_observation(data: Mapping[str, Any]) -> Observation:
    """The observation as it was before it was sent: lists are tuples again."""
    return Observation(
        text=data["text"],
        commands=tuple(data["commands"]),
        won=data["won"],
        done=data["done"],
        reward=data["reward"],
        images=tuple(b64decode(image) for image in data["images"]),
        place=data["place"],
        results=tuple(CallResult(*one) for one in data["results"]),
        understood=data["understood"],
    )
