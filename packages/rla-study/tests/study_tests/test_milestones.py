"""What `rla run` says beside the lines of its stages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rla_study.milestones import Milestones
from rla_study.tables import StudyTables

from rla.pipeline.plan import Plan
from rla.store.layout import artifact
from rla.store.shards import Origin, write_shard
from tests.unit.builders import configured, step, trajectory

LOOP = ("rollout", "score-steps", "train-policy")


def write(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def milestones(folder: Path, *overrides: str, **plan: Any) -> tuple[Milestones, list[str]]:
    said: list[str] = []
    asked = Plan(**{"iterations": 3, "run": folder} | plan)
    return Milestones(plan=asked, run=folder, config=configured(*overrides), say=said.append), said


def evaluated(run: Path, folder: str = "eval/0", **outcomes: int) -> None:
    """An evaluation with an episode of five steps for each name."""
    metrics = {"split": "test", "episodes": len(outcomes), "success": 0.25, "success_low": 0.1, "success_high": 0.5}
    write(run / folder / "metrics.json", metrics)
    steps = [step(observation=f"place {index}", action=f"go {index}", reply=f"go {index}") for index in range(5)]
    rows = [
        trajectory(name, outcome=outcome, stop_reason="won" if outcome > 0 else "max_steps", steps=steps).row()
        for name, outcome in outcomes.items()
    ]
    write_shard(run / folder / "trajectories", "trajectories", rows, Origin(config="c", inputs={}, seed=0))


def test_success_before_training_has_its_interval_a_won_and_a_lost_episode(tmp_path: Path) -> None:
    evaluated(tmp_path, a=-1, b=-1, c=1, d=-1)
    made, said = milestones(tmp_path, "warm_start.enabled=false")
    made.passed("evaluate@0", ["rollout@1"])
    (text,) = said
    assert text.startswith("held-out success before training: 25.0% of 4 episodes, 95% interval 10.0-50.0%\n")
    for part in ("episode c: won after 5 steps", "episode a: lost (max_steps)", "> go 1", "> go 3", "You won."):
        assert part in text
    assert "> go 2" not in text and "episode b" not in text and "no episode" not in text


def test_success_before_a_warm_start_is_said_at_once_with_its_episodes(tmp_path: Path) -> None:
    evaluated(tmp_path, "eval/untrained", a=-1, b=1)
    made, said = milestones(tmp_path)
    made.passed("evaluate-untrained@init", ["warm-start"])
    assert said[0].startswith("held-out success untrained: 25.0% of 2 episodes, 95% interval 10.0-50.0%\n")
    assert "episode b: won after 5 steps" in said[0] and "episode a: lost (max_steps)" in said[0]


def test_the_untrained_score_of_several_splits_names_its_own(tmp_path: Path) -> None:
    evaluated(tmp_path, "eval/untrained", a=-1)
    made, said = milestones(tmp_path, "tasks.test_splits=[test, other]")
    made.passed("evaluate-untrained@init", ["warm-start"])
    assert said[0].startswith("held-out success on test untrained: ") and said[0].endswith("\nno episode was won")


def test_it_says_so_if_all_were_lost(tmp_path: Path) -> None:
    evaluated(tmp_path, a=-1)
    made, said = milestones(tmp_path)
    made.passed("evaluate@0", [])
    assert said[0].startswith("held-out success after the warm start: ") and said[0].endswith("\nno episode was won")


def timed(run: Path, iteration: int, stage: str, seconds: float, **more: Any) -> None:
    call = {"started": "2026-01-01T00:00:00+00:00", "seconds": seconds, "host": "here", "devices": [], **more}
    call |= {"made": True, "origin": None}
    record = {"stage": stage, "iteration": iteration, "calls": [call]}
    write(run / f"timings/{iteration}-{stage}{'-slice' * ('slice' in more)}.json", record)


@pytest.fixture
def one_iteration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """200 s of iteration 1, 60 s of evaluation 0."""
    monkeypatch.setattr("rla_study.milestones.usable_cores", lambda: 2)
    for stage, seconds in zip(LOOP, (100.0, 60.0, 40.0), strict=True):
        timed(tmp_path, 1, stage, seconds)
    timed(tmp_path, 0, "evaluate", 60.0)
    return tmp_path


def test_the_time_left_is_said_once_an_iteration_has_ended(one_iteration: Path) -> None:
    made, said = milestones(one_iteration)
    made.passed("rollout@1", ["train-policy@1", "rollout@2"])
    assert said == []
    made.passed("train-policy@1", ["rollout@2", "train-policy@2", "rollout@3", "train-rm@3", "evaluate@3", "report"])
    # 2 iterations of 200 s and an evaluation of 60 s; 260 s on 2 cores
    assert said == ["iteration 1 took 3 min 20 s; 2 left: about 7 min 40 s; so far 0.14 core hours"]
    made.passed("train-policy@1", ["report"])
    assert said[1] == "iteration 1 took 3 min 20 s; so far 0.14 core hours"
    made.passed("warm-start", ["evaluate@0", "rollout@1"])
    made.passed("report", [])
    assert len(said) == 2


def test_a_damaged_record_of_times_does_not_stop_the_run(one_iteration: Path) -> None:
    (one_iteration / "timings/1-rollout.json").write_text("{}")
    made, said = milestones(one_iteration)
    made.passed("train-policy@1", [])
    assert said[0].startswith("nothing to say after train-policy@1: ") and "not the times of a stage" in said[0]


def test_the_cost_of_a_run_with_gpus_is_that_of_the_stages_that_used_them(one_iteration: Path) -> None:
    """900 s on two GPUs, whose slices are no stages of their own, and 450 s of a GPU elsewhere: 2,250 s."""
    gpu = {"gpu": "0", "name": "A100"}
    timed(one_iteration, 1, "rollout", 900.0, devices=[gpu, gpu])
    timed(one_iteration, 1, "rollout", 890.0, devices=[gpu], slice="1/2")
    timed(one_iteration, 1, "train-policy", 999.0, devices=[gpu | {"spans": [[0.0, 450.0]]}])
    made, said = milestones(one_iteration)
    made.passed("train-policy@1", [])
    assert said[0].endswith("so far 0.62 GPU hours")


def checkpoint(run: Path, iteration: int, *parts: str) -> Path:
    folder = artifact(run, "policy", iteration)
    for part in ("model", *parts):
        (folder / part).mkdir(parents=True)
    from rla import __version__

    write(folder / "checkpoint.json", {"rla": __version__, "updates": 1, "digest": "0" * 16})
    return folder


def test_at_the_end_it_says_how_to_serve_the_policy_and_how_to_go_on(one_iteration: Path) -> None:
    folder = checkpoint(one_iteration, 3)
    made, said = milestones(one_iteration, params=Path("p.yaml"), seed=4, overrides=["a.b=[c, d]"], evaluate_every=2)
    made.passed("", [])
    assert said[0].splitlines() == [
        "cost: 0.14 core hours",
        f"policy: {folder}/model",
        f"to serve it: vllm serve {folder}/model --served-model-name policy",
        f"to go on: rla run --iterations 6 --evaluate-every 2 --params p.yaml --run {one_iteration} --seed 4 "
        "--set 'a.b=[c, d]'",
    ]
    made, said = milestones(one_iteration, run=None)
    made.passed("", [])
    assert said[0].endswith("\nto go on: rla run --iterations 6")


def test_an_adapter_is_served_over_its_base_with_a_rank_that_vllm_has(one_iteration: Path) -> None:
    folder, base = checkpoint(one_iteration, 3, "adapter"), one_iteration.resolve() / "init" / "policy"
    named = {"base": "../../../init/policy", "files": {"model.safetensors": {"bytes": 1, "sha256": "0" * 64}}}
    write(folder / "model" / "base.json", named)
    base.mkdir(parents=True)
    for file in (base / "model.safetensors", folder / "adapter/adapter_model.safetensors"):
        file.touch()
    write(folder / "adapter/adapter_config.json", {"r": 12, "lora_alpha": 12})
    made, said = milestones(one_iteration)
    made.passed("", [])
    assert f"\npolicy: {folder}/adapter, an adapter over {base}\n" in said[0]
    assert f"vllm serve {base} --enable-lora --max-lora-rank 16 --lora-modules policy={folder}/adapter\n" in said[0]


def test_what_is_foreseen_is_said_before_a_new_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rla_study.milestones.foreseen", lambda config: f"{config.env.max_steps} steps")
    config = configured("env.max_steps=7")
    for run, overwrite, told in ((tmp_path / "new", False, 1), (tmp_path, False, 0), (tmp_path, True, 1)):
        said: list[str] = []
        StudyTables().accompany(Plan(iterations=3, run=run, overwrite=overwrite), run, config, said.append)
        assert said == ["7 steps"] * told
