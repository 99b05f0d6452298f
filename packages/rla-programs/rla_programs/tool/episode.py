"""An episode: a question, rounds of calls and results, and the final answer, which ends it.

A reply with calls is answered with their results; a reply without calls is the answer. The last observation never says
whether the answer is right, because judges read it. The reward of an answer that is a program is the share of tests
that it passes; other answers are right or wrong, without a reward.

An episode that ends in another way, by a malformed call or at a limit, has no answer and is lost. With `whole` the
answer is read from the whole response instead, however the episode ends, as in the published code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from rla.envs.observation import CallResult, EnvironmentFailure, Observation
from rla_programs.tool.calls import CallFormat, Malformed, ToolCall, Turn
from rla_programs.tool.questions import Question
from rla_programs.tool.whole_response import whole_response

TAKEN = "The answer has been taken."
UNREADABLE = "The call could not be read, which ends the episode."
EXCESS, ABSENT = "excess", "absent"  # statuses of calls that were not run: one too many, and no tool


class Caller(Protocol):
    """Runs calls (`rla_programs.tool.interpreter`)."""

    async def call(self, call: ToolCall | Malformed) -> CallResult: ...


class AnswerChecker(Protocol):
    """Checks answers (`rla_programs.tool.answers`)."""

    async def right(self, question: Question, reply: str) -> float: ...

    def answered(self, question: Question, reply: str) -> bool: ...


class ToolEpisode:
    """An `AwaitedEnvironment` that `Concludes` and `Recalls`. `caller` is None if the policy has no tool. Raises
    EnvironmentFailure if the sandbox fails.
    """

    def __init__(
        self,
        question: Question,
        *,
        shown: str,
        caller: Caller | None,
        checker: AnswerChecker,
        calls: CallFormat,
        most_calls: int,
        malformed_ends: bool,
        whole: bool = False,
    ) -> None:
        self._question, self._shown, self._caller, self._checker = question, shown, caller, checker
        self._format, self._most, self._malformed_ends = calls, most_calls, malformed_ends
        self._whole, self._over = whole, True
        self._replies, self._answers = list[str](), list[str]()

    async def reset(self) -> Observation:
        self._over = False
        self._replies, self._answers = [], []
        return Observation(text=self._shown)

    async def step(self, action: str) -> Observation:
        if self._over:
            raise EnvironmentFailure("a step after the end")
        turn = self._format.parse(action)
        self._replies.append(action)
        if not turn.calls:
            return await self._ended(TAKEN)
        understood = any(isinstance(call, ToolCall) for call in turn.calls)
        if self._malformed_ends and not understood:
            ended = await self._ended(UNREADABLE) if self._whole else self._lost(UNREADABLE)
            return replace(ended, understood=False)
        results = await self._results(turn)
        self._answers.append("\n\n".join(result.text for result in results))
        return Observation(text=self._answers[-1], results=results, understood=understood)

    def recall(self, actions: Sequence[str], answers: Sequence[str]) -> None:
        """`Recalls`."""
        self._replies, self._answers = list(actions), list(answers)

    async def stopped(self) -> Observation:
        """`Concludes`: results of the last reply's calls are not read."""
        last = self._answers[-1] if self._answers else self._shown
        return await self._ended(last) if self._whole and self._replies else self._lost(last)

    def close(self) -> None:
        """Nothing to do: the sandbox belongs to the service."""

    async def _ended(self, text: str) -> Observation:
        """The end of an episode whose answer is read."""
        self._over = True
        said = whole_response(self._replies, self._answers) if self._whole else self._replies[-1]
        right = await self._checker.right(self._question, said)
        understood = self._checker.answered(self._question, said)
        reward = right if self._question.check == "code" and understood else None
        return Observation(text=text, done=True, won=right == 1.0, reward=reward, understood=understood)

    def _lost(self, text: str) -> Observation:
        self._over = True
        return Observation(text=text, done=True)

    async def _results(self, turn: Turn) -> tuple[CallResult, ...]:
        """The results of all calls, in order; the calls run concurrently."""
        if self._caller is None:
            text = "There is no such tool here. Give the answer."
            return tuple(CallResult(text=text, status=ABSENT) for _ in turn.calls)
        run = await asyncio.gather(*(self._caller.call(call) for call in turn.calls[: self._most]))
        text = f"Not run: one reply may make {self._most} call{'s' * (self._most > 1)}. Make this call in the next one."
        return (*run, *(CallResult(text=text, status=EXCESS) for _ in turn.calls[self._most :]))
