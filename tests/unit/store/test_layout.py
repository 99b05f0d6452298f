"""Which call makes what lies in a run: errors name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.pipeline import StageSpec
from rla.store.layout import MAKERS, PATHS, artifact, making_call, places_of
from stages import STAGES


@pytest.mark.parametrize(
    ("path", "call"),
    [
        ("r/1/trajectories", "`rla rollout --run r --iteration 1`"),
        ("/data/my runs/r/3/scores/part-00000.parquet", "`rla score-steps --run '/data/my runs/r' --iteration 3`"),
        ("r/0/pool", "`rla make-tasks --run r`"),
        ("r/2/pool", "`rla validate-tasks --run r --iteration 2`"),
        ("r/0/policy/checkpoint.json", "`rla warm-start --run r`"),
        ("r/2/policy", "`rla train-policy --run r --iteration 2`"),
        ("r/2/rewards/policy", "`rla compute-rewards --run r --iteration 2`"),
        ("r/splits/unseen/eval/4/trajectories", "`rla evaluate --run r --iteration 4`"),
        ("1/trajectories", "`rla rollout --run . --iteration 1`"),
        ("elsewhere/trajectories", "the stage that makes it"),
    ],
)
def test_an_artifact_names_the_call_that_makes_it(path: str, call: str) -> None:
    assert making_call(Path(path)) == call


def test_every_output_of_a_stage_is_known() -> None:
    written = {artifact: spec.name for spec in STAGES for _, artifact in spec.writes}
    assert written.items() <= MAKERS.items()
    others = PATHS.keys() - MAKERS.keys()
    assert all(name.startswith("previous_") or name == "inspect" for name in others)


def test_an_artifact_of_a_package_is_named_by_its_path(tmp_path: Path) -> None:
    assert artifact(Path("r"), "{i}/answers", 2) == Path("r/2/answers")
    for place in ("1/answers", "3/answers"):
        (tmp_path / place).mkdir(parents=True)
    assert sorted(places_of(tmp_path, "{i}/answers")) == [tmp_path / "1/answers", tmp_path / "3/answers"]


@pytest.mark.parametrize(("name", "looped"), [("scores", True), ("{i}/answers", True), ("0/answers", False)])
def test_a_stage_is_looped_if_each_iteration_has_outputs_of_its_own(name: str, looped: bool) -> None:
    spec = StageSpec(name="s", module="m", summary="", example="", reads=(), writes=(("out", name),), sections=())
    assert spec.looped == looped
