"""Which iterations are finished: all artifacts there, each made from the others as they are now."""

from pathlib import Path

from rla.pipeline.finished import finished_iterations, policy_evaluated
from rla.store.layout import artifact
from rla.store.manifest import MANIFEST
from tests.unit.pipeline.run_records import ARTIFACTS, evaluate, finished_run, record


def test_a_run_is_finished_up_to_its_last_whole_iteration(tmp_path: Path) -> None:
    run = finished_run(tmp_path, 3)
    assert finished_iterations(run) == (3, f"{run}/4/policy is not there yet")
    artifact(run, "candidates", 3).joinpath(MANIFEST).unlink()
    assert finished_iterations(run) == (2, f"{run}/3/candidates is not there yet")


def test_an_empty_folder_has_no_finished_iteration(tmp_path: Path) -> None:
    assert finished_iterations(tmp_path)[0] == 0


def test_an_input_that_was_made_anew_unfinishes_what_follows(tmp_path: Path) -> None:
    """As DVC works through a run again after a change of `train_policy`: policy 1 is new, iteration 2 is to come."""
    run = finished_run(tmp_path, 3)
    record(run, "policy", 1, salt="changed")
    assert finished_iterations(run) == (1, f"{run}/2/policy was not made from {run}/1/policy as it is now")
    for name in ("trajectories", "scores", "policy"):
        record(run, name, 2, salt="changed")
    assert finished_iterations(run) == (1, f"{run}/2/rm was not made from {run}/2/scores as it is now")
    record(run, "rm", 2)
    assert finished_iterations(run) == (1, f"{run}/2/candidates was not made from {run}/2/trajectories as it is now")
    record(run, "candidates", 2)
    assert finished_iterations(run) == (2, f"{run}/3/policy was not made from {run}/2/policy as it is now")


def test_a_run_may_begin_with_plain_models(tmp_path: Path) -> None:
    run = tmp_path
    for name in ("init_policy", "init_rm"):
        folder = artifact(run, name, 0)
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(f'{{"model": "{name}"}}')
    for name in ARTIFACTS:
        record(run, name, 1)
    assert finished_iterations(run)[0] == 1


def test_an_evaluation_is_of_the_policy_as_it_is_now(tmp_path: Path) -> None:
    run = finished_run(tmp_path, 1)
    assert not policy_evaluated(run, 1)
    evaluate(run, 1)
    assert policy_evaluated(run, 1)
    record(run, "policy", 1, salt="changed")
    assert not policy_evaluated(run, 1)
