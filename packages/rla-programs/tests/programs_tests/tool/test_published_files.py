"""The data sets of the published run, in small: the pipeline finds their files, and each question is what it should be.

The folders and columns are those of Open-AgentRL-30K and Open-AgentRL-Eval.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from rla_programs.tool.decoration import (
    BOX,
    HAND_IN,
    LETTER,
    NUMBER,
    PLAN,
    PROGRAM,
    SOLVE,
    STREAMS,
    TOOL,
    shown_question,
)
from rla_programs.tool.questions import Question, question_of

from rla.cli.app import run
from rla.pipeline.plan import packaged_files
from rla.store.reading import read_tasks

pytestmark = pytest.mark.usefixtures("forked_python")  # rows are read in a process
PIPELINE = packaged_files()["demyagent-qwen3-4b"]
TESTS = {"inputs": ["1\n"], "outputs": ["2\n"]}
CHECK = "def check(candidate):\n    assert candidate(n = 1) == 2\n"
HARNESS = {"import_prefix": "import os\n", "test_code": CHECK, "entry_point": "Solution().twice"}


def rl_row(source: str, ability: str, question: str, truth: str) -> dict[str, Any]:
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": question}],
        "ability": ability,
        "reward_model": {"ground_truth": truth, "style": "rule"},
        "extra_info": {"index": 0},
    }


TRAIN = [
    rl_row("math_dapo", "MATH", "Solve 2x = 8. Box it.", "4"),
    rl_row("mega-science", "physics", "Which?\nA. one\nB. two", "B"),
    rl_row("train-math-numinamath1.5", "math", "What is 2 + 3?", '["5"]'),
    rl_row("train-code-taco-hard", "code", "Read n, print 2n.", json.dumps(TESTS)),
    rl_row("train-code-leetcode-Easy", "code", "def twice(self, n: int):", json.dumps(HARNESS)),
]
LIVECODE = {
    "problem": "Print 2n.",
    "ability": "code",
    "reward_model": json.dumps({"ground_truth": TESTS, "style": "rule"}),
    "extra_info": json.dumps({"index": 0}),
}
FILES: dict[str, list[dict[str, Any]]] = {
    "Open-AgentRL-30K/Open-AgentRL-30K.parquet": TRAIN,
    "Open-AgentRL-Eval/aime2024/aime_2024_problems.parquet": [{"Problem": "P24", "Answer": 25}],
    "Open-AgentRL-Eval/aime2025/aime_2025_problems.parquet": [{"problem": "P25", "answer": "070"}],
    "Open-AgentRL-Eval/gpqa-diamond/gpqa_diamond.parquet": [
        {"problem": "Which? (A) 1 (B) 2", "solution": "B", "domain": "Organic Chemistry"}
    ],
    "Open-AgentRL-Eval/livecodebench-v6/lcb_v6_2502_2505.parquet": [LIVECODE],
}
PUBLISHED = {"aime2024": "AIME2024", "aime2025": "AIME2025", "gpqa-diamond": "gpqa_diamond"} | {
    "livecodebench-v6": "LiveCodeBench_v6"
}
EXAMPLE = "Print 2n.\n\nInput:\n1\nOutput:\n2"
SHOWN = {
    "aime2024": f"{SOLVE}\n\nP24\n\n{TOOL} {PLAN} {BOX}",
    "aime2025": f"{SOLVE}\n\nP25\n\n{TOOL} {PLAN} {BOX}",
    "gpqa-diamond": "Work through the following organic chemistry problem, one step after the other.\n\n"
    f"Which? (A) 1 (B) 2\n\n{TOOL} {PLAN} {BOX} {LETTER}",
    "livecodebench-v6": f"{PROGRAM}\n\n{EXAMPLE}\n\n{PLAN} {STREAMS} {HAND_IN}",
}
CHECKS = {"aime2024": "math", "aime2025": "math", "gpqa-diamond": "choice", "livecodebench-v6": "code"}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of data sets in place of the Hub; a data set is found by its name without the owner's."""
    root = tmp_path / "hub"

    def names(repo: str, **_: Any) -> list[str]:
        own = root / Path(repo).name
        return sorted(path.relative_to(own).as_posix() for path in own.rglob("*") if path.is_file())

    monkeypatch.setattr("huggingface_hub.list_repo_files", names)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda repo, name, **_: str(root / Path(repo).name / name))
    monkeypatch.chdir(tmp_path)
    yield root


def write_files(root: Path, *, with_source: bool) -> None:
    """Each file with its columns; the evaluation files with or without the column data_source."""
    for name, rows in FILES.items():
        told = PUBLISHED.get(Path(name).parent.name) if with_source else None
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        table = [row | {"data_source": told} for row in rows] if told else rows
        pq.write_table(pa.Table.from_pylist(table), file)


def made(name: str) -> list[Question]:
    """The questions of a pool that the pipeline has made."""
    return [question_of(task) for task in read_tasks(Path("r") / name / "pool")]


def shown(asked: Question) -> str:
    return shown_question(asked, published=True)


def test_the_published_run_makes_its_pools(hub: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of the training set and of all evaluation files, with the paths and the splits of the pipeline as they stand."""
    write_files(hub, with_source=False)
    assert run(["make-tasks", "--params", str(PIPELINE), "--run", "r"]) == 0, capfd.readouterr().err
    found = {one.source: one for one in made("0")}
    assert {name: (one.check, one.answer) for name, one in found.items()} == {
        "math_dapo": ("math", "4"),
        "mega-science": ("choice", "B"),
        "train-math-numinamath1.5": ("math", "5"),
        "train-code-taco-hard": ("code", ""),
        "train-code-leetcode-Easy": ("code", ""),
    }
    assert shown(found["math_dapo"]) == f"Solve 2x = 8. Box it.\n\n{NUMBER}"
    assert shown(found["mega-science"]) == f"Which?\nA. one\nB. two\n\n{LETTER}"
    bare = found["train-math-numinamath1.5"]
    assert shown(bare) == f"{SOLVE}\n\nWhat is 2 + 3?\n\n{TOOL} {PLAN} {BOX} {NUMBER}"
    assert shown(found["train-code-taco-hard"]) == f"Read n, print 2n.\n\n{PLAN} {HAND_IN}"
    splits = yaml.safe_load(PIPELINE.read_text())["tasks"]["test_splits"]
    assert splits == list(SHOWN)
    for split in splits:
        (asked,) = made("test" if split == splits[0] else f"splits/{split}/test")
        assert (asked.source, asked.check, shown(asked)) == (split, CHECKS[split], SHOWN[split])


def test_evaluation_files_that_name_their_source_keep_it(hub: Path) -> None:
    """Names and advice are then those of the published files; the answers are the same."""
    write_files(hub, with_source=True)
    assert run(["make-tasks", "--params", str(PIPELINE), "--run", "r"]) == 0
    for split, source in PUBLISHED.items():
        (asked,) = made("test" if split == "aime2024" else f"splits/{split}/test")
        assert (asked.source, asked.check, shown(asked)) == (source, CHECKS[split], SHOWN[split])
    assert made("test")[0].answer == "25" and made("splits/aime2025/test")[0].answer == "070"
