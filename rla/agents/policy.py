"""The policy's side of an episode: from observations to prompt token ids, and from a reply to an action.

`history: full` keeps one growing segment (the prompt of step t+1 extends the tokens of step t); `history: window`
builds a new prompt for every step, so that each step is a segment of its own. Where the model sees pictures, a window
shows those of the last `policy.images` observations, and a growing segment those of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rla.config.sections import PolicyConfig
from rla.envs.prompts import ChecksCalls, PolicyPrompt, ToolPrompt, told_schemas
from rla.envs.views import Message
from rla.errors import UserError
from rla.llm.base import Completion, FinishReason, TokenTrie
from rla.llm.chat import ChatFormat, reply_text
from rla.pictures.prompts import PastStep, Picture, PictureMessage, PicturesPolicy
from rla.pictures.vision import PictureChat, PlacedImage, PromptTokens
from rla.store.records import Segment, Step, columns
from rla.thoughts import after_thinking

# What the environment is told when a reply holds no admissible command: no engine knows it, so nothing happens.
NO_ACTION = "no action"


def with_pictures_last(messages: Sequence[Message], pngs: Iterable[bytes]) -> list[PictureMessage]:
    """The turns, with pictures at the head of the last one, the oldest first."""
    *before, last = messages
    told = [PictureMessage(role=one["role"], parts=(one["content"],)) for one in before]
    return [*told, PictureMessage(role=last["role"], parts=(*map(Picture, pngs), last["content"]))]


def window_with_pictures(
    prompt: PolicyPrompt,
    history: Sequence[PastStep],
    observation: str,
    images: Sequence[bytes],
    commands: Sequence[str],
    instruction: str,
) -> list[PictureMessage]:
    """What a policy is asked with `policy.history: window`: pictures of `history`, as far as it has any, and of now."""
    if isinstance(prompt, PicturesPolicy):
        return prompt.with_pictures(history, observation, images, commands, instruction)
    told = prompt.window([(one.observation, one.action) for one in history], observation, commands, instruction)
    return with_pictures_last(told, [*(png for one in history for png in one.images), *images])


def action_in(reply: str, prompt: PolicyPrompt, commands: Sequence[str]) -> str | None:
    """The action that `prompt` reads after the thoughts of a reply; None if nothing follows them."""
    said = after_thinking(reply)
    return prompt.parse(said, commands) if said.strip() or not reply.strip() else None


class CommandTries:
    """Token tries of command lists, cached: the same list comes back often within and across episodes."""

    def __init__(self, chat: ChatFormat, limit: int = 4096) -> None:
        self._chat, self._limit = chat, limit
        self._ids: dict[str, list[int]] = {}
        self._tries: dict[tuple[str, ...], tuple[TokenTrie, dict[tuple[int, ...], str]]] = {}

    def of(self, commands: tuple[str, ...]) -> tuple[TokenTrie, dict[tuple[int, ...], str]]:
        """The trie of the commands and the way back from token path to command."""
        found = self._tries.get(commands)
        if found is None:
            if len(self._tries) >= self._limit:
                self._tries.clear()
            paths = {tuple(self.ids(command)): command for command in commands}
            found = self._tries[commands] = (TokenTrie(paths), paths)
        return found

    def ids(self, command: str) -> list[int]:
        ids = self._ids.get(command)
        if ids is None:
            ids = self._ids[command] = [*self._chat.encode(command), self._chat.end_id]
        return ids


@dataclass(slots=True)
class Growing:
    """A segment under construction."""

    token_ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    allowed: list[list[int]] = field(default_factory=list)
    images: list[PlacedImage] = field(default_factory=list)
    turns: tuple[PictureMessage, ...] = ()  # of its prompt, where nothing has been said yet

    def look(self, prompt: PromptTokens) -> None:
        """Append what is read, with its pictures."""
        self.turns = () if self.token_ids else prompt.turns
        self.images += prompt.shifted(len(self.token_ids))
        self.extend(prompt.ids)

    def extend(self, ids: Sequence[int]) -> None:
        self.token_ids.extend(ids)
        self.sampled.extend([False] * len(ids))
        self.logprobs.extend([0.0] * len(ids))

    def sample(self, completion: Completion) -> None:
        self.token_ids.extend(completion.token_ids)
        self.sampled.extend([True] * len(completion.token_ids))
        self.logprobs.extend(completion.logprobs)
        self.allowed.extend(completion.allowed)

    def freeze(self) -> Segment:
        return Segment(token_ids=self.token_ids, sampled=self.sampled, logprobs=self.logprobs, allowed=self.allowed)


def check_calls(chat: ChatFormat, prompt: PolicyPrompt, *, taught: bool) -> None:
    """Raises UserError if the model's own chat template writes calls that the environment does not read, or prints no
    tools although nothing has `taught` the model to call them.
    """
    if not isinstance(prompt, ChecksCalls):
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
        self._segments: list[Growing] = []
        self._history: list[tuple[str, str]] = []
        self._past: list[PastStep] = []  # the same where the model sees pictures
        self._now: tuple[bytes, ...] = ()
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
        """The prompt's token ids and, with `decoding: admissible`, the trie of what may be answered. `results` of calls
        are told in turns of their own, in place of the observation. `images`: the pictures of the observation.
        """
        self._now = images
        if self._pictures is not None and not (results and self._tools is not None and self._segments):
            self._look(self._pictures, observation, commands, images)
        elif self._config.history == "window":
            messages = self._prompt.window(self._history, observation, commands, self._instruction)
            self._segments.append(Growing())
            self._segments[-1].extend(self._chat.first(messages, self._schemas))
        elif not self._segments:
            self._segments.append(Growing())
            self._segments[-1].extend(self._chat.first(self._prompt.opening(observation, commands), self._schemas))
        elif results and self._tools is not None:
            role = self._tools.result_role
            self._segments[-1].extend(self._chat.next_turns(results, ended=self._ended, role=role))
        else:
            text = self._prompt.turn(observation, commands, self._instruction)
            self._segments[-1].extend(self._chat.next_turn(text, ended=self._ended))
        restricted = self._config.decoding == "admissible"
        return self._segments[-1].token_ids, self._tries.of(commands)[0] if restricted else None

    def _look(
        self, pictures: PictureChat, observation: str, commands: tuple[str, ...], images: tuple[bytes, ...]
    ) -> None:
        """The prompt with pictures."""
        if self._config.history == "window":
            asked = window_with_pictures(self._prompt, self._past, observation, images, commands, self._instruction)
            told = pictures.first(asked)
        elif not self._segments:
            told = pictures.first(with_pictures_last(self._prompt.opening(observation, commands), images))
        else:
            text = self._prompt.turn(observation, commands, self._instruction)
            told = pictures.next_turn([*map(Picture, images), text], ended=self._ended)
        if self._config.history == "window" or not self._segments:
            self._segments.append(Growing())
        self._segments[-1].look(told)

    def images(self) -> tuple[PlacedImage, ...]:
        """The pictures of the last prompt."""
        return tuple(self._segments[-1].images)

    def turns(self) -> tuple[PictureMessage, ...]:
        """The last prompt as turns of texts and pictures, where it holds no reply."""
        return self._segments[-1].turns

    def image_spans(self) -> list[dict[str, Any]] | None:
        """Where the tokens of pictures stand in the segments; None where the model sees none."""
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
        self._history.append((observation, action if action is not None else NO_ACTION))
        if self._pictures is not None:
            self._remember(
                PastStep(observation=observation, reply=reply, action=self._history[-1][1], images=self._now)
            )
        return Step(
            observation=observation,
            commands=commands,
            reply=reply,
            action=action if action is not None else NO_ACTION,
            valid=action is not None,
            truncated=completion.finish_reason is FinishReason.LENGTH,
            segment=len(self._segments) - 1,
            start=start,
            end=len(segment.token_ids),
        )

    def _remember(self, step: PastStep) -> None:
        """With its pictures, which the step that leaves the window loses."""
        self._past.append(step)
        if len(self._past) >= self._config.images:
            gone = len(self._past) - self._config.images
            self._past[gone] = replace(self._past[gone], images=())

    def answered(self, length: int) -> int:
        """How many of the `length` tokens of the prompt come after the episode's first prompt: replies and what the
        environment has answered to them. With `history: window` every prompt is a first one.
        """
        first = self._segments[-1].sampled.index(True) if any(self._segments[-1].sampled) else length
        return length - first

    def dialogue(self) -> list[Growing]:
        """The segments as they grew, with their pictures."""
        return self._segments

    def segments(self) -> list[Segment]:
        """All segments; one whose prompt was never answered (a prompt that did not fit) is left out."""
        return [segment.freeze() for segment in self._segments if any(segment.sampled)]
