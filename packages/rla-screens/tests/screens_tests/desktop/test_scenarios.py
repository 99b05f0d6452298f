"""Tasks in OSWorld's form: what is read, what is refused, what is told to be unsupported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rla_screens.desktop.environment import Desktop
from rla_screens.desktop.getting import file_name
from rla_screens.desktop.importing import import_desktop_tasks
from rla_screens.desktop.params import DesktopParams
from rla_screens.desktop.resources import ResourceMissing, data_of_url, local_file
from rla_screens.desktop.scenarios import ScenarioError, scenario_of, scenario_of_json, task_of_scenario
from rla_screens.desktop.verifying import NotScored, evaluator_parts

from rla.envs.registry import load_config
from rla.errors import UserError

RULE = {"type": "rule", "rules": {"expected": "x"}}
LINE = {"type": "vm_command_line", "command": "echo x", "shell": True}
PLAIN = {
    "id": "7",
    "instruction": "Do it.",
    "config": [],
    "evaluator": {"func": "exact_match", "result": LINE, "expected": RULE},
}
PUBLISHED = {
    "id": "8",
    "config": [],
    "current_task": {"evaluator2": "Do the other thing."},
    "task_template": {"evaluator1": "Do it.", "evaluator2": "Do the other."},
    "evaluator_list": {"evaluator1": PLAIN["evaluator"], "evaluator2": {"func": "infeasible"}},
}


def test_both_forms_of_tasks_are_read_and_come_back() -> None:
    plain, published = scenario_of_json(PLAIN), scenario_of_json(PUBLISHED)
    assert (plain.current, plain.instruction) == ("evaluator1", "Do it.")
    assert published.evaluator == {"func": "infeasible"}
    for one in (plain, published):
        assert scenario_of(task_of_scenario(one, split="train")) == one


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"evaluator": None}, "no evaluator"),
        ({"instruction": " "}, "instruction is empty"),
        ({"instruction": "a\x00"}, "no text"),
        ({"current_task": {"evaluator9": "x"}}, "evaluator9"),
        ({"current_task": "x"}, "one verifier"),
        ({"config": [3]}, "config is no list"),
    ],
)
def test_what_is_no_task_is_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        scenario_of_json(PLAIN | change)


def test_parts_of_an_evaluator_with_several_metrics() -> None:
    evaluator = {"func": ["a", "b"], "result": [LINE, LINE], "expected": [RULE, None], "options": [{}, {"x": 1}]}
    assert evaluator_parts(evaluator) == [("a", LINE, RULE, {}), ("b", LINE, None, {"x": 1})]
    with pytest.raises(NotScored):
        evaluator_parts(evaluator | {"options": [{"x": 1}]})


def test_import_leaves_out_what_it_cannot_play_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "examples" / "os").mkdir(parents=True)
    for name, found in (
        ("7", PLAIN),
        ("8", PUBLISHED),
        ("9", PLAIN | {"config": [{"type": "googledrive", "parameters": {}}]}),
    ):
        (tmp_path / "examples" / "os" / f"{name}.json").write_text(json.dumps(found))
    listed = tmp_path / "all.json"
    listed.write_text(json.dumps({"os": ["7", "9", "8", "missing"]}))
    told: list[str] = []
    tasks = import_desktop_tasks(
        str(listed), DesktopParams(), split="train", held_out=None, limit=None, tell=told.append
    )
    assert [scenario_of(task).id for task in tasks] == ["7", "8"]
    assert [line.split(":")[0] for line in told[:-1]] == ["os/9", "os/missing"]
    assert told[-1].endswith("4 tasks listed, 2 can be played here, 1 of them with several verifiers; 2 are for train")
    listed.write_text(json.dumps({"os": ["../../etc/passwd"]}))
    with pytest.raises(UserError, match="not the name of a task"):
        import_desktop_tasks(str(listed), DesktopParams(), split="train", held_out=None, limit=None, tell=None)


def test_one_list_gives_each_task_to_one_side_and_two_lists_give_all(tmp_path: Path) -> None:
    for folder, ids in (("train", range(24)), ("test", range(24, 28))):
        (tmp_path / folder / "os").mkdir(parents=True)
        for number in ids:
            (tmp_path / folder / "os" / f"{number}.json").write_text(json.dumps(PLAIN | {"id": str(number)}))

    def ids_of(split: str, *overrides: str) -> set[int]:
        given = ["env.name=desktop", "policy.history=window", f"tasks.path={tmp_path}/train"]
        tasks = Desktop().import_tasks(load_config(None, [*given, *overrides]), split=split)
        return {int(scenario_of(task).id) for task in tasks}

    train, test = ids_of("train"), ids_of("test")
    assert train and test and not train & test and train | test == set(range(24))
    other = f"env.own.test_path={tmp_path}/test"
    assert (ids_of("train", other), ids_of("test", other)) == (set(range(24)), set(range(24, 28)))
    with pytest.raises(UserError, match=r"with env\.own\.test_path each side"):
        for split in ("train", "test"):
            ids_of(split, f"tasks.path={tmp_path}/train/os/0.json")


def test_addresses_of_files(tmp_path: Path) -> None:
    assert data_of_url("data:,a%20b%0A") == b"a b\n"
    assert data_of_url("data:text/plain;base64,aGk=") == b"hi"
    for flaw in ("data:x", "data:;base64,%%%"):
        with pytest.raises(ResourceMissing):
            data_of_url(flaw)
    (tmp_path / "book.xlsx").write_bytes(b"x")
    own = DesktopParams(files=str(tmp_path))
    assert local_file("https://host/path/book.xlsx?download=1", own) == tmp_path / "book.xlsx"
    assert local_file("https://host/..", own) is None


@pytest.mark.parametrize(
    ("dest", "path", "name"),
    [
        (None, "/home/user/a?b.docx", "a?b.docx"),
        (None, "https://host/x/book.xlsx?download=true", "book.xlsx"),
        ("gold.csv", "https://host/other", "gold.csv"),
        ("../../x.csv", "/y", "x.csv"),
        (None, "data:,a/b", ""),
    ],
)
def test_files_have_the_names_that_metrics_go_by(dest: str | None, path: str, name: str) -> None:
    assert file_name(dest, path) == name
