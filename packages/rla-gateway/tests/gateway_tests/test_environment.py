"""The environment's contract, and its tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from rla_gateway.environment import Agent
from rla_gateway.params import PIPELINES, check_agent
from rla_study.contract import check_environment

from rla.envs.registry import load_config
from rla.errors import UserError
from tests.unit.builders import configured

TOP = Path(__file__).parents[4]
TINY = TOP / "packages/rla-gateway/pipelines/agent-tiny.yaml"


def test_it_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TOP)
    findings = check_environment(Agent(), load_config(TINY), episodes=1)
    assert len(findings) > 15
    assert [one for one in findings if not one.ok] == []


def test_the_agent_of_the_small_run_knows_nothing_of_rla() -> None:
    source = (TINY.parent / "sorting_agent.py").read_text()
    assert "import rla" not in source and "from rla" not in source
    assert len(source.splitlines()) <= 60


def test_the_settings_for_a_pretrained_model() -> None:
    """The other rules of a params file are those of every file that is shipped (`test_config.py`)."""
    config = load_config(PIPELINES / "agent.yaml")
    check_agent(config)
    assert (config.env.name, config.generator.backend, config.train_policy.lora.rank) == ("agent", "vllm", 32)
    assert config.env.own.command[-1] == "{task}" and config.model.policy == "Qwen/Qwen2.5-1.5B-Instruct"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("{", "tasks.jsonl:1: a task is a JSON object"),
        ("[]", "tasks.jsonl:1: a task is a JSON object"),
        ('{"instruction": "a", "split": "train"}\n{"instruction": "b"}', "tasks.jsonl:2: a task is a JSON object"),
        ('{"instruction": 5, "split": "train"}', "tasks.jsonl:1: a task is a JSON object"),
        ('{"instruction": "a", "split": "test"}', "no line has the split 'train'"),
        (None, "cannot be read"),
    ],
)
def test_files_of_tasks_that_are_refused(lines: str | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    if lines is not None:
        path.write_text(lines)
    with pytest.raises(UserError, match=reason):
        Agent().import_tasks(configured(f"tasks.path={path}", env="agent"), split="train")


def test_a_line_that_is_there_twice_is_one_task(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"instruction": "a", "split": "train", "kind": "k"}\n\n' * 2)
    (task,) = Agent().import_tasks(configured(f"tasks.path={path}", env="agent"), split="train")
    assert (task.instruction, task.kind, task.split) == ("a", "k", "train")
