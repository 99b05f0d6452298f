"""Curation by pass rates: what is dropped, which bucket a rate is in, and how many tasks a histogram leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.adaptation.made_pools import bucket_of, bucket_sizes, curated, curated_pool, pass_rates
from rla.config.sections import CurationConfig, TasksConfig
from rla.errors import UserError
from rla.store.shards import Origin, write_shard
from tests.unit.builders import task, trajectory

HISTOGRAM = {"easy": 0.2, "medium": 0.5, "hard": 0.3}
ORIGIN = Origin(config="c", inputs={}, seed=1)


def rates_of(**counts: int) -> dict[str, float]:
    """So many tasks of each bucket."""
    rate = {"easy": 0.875, "medium": 0.5, "hard": 0.125}
    return {f"{name}-{number:02}": rate[name] for name, count in counts.items() for number in range(count)}


def shard(folder: Path, won: dict[str, str]) -> Path:
    """A shard of episodes: `+` for one that was won, `-` for one that was lost, `x` for one that failed."""
    rows = [
        trajectory(
            f"{name}-{number}",
            task_id=name,
            outcome=1 if mark == "+" else -1,
            stop_reason={"+": "won", "-": "max_steps", "x": "env_error"}[mark],
        ).row()
        for name, marks in won.items()
        for number, mark in enumerate(marks)
    ]
    write_shard(folder, "trajectories", rows, ORIGIN)
    return folder


@pytest.mark.parametrize(
    ("rate", "bucket"),
    [
        (0.0, None),
        (0.125, "hard"),
        (0.25, "hard"),
        (0.26, "medium"),
        (0.74, "medium"),
        (0.75, "easy"),
        (0.875, "easy"),
        (1.0, None),
    ],
)
def test_the_bucket_of_a_rate(rate: float, bucket: str | None) -> None:
    assert bucket_of(rate) == bucket


def test_without_a_histogram_all_between_the_ends_stay() -> None:
    found = curated({"a": 0.0, "b": 0.125, "c": 0.5, "d": 0.875, "e": 1.0, "f": 0.5}, seed=0)
    assert found.kept == ("b", "c", "d", "f")
    assert found.counts == {
        "measured": 6,
        "never_won": 1,
        "always_won": 1,
        "easy": 1,
        "medium": 2,
        "hard": 1,
        "kept_easy": 1,
        "kept_medium": 2,
        "kept_hard": 1,
    }


@pytest.mark.parametrize(
    ("sizes", "histogram", "wanted"),
    [
        # N = floor(min(10 / 0.2, 20 / 0.5, 30 / 0.3)) = 40
        ((10, 20, 30), HISTOGRAM, (8, 20, 12)),
        # N = min(50, 38, 100) = 38; of 7.6, 19 and 11.4 the remainder .6 is the largest
        ((10, 19, 30), HISTOGRAM, (8, 19, 11)),
        ((5, 5, 5), {"easy": 1.0}, (5, 0, 0)),
        ((7, 9, 8), {"easy": 1 / 3, "medium": 1 / 3, "hard": 1 / 3}, (7, 7, 7)),
        ((0, 9, 8), HISTOGRAM, (0, 0, 0)),  # no easy task, so no pool has the histogram
    ],
)
def test_the_largest_pool_with_a_histogram(
    sizes: tuple[int, int, int], histogram: dict[str, float], wanted: tuple[int, int, int]
) -> None:
    names = ("easy", "medium", "hard")
    assert bucket_sizes(dict(zip(names, sizes, strict=True)), histogram) == dict(zip(names, wanted, strict=True))


def test_tasks_are_drawn_by_the_seed_whatever_their_order() -> None:
    rates = rates_of(easy=10, medium=20, hard=30)
    found = curated(rates, histogram=HISTOGRAM, seed=3)
    assert len(set(found.kept)) == len(found.kept) == 40
    assert curated(dict(reversed(rates.items())), histogram=HISTOGRAM, seed=3) == found
    assert curated(rates, histogram=HISTOGRAM, seed=4).kept != found.kept
    assert {name: found.counts[f"kept_{name}"] for name in HISTOGRAM} == {"easy": 8, "medium": 20, "hard": 12}


def test_rates_are_of_episodes_that_did_not_fail(tmp_path: Path) -> None:
    found = pass_rates(shard(tmp_path / "t", {"a": "++-x", "b": "--", "c": "xx"}))
    assert found == {"a": pytest.approx(2 / 3), "b": 0.0}


def test_a_pool_is_curated_and_counted(tmp_path: Path) -> None:
    folder = shard(tmp_path / "t", {"a": "+-", "b": "--", "c": "++", "d": "+---"})
    tasks = [task(name) for name in "abcde"]
    kept, counts = curated_pool(tasks, folder, config=TasksConfig(), seed=0)
    assert [one.task_id for one in kept] == ["a", "d"]
    assert (counts["unmeasured"], counts["measured"], counts["kept_medium"], counts["kept_hard"]) == (1, 4, 1, 1)


def test_a_shard_of_other_tasks_is_refused(tmp_path: Path) -> None:
    folder = shard(tmp_path / "t", {"a": "+-", "other": "+-"})
    with pytest.raises(UserError, match="1 of its 2 tasks are not among the 1"):
        curated_pool([task("a")], folder, config=TasksConfig(), seed=0)


def test_a_pool_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    folder = shard(tmp_path / "t", {"a": "++", "b": "+-"})
    tasks = [task("a"), task("b")]
    with pytest.raises(UserError, match=r"no task is left .*1 always_won"):
        curated_pool(tasks, folder, config=TasksConfig(curation=CurationConfig(easy=1.0)), seed=0)
