"""Steps are judged in order, or all at once, with the same seeds and rows."""

from __future__ import annotations

import asyncio
from typing import Any

from rla.config.sections import JudgeConfig
from rla.envs.chat_prompts import PlainJudge
from rla.llm.base import Completion, FinishReason, Request
from rla.llm.chat import ChatFormat
from rla.rollouts.scores import EngineReplier, Judging, judge_trajectory
from tests.unit.builders import step, trajectory
from tests.unit.llm.test_chat import byte_tokenizer


class Slow:
    """Notes how many requests wait at a time, and whether they belong to a session."""

    context = 4096

    def __init__(self, chat: ChatFormat) -> None:
        self.chat, self.waiting, self.most = chat, 0, 0
        self.sessions: list[str | None] = []

    async def generate(self, request: Request) -> list[Completion]:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        self.sessions.append(request.session)
        await asyncio.sleep(0)
        self.waiting -= 1
        sign = "+" if request.seed % 2 else "-"
        ids = [*self.chat.encode(f"score {sign}1"), self.chat.end_id]
        return [
            Completion(
                token_ids=ids, logprobs=[0.0] * len(ids), allowed=[[] for _ in ids], finish_reason=FinishReason.STOP
            )
        ] * request.samples

    def release(self, session: str) -> None: ...

    def close(self) -> None: ...


def judged(*, at_once: bool) -> tuple[Slow, list[dict[str, Any]]]:
    chat = ChatFormat(byte_tokenizer())
    engine = Slow(chat)
    shared = Judging(
        replier=EngineReplier(generator=engine, chat=chat, config=JudgeConfig(votes=2, max_tokens=16)),
        prompt=PlainJudge(),
        seed=5,
        at_once=at_once,
    )
    row = trajectory("a", steps=[step()] * 6).row()
    return engine, [score.row() for score in asyncio.run(judge_trajectory(row, shared))]


def test_all_steps_at_once_give_the_rows_of_one_after_the_other() -> None:
    (slow, ordered), (fast, gathered) = judged(at_once=False), judged(at_once=True)
    assert gathered == ordered and [row["step"] for row in ordered] == list(range(6))
    assert (slow.most, fast.most) == (1, 6)
    assert set(slow.sessions) == {"a"} and set(fast.sessions) == {None}
