"""Limits are data: what outgrew the context or was cut by max_tokens counts in manifests, summaries and report."""

import json
from pathlib import Path

from rla.store.manifest import MANIFEST, read_json
from tests.integration.conftest import Rla

SHARDS = {
    "rollout": "1/trajectories",
    "score-steps": "1/scores",
    "evaluate": "eval/0/trajectories",
}


def limited(rla: Rla, tmp_path: Path, stage: str, *settings: str) -> dict[str, int]:
    """The counts of the stage's manifest, which are those that it has printed."""
    flags = [text for setting in settings for text in ("--set", setting)]
    code, said, error = rla(stage, "--run", "r", *flags)
    assert code == 0, error
    counts: dict[str, int] = read_json(tmp_path / "r" / SHARDS[stage] / MANIFEST)["counts"]
    printed = {line.partition(": ")[0]: line.partition(": ")[2] for line in said.splitlines()}
    assert all(printed[key] == str(counts[key]) for key in ("truncated", "context_stops", "skipped") if key in counts)
    return counts


def test_prompts_that_outgrow_the_context(rla: Rla, tmp_path: Path) -> None:
    small, loose = "generator.context=110", "rollout.max_failed_share=1.0"
    played = limited(rla, tmp_path, "rollout", small, loose)
    assert 0 < played["context_stops"] <= played["episodes"] and 0 < played["steps"] < 6 * played["episodes"]
    judged = limited(rla, tmp_path, "score-steps", "generator.context=100", loose)
    assert judged["skipped"] > 0 and judged["judgements"] == 3 * (judged["steps"] - judged["skipped"])
    evaluated = limited(rla, tmp_path, "evaluate", small)
    assert evaluated["context_stops"] > 0


def test_replies_that_max_tokens_cuts(rla: Rla, tmp_path: Path) -> None:
    counted = "guards.stop=[]"
    played = limited(rla, tmp_path, "rollout", "policy.max_tokens=1", counted)
    assert played["truncated"] == played["invalid_actions"] == played["steps"] > 0
    judged = limited(rla, tmp_path, "score-steps", "judge.max_tokens=1", counted)
    assert judged["truncated"] == judged["unparsable"] == judged["judgements"] == 3 * played["steps"]
    assert limited(rla, tmp_path, "evaluate", "policy.max_tokens=1", counted)["truncated"] > 0
    assert "Limits" in rla("report", "--run", "r")[1]


def test_replies_that_are_too_long_to_train(rla: Rla, tmp_path: Path) -> None:
    """Two thirds of the steps fit: the stage refuses a limit that costs so much, and counts what one costs."""
    for stage in ("rollout", "score-steps", "validate-tasks", "compute-rewards"):
        band = ("--set", "credit.policy_band=[-1, 1]")  # nobody wins, and yet all train
        code, _, error = rla(stage, "--run", "r", *band)
        assert code == 0, error
    limit = "train_policy.max_tokens=100"
    code, _, error = rla("train-policy", "--run", "r", "--set", limit)
    assert code == 2 and "more than rollout.max_failed_share = 0.1; raise the stage's max_tokens" in error
    code, _, error = rla("train-policy", "--run", "r", "--set", limit, "--set", "rollout.max_failed_share=1.0")
    assert code == 0, error
    metrics = json.loads((tmp_path / "r/1/policy/metrics.json").read_text())
    assert 0 < metrics["replies_too_long"] < metrics["replies"]
    assert metrics["loss_tokens"] > 0
    assert rla("report", "--run", "r")[0] == 0
    assert "steps not trained" in (tmp_path / "r/report/report.txt").read_text()


def test_a_first_prompt_that_does_not_fit_is_no_lost_episode(rla: Rla) -> None:
    code, _, error = rla("rollout", "--run", "r", "--set", "generator.context=24")
    (line,) = [line for line in error.splitlines() if line.startswith("error:")]
    assert code == 2 and "episodes end before their first reply" in line and "raise generator.context" in line
    again = rla("rollout", "--run", "r", "--overwrite")
    assert again[0] == 0, again
    code, _, error = rla("score-steps", "--run", "r", "--set", "generator.context=24")
    assert code == 2 and "steps were not judged" in error and "raise generator.context" in error


def test_a_group_of_which_nothing_can_be_read_stops_the_run(rla: Rla, tmp_path: Path) -> None:
    untaught = ("generator.backend=transformers", "policy.decoding=free")
    flags = [text for setting in untaught for text in ("--set", setting)]
    code, _, error = rla("rollout", "--run", "r", *flags, "--set", "rollout.concurrency=4")
    assert code == 2 and "error: none of the" in error and "call `rla warm-start`" in error
    assert len(list((tmp_path / "r/1/trajectories").glob("part-*.parquet"))) == 1  # in the second group
    assert "the first prompt of the policy, of" in error and "nothing could be read in it" in error
    assert "0 of the first 32 replies hold an action; they took" in error


def test_votes_that_cannot_be_read_stop_the_run_before_all_are_there(rla: Rla, tmp_path: Path) -> None:
    assert rla("rollout", "--run", "r")[0] == 0
    code, _, error = rla("score-steps", "--run", "r", "--set", "judge.max_tokens=1")
    assert code == 2 and "error: none of the first" in error and "votes can be read" in error
    assert "the first prompt of the reward model, of" in error and "and its reply is, cut by max_tokens," in error
