"""Kinds that train and are never held out are named."""

from __future__ import annotations

from dataclasses import replace

from rla.adaptation.selection import missing_kinds
from rla.config.sections import TasksConfig
from rla.envs.authoring import root_task
from rla.store.records import Task

CONFIG = TasksConfig(test_splits=("seeds", "pages"), test_scenes=8)


def tasks(split: str, *kinds: str) -> list[Task]:
    return [root_task(env="browser", split=split, instruction="", content=kind, kind=kind) for kind in kinds]


def test_a_kind_that_trains_and_is_not_in_the_main_held_out_split_is_named() -> None:
    made = {"train": tasks("train", "a", "b", "c"), "seeds": tasks("seeds", "a", "c"), "pages": tasks("pages", "d")}
    said = missing_kinds(made, CONFIG)
    assert said.startswith("b: no task is held out in split 'seeds'") and "tasks.kinds" in said
    assert missing_kinds(made | {"seeds": tasks("seeds", "a", "b", "c")}, CONFIG) == ""


def test_nothing_is_said_of_one_split_alone_or_where_other_kinds_are_held_out_on_purpose() -> None:
    made = {"train": tasks("train", "a"), "seeds": tasks("seeds", "b")}
    assert missing_kinds({"train": made["train"]}, CONFIG) == missing_kinds({"seeds": made["seeds"]}, CONFIG) == ""
    assert missing_kinds(made, replace(CONFIG, test_kinds=("b",))) == ""
