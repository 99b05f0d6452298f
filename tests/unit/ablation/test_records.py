"""Runs of an ablation that another machine has written as a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from rla.ablation.accepted import accepted_table
from rla.ablation.comparison import write_report
from rla.ablation.design import Design, load_design
from rla.ablation.measures import measure_tables
from rla.ablation.outcomes import ArmOutcome, RunOutcome
from rla.ablation.records import read_record, with_records, write_record
from rla.ablation.settling import settling_tables
from rla.ablation.table import ablation_tables
from rla.errors import UserError

METRICS = tuple(
    {"iteration": step, "mu": 1.0 + step / 10, "accepted": step, "rejected": 1, "by": {"kind": 0.5}, "name": "x"}
    for step in (1, 2)
)


def run_of(seed: int, won: str) -> RunOutcome:
    """Two tasks of three episodes each, at 0 and 2."""
    points = {0: {"a": [False] * 3, "b": [True, False, False]}, 2: {"a": [win == "1" for win in won], "b": [True] * 3}}
    measured = {2: {"iteration": 2, "success": 0.5, "probe": {"balanced": 0.25 + seed / 8}}}
    further = {"rooms": {0: {"c": [False] * 3}, 2: {"c": [seed == 1] * 3}}}
    return RunOutcome(
        seed=seed,
        evaluations=points,
        iterations=METRICS,
        split="valid_seen",
        further=further,
        measured=measured,
        hours=0.25,
    )


@pytest.fixture
def design(tmp_path: Path) -> Design:
    (tmp_path / "params.yaml").write_text("env: {name: alfworld}\ntasks: {size: tiny}\n")
    (tmp_path / "design.yaml").write_text(
        "params: params.yaml\niterations: 2\nevaluate_every: 2\nseeds: [0, 1, 2]\nbaseline: base\n"
        "measures: [probe.balanced]\n"
        "arms:\n  base: {title: base, set: {}}\n  full: {title: full, set: {credit: {step_weight: 0.5}}}\n"
    )
    return load_design(tmp_path / "design.yaml")


def arms_of(design: Design, **runs: tuple[RunOutcome, ...]) -> list[ArmOutcome]:
    return [ArmOutcome(arm=arm, runs=runs.get(arm.name, ())) for arm in design.arms]


def texts(design: Design, arms: list[ArmOutcome]) -> list[Any]:
    tables = ablation_tables(arms, baseline=design.baseline) + settling_tables(arms, design)
    tables += [accepted_table(arms), *measure_tables(arms, design.measures, baseline=design.baseline)]
    return [(table.title, table.columns, table.rows) for table in tables]


def test_tables_are_the_same_whoever_ran_the_seeds(tmp_path: Path, design: Design) -> None:
    base, full = [run_of(seed, "100") for seed in (0, 1, 2)], [run_of(seed, "110") for seed in (0, 1, 2)]
    whole = arms_of(design, base=tuple(base), full=tuple(full))
    write_record(tmp_path / "record.json", design, arms_of(design, base=(base[1],), full=(full[1], full[2])))
    here = arms_of(design, base=(base[0], base[2]), full=(full[0],))
    joined = with_records(design, here, [tmp_path / "record.json"])
    assert [[run.seed for run in arm.runs] for arm in joined] == [[0, 1, 2], [0, 1, 2]]
    assert texts(design, joined) == texts(design, whole)
    assert joined[0].runs[1].iterations[0] == {"iteration": 1, "mu": 1.1, "accepted": 1, "rejected": 1, "by.kind": 0.5}


def test_a_report_of_records_alone_can_be_written_as_one_record(tmp_path: Path, design: Design) -> None:
    runs = {"base": (run_of(0, "000"), run_of(1, "100")), "full": (run_of(0, "110"), run_of(1, "111"))}
    for seed in (0, 1):
        part = {name: (both[seed],) for name, both in runs.items()}
        write_record(tmp_path / f"{seed}.json", design, arms_of(design, **part))
    parts = [tmp_path / "0.json", tmp_path / "1.json"]
    text = write_report(design, tmp_path / "none", records=parts, record=tmp_path / "both.json")
    assert write_report(design, tmp_path / "none", records=[tmp_path / "both.json"]) == text
    assert "| full | 2 |" in text
    assert read_record(tmp_path / "both.json")["full"][1] == [
        run for part in parts for run in read_record(part)["full"][1]
    ]


def test_a_record_that_does_not_fit_is_refused_with_its_reason(tmp_path: Path, design: Design) -> None:
    record = tmp_path / "record.json"
    here = arms_of(design, full=(run_of(0, "111"),))
    write_record(record, design, here)

    def refusal(content: Any = None, *, arms: list[ArmOutcome] = here, path: Path = record) -> str:
        if content is not None:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        with pytest.raises(UserError) as error:
            with_records(design, arms, [path])
        return str(error.value)

    assert "seed 0 of arm full is there already" in refusal()
    assert "no such record" in refusal(path=tmp_path / "absent.json")
    whole = json.loads(record.read_text())
    full = whole["arms"]["full"]
    none = arms_of(design)
    changed = {**full, "parameters": {**full["parameters"], "credit.step_weight": 0.75}}
    assert "credit.step_weight 0.75, and the design has 0.5" in refusal({**whole, "arms": {"full": changed}}, arms=none)
    assert "no arm other; the design has base, full" in refusal({**whole, "arms": {"other": full}}, arms=none)
    run = full["runs"][0]
    elsewhere = {**run, "seed": 1, "evaluations": {"2": {"z": "010"}}}
    assert "other tasks" in refusal({**whole, "arms": {"full": {**full, "runs": [elsewhere]}}})
    rooms = {**run, "seed": 1, "further": {"rooms": {"2": {"z": "010"}}}}
    assert "other tasks of rooms" in refusal({**whole, "arms": {"full": {**full, "runs": [rooms]}}})
    assert "seed 0" in refusal({**whole, "arms": {"full": {**full, "runs": [run, run]}}}, arms=none)
    for wrong in ("[]", "{", {**whole, "format": 2}, {**whole, "arms": {"full": {**full, "runs": [{}]}}}):
        assert "no record of an ablation" in refusal(wrong, arms=none)
    unclear = {**run, "evaluations": {"2": {"a": "012"}}}
    assert "no record" in refusal({**whole, "arms": {"full": {**full, "runs": [unclear]}}}, arms=none)


def test_models_of_a_hub_have_to_be_the_same(tmp_path: Path, design: Design) -> None:
    write_record(tmp_path / "record.json", design, arms_of(design, full=(run_of(1, "111"),)))
    other = load_design(tmp_path / "design.yaml", overrides={"model": {"policy": "owner/other"}})
    with pytest.raises(UserError, match=r"model\.policy"):
        with_records(other, arms_of(other), [tmp_path / "record.json"])


def test_places_and_seeds_of_other_machines_may_differ(tmp_path: Path, design: Design) -> None:
    def placed(name: str, seed: int) -> Design:
        (tmp_path / name).mkdir()
        model = {"policy": str(tmp_path / name)}
        return load_design(tmp_path / "design.yaml", overrides={"model": model, "seed": seed})

    there, here = placed("there", 7), placed("here", 8)
    write_record(tmp_path / "record.json", there, arms_of(there, full=(run_of(1, "111"),)))
    assert with_records(here, arms_of(here), [tmp_path / "record.json"])[1].runs[0].seed == 1
