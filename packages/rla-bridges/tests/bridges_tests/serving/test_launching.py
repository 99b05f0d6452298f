"""Who may reach a server, and what its options must be."""

from __future__ import annotations

from pathlib import Path

import pytest
from rla_bridges.adapters.openenv_client import TOKEN
from rla_bridges.serving.launching import (
    ServingOptions,
    environment_of_pool,
    is_loopback,
    serve_env,
    tasks_counted,
    token_for,
)

from bridges_tests.serving.counting import served
from rla.errors import UserError
from rla.store.shards import Origin, write_shard
from tests.unit.builders import configured, task

LONG = "0123456789abcdef"


@pytest.mark.parametrize(
    ("host", "own"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.example", "")),
    ],
)
def test_only_this_machine_can_reach_its_own_addresses(host: str, own: bool) -> None:
    assert is_loopback(host) == own


def test_other_machines_need_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    assert token_for("127.0.0.1") is None
    with pytest.raises(UserError, match=f"--host 0.0.0.0: other machines could play; .* {TOKEN}"):
        token_for("0.0.0.0")
    monkeypatch.setenv(TOKEN, LONG)
    assert token_for("0.0.0.0") == token_for("127.0.0.1") == LONG


def test_a_short_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, LONG[:-1])
    with pytest.raises(UserError, match="has 15 characters; it needs 16 or more"):
        token_for("127.0.0.1")


@pytest.mark.parametrize("options", [ServingOptions(sessions=0), ServingOptions(idle=0.0)])
def test_impossible_options_are_refused(options: ServingOptions) -> None:
    with pytest.raises(UserError, match="--sessions and --idle"):
        serve_env(configured(), options, tell=lambda line: None)


def test_a_pool_says_of_which_environment_it_is(tmp_path: Path) -> None:
    write_shard(tmp_path / "pool", "tasks", [task(env="coding").row()], Origin(config="c", inputs={}, seed=0))
    assert environment_of_pool(tmp_path / "pool") == "coding"
    with pytest.raises(UserError, match="nowhere"):
        environment_of_pool(tmp_path / "nowhere")


def test_tasks_are_counted_by_split() -> None:
    assert tasks_counted(served().tasks) == "4 tasks (train 3, test 1)"
