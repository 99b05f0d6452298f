"""The environment `tool` through all stages: a scripted teacher calls real programs, and small models learn from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rla.cli.app import run as call
from rla.config import Config
from rla.envs.registry import environment, load_config
from rla.errors import UserError
from rla.llm.base import Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import ScriptedGenerator, hashed_path
from rla.models.load import load_tokenizer
from rla.seeds import derive
from rla.store.manifest import read_json
from rla.store.reading import read_rows
from rla.store.records import Task
from rla.store.shards import ShardWriter

PARAMS = """
seed: 3
env:
  name: tool
  max_steps: 4
  own: {format: FORMAT, execution: {backend: rlimits, wall_s: 30.0}}  # the programs are the teacher's
tasks: {kinds: [arithmetic, powers], train_scenes: 6, test_scenes: 2, tasks_per_scene: 1}
model: {hidden_size: 32, layers: 1, heads: 2, intermediate_size: 32, context: 2048}
launch: {threads: 1}
generator: {backend: scripted, context: 2048}
policy: {reply: text, repeat_task: false, history: full, decoding: free, max_tokens: 256, temperature: 1.0}
judge: {prompt: plain, decoding: admissible, max_tokens: 24, temperature: 1.0}
rollout: {tasks_per_iteration: 3, rollouts_per_task: 4}
train_policy: {lr: 1.0e-3, updates: 1}
train_rm: {lr: 1.0e-3, updates: 1}
adaptation: {max_tasks: 2}
warm_start:
  policy: {examples: 4, steps: 1, batch_size: 2, noise: 0.5}
  reward: {examples: 4, steps: 1, batch_size: 2, noise: 0.5}
evaluation: {rollouts_per_task: 2, temperature: 1.0, max_steps: 4}
"""
LOOP = ("rollout", "score-steps", "validate-tasks", "compute-rewards", "train-policy", "train-rm", "adapt-env")
WEAK = 0.6  # share of the teacher's episodes that are weak


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with played_run(tmp_path_factory.mktemp("short"), "short") as run:
        yield run


@contextmanager
def played_run(folder: Path, form: str) -> Iterator[Path]:
    """A run after its first rollout, in the working folder. The teacher is its policy, and verdicts are drawn."""
    (folder / "params.yaml").write_text(PARAMS.replace("FORMAT", form))
    config = load_config(folder / "params.yaml", [])

    def made(generator: Any, *, model: Path, seed: int, training: bool = True) -> Any:
        tokenizer = load_tokenizer(model)
        chat = ChatFormat(tokenizer)

        def reply(request: Request, seed: int) -> list[int]:
            if request.allowed is not None or request.session is None:  # the judge
                return hashed_path(request, seed, stop_id=chat.end_id)
            return [*chat.encode(taught(folder / "r", config, request.session, request.seed)), chat.end_id]

        return ScriptedGenerator(reply, context=generator.context), tokenizer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rla.llm.factory.make_generator", made)
        patch.chdir(folder)
        called("make-tasks", "init-model", "warm-start", "rollout")
        yield folder / "r"


def called(*names: str, **options: str) -> None:
    """Calls one stage after the other on the run."""
    for name in names:
        assert call([name, "--run", "r", *(text for item in options.items() for text in item)]) == 0, name


def taught(run: Path, config: Config, session: str, seed: int) -> str:
    """What the teacher says in an episode at the step whose seed it is."""
    name, _, rollout = session.partition("/")
    seeds = [derive(config.seed, name, int(rollout), iteration) for iteration in (0, 1, 2)]
    step = next(step for step in range(config.env.max_steps) for one in seeds if derive(one, step) == seed)
    tool: Any = environment("tool")
    taught = tool.demonstrate(tasks_of(run)[name], config, seed=int(rollout), random_share=WEAK)
    return str(taught.actions[step])


def tasks_of(run: Path) -> dict[str, Task]:
    known = [folder for folder in ("0/pool", "test/pool", "1/candidates") if (run / folder).is_dir()]
    return read_tasks(run, tuple(known))


@cache
def read_tasks(run: Path, folders: tuple[str, ...]) -> dict[str, Task]:
    found = {}
    for folder in folders:
        for row in read_rows(run / folder, "candidates" if "candidates" in folder else "tasks"):
            fields = {name: row[name] for name in Task.__dataclass_fields__}
            found[row["task_id"]] = Task(**fields)
    return found


def test_the_loop_turns_twice_with_a_judge_and_with_tasks_that_change(tmp_path: Path) -> None:
    with played_run(tmp_path, "hermes") as run:
        called(*LOOP[1:])
        called(*LOOP, **{"--iteration": "2"})
        called("evaluate", "report", **{"--iteration": "2"})
    rows = read_rows(run / "1/trajectories", "trajectories")
    check_calls(rows)
    assert {row["outcome"] for row in rows} == {-1, 1}

    candidates = [row for row in read_rows(run / "1/candidates", "candidates") if row["valid"]]
    assert candidates
    played = read_rows(run / "2/trajectories", "trajectories", ["task_id"])
    assert {row["task_id"] for row in played} >= {row["task_id"] for row in candidates}
    assert read_rows(run / "2/verdicts", "verdicts")

    metrics = read_json(run / "1/metrics.json")
    calls = [call for row in rows for call in row["calls"]]
    assert metrics["tool_calls"] == pytest.approx(len(calls) / len(rows))
    ran = sum(call["status"] == "ok" for call in calls)
    executed = [call for call in calls if call["status"] not in ("malformed", "unknown", "excess", "absent")]
    assert metrics["tool_calls_ran"] == pytest.approx(ran / len(calls))
    assert metrics["tool_success"] == pytest.approx(ran / len(executed))
    assert metrics["rm_process_accuracy"] is not None
    assert read_json(run / "1/policy/metrics.json")["sequences"] > 0
    assert read_json(run / "1/rm/metrics.json")["sequences"] > 0

    (timed,) = read_json(run / "timings/1-rollout.json")["calls"]
    assert timed["figures"]["calls"] == len(calls) and timed["figures"]["run_seconds_mean"] > 0
    report = (run / "report/report.txt").read_text()
    assert "Execution of calls" in report and "evaluation 2" in report


def check_calls(rows: list[dict[str, Any]]) -> None:
    """Each step but the last of an episode made calls; no token of a result was sampled."""
    for row in rows:
        assert {call["step"] for call in row["calls"]} == set(range(len(row["steps"]) - 1))
        (segment,) = row["segments"]
        spans = [(step["start"], step["end"]) for step in row["steps"]]
        sampled = {place for start, end in spans for place in range(start, end)}
        assert [place for place, one in enumerate(segment["sampled"]) if one] == sorted(sampled)
        between = [later[0] - earlier[1] for earlier, later in pairwise(spans)]
        assert all(length > 0 for length in between)  # where the results stand


def test_other_concurrency_gives_the_same_episodes(short: Path) -> None:
    called("rollout", **{"--out": "alone", "--set": "rollout.concurrency=1"})
    alone = read_rows(short.parent / "alone", "trajectories")
    check_calls(alone)
    assert alone == read_rows(short / "1/trajectories", "trajectories")


def test_a_call_that_was_interrupted_goes_on_to_the_same_bytes(
    short: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def ended(*_: Any, **__: Any) -> None:
        raise UserError("the machine went down")

    with monkeypatch.context() as broken:
        broken.setattr(ShardWriter, "finish", ended)
        assert call(["rollout", "--run", "r", "--out", "torn"]) == 2
    torn, whole = short.parent / "torn", parts(short / "1/trajectories")
    assert parts(torn) == whole and len(whole) == 3
    (torn / sorted(whole)[0]).unlink()
    capfd.readouterr()
    called("rollout", **{"--out": "torn"})
    assert "calls of the tool: " in capfd.readouterr().err
    assert parts(torn) == whole


def parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("part-*.parquet")}
