"""`kill -9` in the middle of `rla prune`: what is needed and what is not marked is whole; the next call ends it."""

from pathlib import Path

from rla.models.checkpoint import pruned_parts
from tests.integration.pipelines import killed_when, run
from tests.unit.pipeline.run_records import finished_run, parts

ITERATIONS, BOTH = 150, ["model", "state"]
PRUNE = ["rla", "prune", "--run", "r", "--set", "checkpoints.keep=2"]


def test_a_killed_prune_loses_nothing_that_is_needed(tmp_path: Path) -> None:
    folder = finished_run(tmp_path / "r", ITERATIONS)
    (tmp_path / "params.yaml").write_text("seed: 0\n")
    halfway = folder / "60/policy/pruned.json"
    assert killed_when(halfway.exists, PRUNE, tmp_path)
    for model in ("policy", "rm"):
        found = parts(folder, model)
        assert [found[i] for i in (0, ITERATIONS - 1, ITERATIONS)] == [BOTH] * 3
        assert all(pruned_parts(folder / str(i) / model) for i, there in found.items() if there != BOTH)
    assert parts(folder)[ITERATIONS - 2] == BOTH  # it was killed before its end
    run(PRUNE, tmp_path)
    for model in ("policy", "rm"):
        assert {i for i, there in parts(folder, model).items() if there} == {0, ITERATIONS - 1, ITERATIONS}
