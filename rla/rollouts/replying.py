"""Who replies to the prompts of the reward model: an engine, whose tokens may train it, or any chat server."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rla.agents.judge import unscored_judgement
from rla.config.judging import JudgeConfig
from rla.envs.pictures import PictureMessage
from rla.envs.prompts import JudgePrompt
from rla.llm.base import Generator, Request, TokenTrie, UnusableReply, replies_to
from rla.llm.chat import ChatFormat, Message
from rla.llm.picture_chat import PictureChat, PromptTokens, parts_message
from rla.models.vision import VisionFormat
from rla.store.records import Judgement

if TYPE_CHECKING:
    from rla.llm.chat_server import ChatServer


log = logging.getLogger(__name__)


class Replier(Protocol):
    """`reply` gives the prompt's token ids, empty where they are not known, and up to `judge.votes` judgements without
    a score: none where the prompt does not fit or no reply came. `session` names prompts that grow from each other.
    """

    async def reply(
        self, messages: Sequence[Message], *, seed: int, session: str | None = None
    ) -> tuple[list[int], list[Judgement]]: ...

    async def look(
        self, messages: Sequence[PictureMessage], *, seed: int, session: str | None = None
    ) -> tuple[PromptTokens, list[Judgement]]:
        """`reply` to turns with pictures."""
        ...

    def release(self, session: str) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReplier:
    """Replies of a Generator. `allowed`: all that may be said, with `judge.decoding: admissible`. `vision`: of a model
    that sees pictures.
    """

    generator: Generator
    chat: ChatFormat
    config: JudgeConfig
    allowed: TokenTrie | None = None
    vision: VisionFormat | None = None

    async def reply(
        self, messages: Sequence[Message], *, seed: int, session: str | None = None
    ) -> tuple[list[int], list[Judgement]]:
        prompt = PromptTokens(ids=self.chat.first(messages))
        return prompt.ids, await self._sampled(prompt, seed=seed, session=session)

    async def look(
        self, messages: Sequence[PictureMessage], *, seed: int, session: str | None = None
    ) -> tuple[PromptTokens, list[Judgement]]:
        if self.vision is None:
            raise RuntimeError("pictures for a model that sees none")
        prompt = PictureChat(self.chat, self.vision).first(messages)
        return prompt, await self._sampled(prompt, seed=seed, session=session)

    async def _sampled(self, prompt: PromptTokens, *, seed: int, session: str | None) -> list[Judgement]:
        """Empty where the prompt does not fit, and where the engine's replies are unusable."""
        if len(prompt.ids) + self.config.max_tokens > self.generator.context:
            return []
        request = Request(
            prompt_ids=prompt.ids,
            max_tokens=self.config.max_tokens,
            temperature=self.config.temperature,
            seed=seed,
            samples=self.config.votes,
            session=session,
            allowed=self.allowed,
            images=prompt.images,
            turns=prompt.turns,
        )
        try:
            completions = await replies_to(self.generator, request)
        except UnusableReply as unusable:
            log.warning("a judgement is missing: %s", unusable)
            return []
        return [unscored_judgement(completion, self.chat) for completion in completions]

    def release(self, session: str) -> None:
        self.generator.release(session)

    def close(self) -> None:
        self.generator.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReplier:
    """Replies of a chat server: text alone. It is sent pictures as parts of messages."""

    server: ChatServer
    config: JudgeConfig

    async def reply(
        self, messages: Sequence[Message], *, seed: int, session: str | None = None
    ) -> tuple[list[int], list[Judgement]]:
        return [], await self._replies(messages, seed=seed)

    async def look(
        self, messages: Sequence[PictureMessage], *, seed: int, session: str | None = None
    ) -> tuple[PromptTokens, list[Judgement]]:
        return PromptTokens(ids=[]), await self._replies(list(map(parts_message, messages)), seed=seed)

    async def _replies(self, messages: Sequence[Mapping[str, Any]], *, seed: int) -> list[Judgement]:
        replies = await self.server.replies(
            messages,
            samples=self.config.votes,
            seed=seed,
            temperature=self.config.temperature,
            max_tokens=self.config.max_tokens,
        )
        return [
            Judgement(score=None, text=one.text, truncated=one.truncated, token_ids=[], logprobs=[], allowed=[])
            for one in replies
        ]

    def release(self, session: str) -> None:
        """Nothing is kept by session."""

    def close(self) -> None:
        """Nothing to stop: connections end with the event loop."""


def reply_trie(chat: ChatFormat, prompt: JudgePrompt, config: JudgeConfig) -> TokenTrie | None:
    """The trie of the prompt's replies with `decoding: admissible`, else nothing."""
    if config.decoding == "free":
        return None
    return TokenTrie([*chat.encode(reply), chat.end_id] for reply in prompt.replies())
