"""The warm start of both models: a kill between them, and a change of one of them, leave the other as it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rla.training.sft
from rla.cli.app import run
from rla.envs.protocols import Demonstration
from rla.envs.registry import environment
from rla.store.manifest import digest, read_json
from rla.training.sequences import Example
from tests.integration.pipelines import PARAMS, contents

SMALL = PARAMS.replace(
    "warm_start: {enabled: false}",
    """warm_start:
  scenes: 2
  reward_from_policy: true
  alike: 2
  policy: {examples: 4, steps: 2, batch_size: 2, lr: 1.0e-3, noise: 0.1}
  reward: {examples: 4, steps: 2, batch_size: 2, lr: 1.0e-3, noise: 0.0}
  calibration: {examples: 2, steps: 1, lr: 1.0e-4}""",
)


class Killed(BaseException):
    """Stands for a kill: nothing of the stage runs after it."""


def stage(folder: Path, name: str, *options: str) -> int:
    return run([name, "--run", str(folder / "run"), "--params", str(folder / "params.yaml"), *options])


def started(folder: Path) -> Path:
    """A folder with tasks and models that have not learnt anything."""
    folder.mkdir()
    (folder / "params.yaml").write_text(SMALL)
    assert stage(folder, "make-tasks") == stage(folder, "init-model") == 0
    return folder


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = started(tmp_path_factory.mktemp("warm") / "calm")
    assert stage(folder, "warm-start") == 0
    return folder


def test_both_models_learn_from_demonstrations(calm: Path) -> None:
    for name, steps in (("policy", 2), ("rm", 3)):
        metrics = read_json(calm / "run/0" / name / "metrics.json")
        assert metrics["steps"] == steps
        assert metrics["tokens"] > 100
    # The judge starts from the clone, not from a new model.
    inputs = read_json(calm / "run/0/rm/checkpoint.json")["origin"]["input_digests"]
    assert digest(calm / "run/0/policy") in inputs.values()


def test_a_kill_while_the_judge_trains_costs_the_judge_alone(
    calm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = started(tmp_path / "stormy")
    trained: list[Any] = []
    real = rla.training.sft.sft

    def sft(**arguments: Any) -> dict[str, Any]:
        trained.append(arguments["out"].name)
        if trained == ["policy", "rm"]:
            raise Killed
        return real(**arguments)

    monkeypatch.setattr(rla.training.sft, "sft", sft)
    with pytest.raises(Killed):
        stage(folder, "warm-start")
    assert not (folder / "run/0/rm").exists()
    assert stage(folder, "warm-start") == 0
    assert trained == ["policy", "rm", "rm"]
    assert contents(folder / "run/0") == contents(calm / "run/0")


def replies_of(one: Example) -> Counter[tuple[int, ...]]:
    """How often an example teaches each reply."""
    said = [token if weight else None for token, weight in zip(one.token_ids, one.weights, strict=True)]
    return Counter(tuple(token for token in said[start:end] if token) for start, end, _ in one.branches)


def taught(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[list[Example], list[Example]]:
    """The judge's examples of its first and its second training; nothing is trained."""
    found: tuple[list[Example], list[Example]] = [], []

    def sft(**arguments: Any) -> None:
        for kept, (examples, _) in zip(found, arguments["rounds"], strict=True):
            kept.extend(examples)
        raise Killed

    monkeypatch.setattr(rla.training.sft, "sft", sft)
    with pytest.raises(Killed):
        stage(folder, "warm-start", *options, "--rm", str(folder / "other"))
    return found


def test_an_episode_teaches_few_judgements_of_each_kind(calm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = taught(calm, monkeypatch)
    few = [replies_of(one) for one in first]
    assert len(few) == 4
    assert max(count for replies in few for count in replies.values()) == 2
    every, again = taught(calm, monkeypatch, "--set", "warm_start.alike=0")
    whole = [replies_of(one) for one in every]
    assert max(count for replies in whole for count in replies.values()) > 4
    assert all(kinds.keys() <= all_kinds.keys() for kinds, all_kinds in zip(few, whole, strict=True))
    assert sum(len(one.token_ids) for one in first) < sum(len(one.token_ids) for one in every) / 2
    noisy = [replies_of(one) for one in taught(calm, monkeypatch, "--set", "warm_start.reward.noise=0.5")[0]]
    # Labels are flipped after the bound; before it, those of the rarer sign would all stay.
    assert all(sum(replies.values()) == sum(kept.values()) for replies, kept in zip(noisy, few, strict=True))
    assert noisy != few
    # The second training shows whole episodes, whatever the bound, and others than the first.
    assert len(second) == 2 and second == again
    assert max(count for one in second for count in replies_of(one).values()) > 4
    assert not {tuple(one.token_ids) for one in second} & {tuple(one.token_ids) for one in every}


def test_the_number_of_pictures_does_not_count_where_there_are_none(calm: Path) -> None:
    assert stage(calm, "warm-start", "--set", "policy.images=5", "--set", "judge.images=5") == 0


def test_a_change_of_the_judges_part_leaves_the_policy(calm: Path) -> None:
    before = contents(calm / "run/0/policy")
    written = (calm / "run/0/policy/checkpoint.json").stat().st_mtime_ns
    assert stage(calm, "warm-start", "--set", "warm_start.calibration.steps=2") == 2
    assert stage(calm, "warm-start", "--set", "warm_start.calibration.steps=2", "--overwrite") == 0
    assert read_json(calm / "run/0/rm/metrics.json")["steps"] == 4
    assert contents(calm / "run/0/policy") == before
    assert (calm / "run/0/policy/checkpoint.json").stat().st_mtime_ns == written


def test_the_policy_learns_from_an_expert_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, int]] = []
    called: list[dict[str, Any]] = []
    chosen, real = environment("alfworld"), rla.training.sft.sft

    def demonstrate(*given: Any, seed: int, random_share: float) -> Demonstration:
        asked.append((random_share, seed))
        return play(*given, seed=seed, random_share=random_share)

    def sft(**arguments: Any) -> dict[str, Any]:
        called.append(arguments)
        if arguments["out"].name == "rm":
            raise Killed
        return real(**arguments)

    play = chosen.demonstrate
    monkeypatch.setattr(type(chosen), "demonstrate", staticmethod(demonstrate))
    monkeypatch.setattr(rla.training.sft, "sft", sft)
    for name, steps in (("alone", 0), ("taught", 1)):
        folder, made = started(tmp_path / name), len(asked)
        more = ("--set", "warm_start.policy.noise=0.5", "--set", "warm_start.expert.examples=3")
        with pytest.raises(Killed):
            stage(folder, "warm-start", *more, "--set", f"warm_start.expert.steps={steps}")
        sure, erring = asked[made : made + 3 * steps], asked[made + 3 * steps : made + 3 * steps + 4]
        assert all(share > 0 for share, _ in erring) and all(share == 0 for share, _ in sure)
        assert {seed for _, seed in erring}.isdisjoint(seed for _, seed in sure)
        metrics = read_json(folder / "run/0/policy/metrics.json")
        assert (metrics["steps"], metrics["examples"]) == (2 + steps, 4 + 3 * steps)
    alone, after = called[0], called[2]
    ((taught, config),), (_, (again, its)) = alone["rounds"], after["rounds"]
    assert [one.token_ids for one in again] == [one.token_ids for one in taught]
    assert its == config
