"""How a policy, a judge and a proposer are asked, and how their replies are read: one small protocol for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from rla.envs.views import JudgeView, Message, ProposalView
from rla.store.records import Task


class PolicyPrompt(Protocol):
    """Texts that ask the policy for its next action, and the reading of its reply."""

    def opening(self, observation: str, commands: Sequence[str]) -> list[Message]: ...

    def turn(self, observation: str, commands: Sequence[str], instruction: str) -> str: ...

    def window(
        self, history: Sequence[tuple[str, str]], observation: str, commands: Sequence[str], instruction: str
    ) -> list[Message]: ...

    def parse(self, reply: str, commands: Sequence[str]) -> str | None: ...

    def render(self, action: str, commands: Sequence[str]) -> str: ...


@runtime_checkable
class ToolPrompt(Protocol):
    """What a `PolicyPrompt` has beside where the policy may call tools.

    `schemas`: JSON Schemas of the functions, which the chat template prints; none where it is told nothing of them.
    `result_role`: of the turns in which results are told, `tool` or `user`.
    """

    schemas: Sequence[Mapping[str, Any]]
    result_role: str


@runtime_checkable
class WritesCalls(Protocol):
    """What a `ToolPrompt` has beside where calls may come as data, as chat servers send them."""

    def written(self, text: str, calls: Sequence[tuple[str, str]]) -> str:
        """The reply with `text` first and then the calls, each a name and arguments as JSON text, which a model wrote
        and which may be no JSON at all.
        """
        ...


@runtime_checkable
class ChecksCalls(Protocol):
    """A `ToolPrompt` that can tell whether it reads what a chat template writes."""

    schemas: Sequence[Mapping[str, Any]]

    def unread_call(self, reply: str, name: str, arguments: Mapping[str, Any]) -> str:
        """Why it does not find this call in a reply, with the remedy; empty if it does."""
        ...


@runtime_checkable
class ReadsCalls(Protocol):
    """A `PolicyPrompt` of a tool, for whoever shows episodes."""

    def calls_in(self, reply: str) -> Sequence[tuple[str, Mapping[str, Any], str]]:
        """Name, arguments and, of a call that cannot be read, why; all of it is text of a model."""
        ...


@runtime_checkable
class ReadsTranscripts(Protocol):
    """A `PolicyPrompt` of a tool, for whoever judges episodes that were played elsewhere. Nothing is run."""

    def turns_in(self, text: str) -> Sequence[tuple[str, str | None]]:
        """The replies in a text, each with what was answered to it (None: nothing); at least one."""
        ...

    def called(self, reply: str) -> int:
        """How many calls a reply makes, those that cannot be read included."""
        ...


def told_schemas(prompt: PolicyPrompt) -> Sequence[Mapping[str, Any]]:
    """The functions that a chat template is told of; none where the prompt knows no tools."""
    return prompt.schemas if isinstance(prompt, ToolPrompt) else ()


class JudgePrompt(Protocol):
    """Texts that ask the judge about one step, and the reading of its reply: +1, -1 or nothing.

    `replies` are all that may be said with `judge.decoding: admissible`; empty where replies are free text.
    """

    def messages(self, view: JudgeView) -> list[Message]: ...

    def parse(self, reply: str) -> int | None: ...

    def render(self, score: int, reason: str) -> str: ...

    def replies(self) -> tuple[str, ...]: ...


class ProposalPrompt(Protocol):
    """Texts that ask a language model to change a task, and the JSON Schema of its answer for that task's scene.

    `criticised`: whether a language model reads the episodes first; otherwise what was counted is all the critique.
    """

    criticised: bool

    def messages(self, task: Task, view: ProposalView) -> list[Message]: ...

    def schema(self, task: Task) -> Mapping[str, Any]: ...
