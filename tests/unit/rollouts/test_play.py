"""The scheduler with a three-step corridor for an environment and scripted replies: spans, stops and failures."""

import asyncio
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rla.agents import NO_ACTION
from rla.config.sections import EnvConfig, PolicyConfig
from rla.envs.chat_prompts import ChatPrompt
from rla.envs.observation import EnvironmentFailure, Observation, environment_code
from rla.llm.base import Completion, Generator, Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import ScriptedGenerator
from rla.models.init import new_tokenizer
from rla.rollouts.play import Episode, Rollouts, episodes_of, play_groups
from rla.store.records import StopReason, Task, Trajectory, content_id
from tests.unit.builders import task

WORDS = ["you stand at door 1 2 3 . go to door help you won ! no action wall"]


class Corridor:
    """Doors 1, 2, 3 in a row: going to door 3 wins."""

    def __init__(self, breaks_at: int | None = None) -> None:
        self.door, self.steps, self.breaks_at, self.closed = 0, 0, breaks_at, False

    def reset(self) -> Observation:
        return self.observe()

    def step(self, action: str) -> Observation:
        self.steps += 1
        if self.steps == self.breaks_at:
            raise EnvironmentFailure("the corridor collapsed")
        if action in self.observe().commands:
            self.door += 1
        return self.observe()

    def observe(self) -> Observation:
        won = self.door == 3
        commands = (f"go to door {self.door + 1}", "go to wall", "help")
        return Observation(text=f"you stand at door {self.door} .", commands=commands, won=won, done=won)

    def close(self) -> None:
        self.closed = True


CHAT = ChatFormat(new_tokenizer(WORDS, context=256))


def forward(request: Request, seed: int) -> list[int]:
    """Always the next door: the prompt ends with the observation of the door where it stands."""
    door = int(re.findall(r"door (\d)", CHAT.decode(list(request.prompt_ids)))[-1])
    return [*CHAT.encode(f"go to door {door + 1}"), CHAT.end_id]


def play(
    reply: Callable[[Request, int], list[int]],
    *,
    config: PolicyConfig | None = None,
    environment: Callable[[Task], Corridor] = lambda _: Corridor(),
    groups: int = 1,
    max_steps: int = 5,
    context: int = 256,
    concurrency: int = 4,
    top_p: float = 1.0,
    generator: Generator | None = None,
) -> list[Trajectory]:
    config = config or PolicyConfig(max_tokens=8, decoding="admissible")
    shared = Rollouts(
        generator=generator or ScriptedGenerator(reply, context=context, stop_id=CHAT.end_id),
        chat=CHAT,
        prompt=ChatPrompt(reply=config.reply, listed=config.reply == "index"),
        config=config,
        make_env=environment,
        env=EnvConfig(max_steps=max_steps, omit_commands=("help",)),
        iteration=1,
        policy="p" * 16,
        top_p=top_p,
    )
    played: dict[int, list[Trajectory]] = {}
    episodes = [episodes_of(task(f"t{n}"), count=2, seed=0, iteration=1) for n in range(groups)]
    asyncio.run(play_groups(episodes, shared, concurrency=concurrency, finished=played.__setitem__))
    return [trajectory for index in range(groups) for trajectory in played[index]]


def test_a_won_episode_is_one_growing_segment_whose_spans_hold_the_replies() -> None:
    won = play(forward)[0]
    assert (won.outcome, won.stop_reason, len(won.steps)) == (1, "won", 3)
    assert [step.action for step in won.steps] == ["go to door 1", "go to door 2", "go to door 3"]
    (segment,) = won.segments
    for step in won.steps:
        assert CHAT.decode(segment.token_ids[step.start : step.end - 1]) == step.action
        assert all(segment.sampled[step.start : step.end])
    assert sum(segment.sampled) == len(segment.allowed) == sum(step.end - step.start for step in won.steps)
    assert all("help" not in step.commands for step in won.steps)


def test_history_window_gives_each_step_its_own_segment() -> None:
    config = PolicyConfig(max_tokens=8, decoding="admissible", history="window")
    won = play(forward, config=config)[0]
    assert [step.segment for step in won.steps] == [0, 1, 2]
    assert len(won.segments) == 3


def test_an_unreadable_reply_is_no_action_and_is_not_replaced_by_the_first_command() -> None:
    config = PolicyConfig(max_tokens=8, decoding="free")
    lost = play(lambda request, seed: [*CHAT.encode("go help"), CHAT.end_id], config=config)[0]
    assert lost.stop_reason == StopReason.MAX_STEPS and len(lost.steps) == 5
    assert {(step.valid, step.action) for step in lost.steps} == {(False, NO_ACTION)}
    assert lost.final_observation == "you stand at door 0 ."


@pytest.mark.parametrize("top_p", [1.0, 0.6])
def test_every_reply_is_asked_for_at_the_top_p_of_the_episodes(top_p: float) -> None:
    asked: list[float] = []

    def noted(request: Request, seed: int) -> list[int]:
        asked.append(request.top_p)
        return forward(request, seed)

    play(noted, top_p=top_p)
    assert asked == [top_p] * 6  # two episodes of three steps


def test_a_reply_cut_by_the_token_limit_is_marked() -> None:
    config = PolicyConfig(max_tokens=2, decoding="free")
    cut = play(lambda request, seed: [*CHAT.encode("go to door 1"), CHAT.end_id], config=config)[0]
    assert all(step.truncated and not step.valid for step in cut.steps)


def test_a_prompt_that_outgrows_the_context_ends_the_episode() -> None:
    stopped = play(forward, context=30)[0]
    assert stopped.stop_reason == StopReason.CONTEXT and 0 < len(stopped.steps) < 3


def test_an_environment_that_fails_ends_its_episode_and_not_the_run() -> None:
    played = play(forward, environment=lambda t: Corridor(2 if t.task_id == "t0" else None), groups=2)
    assert [t.stop_reason for t in played] == ["env_error", "env_error", "won", "won"]
    assert played[0].error == "the corridor collapsed" and len(played[0].steps) == 2


@pytest.mark.parametrize("concurrency", [1, 3, 16])
def test_what_is_played_does_not_depend_on_concurrency(concurrency: int) -> None:
    def random_path(request: Request, seed: int) -> list[int]:
        words = ("go to wall", None)[seed % 2]
        return [*CHAT.encode(words), CHAT.end_id] if words else forward(request, seed)

    reference = play(random_path, groups=3, concurrency=2)
    assert play(random_path, groups=3, concurrency=concurrency) == reference


def test_seeds_differ_by_task_rollout_and_iteration() -> None:
    def seeds(name: str, iteration: int) -> list[int]:
        return [e.seed for e in episodes_of(task(name), count=2, seed=0, iteration=iteration)]

    drawn = seeds("a", 1) + seeds("b", 1) + seeds("a", 2)
    assert len(set(drawn)) == 6
    assert seeds("a", 1) == seeds("a", 1)
    assert replace(Episode(task=task("a"), rollout=0, seed=1), seed=drawn[0]).seed == drawn[0]


class Named(Corridor):
    """A corridor whose first room has a name."""

    def observe(self) -> Observation:
        return replace(super().observe(), place="the first room" if self.door == 0 else None)


def test_the_place_of_every_step_is_kept_as_a_digest() -> None:
    named, plain = play(forward, environment=lambda _: Named())[0], play(forward)[0]
    assert named.places == [content_id("the first room"), None, None]  # of the three steps, not of where they led
    assert plain.places is None


class Concluding(Corridor):
    """Says how it stands where somebody else ends it: won behind door 1."""

    async def stopped(self) -> Observation:
        return Observation(text=self.observe().text, won=self.door > 1, done=True)


@pytest.mark.parametrize(("max_steps", "outcome", "stop"), [(1, -1, "max_steps"), (2, 1, "won")])
def test_an_environment_that_concludes_says_how_it_stands_at_the_last_step(
    max_steps: int, outcome: int, stop: str
) -> None:
    (first, _) = play(forward, environment=lambda _: Concluding(), max_steps=max_steps)
    assert (first.outcome, first.stop_reason, len(first.steps)) == (outcome, stop, max_steps)
    assert first.final_observation == f"you stand at door {max_steps} ."


def test_and_where_no_reply_fits() -> None:
    config = PolicyConfig(max_tokens=8, decoding="admissible", response_tokens=26)
    plain, concluded = (
        play(forward, config=config, environment=environment)[0]
        for environment in (lambda _: Corridor(), lambda _: Concluding())
    )
    assert plain.stop_reason == "context" and len(plain.steps) == len(concluded.steps) == 2
    assert (concluded.outcome, concluded.stop_reason) == (1, "won")


def test_an_episode_without_a_step_is_lost_whatever_it_would_say() -> None:
    (first, _) = play(forward, environment=lambda _: Concluding(), context=8)
    assert (first.outcome, first.stop_reason, first.steps) == (-1, "context", [])


class Answering(Corridor):
    """Answers the second action of task t0 with whatever it is told to."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def step(self, action: str) -> Observation:
        seen = super().step(action)
        if self.steps < 2:
            return seen
        if isinstance(self.answer, BaseException):
            raise self.answer
        return replace(seen, **self.answer) if isinstance(self.answer, dict) else self.answer  # type: ignore[no-any-return]


ODD_ANSWERS = [
    None,
    ("text", 0.0, True, {}),
    3,
    b"bytes",
    TypeError("'NoneType' object is not subscriptable"),
    SystemExit(0),  # of a game that quits
    asyncio.CancelledError(),  # of a future of the environment's own
    {"text": None},
    {"text": b"bytes"},
    {"text": 7},
    {"commands": None},
    {"commands": "go to door 1"},
    {"commands": (None,)},
    {"reward": math.nan},
    {"reward": math.inf},
    {"reward": "1"},
    {"done": "no"},
    {"done": None},
    {"won": 1},
    {"understood": None},
    {"images": None},
    {"images": ("no bytes",)},
    {"place": 4},
    {"results": None},
    {"results": ("ok",)},
]


@pytest.mark.parametrize("answer", ODD_ANSWERS, ids=repr)
def test_an_answer_that_is_not_an_observation_ends_its_episode_and_names_environment_and_task(answer: Any) -> None:
    played = play(forward, environment=lambda t: Answering(answer) if t.task_id == "t0" else Corridor(), groups=2)
    assert [t.stop_reason for t in played] == ["env_error", "env_error", "won", "won"]
    assert played[0].error is not None and played[0].error.startswith("environment alfworld, task t0: the environment")
    assert len(played[0].steps) == 2 and played[0].final_observation == "you stand at door 1 ."


def test_a_reset_that_answers_none_ends_its_episode() -> None:
    class Empty(Corridor):
        def reset(self) -> Observation:
            return None  # type: ignore[return-value]

    assert {t.stop_reason for t in play(forward, environment=lambda t: Empty())} == {"env_error"}


@pytest.mark.parametrize("error", [RuntimeError("still running"), SystemExit("still running")], ids=repr)
def test_an_environment_that_cannot_be_closed_has_been_played_all_the_same(
    error: BaseException, logged: list[str]
) -> None:
    class Stuck(Corridor):
        def close(self) -> None:
            raise error

    assert {t.stop_reason for t in play(forward, environment=lambda t: Stuck())} == {"won"}
    assert f"task t0: close raised {type(error).__name__}: still running" in "".join(logged)


def test_an_episode_that_the_scheduler_cancels_is_no_failure_of_its_environment() -> None:
    async def waits() -> None:
        with environment_code("a door"):
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(waits(), 0.01))


def test_half_a_surrogate_pair_in_an_observation_is_replaced() -> None:
    class Halved(Corridor):
        def observe(self) -> Observation:
            seen = super().observe()
            return replace(seen, text=f"{seen.text} \ud83d", commands=(*seen.commands, "go \udc00"))

    won = play(forward, environment=lambda t: Halved())[0]
    assert won.stop_reason == "won"
    assert won.steps[0].observation == "you stand at door 0 . \ufffd" and won.steps[0].commands[-1] == "go \ufffd"


class Reporting(ScriptedGenerator):
    """Reports a log-probability of its own for the first tokens of the first replies."""

    def __init__(self, logprob: float, count: int) -> None:
        super().__init__(forward, context=256, stop_id=CHAT.end_id)
        self.logprob, self.left = logprob, count

    async def generate(self, request: Request) -> list[Completion]:
        (completion,) = await super().generate(request)
        if self.left == 0:
            return [completion]
        self.left -= 1
        return [replace(completion, logprobs=[self.logprob, *completion.logprobs[1:]])]


@pytest.mark.parametrize("logprob", [math.nan, -math.inf, 0.7])
def test_a_log_probability_that_cannot_be_is_asked_for_again_and_ends_the_episode_if_it_stays(logprob: float) -> None:
    assert {t.stop_reason for t in play(forward, generator=Reporting(logprob, 2))} == {"won"}
    lost = play(forward, generator=Reporting(logprob, 1000))
    assert {t.stop_reason for t in lost} == {"env_error"}
    assert lost[0].error is not None and f"a log-probability of {logprob:g}" in lost[0].error
