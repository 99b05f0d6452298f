"""Episodes of agents train and are judged like others: what was sampled is scored, in rewritten histories as well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rla_gateway.conversations import OPENED, REWRITTEN  # noqa: E402
from rla_gateway.environment import Agent  # noqa: E402
from rla_gateway.tables import AgentTables  # noqa: E402

from gateway_tests.playing import play, replayed  # noqa: E402
from rla.agents import views  # noqa: E402
from rla.config.sections import GeneratorConfig, ModelConfig  # noqa: E402
from rla.config.training import TrainConfig  # noqa: E402
from rla.envs.registry import load_config  # noqa: E402
from rla.llm.chat import ChatFormat  # noqa: E402
from rla.llm.factory import make_generator  # noqa: E402
from rla.models.init import init_model, new_tokenizer  # noqa: E402
from rla.report.collect import RunSummary  # noqa: E402
from rla.store.manifest import Origin  # noqa: E402
from rla.store.reading import read_rows  # noqa: E402
from rla.store.shards import write_shard  # noqa: E402
from rla.training.loop import train  # noqa: E402
from rla.training.sequences import policy_sequences  # noqa: E402
from tests.unit.builders import configured  # noqa: E402
from tests.unit.training.builders import reward  # noqa: E402

SORTING = Path(__file__).parents[2] / "pipelines/sorting_tasks.jsonl"
SIZES = ModelConfig(hidden_size=16, layers=2, heads=2, intermediate_size=32, context=1024)
REWRITING = """
talk = [user("one")]
talk += [ask(talk), user("two")]
talk += [ask(talk), user("three")]
ask([*talk[:2], user("left")])
talk = [user("one"), {"role": "assistant", "content": "a summary"}, user("four")]
talk += [ask(talk), user("five")]
ask(talk)
ask([user("another task")])
"""


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Two episodes of a small real model, with a growing, a branched, a rewritten and another conversation."""
    folder = tmp_path_factory.mktemp("model") / "model"
    init_model(
        folder,
        tokenizer=new_tokenizer(["one two three four five"], context=SIZES.context, exact=True),
        config=SIZES,
        seed=5,
    )
    engine, tokenizer = make_generator(GeneratorConfig(max_sequences=4, context=1024), model=folder, seed=0)
    try:
        own = {"context": 1024, "max_tokens": 12}
        found = play(REWRITING, engine, count=2, format=ChatFormat(tokenizer), **own)
    finally:
        engine.close()
    return folder, [one.row() for one in found]


def test_sampler_and_trainer_agree(episodes: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    folder, rows = episodes
    assert [[step["segment"] for step in row["steps"]] for row in rows] == [[0, 0, 1, 2, 2, 3]] * 2
    rewards = [reward(row["trajectory_id"], step, (-1.0) ** step) for row in rows for step in range(6)]
    metrics = train(
        model_folder=folder,
        out=tmp_path / "out",
        sequences=policy_sequences(rows, rewards),
        config=TrainConfig(lr=1e-3, updates=1, kl_coef=0.0),
        temperature=0.8,
        seed=0,
    )
    assert metrics["loss_tokens"] == sum(sum(segment["sampled"]) for row in rows for segment in row["segments"])
    assert metrics["sampler_gap_max"] < 1e-4
    assert metrics["ratio_max"] == pytest.approx(1.0, abs=1e-4)


def test_the_sorting_agent_is_replayed_from_a_shard(tmp_path: Path) -> None:
    """The agent of the small run, played with a real model: the stored replies lead it to the same tokens again."""
    top = Path(__file__).parents[4]
    config = load_config(top / "packages/rla-gateway/pipelines/agent-tiny.yaml", overrides=[f"tasks.path={SORTING}"])
    tasks = Agent().import_tasks(config, split="train")[:3]
    command = [str(top / word) if word.endswith(".py") else word for word in config.env.own.command]
    init_model(
        tmp_path / "model",
        tokenizer=new_tokenizer(["kitchen garage garden"], context=SIZES.context, exact=True),
        config=SIZES,
        seed=5,
    )
    engine, tokenizer = make_generator(GeneratorConfig(max_sequences=4, context=1024), model=tmp_path / "model", seed=0)
    own = {"context": 1024, "max_tokens": 4, "format": ChatFormat(tokenizer), "tasks": tasks, "count": 2}
    try:
        played = [one.row() for one in play(command, engine, **own)]
    finally:
        engine.close()
    write_shard(tmp_path / "shard", "trajectories", played, Origin(config="c", inputs={}, seed=0))
    stored = read_rows(tmp_path / "shard", "trajectories")
    again = {one.trajectory_id: one.row() for one in play(command, replayed(stored), **own)}
    assert len(again) == 6 and sum(len(row["steps"]) for row in stored) >= 12
    for row in stored:
        found = again[row["trajectory_id"]]
        assert [one["token_ids"] for one in found["segments"]] == [one["token_ids"] for one in row["segments"]]
        assert [one["sampled"] for one in found["segments"]] == [one["sampled"] for one in row["segments"]]
        assert [one["observation"] for one in found["steps"]] == [one["observation"] for one in row["steps"]]
        assert found["outcome"] == row["outcome"]


def test_a_judge_reads_requests_and_replies(episodes: tuple[Path, list[dict[str, Any]]]) -> None:
    _, (row, _) = episodes
    prompt = Agent().judge_prompt(configured("judge.prompt=published", env="agent"))
    shown = [prompt.messages(view)[-1]["content"] for view in views(row)]
    assert len(shown) == 6
    assert REWRITTEN in shown[3] and "a summary" in shown[3] and OPENED in shown[5]


def test_the_report_counts_rewritten_histories(
    episodes: tuple[Path, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of six requests, two begin a segment although they go on with a conversation."""
    _, rows = episodes
    monkeypatch.setattr("rla_gateway.tables.stream_rows", lambda *_: iter(rows))
    config = configured(env="agent")
    found = AgentTables().measure(tmp_path, config, held_out=[])
    assert found == {"agent_requests": 6, "agent_conversations": 2, "agent_rewritten": pytest.approx(1 / 3)}
    rows_of_run = ({"iteration": 1, **found}, {"iteration": 2})
    summary = RunSummary(run=tmp_path, iterations=rows_of_run, evaluations=(), seconds={}, gain=None)
    (table,) = AgentTables().tables(summary)
    assert table.rows == (("1", "6.0", "2.0", "33.3%"),)
    other = replace(config, env=replace(config.env, name="alfworld"))
    assert AgentTables().measure(tmp_path, other, held_out=[]) == {}
