"""How the policy is asked: the question, then the results of its calls, each in a turn that its chat template has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rla.envs.chat_prompts import user
from rla.envs.tool.calls import CallFormat, ToolCall
from rla.envs.tool.hermes import CLOSE, OPEN, arguments_of, written
from rla.envs.tool.transcripts import ToldTurns, calls_told, told_turns
from rla.envs.views import Message
from rla.thoughts import after_thinking

LONGEST_REPLY = 1_000_000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPrompt:
    """A `PolicyPrompt` and a `ToolPrompt`. The action is the reply itself: the environment reads the calls in it."""

    schemas: Sequence[Mapping[str, Any]] = ()
    result_role: str = "user"
    calls: CallFormat | None = None  # how they are written, where somebody asks what a reply called

    def opening(self, observation: str, commands: Sequence[str]) -> list[Message]:
        return [user(observation.strip())]

    def turn(self, observation: str, commands: Sequence[str], instruction: str) -> str:
        return observation

    def window(
        self, history: Sequence[tuple[str, str]], observation: str, commands: Sequence[str], instruction: str
    ) -> list[Message]:
        """Never asked for: `policy.history` must be `full`."""
        return self.opening(instruction, commands)

    def parse(self, reply: str, commands: Sequence[str]) -> str | None:
        """The reply after its thoughts, without white space around it; None if it is empty or absurdly long."""
        text = after_thinking(reply).strip()
        return text if 0 < len(text) <= LONGEST_REPLY else None

    def render(self, action: str, commands: Sequence[str]) -> str:
        return action

    def calls_in(self, reply: str) -> list[tuple[str, Mapping[str, Any], str]]:
        """`rla.envs.prompts.ReadsCalls`."""
        read = self.calls.parse(reply).calls if self.calls else ()
        return [
            (call.name, call.arguments, "") if isinstance(call, ToolCall) else ("", {}, call.reason) for call in read
        ]

    def turns_in(self, text: str) -> ToldTurns:
        """`rla.envs.prompts.ReadsTranscripts`."""
        return told_turns(text) if len(text) <= LONGEST_REPLY else [(text, None)]

    def called(self, reply: str) -> int:
        """The same."""
        return calls_told(reply, self.calls)

    def written(self, text: str, calls: Sequence[tuple[str, str]]) -> str:
        """As Hermes models write calls: no other format tells schemas. A call whose arguments are no object stays what
        it is, so that the environment answers with what is wrong.
        """
        pieces = [text] if text else []
        for name, arguments in calls:
            given = arguments_of(arguments)
            if isinstance(given, dict):
                pieces.append(written(ToolCall(name=name, arguments=given)))
            else:
                pieces.append(f'{OPEN}\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n{CLOSE}')
        return "\n".join(pieces)
