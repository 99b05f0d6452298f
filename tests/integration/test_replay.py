"""Judgements of earlier iterations train the reward model again (`train_rm.replay`)."""

import shutil
from pathlib import Path

import pytest

from rla.store.manifest import read_json
from tests.integration.conftest import Rla, rla_in, stages
from tests.integration.pipelines import PARAMS

LOOP = ("rollout", "score-steps", "validate-tasks", "compute-rewards")
SETTINGS = ("credit.reward_model_band=[-1, 2]", "credit.reward_model_normalise=none")


def with_settings(*more: str) -> list[str]:
    return [word for setting in (*SETTINGS, *more) for word in ("--set", setting)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two iterations up to the rewards; of the first also the checkpoints."""
    folder = tmp_path_factory.mktemp("run")
    with rla_in(folder, PARAMS) as rla:
        stages(rla, "make-tasks", "init-model", "warm-start")
        for iteration, more in (("1", ("train-policy", "train-rm", "adapt-env")), ("2", ())):
            for name in (*LOOP, *more):
                assert rla(name, "--run", "r", "--iteration", iteration, *with_settings())[0] == 0
    return folder / "r"


@pytest.fixture
def played(rla: Rla, run: Path, tmp_path: Path) -> Rla:
    """Calls on a copy of it, the run `r`."""
    shutil.copytree(run, tmp_path / "r", symlinks=True)
    return rla


def trained(rla: Rla, out: str, *more: str) -> int:
    """The sequences that iteration 2 trains on."""
    code, _, error = rla("train-rm", "--run", "r", "--iteration", "2", "--out", out, *with_settings(*more))
    assert code == 0, error
    return int(read_json(Path(out) / "metrics.json")["sequences"])


def test_earlier_votes_train_again_and_are_part_of_what_a_checkpoint_is_made_from(played: Rla) -> None:
    own = trained(played, "own")
    before = int(read_json(Path("r/1/rm/metrics.json"))["sequences"])
    assert before > 0
    assert trained(played, "both", "train_rm.replay=1") == before + own
    assert trained(played, "all", "train_rm.replay=9") == before + own  # there was one before it
    assert "sampler_gap_mean" in read_json(Path("own/metrics.json"))
    assert "sampler_gap_mean" not in read_json(Path("both/metrics.json"))  # would tell how far the judge has come
    code, _, error = played(
        *("train-rm", "--run", "r", "--iteration", "2", "--out", "own"), *with_settings("train_rm.replay=1")
    )
    assert code == 2 and "rerun with --overwrite" in error
    assert played("compute-rewards", "--run", "r", "--iteration", "2", *with_settings("train_rm.replay=1"))[0] == 0
    assert trained(played, "off", "train_rm.replay=1", "train_rm.enabled=false") == 0


def test_votes_that_are_not_there_or_no_longer_fit_are_refused(played: Rla) -> None:
    arguments = ("train-rm", "--run", "r", "--iteration", "2", *with_settings("train_rm.replay=1"))
    assert played("score-steps", "--run", "r", "--set", "judge.temperature=2", "--overwrite")[0] == 0
    code, _, error = played(*arguments)
    assert code == 2 and "r/1/rewards/rm: not made from r/1/scores as it is now" in error
    shutil.rmtree("r/1/scores")
    code, _, error = played(*arguments)
    assert code == 2 and "r/1/scores does not exist" in error
    assert not Path("r/2/rm").exists()
