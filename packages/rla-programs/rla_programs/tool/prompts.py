"""The prompt of the policy: the question, then the results of its calls, each in a turn of its chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rla.envs.chat_prompts import user
from rla.envs.protocols import Message
from rla.text import after_thinking
from rla_programs.tool.calls import CallFormat, ToolCall
from rla_programs.tool.formats import format_that_reads
from rla_programs.tool.hermes import CLOSE, OPEN, HermesFormat, arguments_given
from rla_programs.tool.transcripts import ToldTurns, calls_told, told_turns

LONGEST_REPLY = 1_000_000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPrompt:
    """A `PolicyPrompt` and a `ToolPrompt`. The action is the reply itself: the environment parses the calls in it."""

    schemas: Sequence[Mapping[str, Any]] = ()
    result_role: str = "user"
    calls: CallFormat | None = None  # the call format, needed to report the calls of a reply

    def opening(self, observation: str, commands: Sequence[str]) -> list[Message]:
        return [user(observation.strip())]

    def turn(self, observation: str, commands: Sequence[str], instruction: str) -> str:
        return observation

    def window(
        self, history: Sequence[tuple[str, str]], observation: str, commands: Sequence[str], instruction: str
    ) -> list[Message]:
        """Never used: `policy.history` must be `full`."""
        return self.opening(instruction, commands)

    def parse(self, reply: str, commands: Sequence[str]) -> str | None:
        """The reply after its thoughts, without surrounding white space; None if it is empty or absurdly long."""
        text = after_thinking(reply).strip()
        return text if 0 < len(text) <= LONGEST_REPLY else None

    def render(self, action: str, commands: Sequence[str]) -> str:
        return action

    def calls_in(self, reply: str) -> list[tuple[str, Mapping[str, Any], str]]:
        """`rla.envs.protocols.ToolPrompt`."""
        read = self.calls.parse(reply).calls if self.calls else ()
        return [
            (call.name, call.arguments, "") if isinstance(call, ToolCall) else ("", {}, call.reason) for call in read
        ]

    def unread_call(self, reply: str, name: str, arguments: Mapping[str, Any]) -> str:
        """`rla.envs.protocols.ToolPrompt`."""
        call = ToolCall(name=name, arguments=arguments)
        if not self.schemas or self.calls is None or self.calls.parse(reply).calls == (call,):
            return ""
        found = format_that_reads(reply, call)
        remedy = f"set it to {found}" if found else "no format reads such calls: use another model, or format: short"
        return f"env.own.format does not read the calls that the chat template writes; {remedy}"

    def turns_in(self, text: str) -> ToldTurns:
        """`rla_programs.answering.transcripts.ReadsTranscripts`."""
        return told_turns(text) if len(text) <= LONGEST_REPLY else [(text, None)]

    def called(self, reply: str) -> int:
        """`rla_programs.answering.transcripts.ReadsTranscripts`."""
        return calls_told(reply, self.calls)

    def written(self, text: str, calls: Sequence[tuple[str, str]]) -> str:
        """In the format of the environment. A call that it cannot express is kept as it is, so that the environment
        reports the fault.
        """
        pieces = [text] if text else []
        for name, arguments in calls:
            given = arguments_given(arguments)
            if isinstance(given, dict):
                with suppress(ValueError):
                    pieces.append((self.calls or HermesFormat()).render("", [ToolCall(name=name, arguments=given)]))
                    continue
            pieces.append(f'{OPEN}\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n{CLOSE}')
        return "\n".join(pieces)
