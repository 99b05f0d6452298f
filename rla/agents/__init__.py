"""The language side of an episode: from observations to the policy's prompts, from replies to actions, and the judge's
view of each step.

`history: full` keeps one growing segment (the prompt of step t+1 extends the tokens of step t); `history: window`
builds a new prompt for every step, so that each step is a segment of its own. If the model sees pictures, a window
shows the pictures of the last `policy.images` observations, and a growing segment shows all.

The judge never sees the outcome. The policy's text stands in its prompt as quoted data: `ChatFormat` encodes contents
so that control tokens in them cannot act.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Any

from rla.config.sections import PolicyConfig
from rla.envs.observation import ChatTurns, EnvironmentFailure, Observation
from rla.envs.protocols import Demonstration, JudgePrompt, JudgeView, Message, PolicyPrompt, ToolPrompt, told_schemas
from rla.errors import UserError
from rla.llm.base import Completion, FinishReason, TokenTrie
from rla.llm.chat import ChatFormat, reply_text
from rla.pictures.prompts import PastStep, Picture, PictureMessage, PicturesJudge, PicturesPolicy
from rla.pictures.vision import PictureChat, PlacedImage, PromptTokens
from rla.store.records import Segment, Step, columns
from rla.text import after_thinking

# Sent to the environment if a reply holds no admissible command: no engine knows it, so nothing happens.
NO_ACTION = "no action"


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
    for told in (schema["function"] for schema in prompt.schemas):
        name, arguments = told["name"], dict.fromkeys(told["parameters"].get("required", ()), "a")
        reply = chat.written_call(name, arguments)
        fault = prompt.unread_call(reply, name, arguments) if reply else ""
        if fault:
            raise UserError(f"{model}: {fault}")


class CommandTries:
    """Token tries of command lists, cached: the same list comes back often within and across episodes.

    `of(commands)`: the trie, and the command of each token path.
    """

    def __init__(self, chat: ChatFormat) -> None:
        def made(commands: tuple[str, ...]) -> tuple[TokenTrie, dict[tuple[int, ...], str]]:
            paths = {(*chat.encode(command), chat.end_id): command for command in commands}
            return TokenTrie(paths), paths

        self.of = lru_cache(maxsize=4096)(made)


@dataclass(slots=True)
class _GrowingSegment:
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
        self.token_ids += prompt.ids
        self.sampled += [False] * len(prompt.ids)
        self.logprobs += [0.0] * len(prompt.ids)

    def sample(self, completion: Completion) -> None:
        self.token_ids += completion.token_ids
        self.sampled += [True] * len(completion.token_ids)
        self.logprobs += completion.logprobs
        self.allowed += completion.allowed


class PolicyAgent:
    """One episode's dialogue with the policy. Call `prompt`, then `read` with the completion, in turn.

    `dialogue`: the segments as they grow; `segment`: of the last prompt. `pictures`: of a model that sees them.
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
        self.dialogue: list[_GrowingSegment] = []
        self._chat, self._prompt, self._config, self._tries = chat, prompt, config, tries
        self._instruction, self._pictures = instruction, pictures
        self._past: list[PastStep] = []
        self._now: tuple[bytes, ...] = ()  # pictures of the current observation
        self._at = 0  # the segment of the last prompt
        self._ends: list[tuple[int, int]] = []  # the segment of each reply, and its length after it

    @property
    def segment(self) -> _GrowingSegment:
        return self.dialogue[self._at]

    def prompt(self, seen: Observation, commands: tuple[str, ...] = ()) -> tuple[list[int], TokenTrie | None]:
        """The prompt's token ids and, with `decoding: admissible`, the trie of possible replies. Raises
        EnvironmentFailure for turns of the observation that the chat template cannot print.
        """
        self._now, self._at = seen.images, len(self.dialogue)
        if seen.chat is not None:
            told = self._conversed(seen.chat)
        elif self._config.history == "window" or not self.dialogue:
            told = self._opening(seen.text, commands)
        else:
            self._at -= 1
            ended = self.segment.token_ids[-1] in self._chat.stop_ids
            text = self._prompt.turn(seen.text, commands, self._instruction)
            if seen.results and isinstance(self._prompt, ToolPrompt):
                results, role = [result.text for result in seen.results], self._prompt.result_role
                told = PromptTokens(ids=self._chat.next_turns(results, ended=ended, role=role))
            elif self._pictures is None:
                told = PromptTokens(ids=self._chat.next_turn(text, ended=ended))
            else:
                told = self._pictures.next_turn([*map(Picture, seen.images), text], ended=ended)
        if self._at == len(self.dialogue):
            self.dialogue.append(_GrowingSegment())
        self.segment.read(told)
        restricted = self._config.decoding == "admissible"
        return self.segment.token_ids, self._tries.of(commands)[0] if restricted else None

    def _conversed(self, asked: ChatTurns) -> PromptTokens:
        """The tokens of turns. They continue the segment of a reply, or a copy if it was continued before."""
        roles, contents = [role for role, _ in asked.turns], [content for _, content in asked.turns]
        try:
            if asked.after is None:
                told = [{"role": role, "content": content} for role, content in asked.turns]
                return PromptTokens(ids=self._chat.first(told, asked.tools))
            at, end = self._ends[asked.after]
            known = self.dialogue[at].token_ids
            new = self._chat.next_turns(contents, ended=known[end - 1] in self._chat.stop_ids, role=roles)
        except UserError as error:
            raise EnvironmentFailure(str(error)) from None
        self._at = at if end == len(known) else self._at
        return PromptTokens(ids=new if self._at == at else [*known[:end], *new])

    def _opening(self, observation: str, commands: tuple[str, ...]) -> PromptTokens:
        """The tokens of a new conversation: the episode's first prompt, or a window of its steps."""
        window, past = self._config.history == "window", self._past
        if window and self._pictures is not None and isinstance(self._prompt, PicturesPolicy):
            return self._pictures.first(
                self._prompt.with_pictures(past, observation, self._now, commands, self._instruction)
            )
        if window:
            history = [(one.observation, one.action) for one in past]
            messages = self._prompt.window(history, observation, commands, self._instruction)
        else:
            messages = self._prompt.opening(observation, commands)
        if self._pictures is None:
            return PromptTokens(ids=self._chat.first(messages, told_schemas(self._prompt)))
        pngs = [*chain.from_iterable(one.images for one in past), *self._now]
        return self._pictures.first(_with_pictures_last(messages, pngs))

    def room(self, context: int) -> int | None:
        """The most tokens that a reply to the last prompt may have; None without room for one.

        `policy.response_tokens` counts the tokens after the episode's first prompt: replies, and the environment's
        answers to them. With `history: window` every prompt is a first one.
        """
        segment, config = self.segment, self._config
        left = context - len(segment.token_ids)
        if config.response_tokens:
            answered = len(segment.token_ids) - segment.sampled.index(True) if any(segment.sampled) else 0
            left = min(left, config.response_tokens - answered)
        if left >= config.max_tokens:
            return config.max_tokens
        return left if config.response_tokens and left > 0 else None

    def read(self, completion: Completion, observation: str, commands: tuple[str, ...]) -> Step:
        """Append the completion and read the action from it."""
        segment, ids = self.segment, completion.token_ids
        start = len(segment.token_ids)
        segment.sample(completion)
        self._ends.append((self._at, len(segment.token_ids)))
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
            segment=self._at,
            start=start,
            end=len(segment.token_ids),
        )

    def segments(self) -> list[Segment]:
        """All segments, without one whose prompt was never answered (a prompt that did not fit)."""
        return [
            Segment(token_ids=one.token_ids, sampled=one.sampled, logprobs=one.logprobs, allowed=one.allowed)
            for one in self.dialogue
            if any(one.sampled)
        ]

    def image_spans(self) -> list[dict[str, Any]] | None:
        """The places of picture tokens in the segments; None if the model does not see pictures."""
        if self._pictures is None:
            return None
        return [
            {"segment": number, **columns(one.span())}
            for number, segment in enumerate(self.dialogue)
            if any(segment.sampled)
            for one in segment.images
        ]


def demonstrated_steps(shown: Demonstration, prompt: PolicyPrompt) -> list[Step]:
    """The steps of a demonstration, with the replies that would have said its actions, without tokens."""
    return [
        Step(
            observation=observation,
            commands=commands,
            reply=prompt.render(action, commands),
            action=action,
            valid=True,
            truncated=False,
            segment=0,
            start=0,
            end=0,
        )
        for observation, commands, action in zip(shown.observations, shown.commands, shown.actions, strict=True)
    ]


def views(
    trajectory: Mapping[str, Any], screens: Sequence[tuple[bytes, ...]] = (), *, images: int = 1
) -> Iterator[JudgeView]:
    """The judge's view of each step of a trajectory row, in order.

    `screens`: the pictures of every observation; the last `images` of them before an action are shown.
    """
    steps = trajectory["steps"]
    history: list[tuple[str, str]] = []
    for index, step in enumerate(steps):
        last = index + 1 == len(steps)
        yield JudgeView(
            instruction=trajectory["instruction"],
            history=tuple(history),
            observation=step["observation"],
            commands=step["commands"],
            reply=step["reply"],
            action=step["action"],
            valid=step["valid"],
            next_observation=trajectory["final_observation"] if last else steps[index + 1]["observation"],
            images=tuple(screens[max(0, index + 1 - images) : index + 1]),
            next_images=tuple(chain.from_iterable(screens[index + 1 : index + 2])),
        )
        history.append((step["observation"], step["action"]))


def judged_with_pictures(prompt: JudgePrompt, view: JudgeView) -> list[PictureMessage]:
    """The judge's prompt about a step: pictures from before it, then the pictures that followed."""
    if isinstance(prompt, PicturesJudge):
        return prompt.with_pictures(view)
    return _with_pictures_last(prompt.messages(view), [*chain.from_iterable(view.images), *view.next_images])


def _with_pictures_last(messages: Sequence[Message], pngs: Iterable[bytes]) -> list[PictureMessage]:
    """The turns, with pictures at the head of the last one, the oldest first."""
    *before, last = messages
    told = [PictureMessage(role=one["role"], parts=(one["content"],)) for one in before]
    return [*told, PictureMessage(role=last["role"], parts=(*map(Picture, pngs), last["content"]))]
