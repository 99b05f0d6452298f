"""Which stages run beside which, with `launch.together`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rla.cli.progress import make_progress
from rla.envs.configured import from_mapping
from rla.pipeline.companions import companions_of
from rla.pipeline.context import StageContext
from stages import STAGES

ALL = ("judging", "training", "adapting")


@pytest.fixture
def in_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose loop DVC is turning."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.setenv("DVC_STAGE", "rollout@1")
    (tmp_path / "iterations.yaml").write_text("run: r\nlast: 2\n")
    return tmp_path / "r"


def beside(run: Path, stage: str, *, together: Sequence[str] = ALL, paths: Any = None, **sections: Any) -> list[str]:
    """Names and options of the companions, joined."""
    launch = {"together": list(together), **sections.pop("launch", {})}
    data = {"env": {"name": "alfworld"}, "launch": launch, **sections}
    ctx = StageContext(
        spec=next(spec for spec in STAGES if spec.name == stage),
        stages=STAGES,
        config=from_mapping(data, where="test"),
        run=run,
        iteration=1,
        progress=make_progress(),
        paths=paths or {},
    )
    return [" ".join(words) for words in companions_of(ctx)]


def test_judging_follows_playing_and_the_three_that_end_an_iteration_go_together(in_loop: Path) -> None:
    assert beside(in_loop, "rollout") == ["score-steps --follow"]
    assert beside(in_loop, "train-policy") == ["train-rm", "adapt-env"]
    assert beside(in_loop, "train-policy", together=["training"]) == ["train-rm"]
    assert beside(in_loop, "train-policy", together=["judging", "adapting"]) == ["adapt-env"]
    assert beside(in_loop, "rollout", together=["training"]) == []
    for stage in ("score-steps", "train-rm", "adapt-env", "evaluate", "validate-tasks"):
        assert beside(in_loop, stage) == []


def test_nothing_runs_beside_a_call_outside_of_a_loop_or_into_another_folder(in_loop: Path, tmp_path: Path) -> None:
    assert beside(in_loop, "rollout", together=()) == []
    assert beside(in_loop, "rollout", paths={"out": tmp_path / "elsewhere"}) == []
    assert beside(tmp_path / "another", "rollout") == []


def test_what_has_to_wait_is_not_started(in_loop: Path) -> None:
    assert beside(in_loop, "rollout", judge={"tasks": "training"}) == []
    assert beside(in_loop, "rollout", judge={"enabled": False}) == []
    assert beside(in_loop, "train-policy", judge={"enabled": False}) == ["adapt-env"]
    llm: dict[str, Any] = {"proposer": "llm"}
    assert beside(in_loop, "train-policy", adaptation=llm) == ["train-rm"]
    elsewhere = llm | {"llm": {"server": "http://127.0.0.1:1", "server_model": "m"}}
    assert beside(in_loop, "train-policy", adaptation=elsewhere) == ["train-rm", "adapt-env"]


def test_what_would_take_the_gpus_of_the_stage_itself_is_not_started(
    in_loop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    for name, started in (("transformers", []), ("vllm", []), ("scripted", ["score-steps --follow"])):
        assert beside(in_loop, "rollout", generator={"backend": name}) == started
    ray: dict[str, Any] = {"backend": "ray", "ray": {"engine": "transformers"}}
    assert beside(in_loop, "rollout", generator=ray) == ["score-steps --follow"]
    assert beside(in_loop, "train-policy") == ["adapt-env"]
    for fits, more in ((True, ["train-rm"]), (False, [])):
        monkeypatch.setattr("rla.pipeline.companions.two_train_on_ray", lambda ctx, fits=fits: fits)
        assert beside(in_loop, "train-policy", launch={"training": "ray"}) == [*more, "adapt-env"]
    assert beside(in_loop, "rollout", generator=ray, launch={"stage": "slurm"}) == []
