"""Runs of an ablation that another machine has written as a file."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rla_study.ablation.accepted import accepted_table
from rla_study.ablation.comparison import write_report
from rla_study.ablation.design import Design, load_design
from rla_study.ablation.folders import arm_folder
from rla_study.ablation.measures import measure_tables
from rla_study.ablation.outcomes import ArmOutcome, RunOutcome
from rla_study.ablation.records import read_record, with_records, write_ablation_record
from rla_study.ablation.settling import settling_tables
from rla_study.ablation.starts import needed_starts
from rla_study.ablation.table import ablation_tables

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


def ran(root: Path, design: Design, arms: list[ArmOutcome]) -> Path:
    """A folder in which these runs were made with what the design says now."""
    made = [(root / start.folder, start.params) for start in needed_starts(design, design.arms, design.seeds)]
    made += [(arm_folder(root, a.arm, run.seed), design.params(a.arm, run.seed)) for a in arms for run in a.runs]
    for folder, params in made:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "params.yaml").write_text(yaml.safe_dump(params))
    return root


def record(path: Path, design: Design, arms: list[ArmOutcome]) -> Path:
    write_ablation_record(path, design, ran(path.with_suffix(""), design, arms), arms)
    return path


def texts(design: Design, arms: list[ArmOutcome]) -> list[Any]:
    tables = ablation_tables(arms, baseline=design.baseline) + settling_tables(arms, design)
    tables += [accepted_table(arms), *measure_tables(arms, design.measures, baseline=design.baseline)]
    return [(table.title, table.columns, table.rows) for table in tables]


def test_tables_are_the_same_whoever_ran_the_seeds(tmp_path: Path, design: Design) -> None:
    base, full = [run_of(seed, "100") for seed in (0, 1, 2)], [run_of(seed, "110") for seed in (0, 1, 2)]
    whole = arms_of(design, base=tuple(base), full=tuple(full))
    there = record(tmp_path / "there.json", design, arms_of(design, base=(base[1],), full=(full[1], full[2])))
    here = arms_of(design, base=(base[0], base[2]), full=(full[0],))
    joined = with_records(design, ran(tmp_path / "here", design, here), here, [there])
    assert [[run.seed for run in arm.runs] for arm in joined] == [[0, 1, 2], [0, 1, 2]]
    assert texts(design, joined) == texts(design, whole)
    assert joined[0].runs[1].iterations[0] == {"iteration": 1, "mu": 1.1, "accepted": 1, "rejected": 1, "by.kind": 0.5}


def test_a_report_of_records_alone_can_be_written_as_one_record(tmp_path: Path, design: Design) -> None:
    runs = {"base": (run_of(0, "000"), run_of(1, "100")), "full": (run_of(0, "110"), run_of(1, "111"))}
    for seed in (0, 1):
        part = {name: (both[seed],) for name, both in runs.items()}
        record(tmp_path / f"{seed}.json", design, arms_of(design, **part))
    parts = [tmp_path / "0.json", tmp_path / "1.json"]
    text = write_report(design, tmp_path / "none", records=parts, record=tmp_path / "both.json")
    assert write_report(design, tmp_path / "none", records=[tmp_path / "both.json"]) == text
    assert "| full | 2 |" in text
    alone = write_report(design, tmp_path / "none", records=parts, only=["full"])
    assert "| full | 2 |" in alone and "| base |" not in alone
    with pytest.raises(UserError, match="no such arm"):
        write_report(design, tmp_path / "none", records=parts, only=["other"])
    runs_of_parts = [run for part in parts for run in read_record(part)["full"]]
    assert read_record(tmp_path / "both.json")["full"] == runs_of_parts


def test_a_packed_record_holds_the_same(tmp_path: Path, design: Design) -> None:
    arms = arms_of(design, base=(run_of(0, "000"),), full=(run_of(0, "110"),))
    plain, packed = (record(tmp_path / name, design, arms) for name in ("plain.json", "packed.json.gz"))
    assert read_record(packed) == read_record(plain)
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    for damaged in (packed.read_bytes()[:-9], plain.read_bytes()):
        packed.write_bytes(damaged)
        with pytest.raises(UserError, match="not a record of an ablation"):
            read_record(packed)


def test_an_arm_that_the_design_has_lost_comes_last(tmp_path: Path, design: Design) -> None:
    design = replace(design, start_per_seed=True)
    here = arms_of(design, full=(run_of(0, "111"),))
    root, file = ran(tmp_path / "here", design, here), record(tmp_path / "record.json", design, here)
    whole = json.loads(file.read_text())
    file.write_text(json.dumps({**whole, "arms": {"other": whole["arms"]["full"]}}))
    *_, full, other = with_records(design, root, here, [file])
    assert (full.arm.name, other.arm.title, other.own_starts) == ("full", "other (not in the design)", True)
    assert other.runs[0].evaluations == full.runs[0].evaluations


def test_a_record_that_does_not_fit_is_refused_with_its_reason(tmp_path: Path, design: Design) -> None:
    here = arms_of(design, full=(run_of(0, "111"),))
    root, file = ran(tmp_path / "here", design, here), record(tmp_path / "record.json", design, here)

    def refusal(content: Any = None, *, arms: list[ArmOutcome] = here, path: Path = file) -> str:
        if content is not None:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        with pytest.raises(UserError) as error:
            with_records(design, root, arms, [path])
        return str(error.value)

    assert "seed 0 of arm full is there already" in refusal()
    assert "no such record" in refusal(path=tmp_path / "absent.json")
    whole = json.loads(file.read_text())
    full = whole["arms"]["full"]
    run, none = full["runs"][0], arms_of(design)

    def with_run(**changes: Any) -> dict[str, Any]:
        return {**whole, "arms": {"full": {**full, "runs": [{**run, "seed": 1, **changes}]}}}

    assert "other tasks than here" in refusal(with_run(evaluations={"2": {"z": "010"}}))
    assert "other tasks of rooms" in refusal(with_run(further={"rooms": {"2": {"z": "010"}}}))
    assert "seed 0" in refusal({**whole, "arms": {"full": {**full, "runs": [run, run]}}}, arms=none)
    for wrong in ("[]", "{", {**whole, "format": 2}, {**whole, "arms": {"full": {**full, "runs": [{}]}}}):
        assert "not a record of an ablation" in refusal(wrong, arms=none)
    for damage in (
        {"evaluations": {"2": {"a": "012"}}},
        {"evaluations": {"2": {}}},
        {"evaluations": {"2": {"a": ""}}},
        {"iterations": [{}]},
        {"iterations": [{"iteration": 1, "mu": "x"}]},
        {"measured": {"2": {"success": None}}},
    ):
        assert "not a record of an ablation" in refusal(with_run(**damage), arms=none)


def test_one_of_ten_tasks_may_be_missing(tmp_path: Path, design: Design) -> None:
    def run_with(seed: int, tasks: str) -> RunOutcome:
        points = {point: {task: [True] for task in tasks} for point in (0, 2)}
        return replace(run_of(seed, "111"), evaluations=points, further={})

    here = arms_of(design, full=(run_with(0, "abcdefghij"),))
    root = ran(tmp_path / "here", design, here)
    nine = record(tmp_path / "nine.json", design, arms_of(design, full=(run_with(1, "abcdefghi"),)))
    eight = record(tmp_path / "eight.json", design, arms_of(design, full=(run_with(1, "abcdefgh"),)))
    assert len(with_records(design, root, here, [nine])[1].runs) == 2
    with pytest.raises(UserError, match="other tasks"):
        with_records(design, root, here, [eight])


def changed(tmp_path: Path, **overrides: Any) -> Design:
    return load_design(tmp_path / "design.yaml", overrides=overrides)


def test_parameters_are_those_that_runs_were_made_with(tmp_path: Path, design: Design) -> None:
    """Whatever --set the report is called with."""
    faster = changed(tmp_path, train_policy={"lr": 0.5})
    first, second = arms_of(faster, full=(run_of(0, "111"),)), arms_of(faster, full=(run_of(1, "111"),))
    there = record(tmp_path / "record.json", faster, first)
    write_ablation_record(there, design, there.with_suffix(""), first)
    assert len(with_records(design, ran(tmp_path / "here", faster, second), second, [there])[1].runs) == 2
    ran(tmp_path / "here", design, second)
    with pytest.raises(UserError, match=r"train_policy\.lr 0\.5, and seed 1 with"):
        with_records(design, tmp_path / "here", second, [there])


@pytest.mark.parametrize(
    ("there", "here", "refused"),
    [
        ({"model": {"policy": "owner/one"}}, {"model": {"policy": "owner/other"}}, True),
        ({"seed": 7}, {"seed": 8}, True),  # of the start
        ({"tasks": {"path": "somewhere"}}, {"tasks": {"path": "elsewhere"}}, False),
        ({"model": {"policy": "one"}}, {"model": {"policy": "other"}}, False),  # folders, see below
    ],
)
def test_places_may_differ_from_machine_to_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, design: Design, there: Any, here: Any, refused: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    first, second = changed(tmp_path, **there), changed(tmp_path, **here)
    file = record(tmp_path / "record.json", first, arms_of(first, full=(run_of(1, "111"),)))
    arms = arms_of(second, full=(run_of(0, "111"),))
    root = ran(tmp_path / "here", second, arms)
    if not refused:
        assert len(with_records(second, root, arms, [file])[1].runs) == 2
        return
    with pytest.raises(UserError, match="arm full: seed 0 was run with"):
        with_records(second, root, arms, [file])
