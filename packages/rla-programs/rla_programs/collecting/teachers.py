"""Teachers that reply in a collected episode: the environment's scripted solver, or any chat server.

A server that is given tool schemas answers with calls as data. They are converted to the text that the environment
reads, so that the stored conversation is the one that was played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rla.config import Config
from rla.envs.protocols import Message, PolicyPrompt, ToolPrompt
from rla.store.records import Task
from rla.text import past_reply
from rla_programs.answering.transcripts import WritesCalls
from rla_programs.collecting.conversations import ChatMessage
from rla_programs.collecting.params import collect_params

if TYPE_CHECKING:
    from rla_bridges.engines.chat_server import ChatReply, ChatServer


@dataclass(slots=True)
class Dialogue:
    """An episode so far. `sent`: its messages as a chat server takes them, with calls as data and without thoughts."""

    opening: Sequence[Message]
    said: list[ChatMessage] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    history: list[tuple[str, str]] = field(default_factory=list)
    _calls: list[str] = field(default_factory=list)  # ids of the calls of the last reply

    def __post_init__(self) -> None:
        self.said = [ChatMessage(role=one["role"], content=one["content"]) for one in self.opening]
        self.sent = [dict(one) for one in self.opening]

    def reply(self, text: str, answer: ChatReply | None = None) -> None:
        """`answer`: the server's reply, if it called tools."""
        self.said.append(ChatMessage(role="assistant", content=text))
        self._calls = []
        if answer is None or not answer.calls:
            self.sent.append({"role": "assistant", "content": past_reply(text)})
            return
        self._calls = [f"call_{len(self.said)}_{place}" for place in range(len(answer.calls))]
        calls = [
            {"id": name, "type": "function", "function": {"name": called, "arguments": arguments}}
            for name, (called, arguments) in zip(self._calls, answer.calls, strict=True)
        ]
        self.sent.append({"role": "assistant", "content": past_reply(answer.text), "tool_calls": calls})

    def results(self, texts: Sequence[str], role: str) -> None:
        """Add results of calls. A server has to be told which call each belongs to; others get them in user turns."""
        self.said += [ChatMessage(role=role, content=text) for text in texts]
        if len(self._calls) == len(texts):
            self.sent += [
                {"role": "tool", "tool_call_id": name, "content": text}
                for name, text in zip(self._calls, texts, strict=True)
            ]
        else:
            self.sent.append({"role": "user", "content": "\n\n".join(texts)})

    def turn(self, text: str) -> None:
        """Add any other answer of the environment. Each call of a server must have a result."""
        self.said.append(ChatMessage(role="user", content=text))
        self.sent += [{"role": "tool", "tool_call_id": name, "content": text} for name in self._calls]
        if not self._calls:
            self.sent.append({"role": "user", "content": text})


@runtime_checkable
class Solves(Protocol):
    """A scripted teacher that plays the real environment."""

    def solve(self, task: Task, config: Config, history: Sequence[tuple[str, str]], seed: int) -> str:
        """The next reply, as a policy would write it. `history`: earlier replies, each with the environment's answer.
        Equal arguments give equal replies. Raises UserError for a task that it cannot solve.
        """
        ...


class Teacher(Protocol):
    """`answer` returns the reply as text, with the server's data if it called tools; None if there was no reply."""

    @property
    def name(self) -> str: ...

    async def answer(self, task: Task, dialogue: Dialogue, *, seed: int) -> tuple[str, ChatReply | None] | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverTeacher:
    """The environment's own solver."""

    solver: Solves
    config: Config
    name: str = "solver"

    async def answer(self, task: Task, dialogue: Dialogue, *, seed: int) -> tuple[str, ChatReply | None] | None:
        return self.solver.solve(task, self.config, tuple(dialogue.history), seed), None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTeacher:
    """A chat server that is given the schemas of tools, if the prompt has schemas and can write calls. A reply that was
    cut counts as none, because continuing after it would teach to end in the middle.
    """

    server: ChatServer
    prompt: PolicyPrompt
    config: Config
    name: str

    async def answer(self, task: Task, dialogue: Dialogue, *, seed: int) -> tuple[str, ChatReply | None] | None:
        writer, schemas = _writer_of(self.prompt)
        own = collect_params(self.config)
        reply = await self.server.turn(
            dialogue.sent, schemas, seed=seed, temperature=own.temperature, max_tokens=own.max_tokens
        )
        if reply is None or reply.truncated:
            return None
        text = writer.written(reply.text, reply.calls) if writer and reply.calls else reply.text
        return text, reply if writer else None


def _writer_of(prompt: PolicyPrompt) -> tuple[WritesCalls | None, Sequence[Mapping[str, Any]]]:
    """The object that writes calls as text, and the schemas that a server is given in this case."""
    if isinstance(prompt, ToolPrompt) and isinstance(prompt, WritesCalls) and prompt.schemas:
        return prompt, prompt.schemas
    return None, ()
