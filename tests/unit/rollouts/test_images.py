"""Images of an episode: each distinct one once, with every place where it was seen."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field

from rla.config.sections import EnvConfig, PolicyConfig
from rla.envs.chat_prompts import ChatPrompt
from rla.envs.observation import Observation
from rla.llm.factory import ScriptedGenerator
from rla.pictures.shard import distinct_images
from rla.rollouts.play import Rollouts, episodes_of, play_groups
from rla.store.records import Trajectory
from tests.unit.adaptation.builders import task
from tests.unit.rollouts.test_play import CHAT


def test_an_image_that_is_seen_again_is_kept_once() -> None:
    found = distinct_images([(b"one", b"two"), (), (b"two",)])
    assert found is not None and [image.png for image in found] == [b"one", b"two"]
    assert found[1].digest == hashlib.sha256(b"two").hexdigest()
    assert found[1].shown == [{"observation": 0, "position": 1}, {"observation": 2, "position": 0}]


def test_without_an_image_there_is_nothing() -> None:
    assert distinct_images([(), ()]) is None


@dataclass(slots=True)
class Screen:
    """Shows the same picture twice, then another; a third of the reward with each step."""

    rewards: list[float] = field(default_factory=lambda: [0.3, 0.6, 0.9])

    def reset(self) -> Observation:
        return Observation(text="look", images=(b"still",), reward=0.0)

    def step(self, action: str) -> Observation:
        earned = self.rewards.pop(0)
        return Observation(text="look", images=(b"still" if self.rewards else b"end",), reward=earned)

    def close(self) -> None: ...


def played(threshold: float) -> Trajectory:
    shared = Rollouts(
        generator=ScriptedGenerator(lambda request, seed: [*CHAT.encode("go"), CHAT.end_id], context=256),
        chat=CHAT,
        prompt=ChatPrompt(),
        config=PolicyConfig(max_tokens=8),
        env=EnvConfig(max_steps=3, reward_threshold=threshold),
        make_env=lambda _: Screen(),
        iteration=1,
        policy="p" * 16,
    )
    found: list[Trajectory] = []
    groups = [episodes_of(task("t"), count=1, seed=0, iteration=1)]
    asyncio.run(play_groups(groups, shared, concurrency=1, finished=lambda _, rows: found.extend(rows)))
    return found[0]


def test_the_trajectory_of_an_episode_with_pictures_holds_them() -> None:
    trajectory = played(threshold=1.0)
    assert trajectory.images is not None and [image.png for image in trajectory.images] == [b"still", b"end"]
    assert [place["observation"] for place in trajectory.images[0].shown] == [0, 1, 2]


def test_a_reward_that_reaches_the_threshold_wins_and_ends_the_episode() -> None:
    lost, won = played(threshold=1.0), played(threshold=0.6)
    assert (lost.outcome, lost.stop_reason, lost.reward, len(lost.steps)) == (-1, "max_steps", 0.9, 3)
    assert (won.outcome, won.stop_reason, won.reward, len(won.steps)) == (1, "won", 0.6, 2)
