"""Stages with a judge on a chat server: votes and text are stored, and the reward model stays as it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from rla_bridges.engines import chat_server

from bridges_tests.engines.chat_completions import ChatCompletions, reply
from rla.cli.app import run
from rla.pipeline.finished import finished_iterations
from rla.store.reading import read_manifest, read_rows

RunRla = Callable[..., str]
REPLIES = ("score +1", "score -1", "\x1b[31m?")
LOOP = ("validate-tasks", "compute-rewards", "train-policy", "train-rm", "adapt-env")


@pytest.fixture
def rla(played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> RunRla:
    """Calls a stage of that run, judged by `server`; what it wrote to stderr."""
    monkeypatch.setattr(chat_server, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(chat_server, "PATIENCE", 0.2)
    shutil.copytree(played, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def call(stage: str, *arguments: str, server: ChatCompletions | None = None, code: int = 0) -> str:
        keys = [f"judge.server.url={server.url}", "judge.server.model=m"] if server else []
        keys += ["judge.decoding=free"] if server else []
        capfd.readouterr()
        assert run([stage, "--run", "r", *arguments, *(text for key in keys for text in ("--set", key))]) == code
        return capfd.readouterr().err

    return call


def by_seed(number: int, body: dict[str, Any]) -> Any:
    return reply(REPLIES[body["seed"] % 3])


def test_a_chat_server_judges_and_the_reward_model_stays(rla: RunRla, tmp_path: Path) -> None:
    with ChatCompletions(by_seed) as server:
        rla("score-steps", server=server)
        for stage in LOOP:
            rla(stage, server=server)
        asked = len(server.bodies)
        rla("score-steps", server=server)
        assert len(server.bodies) == asked
    rows = read_rows(tmp_path / "r/1/scores", "scores")
    assert asked == 3 * len(rows) > 100
    assert all(row["prompt_ids"] == [] and len(row["judgements"]) == 3 for row in rows)
    votes = {(vote["text"], vote["score"], *vote["token_ids"]) for row in rows for vote in row["judgements"]}
    assert votes == {("score +1", 1), ("score -1", -1), ("\x1b[31m?", None)}
    manifest = read_manifest(tmp_path / "r/1/scores", "scores")
    assert manifest["counts"]["failed"] == 0 and "tokenizer" not in manifest
    assert json.loads((tmp_path / "r/1/rm/metrics.json").read_text())["updates"] == 0
    assert finished_iterations(tmp_path / "r")[0] == 1


def test_what_has_no_tokens_does_not_train(rla: RunRla) -> None:
    with ChatCompletions(by_seed) as server:
        for stage in ("score-steps", "validate-tasks", "compute-rewards"):
            rla(stage, server=server)
    error = rla("train-rm", "--set", "judge.server={}", code=2)  # the run's own parameters name the server
    assert "has a judgement without token ids, as of a chat server" in error
    assert len([line for line in error.splitlines() if line.startswith("error:")]) == 1


def test_too_many_missing_replies_fail_the_stage_and_are_asked_for_again(rla: RunRla, tmp_path: Path) -> None:
    def angry(number: int, body: dict[str, Any]) -> Any:
        return web.Response(status=400, text="filtered") if body["seed"] % 3 == 0 else by_seed(number, body)

    with ChatCompletions(angry) as server:
        error = rla("score-steps", code=2, server=server)
    assert f"replies of {server.url} failed, more than rollout.max_failed_share = 0.1" in error
    with ChatCompletions(by_seed) as server:
        rla("score-steps", server=server)
    assert all(len(row["judgements"]) == 3 for row in read_rows(tmp_path / "r/1/scores", "scores"))


def test_a_server_that_dies_keeps_what_was_judged(rla: RunRla, tmp_path: Path) -> None:
    with ChatCompletions(lambda number, body: by_seed(number, body) if number < 150 else None) as server:
        error = rla("score-steps", "--set", "rollout.concurrency=1", code=2, server=server)
    assert "Start the server or correct judge.server.url, and call the stage again" in error
    kept = len(list((tmp_path / "r/1/scores").glob("part-*")))
    with ChatCompletions(by_seed) as again:
        rla("score-steps", "--set", "rollout.concurrency=1", server=again)
    rows = read_rows(tmp_path / "r/1/scores", "scores")
    assert kept > 0 and len(again.bodies) < 3 * len(rows)
