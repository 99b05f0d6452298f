"""Played trajectories as conversations, with the mean score of their steps as quality.

Steps keep the text that the policy read and wrote. If a reply made several calls, their results are in one observation,
and so in one turn. Failed episodes are left out, and so are episodes with a reply that was cut, because they would
teach to end there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rla.envs.protocols import PolicyPrompt, ToolPrompt
from rla.store.reading import stream_rows
from rla.store.records import StopReason
from rla_programs.collecting.conversations import ChatMessage, Conversation
from rla_programs.collecting.playing import schemas_text

COLUMNS = (
    *("trajectory_id", "task_id", "instruction", "kind", "policy"),
    *("outcome", "stop_reason", "steps", "calls"),
)


def played_conversations(
    trajectories: Iterable[Path], prompt: PolicyPrompt, qualities: Mapping[str, float]
) -> Iterator[Conversation]:
    """From complete trajectory shards. `qualities` by trajectory, from `step_means`."""
    for folder in trajectories:
        for row in stream_rows(folder, "trajectories", COLUMNS):
            steps = row["steps"]
            if steps and row["stop_reason"] != StopReason.ENV_ERROR and not any(one["truncated"] for one in steps):
                yield rebuilt(row, prompt, quality=qualities.get(row["trajectory_id"]))


def rebuilt(row: Mapping[str, Any], prompt: PolicyPrompt, *, quality: float | None) -> Conversation:
    """The conversation of one trajectory row."""
    called = {one["step"] for one in row["calls"] or ()}
    role = prompt.result_role if isinstance(prompt, ToolPrompt) else "user"
    messages: list[ChatMessage] = []
    for index, step in enumerate(row["steps"]):
        observation, commands = step["observation"], tuple(step["commands"])
        if index == 0:
            opening = prompt.opening(observation, commands)
            messages += [ChatMessage(role=one["role"], content=one["content"]) for one in opening]
        elif index - 1 in called:
            messages.append(ChatMessage(role=role, content=observation))
        else:
            messages.append(ChatMessage(role="user", content=prompt.turn(observation, commands, row["instruction"])))
        messages.append(ChatMessage(role="assistant", content=step["reply"]))
    return Conversation(
        task_id=row["task_id"],
        source=row["kind"],
        messages=tuple(messages),
        tools=schemas_text(prompt),
        outcome=row["outcome"],
        quality=quality,
        teacher=row["policy"],
    )


def step_means(scores: Iterable[Path]) -> dict[str, float]:
    """Trajectory -> mean over its steps of the mean score of each; steps without a judgement do not count."""
    found: dict[str, list[float]] = {}
    for folder in scores:
        for row in stream_rows(folder, "scores", ("trajectory_id", "mean_score")):
            if row["mean_score"] is not None:
                found.setdefault(row["trajectory_id"], []).append(row["mean_score"])
    return {name: sum(means) / len(means) for name, means in found.items()}
