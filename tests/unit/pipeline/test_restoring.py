"""A pruned checkpoint is made again where the stage reads it from its own place, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rla.cli.progress import make_progress
from rla.pipeline import restoring
from rla.pipeline.context import StageContext
from rla.pipeline.restoring import make_whole
from rla.rollouts.held_out import split_context
from rla.store.pruned import MODEL, PRUNED, pruned_parts
from stages import STAGES
from tests.unit.builders import configured


class Called(Exception):
    """The training stage would run now."""


@pytest.fixture
def evaluating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StageContext:
    def called(module: str) -> Any:
        raise Called(module)

    monkeypatch.setattr(restoring, "import_module", called)
    policy = tmp_path / "3/policy"
    policy.mkdir(parents=True)
    (policy / PRUNED).write_text(f'{{"parts": ["{MODEL}"]}}')
    assert MODEL in pruned_parts(policy)
    spec = next(spec for spec in STAGES if spec.name == "evaluate")
    return StageContext(
        spec=spec, stages=STAGES, config=configured(), run=tmp_path, iteration=3, progress=make_progress()
    )


def test_it_is_made_again_also_for_a_split(evaluating: StageContext) -> None:
    with pytest.raises(Called, match="train_policy"):
        make_whole(evaluating, "policy")
    pool = evaluating.run / "test/pool"
    own = split_context(evaluating, "test", pool=pool, policy=evaluating.path("policy"))
    with pytest.raises(Called, match="train_policy"):
        make_whole(own, "policy")


def test_a_folder_elsewhere_is_left_as_it_is(evaluating: StageContext) -> None:
    elsewhere = evaluating.path("policy").rename(evaluating.run / "elsewhere")
    make_whole(replace(evaluating, paths={"policy": elsewhere}), "policy")
    assert pruned_parts(elsewhere)


def test_what_a_kill_left_behind_after_the_marker_had_gone_leaves_too(evaluating: StageContext) -> None:
    policy = evaluating.path("policy")
    (policy.with_name("policy.again") / MODEL).mkdir(parents=True)
    (policy / PRUNED).unlink()
    make_whole(evaluating, "policy")
    assert [folder.name for folder in policy.parent.iterdir()] == ["policy"]
