"""The frozen probe: one set of labelled steps for all reward models of a run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rla.store.manifest import read_json
from rla.store.reading import read_rows
from tests.integration.conftest import Rla, rla_in
from tests.integration.pipelines import PARAMS, contents

PROBE = ("--set", "evaluation.probe_tasks=4", "--set", "env.max_steps=20")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose untrained models have been evaluated on a probe of four tasks."""
    folder = tmp_path_factory.mktemp("evaluated")
    with rla_in(folder, PARAMS) as rla:
        for stage in ("make-tasks", "init-model"):
            assert rla(stage, "--run", "r")[0] == 0
        assert rla("evaluate", "--run", "r", *PROBE)[0] == 0
    return folder / "r"


@pytest.fixture
def begun(rla: Rla, evaluated: Path, tmp_path: Path) -> Path:
    """A copy of it, the run `r` of the working folder."""
    return shutil.copytree(evaluated, tmp_path / "r", symlinks=True)


def test_its_episodes_are_played_from_random_to_expert_and_every_step_is_judged_once(begun: Path) -> None:
    episodes = read_rows(begun / "probe/trajectories", "trajectories")
    assert {row["policy"].split(",")[1].split("%")[0].strip() for row in episodes} == {"100", "60", "30", "0"}
    expert = next(row for row in episodes if " 0%" in row["policy"])
    assert (expert["outcome"], expert["stop_reason"]) == (1, "won")
    steps = {(row["trajectory_id"], number) for row in episodes for number, _ in enumerate(row["steps"])}
    labels = read_json(begun / "probe/labels.json")["steps"]
    assert {(row["trajectory_id"], row["step"]) for row in labels} == steps
    assert {row["label"] for row in labels} == {1, -1}
    scores = read_rows(begun / "eval/0/probe", "scores")
    assert {(row["trajectory_id"], row["step"]) for row in scores} == steps
    assert {len(row["judgements"]) for row in scores} == {1}


def test_the_figures_are_those_of_its_votes(begun: Path) -> None:
    truth = {
        (row["trajectory_id"], row["step"]): row["label"] for row in read_json(begun / "probe/labels.json")["steps"]
    }
    votes = [
        (truth[row["trajectory_id"], row["step"]], row["judgements"][0]["score"])
        for row in read_rows(begun / "eval/0/probe", "scores")
        if row["judgements"][0]["score"] is not None
    ]
    shares = {}
    for side in (1, -1):
        of_side = [said for label, said in votes if label == side]
        shares[side] = of_side.count(side) / len(of_side)
    found = read_json(begun / "eval/0/metrics.json")
    assert (found["probe_steps"], found["probe_votes"]) == (len(truth), len(votes))
    assert [found["probe_good"], found["probe_bad"]] == pytest.approx([shares[1], shares[-1]])
    assert found["probe_balanced"] == pytest.approx((shares[1] + shares[-1]) / 2)


def test_every_evaluation_is_measured_on_the_same_probe_and_the_report_says_what_changed(rla: Rla, begun: Path) -> None:
    before = contents(begun / "probe")
    for model in ("policy", "rm"):  # as if an iteration had trained them
        shutil.copytree(begun / "init" / model, begun / "1" / model)
    another = ("--set", "generator.backend=transformers")  # which says something else than scripted replies
    assert rla("evaluate", "--run", "r", "--iteration", "1", *PROBE, *another)[0] == 0
    assert contents(begun / "probe") == before
    said = rla("report", "--run", "r")[1]
    assert "Reward model on the frozen probe" in said and "judge on the frozen probe" in said
    assert (begun / "report/curves/probe.svg").exists()


def test_another_seed_with_the_same_tasks_has_the_same_probe(rla: Rla, begun: Path) -> None:
    """As an arm of an ablation has it, that begins with the tasks and models of a start of another seed."""
    before = contents(begun / "probe")
    assert rla("evaluate", "--run", "r", *PROBE, "--seed", "5", "--overwrite")[0] == 0
    assert contents(begun / "probe") == before


def test_another_number_of_tasks_is_another_probe(rla: Rla, begun: Path) -> None:
    code, _, error = rla("evaluate", "--run", "r", *PROBE, "--set", "evaluation.probe_tasks=3")
    assert code == 2 and "--overwrite" in error
    assert rla("evaluate", "--run", "r", *PROBE, "--set", "evaluation.probe_tasks=3", "--overwrite")[0] == 0
    assert len(read_rows(begun / "probe/trajectories", "trajectories")) == 3


def test_labels_that_a_killed_call_has_not_written_are_made_again(rla: Rla, begun: Path) -> None:
    labels = begun / "probe/labels.json"
    before = labels.read_bytes()
    labels.unlink()
    assert rla("evaluate", "--run", "r", *PROBE)[0] == 0
    assert labels.read_bytes() == before


@pytest.mark.parametrize("without", ["evaluation.probe_tasks=0", "judge.enabled=false"])
def test_without_tasks_or_a_judge_there_is_no_probe(rla: Rla, tmp_path: Path, without: str) -> None:
    assert rla("evaluate", "--run", "r", "--set", without)[0] == 0
    assert not (tmp_path / "r/probe").exists()
    assert "probe_balanced" not in read_json(tmp_path / "r/eval/0/metrics.json")
