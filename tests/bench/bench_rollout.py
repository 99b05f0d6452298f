"""Episodes a second of the scheduler against stepping in lock-step, on one engine: `bench-rollout`.

Real vLLM where it is installed, ALFWorld games, a small model of random weights. Its replies are as long as their
seed says: log-normal, as lengths of reasoning are, the same in both ways. What it says is no command, so the
environment takes an admissible one that the seed picks. Printed: episodes a second, the share of time in which the
engine had no request, a timeline of the requests in flight, and which share of the prompts' tokens came from the
prefix cache.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import math
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rla.config.sections import EnvConfig, GeneratorConfig, ModelConfig, PolicyConfig
from rla.envs.alfworld.environment import Alfworld
from rla.envs.observation import Environment, Observation
from rla.llm.base import Completion, Generator, Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import make_generator
from rla.models.init import init_model, new_tokenizer
from rla.rollouts.play import Rollouts, episodes_of, play_groups
from rla.store.records import Task
from tests.bench.lockstep import play_in_lockstep
from tests.parity.alfworld_play import data_folder
from tests.unit.builders import configured

BARS = " ▁▂▃▄▅▆▇█"
MEDIAN, SPREAD, SHORTEST, LONGEST = 32, 1.0, 4, 512  # tokens of a reply; spread: of its logarithm


class Measured:
    """A generator whose replies have drawn lengths, and that notes how many requests are in flight when."""

    def __init__(self, inner: Generator) -> None:
        self.inner, self.context = inner, inner.context
        self.flying, self.tokens = 0, 0
        self.events: list[tuple[float, int]] = []

    async def generate(self, request: Request) -> list[Completion]:
        drawn = MEDIAN * math.exp(random.Random(request.seed).gauss(0.0, SPREAD))
        length = min(LONGEST, max(SHORTEST, round(drawn)))
        self._note(+1)
        try:
            fields = {name: getattr(request, name) for name in Request.__dataclass_fields__}
            completions = await self.inner.generate(Request(**{**fields, "max_tokens": length}))
        finally:
            self._note(-1)
        self.tokens += sum(len(one.token_ids) for one in completions)
        return completions

    def release(self, session: str) -> None:
        self.inner.release(session)

    def stats(self) -> dict[str, float]:
        return self.inner.stats()  # type: ignore[attr-defined,no-any-return]

    def close(self) -> None:
        self.inner.close()

    def _note(self, change: int) -> None:
        self.flying += change
        self.events.append((time.perf_counter(), self.flying))

    def idle(self, start: float, end: float) -> float:
        """The share of the time in which no request was in flight."""
        return sum(high - low for low, high, flying in self._spans(start, end) if flying == 0) / (end - start)

    def timeline(self, start: float, end: float, *, cells: int = 72) -> str:
        """The mean number of requests in flight, a character for each part of the time."""
        sums, width = [0.0] * cells, (end - start) / cells
        for low, high, flying in self._spans(start, end):
            for cell in range(int((low - start) / width), min(cells, int((high - start) / width) + 1)):
                share = min(high, start + (cell + 1) * width) - max(low, start + cell * width)
                sums[cell] += max(0.0, share) / width * flying
        most = max(*sums, 1.0)
        return "".join(BARS[math.ceil(value / most * (len(BARS) - 1))] for value in sums)

    def _spans(self, start: float, end: float) -> list[tuple[float, float, int]]:
        points = [(start, 0), *[event for event in self.events if start <= event[0] <= end], (end, 0)]
        return [(low, high, flying) for (low, flying), (high, _) in itertools.pairwise(points)]


class Decisive:
    """An environment that takes an admissible command, picked by the actions so far, for one that is none."""

    def __init__(self, inner: Environment, name: str) -> None:
        self.inner, self.name, self.steps = inner, name, 0

    def reset(self) -> Observation:
        self.last = self.inner.reset()
        return self.last

    def step(self, action: str) -> Observation:
        self.steps += 1
        if action not in self.last.commands:
            digest = hashlib.blake2b(f"{self.name}/{self.steps}".encode(), digest_size=8).digest()
            action = self.last.commands[int.from_bytes(digest, "little") % len(self.last.commands)]
        self.last = self.inner.step(action)
        return self.last

    def close(self) -> None:
        self.inner.close()


def games(count: int) -> list[Task]:
    """Real games where they are, built-in ones otherwise."""
    environment = Alfworld()
    if data_folder().exists():
        config = configured(f"tasks.path={data_folder().parent}", f"tasks.limit={count}")
        return environment.import_tasks(config, split="valid_seen")
    config = configured(f"tasks.train_scenes={count}", "tasks.tasks_per_scene=1")
    return list(environment.tasks(config, split="train", seed=0))[:count]


def shared_by(generator: Generator, chat: ChatFormat, *, steps: int) -> Rollouts:
    config = configured()
    environment = Alfworld()
    return Rollouts(
        generator=generator,
        chat=chat,
        prompt=environment.policy_prompt(config),
        config=PolicyConfig(reply="text", history="full", temperature=1.0, max_tokens=LONGEST),
        make_env=lambda task: Decisive(environment.make(task, config), task.task_id),
        env=EnvConfig(max_steps=steps),
        iteration=1,
        policy="bench",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One way, once: when, and the tokens of replies, of prompts from the cache and of prompts in all."""

    start: float
    end: float
    tokens: int
    cached: float
    prompts: float


async def once(name: str, seed: int, shared: Rollouts, tasks: list[Task], options: argparse.Namespace) -> Span:
    """Play all episodes one way. Another seed: other replies, so that nothing but first prompts is in the cache."""
    measured = shared.generator
    assert isinstance(measured, Measured)
    groups = [episodes_of(task, count=options.rollouts, seed=seed, iteration=1) for task in tasks]
    tokens, before, start = measured.tokens, measured.stats(), time.perf_counter()
    if name == "lock-step":
        await play_in_lockstep([episode for group in groups for episode in group], shared)
    else:
        await play_groups(groups, shared, concurrency=options.sequences, finished=lambda _, found: None)
    end, after = time.perf_counter(), measured.stats()
    cached = after["cached_tokens"] - before["cached_tokens"]
    computed = after["prefilled_tokens"] - before["prefilled_tokens"]
    return Span(start=start, end=end, tokens=measured.tokens - tokens, cached=cached, prompts=cached + computed)


async def all_ways(shared: Rollouts, tasks: list[Task], options: argparse.Namespace) -> dict[str, list[Span]]:
    """After a warm-up each way twice, in the order a b b a: a machine that grows slower favours neither."""
    warm = [episodes_of(task, count=1, seed=99, iteration=9) for task in tasks[:2]]
    await play_groups(warm, shared, concurrency=options.sequences, finished=lambda _, found: None)
    spans: dict[str, list[Span]] = {"lock-step": [], "scheduler": []}
    for seed, name in enumerate(("lock-step", "scheduler", "scheduler", "lock-step")):
        spans[name].append(await once(name, seed, shared, tasks, options))
    return spans


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("vllm", "transformers"), default="vllm")
    parser.add_argument("--games", type=int, default=8)
    parser.add_argument("--rollouts", type=int, default=4)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--sequences", type=int, default=32)
    options = parser.parse_args()
    tasks = games(options.games)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        environment = Alfworld()
        texts = [
            text
            for task in tasks
            for seen in [environment.make(task, configured()).reset()]
            for text in (task.instruction, seen.text, *seen.commands)
        ]
        sizes = ModelConfig(hidden_size=128, layers=3, heads=4, intermediate_size=256, context=8192)
        init_model(model, tokenizer=new_tokenizer(texts, context=sizes.context), config=sizes, seed=0)
        settings = GeneratorConfig(
            backend=options.backend, context=8192, max_sequences=options.sequences, dtype="bfloat16"
        )
        generator, tokenizer = make_generator(settings, model=model, seed=0)
        measured = Measured(generator)
        shared = shared_by(measured, ChatFormat(tokenizer), steps=options.steps)
        try:
            spans = asyncio.run(all_ways(shared, tasks, options))
        finally:
            generator.close()
    episodes = 2 * len(tasks) * options.rollouts
    print(
        f"{episodes // 2} episodes of {options.steps} steps, each twice, {options.backend}, {options.sequences} slots"
    )
    seconds = {name: sum(one.end - one.start for one in found) for name, found in spans.items()}
    for name, found in spans.items():
        idle = sum(measured.idle(one.start, one.end) * (one.end - one.start) for one in found) / seconds[name]
        rate = sum(one.tokens for one in found) / seconds[name]
        cached = sum(one.cached for one in found) / sum(one.prompts for one in found)
        print(
            f"  {name}  {seconds[name]:6.1f} s  {episodes / seconds[name]:5.2f} episodes/s  {rate:6,.0f} tokens/s  "
            f"engine idle {idle:.1%}  prompts from the prefix cache {cached:.1%}"
        )
        print(f"  {measured.timeline(found[0].start, found[0].end)}")
    print(f"  ratio {seconds['lock-step'] / seconds['scheduler']:.2f}")


if __name__ == "__main__":
    main()
