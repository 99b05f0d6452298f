"""How the ALFWorld policy and judge are asked and read.

`plain`: bare observations and commands, for small models trained on them. `published`: instructions for chat models;
the policy answers with the boxed index of a command, the judge with a boxed 1 or -1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rla.envs.alfworld.labels import REASONS
from rla.envs.protocols import JudgeView, Message
from rla.envs.quoting import QUOTED, quoted

WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
BOXED = re.compile(r"\\boxed\s*\{([^{}]*)\}")
SCORE = re.compile(r"score\s*([+-])\s*1\s*\.?\s*$")


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def boxed(reply: str) -> str | None:
    """The content of the last boxed macro."""
    found = BOXED.findall(reply)
    return found[-1].strip() if found else None


def with_task(text: str, instruction: str) -> str:
    """`text`, and what is to be done: near the end it is easier to heed than at the top of a long episode."""
    return f"{text.strip()} Your task is to: {instruction}"


def numbered(commands: Sequence[str]) -> str:
    return "\n".join(f"{index}: {command}" for index, command in enumerate(commands))


def offering(observation: str, commands: Sequence[str]) -> str:
    return f"{observation.strip()}\n\nCommands:\n{numbered(commands)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPolicyPrompt:
    """`reply: text`: the user turn is the observation, the reply is the command itself.

    `repeat_task`: every observation but the first, which states it, ends with the task.
    """

    repeat_task: bool = False

    def opening(self, observation: str, commands: Sequence[str]) -> list[Message]:
        return [user(observation.replace(WELCOME, "").strip())]

    def turn(self, observation: str, commands: Sequence[str], instruction: str) -> str:
        return with_task(observation, instruction) if self.repeat_task else observation

    def window(
        self, history: Sequence[tuple[str, str]], observation: str, commands: Sequence[str], instruction: str
    ) -> list[Message]:
        lines = [line for text, action in history for line in (text, f"> {action}")]
        now = self.turn(observation, commands, instruction) if history else observation
        return [user("\n".join([*lines, now]).replace(WELCOME, "").strip())]

    def parse(self, reply: str, commands: Sequence[str]) -> str | None:
        """The admissible command that the reply is, up to case and white space."""
        wanted = " ".join(reply.lower().split())
        return next((c for c in commands if " ".join(c.lower().split()) == wanted), None)

    def render(self, action: str, commands: Sequence[str]) -> str:
        return action


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPolicyPrompt:
    """`reply: index`: commands are numbered from 0, the reply reasons and ends with a boxed number.

    `repeat_task` as in `TextPolicyPrompt`.
    """

    repeat_task: bool = False
    preamble: ClassVar[str] = (
        "You are playing a text game in a household. Finish the task in as few steps as you can. "
        "Think step by step about what to do next, then give the number of the command that you choose "
        "as \\boxed{number}."
    )

    def opening(self, observation: str, commands: Sequence[str]) -> list[Message]:
        return [user(f"{self.preamble}\n\n{offering(observation, commands)}")]

    def turn(self, observation: str, commands: Sequence[str], instruction: str) -> str:
        return offering(with_task(observation, instruction) if self.repeat_task else observation, commands)

    def window(
        self, history: Sequence[tuple[str, str]], observation: str, commands: Sequence[str], instruction: str
    ) -> list[Message]:
        lines = [f"Observation {n}: {text.strip()}\nAction {n}: {action}" for n, (text, action) in enumerate(history)]
        past = "\n".join(lines)
        shown = self.turn(observation, commands, instruction) if history else offering(observation, commands)
        now = f"Observation {len(history)}: {shown}"
        return [user("\n\n".join(part for part in (self.preamble, past, now) if part))]

    def parse(self, reply: str, commands: Sequence[str]) -> str | None:
        """The command with the boxed number; a missing, unreadable or out-of-range number is no command."""
        content = boxed(reply)
        if content is None or not re.fullmatch(r"\d{1,6}", content) or int(content) >= len(commands):
            return None
        return commands[int(content)]

    def render(self, action: str, commands: Sequence[str]) -> str:
        return f"\\boxed{{{list(commands).index(action)}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainJudgePrompt:
    """For small models: the episode as the dialogue that the policy had, the last answer marked `judge:`.

    The prompts of an episode's steps are prefixes of each other but for the mark, so a prefix cache serves them all.
    `repeat_task` as the policy that played had it.
    """

    repeat_task: bool = False

    def messages(self, view: JudgeView) -> list[Message]:
        texts = [observation for observation, _ in view.history] + [view.observation]
        following = view.next_observation
        if self.repeat_task:
            texts[1:] = [with_task(text, view.instruction) for text in texts[1:]]
            following = with_task(following, view.instruction)
        texts[0] = texts[0].replace(WELCOME, "").strip()
        actions = [action for _, action in view.history] + [view.action]
        turns = [
            message
            for text, action in zip(texts, actions, strict=True)
            for message in (user(text), {"role": "assistant", "content": action})
        ]
        return [*turns, user(f"{following} judge:")]

    def parse(self, reply: str) -> int | None:
        found = SCORE.search(reply)
        return None if found is None else (1 if found[1] == "+" else -1)

    def render(self, score: int, reason: str) -> str:
        return f"{reason} score {'+1' if score > 0 else '-1'}"

    def replies(self) -> tuple[str, ...]:
        return tuple(self.render(score, reason) for reason in REASONS for score in (1, -1))


class PublishedJudgePrompt:
    """For chat models: a rubric, the step as quoted data, and a boxed score."""

    rubric = (
        "You judge one step of an agent that plays a text game in a household. Answer 1 when the step is sensible: "
        "it explores, makes progress or finishes, its reasoning is present, relevant and true to the "
        "observations, and its action is one of the commands offered. Answer -1 otherwise: no reasoning, an action "
        "that is not offered, an irrelevant or contradictory one, or one that undoes progress. "
        f"{QUOTED} "
        "Think first, then give the score as \\boxed{1} or \\boxed{-1}."
    )

    def messages(self, view: JudgeView) -> list[Message]:
        past = (
            "\n".join(
                f"Observation {n}: {text.strip()}\nAction {n}: {action}"
                for n, (text, action) in enumerate(view.history)
            )
            or "(none)"
        )
        executed = view.action if view.valid else "(none: the reply named no command)"
        parts = {
            "Task": view.instruction,
            "History": past,
            "Observation": view.observation.strip(),
            "Commands offered": numbered(view.commands),
            "The agent's reply": view.reply,
            "Executed action": executed,
            "Next observation": view.next_observation.strip(),
        }
        return [user(f"{self.rubric}\n\n{quoted(parts)}\n\nYour judgement of this step:")]

    def parse(self, reply: str) -> int | None:
        return {"1": 1, "+1": 1, "-1": -1}.get(boxed(reply) or "")

    def render(self, score: int, reason: str) -> str:
        return f"{reason} \\boxed{{{score}}}"

    def replies(self) -> tuple[str, ...]:
        return ()
