"""Figures of tools from episodes that can be counted by eye."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rla_programs.answering.tables import ToolTables
from rla_programs.tool.tool_frames import read_tool_episodes
from rla_programs.tool.tool_use import tool_figures, tool_figures_by_kind

from rla.rollouts.play import trajectory_counts
from rla.store.records import Segment, Trajectory
from rla.store.shards import Origin, ShardWriter
from tests.unit.builders import configured, step, trajectory


def call(number: int, status: str = "ok") -> dict[str, Any]:
    return {"step": number, "status": status}


def segment(*logprobs: float) -> Segment:
    """A prompt of one token and sampled ones."""
    count = len(logprobs)
    return Segment(
        token_ids=[1] * (count + 1), sampled=[False] + [True] * count, logprobs=[0.0, *logprobs], allowed=[[]] * count
    )


def episode(name: str, calls: list[dict[str, Any]] | None, **changes: Any) -> Trajectory:
    """Two replies of two tokens and one of -0.5 nats each."""
    fields: dict[str, Any] = {
        "steps": [step(start=1, end=3), step(start=3, end=5, truncated=True)],
        "segments": [segment(-0.5, -0.5, -0.5, -0.5)],
        "kind": "math",
    }
    return trajectory(name, calls=calls, **(fields | changes))


def shard(folder: Path, *episodes: Trajectory) -> Path:
    writer = ShardWriter(folder, "trajectories", Origin(config="c", inputs={}, seed=0))
    for index, one in enumerate(episodes):
        writer.write(index, [one.row()])
    writer.finish(trajectory_counts(writer.parts()))
    return folder


def test_figures_of_three_episodes(tmp_path: Path) -> None:
    """a: two calls, one ran. b: none, one long reply in two segments. c: one that ran, four that were never executed.
    Broken: does not count.
    """
    found = tool_figures(
        read_tool_episodes(
            shard(
                tmp_path,
                episode("a", [call(0), call(0, "timeout")]),
                episode("b", [], steps=[step(start=1, end=9)], segments=[segment(*[-1.0] * 4), segment(*[-2.0] * 4)]),
                episode("c", [call(0), *(call(1, status) for status in ("malformed", "unknown", "excess", "absent"))]),
                episode("d", [call(0, "error")], stop_reason="env_error", outcome=-1, error="died"),
            )
        )
    )
    assert found == {
        "tool_calls": pytest.approx(7 / 3),
        "tool_calls_ran": pytest.approx(2 / 7),
        "tool_success": pytest.approx(2 / 3),
        "tool_no_call": pytest.approx(1 / 3),
        "tool_round_tokens": pytest.approx(16 / 5),  # 4 + 8 + 4 tokens of 2 + 1 + 2 replies
        "tool_truncated": pytest.approx(2 / 5),
        "tool_sampled_entropy": pytest.approx((2 + 12 + 2) / 16),
    }


def test_each_kind_of_task_has_its_own(tmp_path: Path) -> None:
    found = tool_figures_by_kind(
        read_tool_episodes(shard(tmp_path, episode("a", [call(0)]), episode("b", [], kind="code")))
    )
    assert found["tool_calls"] == 0.5
    assert {kind: one["tool_calls"] for kind, one in found["tool_by_kind"].items()} == {"code": 0.0, "math": 1.0}
    assert found["tool_by_kind"]["code"]["tool_calls_ran"] is None


def test_without_an_executed_call_there_is_no_success(tmp_path: Path) -> None:
    found = tool_figures(read_tool_episodes(shard(tmp_path, episode("a", [call(0, "malformed")]))))
    assert (found["tool_calls_ran"], found["tool_success"]) == (0.0, None)


def test_an_environment_without_tools_has_no_figures(tmp_path: Path) -> None:
    without, some = shard(tmp_path / "none", episode("a", None)), shard(tmp_path / "some", episode("a", [call(0)]))
    episodes = read_tool_episodes(without)
    assert tool_figures(episodes) == {} == tool_figures_by_kind(episodes)
    assert ToolTables().measure(without, configured(), held_out=()) == {}
    assert ToolTables().measure(some, configured(), held_out=())["tool_calls"] == 1.0


def test_episodes_without_tools_do_not_count_among_others(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    writer = ShardWriter(folder, "trajectories", Origin(config="c", inputs={}, seed=0))
    writer.write(0, [episode("a", None).row(), episode("b", [call(0)]).row()])
    writer.finish(trajectory_counts(writer.parts()))
    assert tool_figures(read_tool_episodes(folder))["tool_calls"] == 1.0
