"""Stages over a completions server: what it does to requests, and where it is, leaves no trace in the shards."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rla_bridges.engines import chat_server

from bridges_tests.engines.completions_server import CompletionsServer, Fault
from rla.cli.app import run
from rla.llm import factory
from rla.llm.base import SEED_MASK, Request
from rla.llm.factory import ScriptedGenerator
from rla.store.manifest import MANIFEST
from rla.store.reading import read_rows
from tests.integration.pipelines import contents

RunRla = Callable[..., str]
FAULTS = (Fault.DROP, None, Fault.BROKEN, None, Fault.CUT, None, Fault.BUSY, None, Fault.STALL, None, Fault.ABORT, None)


@pytest.fixture
def rla(played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> RunRla:
    """Calls a stage of that run; what it wrote to stderr."""
    monkeypatch.setattr(chat_server, "FIRST_DELAY", 0.01)
    shutil.copytree(played, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def call(stage: str, *arguments: str, server: CompletionsServer | None = None, code: int = 0, **keys: Any) -> str:
        if server is not None:
            keys |= {"backend": "server", "own.url": server.url}
        settings = [text for key, value in keys.items() for text in ("--set", f"generator.{key}={value}")]
        capfd.readouterr()
        assert run([stage, "--run", "r", *arguments, *settings]) == code
        return capfd.readouterr().err

    return call


def rarely(number: int) -> Fault | None:
    """A fault at every seventh request, each kind in turn. The probe's requests are met too."""
    return FAULTS[number // 7 % len(FAULTS)] if number % 7 == 3 else None


def test_faults_of_the_server_leave_no_trace(rla: RunRla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_server, "SILENCE", 0.3)
    with CompletionsServer(ScriptedGenerator()) as calm, CompletionsServer(ScriptedGenerator(), faults=rarely) as bad:
        for server, name in ((calm, "calm"), (bad, "stormy")):
            few = ("--set", "rollout.rollouts_per_task=2")
            rla("rollout", "--out", f"{name}/trajectories", *few, server=server)
            given = ("--trajectories", "calm/trajectories", "--out", f"{name}/scores", *few)
            rla("score-steps", *given, server=server)
        assert len(bad.requests) > len(calm.requests) > 200
    assert contents(tmp_path / "stormy") == contents(tmp_path / "calm")
    assert len(contents(tmp_path / "calm")) > 6


def test_a_stage_goes_on_at_another_server_where_one_was_lost(
    rla: RunRla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_server, "PATIENCE", 0.2)

    def lost(number: int) -> Fault | None:
        return Fault.DROP if number > 60 else None

    one_group_at_a_time = ("--set", "rollout.concurrency=4")
    with CompletionsServer(ScriptedGenerator()) as server, CompletionsServer(ScriptedGenerator(), faults=lost) as first:
        rla("rollout", "--out", "whole", *one_group_at_a_time, server=server)
        error = rla("rollout", "--out", "part", *one_group_at_a_time, server=first, code=2)
        assert f"{first.url}/completions: Server disconnected; tried again for" in error
        parts = sorted(path.name for path in (tmp_path / "part").glob("part-*"))
        assert 0 < len(parts) < 4 and not (tmp_path / "part" / MANIFEST).exists()
        asked = len(server.requests)
        rla("rollout", "--out", "part", *one_group_at_a_time, server=server)
        assert len(server.requests) - asked < asked
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


def test_rows_equal_those_of_the_engine_in_process(
    rla: RunRla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Free replies of some length, so that prompts, seeds and stops take part."""

    def rambling(request: Request, seed: int, *, stop_id: int) -> list[int]:
        if request.allowed is not None:  # the probe
            return [min(request.allowed.root)]
        state = hashlib.sha256(f"{seed & SEED_MASK}:{list(request.prompt_ids)}".encode()).digest()
        return [10 + value % 20 for value in state[: 4 + state[0] % 20]]

    monkeypatch.setattr(factory, "hashed_path", rambling)
    free = ("--set", "policy.decoding=free", "--set", "guards.stop=[]")  # nothing that it says is an action
    rla("rollout", "--out", "in-process", *free)
    with CompletionsServer(ScriptedGenerator()) as server:
        rla("rollout", "--out", "served", *free, server=server)
    rows = [list(read_rows(tmp_path / name, "trajectories")) for name in ("in-process", "served")]
    assert rows[0] == rows[1] and len(rows[0]) == 16
    assert {step["truncated"] for row in rows[0] for step in row["steps"]} == {True, False}


@pytest.mark.parametrize("stage", ["rollout", "score-steps"])
def test_a_server_without_log_probabilities_makes_no_training_data(rla: RunRla, tmp_path: Path, stage: str) -> None:
    with CompletionsServer(ScriptedGenerator(), omit=["logprobs"]) as server:
        error = rla(stage, "--out", "refused", server=server, code=2)
        assert f"error: generator.own.url {server.url}: returns no log-probability" in error
        assert not list((tmp_path / "refused").glob("part-*"))
        rla("evaluate", server=server)
