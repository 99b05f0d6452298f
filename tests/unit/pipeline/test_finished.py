"""Which iterations are finished: all artifacts there, each made from the others as they are now."""

import json
from pathlib import Path

from rla.pipeline.finished import finished_iterations, policy_evaluated
from rla.store.layout import artifact
from rla.store.manifest import MANIFEST, read_json
from tests.unit.pipeline.run_records import evaluate, finished_run, record


def test_a_run_is_finished_up_to_its_last_whole_iteration(tmp_path: Path) -> None:
    run = finished_run(tmp_path, 3)
    assert finished_iterations(run) == (3, f"{run}/4/trajectories is not there yet")
    artifact(run, "candidates", 3).joinpath(MANIFEST).unlink()
    assert finished_iterations(run) == (2, f"{run}/3/candidates is not there yet")


def test_an_empty_folder_has_no_finished_iteration(tmp_path: Path) -> None:
    assert finished_iterations(tmp_path)[0] == 0


def test_an_input_that_was_made_anew_unfinishes_what_follows(tmp_path: Path) -> None:
    """As DVC works through a run again after a change of `train_policy`: policy 1 is new, iteration 2 is to come."""
    run = finished_run(tmp_path, 3)
    record(run, "policy", 1, salt="changed")
    assert finished_iterations(run) == (1, f"{run}/2/trajectories was not made from {run}/1/policy as it is now")
    record(run, "trajectories", 2)
    assert finished_iterations(run) == (1, f"{run}/2/scores was not made from {run}/2/trajectories as it is now")


def test_scores_without_a_judge_name_no_reward_model(tmp_path: Path) -> None:
    run = finished_run(tmp_path, 1)
    manifest = artifact(run, "scores", 1) / MANIFEST
    inputs = read_json(manifest)["input_digests"]
    manifest.write_text(json.dumps({"input_digests": {"0": inputs["0"]}}))
    for name in ("policy_rewards", "rm_rewards", "policy", "rm", "candidates"):
        record(run, name, 1)
    assert finished_iterations(run)[0] == 1


def test_a_run_may_begin_with_plain_models(tmp_path: Path) -> None:
    run = tmp_path
    for name in ("init_policy", "init_rm"):
        folder = artifact(run, name, 0)
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(f'{{"model": "{name}"}}')
    for name in ("trajectories", "scores", "verdicts", "policy_rewards", "rm_rewards", "policy", "rm", "candidates"):
        record(run, name, 1)
    assert finished_iterations(run)[0] == 1


def test_an_evaluation_is_of_the_policy_as_it_is_now(tmp_path: Path) -> None:
    run = finished_run(tmp_path, 1)
    assert not policy_evaluated(run, 1)
    evaluate(run, 1)
    assert policy_evaluated(run, 1)
    record(run, "policy", 1, salt="changed")
    assert not policy_evaluated(run, 1)
