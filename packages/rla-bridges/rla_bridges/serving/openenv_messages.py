"""The server side of the OpenEnv wire protocol: parsing messages, building answers, and the schemas of both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rla import __version__
from rla.envs.observation import Observation

LONGEST_NAME = 255  # of an episode, a task or a split

Data = Mapping[str, Any]


class BadMessage(Exception):
    """An invalid message, with the reason for the client. `code` is the protocol's name for the error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def client_message(text: str) -> tuple[str, dict[str, Any]]:
    """The type and the data of a message; the data are empty if it has none. Raises BadMessage."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise BadMessage("INVALID_JSON", "the message is not JSON") from None
    if not isinstance(message, dict):
        raise BadMessage("VALIDATION_ERROR", "the message is not a JSON object")
    kind, data = message.get("type"), message.get("data")
    if kind not in ("reset", "step", "state", "close"):
        raise BadMessage("UNKNOWN_TYPE", "type must be reset, step, state or close")
    if data is not None and not isinstance(data, dict):
        raise BadMessage("VALIDATION_ERROR", "data must be a JSON object")
    return kind, data or {}


def action_of(data: Data) -> str:
    """The action text of a step. Raises BadMessage."""
    action = data.get("action")
    if not isinstance(action, str) or set(data) - {"action", "metadata"}:
        raise BadMessage("VALIDATION_ERROR", 'a step is {"action": "..."}, a text')
    return action.encode("utf-8", "replace").decode("utf-8")


def name_at(data: Data, key: str) -> str | None:
    """A short string in a reset, or None if it is not there. Raises BadMessage."""
    found = data.get(key)
    if found is not None and (not isinstance(found, str) or len(found) > LONGEST_NAME):
        raise BadMessage("VALIDATION_ERROR", f"{key} must be a text of at most {LONGEST_NAME} characters")
    return found


def number_at(data: Data, key: str) -> int | None:
    """A number in a reset, or None if it is not there. Raises BadMessage."""
    found = data.get(key)
    if found is not None and (type(found) is not int or found < 0):
        raise BadMessage("VALIDATION_ERROR", f"{key} must be a whole number, 0 or more")
    return found


def observation_message(seen: Observation, *, task_id: str, reward: float | None, won: bool, done: bool) -> Data:
    """The answer to a reset or a step."""
    shown = {"text": seen.text, "commands": list(seen.commands), "won": won, "task_id": task_id, "metadata": {}}
    return {"type": "observation", "data": {"observation": shown, "reward": reward, "done": done}}


def error_message(code: str, message: str, **more: int) -> Data:
    return {"type": "error", "data": {"message": message, "code": code, **more}}


def schemas() -> Data:
    """The answer of `/schema`."""
    metadata = {"type": "object", "additionalProperties": True}
    text, flag = {"type": "string"}, {"type": "boolean", "default": False}
    number = {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None}
    count = {"type": "integer", "minimum": 0, "default": 0}
    said = {"type": "string", "description": "The command, or the free text, that is the action"}
    action = {"action": said, "metadata": metadata}
    listed = {"type": "array", "items": text, "description": "What is admissible now; empty: free text"}
    observation = {
        "done": flag,
        "reward": number,
        "metadata": metadata,
        "text": {"type": "string", "description": "What the agent reads"},
        "commands": listed,
        "won": flag,
        "task_id": text,
    }
    names = ("task_id", "split", "kind", "instruction", "environment")
    state = {"episode_id": text, "step_count": count, "return": {"type": "number"}, "won": flag, "done": flag}
    return {
        "action": _object_schema("TextAction", action, ["action"]),
        "observation": _object_schema("TextObservation", observation, ["text"]),
        "state": _object_schema("TaskState", state | dict.fromkeys(names, text), []),
    }


def _object_schema(title: str, properties: Data, required: list[str]) -> Data:
    return {
        "title": title,
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": required,
    }


def metadata_of(env: str) -> Data:
    """The answer of `/metadata`."""
    return {
        "name": env,
        "description": f"Tasks of the environment {env}, served by rla: each action is a text.",
        "readme_content": None,
        "version": __version__,
        "author": None,
        "documentation_url": None,
    }
