"""Tasks, answers and changes of reasoning-gym, by the package itself."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rla_bridges.adapters.reasoning_families import REFUSED, opened_family, reasoning_library
from rla_bridges.adapters.reasoning_gym import ANSWERED, ReasoningGym
from rla_bridges.adapters.reasoning_items import Item, answer_score, is_held_out, item_of, known_answer, made_entry

from bridges_tests.adapters.reasoning_digests import digests
from bridges_tests.adapters.reasoning_solvers import SOLVERS
from rla.envs.protocols import RejectedEdit
from rla.errors import UserError
from rla.store.records import Task
from tests.unit.builders import configured

pytestmark = pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="the reasoning-gym extra is not installed")

ENV = ReasoningGym()


def config(family: str, *overrides: str) -> Any:
    counts = ("tasks.train_scenes=12", "tasks.test_scenes=6", "tasks.tasks_per_scene=1")
    return configured(f"env.own.id={family}", *counts, *overrides, env="reasoning-gym")


def tasks(family: str, *overrides: str, split: str = "train", seed: int = 0) -> list[Task]:
    return ENV.tasks(config(family, *overrides), split=split, seed=seed)


def task(family: str, *overrides: str) -> Task:
    return tasks(family, *overrides)[0]


def child(parent: Task, edit: dict[str, Any], taken: set[str] | None = None) -> Task:
    return ENV.apply(parent, json.dumps(edit), root=parent, taken=taken or set(), created=2)


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_families_make_the_same_items_in_processes_that_hash_texts_differently(share: int) -> None:
    """Every fourth family, or every one."""
    families = sorted(reasoning_library().DATASETS.keys() - REFUSED.keys())
    assert len(families) == 87
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    run = [sys.executable, "-m", "bridges_tests.adapters.reasoning_digests", *families[::share]]
    made = subprocess.run(run, capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
    assert json.loads(made.stdout) == {name: digests(name) for name in families[::share]}


@pytest.mark.parametrize("family", sorted(SOLVERS))
@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize(
    "indices", [pytest.param(range(10), id="few"), pytest.param(range(10, 60), id="many", marks=pytest.mark.slow)]
)
def test_stored_answers_are_those_of_a_solver_that_reads_the_question_alone(
    family: str, level: int, indices: range
) -> None:
    opened = opened_family(family)
    for index in indices:
        item = Item(family=family, levels=opened.at(level), values={}, seed=17, index=index)
        if known_answer(item) is None:  # such as an empty text, which is no answer; it makes no task
            continue
        question = made_entry(item)["question"]
        assert answer_score(item, SOLVERS[family](question)) == 1.0, question


@pytest.mark.parametrize(
    "family", ["syllogism", "decimal_arithmetic", "quantum_lock", "number_filtering", "polynomial_equations"]
)
def test_families_whose_own_answers_are_wrong_are_refused(family: str) -> None:
    with pytest.raises(UserError, match=f"{family}, which rla cannot play: it"):
        tasks(family)


@pytest.mark.parametrize("family", ["chain_sum", "gcd", "knights_knaves", "spell_backward", "number_format"])
def test_no_question_is_on_both_sides_whatever_the_seed_of_the_run(family: str) -> None:
    sides = [
        {ENV.likeness(found) for seed in (0, 1, 2) for found in tasks(family, split=split, seed=seed)}
        for split in ("train", "test")
    ]
    assert all(sides) and not sides[0] & sides[1]


def test_a_task_holds_all_that_makes_its_question_again() -> None:
    made = task("chain_sum", "env.own.levels=[num_terms=1]", "env.own.values=[allow_negation=true]")
    payload = json.loads(made.payload)
    assert payload["levels"] == {"num_digits": 0, "num_terms": 1} and payload["values"] == {"allow_negation": True}
    assert made_entry(Item(**payload))["question"] == made.instruction
    assert (made.kind, made.scene, made.slot) == ("chain_sum", "chain_sum", made.task_id)


def test_a_question_that_the_package_makes_otherwise_is_refused() -> None:
    other = replace(task("chain_sum"), instruction="What is 2 + 2?")
    with pytest.raises(UserError, match="makes another question of it; install the version"):
        ENV.make(other, config("chain_sum"))


def test_an_episode_is_a_question_an_answer_and_its_score() -> None:
    made = task("chain_sum")
    game = ENV.make(made, config("chain_sum"))
    assert game.reset().text == made.instruction
    right, wrong = game.step(str(known_answer(item_of(made)))), game.step("no idea")
    assert (right.reward, right.done, right.text) == (1.0, True, ANSWERED)
    assert (wrong.reward, wrong.done, wrong.text) == (0.0, True, ANSWERED)


def test_a_level_is_that_level_alone_and_not_those_below_it() -> None:
    fields = opened_family("chain_sum").fields({"num_terms": 3, "num_digits": 1}, {})
    assert fields == {"min_terms": 5, "max_terms": 5, "min_digits": 2, "max_digits": 2}


@pytest.mark.parametrize(
    ("family", "answer"),
    [
        ("string_insertion", "print('MARK', file=open('mark', 'w'))"),
        ("spiral_matrix", "[open('mark', 'w')]"),
        ("binary_matrix", "[[open('mark', 'w')]]"),
        ("n_queens", "open('mark', 'w')"),
        ("countdown", "open('mark', 'w')"),
        ("puzzle24", "__import__('os').mkdir('mark') or 24"),
    ],
)
def test_no_verifier_runs_an_answer(family: str, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert answer_score(item_of(task(family)), answer) == 0.0
    assert not list(tmp_path.iterdir())


def test_answers_that_a_verifier_chokes_on_score_nothing() -> None:
    assert answer_score(item_of(task("prime_factorization")), "3 x 5") == 0.0
    assert answer_score(item_of(task("complex_arithmetic")), "nan") == 0.0
    numbers = item_of(task("number_sorting"))
    count = len(json.loads(str(known_answer(numbers)).replace("'", '"')))
    assert answer_score(numbers, json.dumps([float("nan")] * count)) == 0.0
    assert answer_score(item_of(task("puzzle24")), "6*4*1*1") == 0.0


def test_what_a_family_prints_and_seeds_stays_with_it(capfd: pytest.CaptureFixture[str]) -> None:
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[union-attr]
    tasks("bf", "tasks.train_scenes=3")
    tasks("pool_matrix", "tasks.train_scenes=3")
    assert before == (random.getstate(), np.random.get_state()[1].tolist())  # type: ignore[union-attr]
    assert capfd.readouterr().out == ""


def test_a_demonstration_is_right_or_wrong_by_its_share() -> None:
    made, asked = task("chain_sum"), config("chain_sum")
    right = ENV.demonstrate(made, asked, seed=1, random_share=0.0)
    wrong = ENV.demonstrate(made, asked, seed=1, random_share=1.0)
    assert (right.won, wrong.won) == (True, False)
    assert right.observations == wrong.observations == [made.instruction]
    labels = [ENV.label(made, asked, shown.actions)[0][0] for shown in (right, wrong)]
    assert [(one.score, one.next_observation) for one in labels] == [(1, ANSWERED), (-1, ANSWERED)]


def test_a_family_without_answers_has_tasks_but_neither_demonstrations_nor_changes() -> None:
    off = ("warm_start.enabled=false", "adaptation.enabled=false")
    made = task("rush_hour", *off)
    with pytest.raises(UserError, match="keeps no answers to show"):
        ENV.demonstrate(made, config("rush_hour", *off), seed=0, random_share=0.0)
    with pytest.raises(RejectedEdit, match="nothing proves"):
        child(made, {"attribute": "moves", "level": 1, "item": 0})


@pytest.mark.parametrize(("direction", "step"), [("harder", 1), ("easier", -1)])
def test_proposed_edits_move_one_attribute_by_one_level(direction: str, step: int) -> None:
    parent = task("chain_sum", "env.own.level=1")
    edits = [json.loads(edit) for edit in ENV.propose(parent, direction=direction, seed=4, count=4)]
    assert {edit["attribute"] for edit in edits} == {"num_terms", "num_digits"} and len(edits) == 4
    for edit in edits:
        made = child(parent, edit)
        levels = item_of(parent).levels
        assert item_of(made).levels == {**levels, edit["attribute"]: levels[edit["attribute"]] + step}
        assert known_answer(item_of(made)) is not None
        assert is_held_out(ENV.likeness(made)) == is_held_out(ENV.likeness(parent))
        assert (made.parent_id, made.depth, made.status, made.slot) == (parent.task_id, 1, "pending", parent.slot)


def test_there_is_nothing_easier_than_the_lowest_level_and_nothing_harder_than_the_highest() -> None:
    assert ENV.propose(task("chain_sum"), direction="easier", seed=0, count=4) == []
    highest = task("gcd", "env.own.level=99")
    assert [json.loads(edit)["attribute"] for edit in ENV.propose(highest, direction="harder", seed=0, count=9)] == []


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"attribute": "num_terms", "level": 2, "item": 0}, "no level of num_terms one away from 0"),
        ({"attribute": "num_terms", "level": 0, "item": 0}, "no level of num_terms one away from 0"),
        ({"attribute": "num_terms", "level": -1, "item": 0}, "no level of num_terms one away from 0"),
        ({"attribute": "__class__", "level": 1, "item": 0}, "no such attribute; there are num_digits, num_terms"),
        ({"attribute": "num_terms", "level": 1, "item": -1}, "item must lie in"),
        ({"attribute": "num_terms", "level": True, "item": 0}, "not a JSON object"),
        ({"attribute": "num_terms", "level": 1}, "not a JSON object"),
        ({"attribute": "num_terms", "level": 1, "item": 0, "seed": 3}, "not a JSON object"),
    ],
)
def test_edits_of_a_model_are_refused_with_the_reason(edit: dict[str, Any], said: str) -> None:
    with pytest.raises(RejectedEdit, match=said):
        child(task("chain_sum"), edit)


def test_a_question_that_is_taken_is_refused() -> None:
    parent, edit = task("chain_sum"), {"attribute": "num_terms", "level": 1, "item": 7}
    made = child(parent, edit)
    with pytest.raises(RejectedEdit, match="there is such a question already"):
        child(parent, edit, taken={ENV.likeness(made)})


def test_levels_at_which_nothing_can_be_made_are_refused_with_the_reason() -> None:
    with pytest.raises(UserError, match=r"no task of caesar_cipher \(AssertionError: rotation must be in range"):
        tasks("caesar_cipher", "env.own.levels=[rotation=2]")
    parent = task("caesar_cipher", "env.own.levels=[rotation=1]")
    with pytest.raises(RejectedEdit, match="no question of these levels can be made: AssertionError"):
        child(parent, {"attribute": "rotation", "level": 2, "item": 0})


def test_unknown_families_and_values_are_refused() -> None:
    with pytest.raises(UserError, match="did you mean chain_sum"):
        tasks("chain_sums")
    with pytest.raises(UserError, match="unexpected keyword argument 'colour'"):
        tasks("chain_sum", "env.own.values=[colour=1]")


def test_a_model_is_told_the_attributes_and_may_answer_within_them() -> None:
    made, prompt = task("chain_sum"), ENV.proposal_prompt()
    schema = prompt.schema(made)
    assert schema["properties"]["attribute"] == {"enum": ["num_digits", "num_terms"]}
    assert sorted(schema["required"]) == sorted(ENV.edit_fields)


def test_a_data_set_of_few_questions_ends_early() -> None:
    few = tasks("tower_of_hanoi", "tasks.train_scenes=50")
    assert 0 < len(few) < 50 and len({found.instruction for found in few}) == len(few)
