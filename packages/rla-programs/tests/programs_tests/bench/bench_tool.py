"""The Python tool against an unconfined `python -I -c` for each call, and what it costs an engine: `bench-tool`.

Both run the same programs, with 1, 16 and 128 calls in flight, in turns within one run, so that other work on the
machine meets both. Printed: calls a second, and the latency that a caller sees, median and 99th percentile.

Then episodes play with the real scheduler on an engine that needs a time for each token, whatever else is in flight; a
round is a reply and a call. Printed: the share of wall time in which the engine has no request because tools run, and
how many requests it has on average. Replies are as long as their seed says: log-normal, as lengths of reasoning are.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from zlib import crc32

from rla_programs.execution.records import ExecutionConfig
from rla_programs.tool.calls import TOOL, ToolCall
from rla_programs.tool.interpreter import PythonTool

from rla.config.sections import EnvConfig, PolicyConfig
from rla.envs.chat_prompts import ChatPrompt
from rla.envs.observation import Observation
from rla.llm.base import Completion, Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import ScriptedGenerator
from rla.models.init import new_tokenizer
from rla.rollouts.play import Rollouts, episodes_of, play_groups
from rla.store.records import Task
from tests.unit.builders import task

# Each in the manner of a call in mathematics: a short computation, its value printed.
PROGRAMS = (
    "print({n} * 7919 + 104729)",
    "from math import gcd\nprint(gcd({n} * 36, 1260))",
    "print(pow(3, {n} + 1000, 1000007))",
    "from itertools import permutations\nprint(sum(1 for p in permutations(range(6)) if p[0] < p[-1] + {n}))",
    "from fractions import Fraction\nprint(sum(Fraction(1, k) for k in range(1, 40 + {n} % 7)))",
)
SPREAD = 0.7  # of the logarithm of a reply's length


def program(number: int) -> str:
    return PROGRAMS[number % len(PROGRAMS)].format(n=number)


@dataclass(slots=True)
class Measured:
    """Of one way at one number in flight."""

    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)

    def line(self) -> str:
        waits = sorted(self.waits)
        p50, p99 = (1000 * waits[min(len(waits) - 1, int(share * len(waits)))] for share in (0.5, 0.99))
        return f"{len(waits) / self.seconds:7.1f} calls/s, p50 {p50:7.1f} ms, p99 {p99:7.1f} ms"


async def measure(spent: Measured, call: Callable[[str], Awaitable[str]], numbers: range, flying: int) -> list[str]:
    """All programs, so many at once; the number in flight stays the same until the last are done."""
    waiting, printed = iter(numbers), dict[int, str]()

    async def worker() -> None:
        for number in waiting:
            started = time.perf_counter()
            printed[number] = await call(program(number))
            spent.waits.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(flying)))
    spent.seconds += time.perf_counter() - started
    return [printed[number] for number in numbers]


async def compare(execution: ExecutionConfig, flying: int, *, calls: int, turns: int) -> None:
    """Both ways in turns, the one that is first the second the next time; what they print is the same."""
    tool, ours, theirs = PythonTool(execution), Measured(), Measured()

    async def tool_call(code: str) -> str:
        return (await tool.call(ToolCall(name=TOOL, arguments={"code": code}))).text

    with ThreadPoolExecutor(flying) as pool:

        def fresh(code: str) -> str:
            command = [sys.executable, "-I", "-c", code]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

        async def fresh_call(code: str) -> str:
            return await asyncio.get_running_loop().run_in_executor(pool, fresh, code)

        await asyncio.gather(*(tool_call(program(number)) for number in range(8)))  # boxes are there
        for turn in range(turns):
            numbers = range(turn * calls, (turn + 1) * calls)
            ways = [(ours, tool_call), (theirs, fresh_call)]
            printed = [await measure(*way, numbers, flying) for way in (ways if turn % 2 else reversed(ways))]
            assert printed[0] == printed[1]
    await tool.close()
    print(f"{flying:4} in flight: tool      {ours.line()}\n{'':15}python -I {theirs.line()}", flush=True)


class PacedEngine(ScriptedGenerator):
    """Answers after as long as a reply of its drawn length takes, and notes how many requests are in flight when."""

    def __init__(self, end_id: int, *, token_s: float, median: int) -> None:
        super().__init__(lambda request, seed: [end_id])
        self._token_s, self._median = token_s, median
        self.flying, self.events = 0, list[tuple[float, int]]()

    async def generate(self, request: Request) -> list[Completion]:
        drawn = self._median * math.exp(random.Random(request.seed).gauss(0.0, SPREAD))
        self._note(+1)
        await asyncio.sleep(self._token_s * max(1.0, drawn))
        self._note(-1)
        return await super().generate(request)

    def _note(self, change: int) -> None:
        self.flying += change
        self.events.append((time.perf_counter(), self.flying))

    def figures(self, start: float) -> tuple[float, float]:
        """Until the last reply: the share of time without a request, and their mean number."""
        end = self.events[-1][0]
        points = [(start, 0), *self.events]
        spans = [(high - low, flying) for (low, flying), (high, _) in itertools.pairwise(points)]
        idle = sum(seconds for seconds, flying in spans if flying == 0)
        return idle / (end - start), sum(seconds * flying for seconds, flying in spans) / (end - start)


class Rounds:
    """An episode whose every reply is a call."""

    def __init__(self, played: Task, tool: PythonTool, *, rounds: int) -> None:
        self._tool, self._left, self._number = tool, rounds, crc32(played.task_id.encode()) % 1000

    async def reset(self) -> Observation:
        return Observation(text="go")

    async def step(self, action: str) -> Observation:
        self._left -= 1
        call = ToolCall(name=TOOL, arguments={"code": program(self._number + self._left)})
        result = await self._tool.call(call)
        return Observation(text="go", results=(result,), done=self._left == 0)

    def close(self) -> None:
        """The tool is the benchmark's."""


async def engine_share(execution: ExecutionConfig, *, episodes: int, rounds: int, token_s: float, median: int) -> None:
    chat, tool = ChatFormat(new_tokenizer(["go on"], context=4096)), PythonTool(execution)
    engine = PacedEngine(chat.end_id, token_s=token_s, median=median)
    shared = Rollouts(
        generator=engine,
        chat=chat,
        prompt=ChatPrompt(reply="text", listed=False),
        config=PolicyConfig(reply="text", history="full", max_tokens=8),
        make_env=lambda played: Rounds(played, tool, rounds=rounds),
        env=EnvConfig(max_steps=rounds),
        iteration=1,
        policy="bench",
    )
    groups = [episodes_of(task(f"t{number}"), count=8, seed=0, iteration=1) for number in range(episodes // 8)]
    start = time.perf_counter()
    await play_groups(groups, shared, concurrency=episodes, finished=lambda _, found: None)
    idle, flying = engine.figures(start)
    found = tool.figures()
    assert found["calls_ok"] == episodes * rounds, found
    await tool.close()
    print(
        f"{episodes} episodes x {rounds} rounds, {1000 * token_s:g} ms a token, median {median} tokens: engine idle "
        f"{idle:.2%} of {engine.events[-1][0] - start:.1f} s, {flying:.1f} requests in flight on average, "
        f"a call took {1000 * found['call_seconds_mean']:.0f} ms (p99 {1000 * found['call_seconds_p99']:.0f})",
        flush=True,
    )


async def all_of_it(options: argparse.Namespace) -> None:
    execution = ExecutionConfig(backend=options.backend, workers=options.workers, wall_s=60.0)
    for flying in (1, 16, 128):
        await compare(execution, flying, calls=max(options.calls, flying), turns=options.turns)
    for token_s, median in ((0.002, 32), (0.02, 256)):  # a small model on a processor, one of 4B on a GPU
        rounds = options.rounds if token_s < 0.01 else max(1, options.rounds // 4)
        await engine_share(execution, episodes=options.episodes, rounds=rounds, token_s=token_s, median=median)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--calls", type=int, default=128, help="of each way in each turn")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=16)
    asyncio.run(all_of_it(parser.parse_args()))


if __name__ == "__main__":
    main()
