"""An episode: a question, rounds of calls and results, and the final answer, which ends it.

A reply with calls is answered with their results; a reply without is the answer. The last observation never says
whether the answer is right, because judges read it. A program that is an answer earns the share of tests that it
passes as its reward; other answers are right or wrong, and earn none.

An episode that ends otherwise, by a malformed call or at a limit, has no answer and is lost. With `whole` the answer is
read from the whole response instead, however the episode ends: that is what the published code does.
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
    """What runs calls (`rla_programs.tool.interpreter`)."""

    async def call(self, call: ToolCall | Malformed) -> CallResult: ...


class AnswerChecker(Protocol):
    """What checks answers (`rla_programs.tool.answers`)."""

    async def right(self, question: Question, reply: str) -> float: ...

    def answered(self, question: Question, reply: str) -> bool: ...


class ToolEpisode:
    """An `AwaitedEnvironment` that `Concludes` and `Recalls`. `caller` is None where the policy has no tool. Raises
    EnvironmentFailure where the sandbox fails.
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
        """`Concludes`: what the last reply has called is not read."""
        last = self._answers[-1] if self._answers else self._shown
        return await self._ended(last) if self._whole and self._replies else self._lost(last)

    def close(self) -> None:
        """The sandbox is the service's."""

    async def _ended(self, text: str) -> Observation:
        """The end at which the answer is read."""
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
        """Of all calls, in their order; those that are run, run side by side."""
        if self._caller is None:
            text = "There is no such tool here. Give the answer."
            return tuple(CallResult(text=text, status=ABSENT) for _ in turn.calls)
        run = await asyncio.gather(*(self._caller.call(call) for call in turn.calls[: self._most]))
        text = f"Not run: one reply may make {self._most} call{'s' * (self._most > 1)}. Make this call in the next one."
        return (*run, *(CallResult(text=text, status=EXCESS) for _ in turn.calls[self._most :]))
