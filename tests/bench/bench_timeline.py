"""What the GPUs of a 7B run would do, simulated from stated rates (`make bench-timeline`).

Nothing is measured here. An engine shares its tokens per second among the sequences that it decodes, episodes take
turns with their environments, training takes its FLOP. Ways are compared on 8 GPUs, on 32 with the same iteration, and
on 32 with one that has four times the tasks:

| way | |
|---|---|
| `engine a stage` | stages after one another, each starts its engines |
| `kept` | engines stay (`generator.backend: ray`), weights are swapped |
| `judging` | and judging follows playing (`launch.together`) |
| `adapting` | and tasks are proposed and proven beside training, by rules or by a server elsewhere |
| `training` | and both models train at once, on shares of the GPUs |

A GPU is idle while it has no request in flight and trains nothing: while engines start, weights move, programs prove
tasks, and other GPUs finish the last episodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean

from rich.console import Console
from rich.table import Table

from rla.report.timeline import Device, Span, Timeline, union_seconds

KEPT, JUDGING, ADAPTING, TRAINING = "kept", "judging", "adapting", "training"
WAYS: tuple[tuple[str, ...], ...] = (
    (),
    (KEPT,),
    (KEPT, JUDGING),
    (KEPT, ADAPTING),
    (KEPT, JUDGING, ADAPTING),
    (KEPT, ADAPTING, TRAINING),
    (KEPT, JUDGING, ADAPTING, TRAINING),
)
SIZES = ((8, 16, 5), (32, 16, 5), (32, 64, 2))  # GPUs, tasks of an iteration, iterations whose mean is taken
PARTS = ("rollout and score-steps", "train-policy and train-rm", "the rest")
INF = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Stated, for H100 and bf16, after the published run: 16 tasks of 8 episodes, a 7B policy and a 14B judge."""

    start: float = 90.0  # seconds until an engine answers
    swap: float = 10.0  # seconds until it has other weights
    light: float = 20.0  # seconds: validate-tasks, compute-rewards, and what lies between stages
    checkpoint: float = 45.0  # seconds: reading and writing 14 bytes a weight
    proposing: float = 120.0  # GPU seconds in adapt-env
    proving: float = 60.0  # seconds of CPUs, in adapt-env
    flops: float = 0.35 * 989e12  # that training reaches, a second
    environment: float = 0.02  # seconds of a step
    policy: tuple[float, float, float] = (90.0, 3500.0, 25e3)  # tokens/s: one sequence, one engine, prefill
    judge: tuple[float, float, float] = (50.0, 2000.0, 13e3)
    weights: tuple[float, float] = (7.6e9, 14.8e9)  # of policy and judge
    tasks: int = 16
    episodes: int = 8
    steps: tuple[int, int] = (8, 40)
    fresh: int = 300  # prompt tokens of a step that no cache has
    reply: tuple[float, float, int] = (5.5, 0.6, 2000)  # tokens: lognormal, and where they are cut
    votes: int = 3
    seen: int = 2500  # prompt tokens of a judgement
    judgement: tuple[float, float, int] = (5.8, 0.5, 4000)
    trained: int = 2800  # tokens of a step, or of a vote, in training

    def training(self, model: int, sequences: int) -> float:
        """GPU seconds of one pass over all sequences, with activations computed again: 8 FLOP a weight and token."""
        return 8 * self.weights[model] * sequences * self.trained / self.flops


@dataclass(slots=True, order=True)
class Decoded:
    """In an engine until it has `end` tokens."""

    end: float
    number: int
    work: float = field(compare=False)
    then: Callable[[float], None] = field(compare=False)


class Engine:
    """Decodes its sequences at equal speed: each at most `alone`, together at most `most` tokens a second."""

    def __init__(self, rates: tuple[float, float, float], now: float) -> None:
        self.alone, self.most, self.prefill = rates
        self.now, self.tokens, self.count, self.began = now, 0.0, 0, now
        self.held: list[Decoded] = []
        self.busy: list[tuple[float, float]] = []

    @property
    def speed(self) -> float:
        return min(self.alone, self.most / len(self.held))

    def next_end(self) -> float:
        return self.now + max(0.0, self.held[0].end - self.tokens) / self.speed if self.held else INF

    def until(self, now: float) -> None:
        if self.held and now > self.now:
            self.tokens += self.speed * (now - self.now)
        self.now = max(self.now, now)

    def add(self, now: float, prompt: float, tokens: float, then: Callable[[float], None]) -> None:
        """A prompt takes its time of the engine, counted in tokens that would be decoded meanwhile."""
        self.take(now, tokens + prompt * self.most / self.prefill / max(1, len(self.held) + 1), then)

    def take(self, now: float, work: float, then: Callable[[float], None]) -> None:
        self.until(now)
        if not self.held:
            self.began = self.now
        self.count += 1
        heapq.heappush(self.held, Decoded(self.tokens + work, self.count, work, then))

    def finish(self) -> Callable[[float], None]:
        done = heapq.heappop(self.held)
        self.rest()
        return done.then

    def empty(self, now: float) -> list[Decoded]:
        """What it has not finished, which others begin anew."""
        self.until(now)
        held, self.held = self.held, []
        if held:
            self.busy.append((self.began, now))
        return held

    def rest(self) -> None:
        if not self.held:
            self.busy.append((self.began, self.now))


@dataclass(slots=True)
class Clock:
    """Runs engines and timers to their end."""

    now: float
    engines: list[Engine] = field(default_factory=list)
    timers: list[tuple[float, int, Callable[[float], None]]] = field(default_factory=list)
    count: int = 0

    def at(self, when: float, then: Callable[[float], None]) -> None:
        self.count += 1
        heapq.heappush(self.timers, (when, self.count, then))

    def run(self) -> float:
        while True:
            first = min(self.engines, key=Engine.next_end)
            when = min(first.next_end(), self.timers[0][0] if self.timers else INF)
            if when == INF:
                return self.now
            self.now = max(self.now, when)
            if self.timers and self.timers[0][0] <= when:
                heapq.heappop(self.timers)[2](self.now)
            else:
                first.until(self.now)
                first.finish()(self.now)


def lengths(lots: Random, shape: tuple[float, float, int], count: int) -> list[float]:
    mean, spread, most = shape
    return [min(lots.lognormvariate(mean, spread), most) for _ in range(count)]


class Collection:
    """Playing and judging of one iteration. `follows`: judging begins with the first group that is played."""

    def __init__(self, rates: Rates, gpus: int, lots: Random, *, now: float, wait: float, follows: bool) -> None:
        self.rates, self.lots, self.wait, self.follows = rates, lots, wait, follows
        self.clock = Clock(now)
        self.played = [
            lengths(lots, rates.reply, lots.randint(*rates.steps)) for _ in range(rates.tasks * rates.episodes)
        ]
        self.players = [Engine(rates.policy, now) for _ in range(gpus)]
        self.judges: list[Engine] = []
        self.gpus: dict[int, int] = {id(engine): gpu for gpu, engine in enumerate(self.players)}
        self.clock.engines = list(self.players)
        self.left = [rates.episodes] * rates.tasks
        self.unjudged: list[int] = []
        self.judged = 0

    def run(self) -> float:
        """The time at which all is judged."""
        for episode in range(len(self.played)):
            self.clock.at(self.clock.now + self.wait, self.step(episode, 0, self.players[episode % len(self.players)]))
        end = self.clock.run()
        if not self.follows:
            self.to_judges(list(self.gpus.values()), end + self.rates.light)
            end = self.clock.run()
        return end

    def step(self, episode: int, number: int, home: Engine) -> Callable[[float], None]:
        def ask(now: float) -> None:
            engine = home if home in self.players else min(self.players, key=lambda one: len(one.held))
            engine.add(now, self.rates.fresh, self.played[episode][number], replied(engine))

        def replied(engine: Engine) -> Callable[[float], None]:
            if number + 1 < len(self.played[episode]):
                return lambda now: self.clock.at(now + self.rates.environment, self.step(episode, number + 1, engine))
            return lambda now: self.ended(episode // self.rates.episodes, now)

        return ask

    def ended(self, task: int, now: float) -> None:
        self.left[task] -= 1
        if self.left[task]:
            return
        self.unjudged.append(task)
        if not self.follows:
            return
        if not any(self.left):
            self.to_judges([self.gpus[id(engine)] for engine in self.players], now)
        elif not self.judges:
            self.to_judges([self.gpus[id(engine)] for engine in self.players[(len(self.players) + 1) // 2 :]], now)
        elif self.judges[0].now <= now:
            self.judge(now)

    def to_judges(self, gpus: Sequence[int], now: float) -> None:
        """These GPUs take the judge's weights; what they were asked is asked of the players that stay."""
        given = [engine for engine in self.players if self.gpus[id(engine)] in gpus]
        self.players = [engine for engine in self.players if engine not in given]
        for engine in given:
            for one in engine.empty(now):
                min(self.players, key=lambda other: len(other.held)).take(now, one.work, one.then)
        made = [Engine(self.rates.judge, now + self.wait) for _ in given]
        self.gpus |= {id(new): self.gpus[id(old)] for new, old in zip(made, given, strict=True)}
        self.clock.engines += made

        def ready(when: float) -> None:
            self.judges += made
            self.judge(when)

        self.clock.at(now + self.wait, ready)

    def judge(self, now: float) -> None:
        tasks, self.unjudged = self.unjudged, []
        size = self.rates.episodes
        steps = [step for task in tasks for one in self.played[task * size : (task + 1) * size] for step in one]
        for _ in steps:
            engine = min(self.judges, key=lambda one: len(one.held))
            for vote, tokens in enumerate(lengths(self.lots, self.rates.judgement, self.rates.votes)):
                engine.add(now, 0 if vote else self.rates.seen, tokens, lambda _: None)

    def spans(self) -> Iterator[tuple[int, float, float]]:
        for engine in self.clock.engines:
            yield from ((self.gpus[id(engine)], start, end) for start, end in engine.busy if end > start)


@dataclass(slots=True)
class Simulated:
    """Busy spans by part: (GPU, start, end), and when the part began and ended."""

    gpus: int
    parts: dict[str, list[tuple[int, float, float]]] = field(default_factory=dict)
    windows: dict[str, tuple[float, float]] = field(default_factory=dict)

    def timeline(self) -> Timeline:
        """With one call without work at the end, so that the whole iteration counts."""
        devices = [Device(host="simulated", name=f"GPU {number}") for number in range(self.gpus)]
        end = max(end for _, end in self.windows.values())
        found = [
            Span(device=devices[gpu], stage=part, iteration=1, part="", start=start, end=stop, waited=0.0)
            for part, spans in self.parts.items()
            for gpu, start, stop in [*spans, *((gpu, end, end) for gpu in range(self.gpus)), (0, 0.0, 0.0)]
        ]
        return Timeline(spans=tuple(sorted(found, key=lambda span: (span.start, span.device))))

    def idle(self, part: str) -> float:
        """GPU seconds of a part in which a GPU did nothing."""
        start, end = self.windows[part]
        by_gpu: dict[int, list[tuple[float, float]]] = {}
        for gpu, began, ended in self.parts.get(part, []):
            by_gpu.setdefault(gpu, []).append((began, ended))
        return self.gpus * (end - start) - sum(map(union_seconds, by_gpu.values()))


def iteration(rates: Rates, gpus: int, way: Sequence[str], seed: int) -> Simulated:
    """One iteration on `gpus` GPUs."""
    done, lots = Simulated(gpus), Random(seed)
    wait = rates.swap if KEPT in way else rates.start
    collection = Collection(rates, gpus, lots, now=0.0, wait=wait, follows=JUDGING in way)
    played = collection.run()
    done.parts[PARTS[0]], done.windows[PARTS[0]] = list(collection.spans()), (0.0, played)
    began = played + rates.light
    steps = sum(map(len, collection.played))
    trained, spans = training(rates, gpus, steps, began, at_once=TRAINING in way)
    done.parts[PARTS[1]], done.windows[PARTS[1]] = spans, (began, trained)
    adapting = wait + rates.proposing / gpus + rates.proving
    beside = ADAPTING in way
    ended = max(trained, began + adapting) if beside else trained + adapting
    done.windows[PARTS[2]] = (trained - rates.light, ended)
    if not beside:
        done.parts[PARTS[2]] = [(gpu, trained + wait, trained + wait + rates.proposing / gpus) for gpu in range(gpus)]
    return done


def training(
    rates: Rates, gpus: int, steps: int, began: float, *, at_once: bool
) -> tuple[float, list[tuple[int, float, float]]]:
    """When both models are trained, and the busy spans. `at_once`: on the shares of the GPUs that end first."""
    work = [rates.training(0, steps), rates.training(1, steps * rates.votes)]
    read, write = began + rates.checkpoint / 2, rates.checkpoint / 2
    if not at_once:
        middle = read + work[0] / gpus
        again = middle + rates.checkpoint
        end = again + work[1] / gpus
        return end + write, [(gpu, *span) for gpu in range(gpus) for span in ((read, middle), (again, end))]
    own = min(range(1, gpus), key=lambda share: max(work[0] / share, work[1] / (gpus - share)))
    ends = [read + work[0] / own, read + work[1] / (gpus - own)]
    return max(ends) + write, [(gpu, read, ends[gpu >= own]) for gpu in range(gpus)]


def main() -> None:
    """Print the table of all ways."""
    rates = Rates()
    print("simulated from stated rates:")
    print("  " + ", ".join(f"{name} {getattr(rates, name)}" for name in rates.__dataclass_fields__))
    table = Table("GPUs", "tasks", "way", "minutes an iteration", "idle", *(f"idle in {part}" for part in PARTS))
    for gpus, tasks, seeds in SIZES:
        for way in WAYS:
            found = [iteration(replace(rates, tasks=tasks), gpus, way, seed) for seed in range(seeds)]
            lines = [one.timeline() for one in found]
            idle = [1 - line.busy_gpu_hours / line.wall_gpu_hours for line in lines]
            shares = [
                fmean(one.idle(part) / gpus / line.wall for one, line in zip(found, lines, strict=True))
                for part in PARTS
            ]
            minutes = fmean(line.wall for line in lines) / 60
            name = " + ".join(way) or "engine a stage"
            numbers = (f"{minutes:.1f}", f"{fmean(idle):.1%}", *(f"{share:.1%}" for share in shares))
            table.add_row(str(gpus), str(tasks), name, *numbers)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
