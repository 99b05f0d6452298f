"""The policy's side of an episode: from observations to prompt token ids, and from a reply to an action.

`history: full` keeps one growing segment (the prompt of step t+1 extends the tokens of step t); `history: window`
builds a new prompt for every step, so that each step is a segment of its own. If the model sees pictures, a window
shows the pictures of the last `policy.images` observations, and a growing segment shows all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rla.config.sections import PolicyConfig
from rla.envs.protocols import Message, PolicyPrompt, ToolPrompt, told_schemas
from rla.errors import UserError
from rla.llm.base import Completion, FinishReason, TokenTrie
from rla.llm.chat import ChatFormat, reply_text
from rla.pictures.prompts import PastStep, Picture, PictureMessage, PicturesPolicy
from rla.pictures.vision import PictureChat, PlacedImage, PromptTokens
from rla.store.records import Segment, Step, columns
from rla.text import after_thinking

# Sent to the environment if a reply holds no admissible command: no engine knows it, so nothing happens.
NO_ACTION = "no action"


def with_pictures_last(messages: Sequence[Message], pngs: Iterable[bytes]) -> list[PictureMessage]:
    """The turns, with pictures at the head of the last one, the oldest first."""
    *before, last = messages
    told = [PictureMessage(role=one["role"], parts=(one["content"],)) for one in before]
    return [*told, PictureMessage(role=last["role"], parts=(*map(Picture, pngs), last["content"]))]


def action_in(reply: str, prompt: PolicyPrompt, commands: Sequence[str]) -> str | None:
    """The action that `prompt` reads after the thoughts of a reply; None if nothing follows them."""
    said = after_thinking(reply)
    return prompt.parse(said, commands) if said.strip() or not reply.strip() else None


def check_calls(chat: ChatFormat, prompt: PolicyPrompt, *, taught: bool) -> None:
    """Raises UserError if the model's own chat template writes calls that the environment does not read, or prints no
    tools although nothing has `taught` the model to call them.
    """
    if not isinstance(prompt, ToolPrompt):
        return
    model = chat.tokenizer.name_or_path
    if prompt.schemas and not taught and not chat.tells(prompt.schemas):
        raise UserError(
            f"{model}: the chat template does not print tools, so the model would not know of them; take a model whose "
            "template does, or a format that needs none (env.own.format: short)"
        )
    for schema in prompt.schemas:
        name, arguments = schema["function"]["name"], {key: "a" for key in schema["function"]["parameters"]["required"]}
        reply = chat.written_call(name, arguments)
        fault = prompt.unread_call(reply, name, arguments) if reply else ""
        if fault:
            raise UserError(f"{model}: {fault}")


class CommandTries:
    """Token tries of command lists, cached: the same list comes back often within and across episodes."""

    def __init__(self, chat: ChatFormat, limit: int = 4096) -> None:
        self._chat, self._limit = chat, limit
        self._ids: dict[str, list[int]] = {}
        self._tries: dict[tuple[str, ...], tuple[TokenTrie, dict[tuple[int, ...], str]]] = {}

    def of(self, commands: tuple[str, ...]) -> tuple[TokenTrie, dict[tuple[int, ...], str]]:
        """The trie of the commands, and the command of each token path."""
        found = self._tries.get(commands)
        if found is None:
            if len(self._tries) >= self._limit:
                self._tries.clear()
            paths = {tuple(self._ids_of(command)): command for command in commands}
            found = self._tries[commands] = (TokenTrie(paths), paths)
        return found

    def _ids_of(self, command: str) -> list[int]:
        ids = self._ids.get(command)
        if ids is None:
            ids = self._ids[command] = [*self._chat.encode(command), self._chat.end_id]
        return ids


@dataclass(slots=True)
class GrowingSegment:
    """A segment under construction: tokens that were read, and tokens that were sampled."""

    token_ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    allowed: list[list[int]] = field(default_factory=list)
    images: list[PlacedImage] = field(default_factory=list)
    turns: tuple[PictureMessage, ...] = ()  # of its prompt, as long as it holds no reply

    def read(self, prompt: PromptTokens) -> None:
        """Append a prompt, or the next turn of one, with its pictures."""
        self.turns = () if self.token_ids else prompt.turns
        self.images += prompt.shifted(len(self.token_ids))
        self.token_ids.extend(prompt.ids)
        self.sampled.extend([False] * len(prompt.ids))
        self.logprobs.extend([0.0] * len(prompt.ids))

    def sample(self, completion: Completion) -> None:
        self.token_ids.extend(completion.token_ids)
        self.sampled.extend([True] * len(completion.token_ids))
        self.logprobs.extend(completion.logprobs)
        self.allowed.extend(completion.allowed)


class PolicyAgent:
    """One episode's dialogue with the policy. Call `prompt`, then `read` with the completion, in turn.

    `pictures`: of a model that sees them.
    """

    def __init__(
        self,
        *,
        chat: ChatFormat,
        prompt: PolicyPrompt,
        config: PolicyConfig,
        tries: CommandTries,
        instruction: str,
        pictures: PictureChat | None = None,
    ) -> None:
        self._chat, self._prompt, self._config, self._tries = chat, prompt, config, tries
        self._instruction, self._pictures = instruction, pictures
        self._segments: list[GrowingSegment] = []
        self._past: list[PastStep] = []
        self._now: tuple[bytes, ...] = ()  # pictures of the current observation
        self._ended = True
        self._tools = prompt if isinstance(prompt, ToolPrompt) else None
        self._schemas = told_schemas(prompt)

    def prompt(
        self,
        observation: str,
        commands: tuple[str, ...],
        results: Sequence[str] = (),
        images: tuple[bytes, ...] = (),
    ) -> tuple[list[int], TokenTrie | None]:
        """The prompt's token ids and, with `decoding: admissible`, the trie of possible replies. `results` of calls are
        told in turns of their own, in place of the observation. `images`: the pictures of the observation.
        """
        self._now = images
        window = self._config.history == "window"
        first = window or not self._segments
        called = bool(self._tools is not None and results and self._segments)
        if called and self._tools is not None and not window:
            role = self._tools.result_role
            told = PromptTokens(ids=self._chat.next_turns(results, ended=self._ended, role=role))
        elif self._pictures is not None and not called:
            told = self._with_pictures(self._pictures, observation, commands)
        elif window:
            history = [(one.observation, one.action) for one in self._past]
            messages = self._prompt.window(history, observation, commands, self._instruction)
            told = PromptTokens(ids=self._chat.first(messages, self._schemas))
        elif not self._segments:
            told = PromptTokens(ids=self._chat.first(self._prompt.opening(observation, commands), self._schemas))
        else:
            text = self._prompt.turn(observation, commands, self._instruction)
            told = PromptTokens(ids=self._chat.next_turn(text, ended=self._ended))
        if first:
            self._segments.append(GrowingSegment())
        self._segments[-1].read(told)
        restricted = self._config.decoding == "admissible"
        return self._segments[-1].token_ids, self._tries.of(commands)[0] if restricted else None

    def _with_pictures(self, pictures: PictureChat, observation: str, commands: tuple[str, ...]) -> PromptTokens:
        """The tokens of a prompt, or of its next turn, with the pictures of the observation."""
        images, instruction = self._now, self._instruction
        if self._config.history == "full":
            if not self._segments:
                return pictures.first(with_pictures_last(self._prompt.opening(observation, commands), images))
            text = self._prompt.turn(observation, commands, instruction)
            return pictures.next_turn([*map(Picture, images), text], ended=self._ended)
        if isinstance(self._prompt, PicturesPolicy):
            return pictures.first(self._prompt.with_pictures(self._past, observation, images, commands, instruction))
        history = [(one.observation, one.action) for one in self._past]
        messages = self._prompt.window(history, observation, commands, instruction)
        return pictures.first(
            with_pictures_last(messages, [*(png for one in self._past for png in one.images), *images])
        )

    def images(self) -> tuple[PlacedImage, ...]:
        """The pictures of the last prompt."""
        return tuple(self._segments[-1].images)

    def turns(self) -> tuple[PictureMessage, ...]:
        """The last prompt as turns of texts and pictures; empty if it holds a reply."""
        return self._segments[-1].turns

    def image_spans(self) -> list[dict[str, Any]] | None:
        """The places of picture tokens in the segments; None if the model does not see pictures."""
        if self._pictures is None:
            return None
        return [
            {"segment": number, **columns(one.span())}
            for number, segment in enumerate(self._segments)
            if any(segment.sampled)
            for one in segment.images
        ]

    def read(self, completion: Completion, observation: str, commands: tuple[str, ...]) -> Step:
        """Append the completion and read the action from it."""
        segment = self._segments[-1]
        start = len(segment.token_ids)
        segment.sample(completion)
        ids = completion.token_ids
        self._ended = bool(ids) and ids[-1] in self._chat.stop_ids
        reply = reply_text(completion, self._chat)
        if self._config.decoding == "admissible":
            action = self._tries.of(commands)[1].get(tuple(ids))
        else:
            action = action_in(reply, self._prompt, commands)
        told = action if action is not None else NO_ACTION
        self._past.append(PastStep(observation=observation, reply=reply, action=told, images=self._now))
        gone = len(self._past) - self._config.images
        if gone >= 0 and self._past[gone].images:  # they leave the window
            self._past[gone] = replace(self._past[gone], images=())
        return Step(
            observation=observation,
            commands=commands,
            reply=reply,
            action=told,
            valid=action is not None,
            truncated=completion.finish_reason is FinishReason.LENGTH,
            segment=len(self._segments) - 1,
            start=start,
            end=len(segment.token_ids),
        )

    def answered(self, length: int) -> int:
        """How many of the `length` tokens of the prompt come after the episode's first prompt: replies and the
        environment's answers to them. With `history: window` every prompt is a first one.
        """
        first = self._segments[-1].sampled.index(True) if any(self._segments[-1].sampled) else length
        return length - first

    def dialogue(self) -> list[GrowingSegment]:
        """The segments as they grew, with their pictures."""
        return self._segments

    def segments(self) -> list[Segment]:
        """All segments, without one whose prompt was never answered (a prompt that did not fit)."""
        return [
            Segment(token_ids=one.token_ids, sampled=one.sampled, logprobs=one.logprobs, allowed=one.allowed)
            for one in self._segments
            if any(one.sampled)
        ]
