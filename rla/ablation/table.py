"""The table of an ablation: what each arm reached, what it gained, and what the reward model and the tasks did.

All intervals are 95% bootstrap intervals over seeds and games (`rla.bootstrap`). An arm is read at the last iteration
at which all of its seeds were evaluated, or at one that is asked for; arms that are not as far as the others say so.
"""

from __future__ import annotations

from collections.abc import Sequence

from rla import bootstrap
from rla.ablation.outcomes import ArmOutcome
from rla.report.tables import ABSENT, Table, number, percent
from rla.stats import Interval

COLUMNS: tuple[str, ...] = ("arm", "seeds", "iteration", "warm start", "success", "95% interval", "per seed", "gain")
COLUMNS += ("over the baseline", "mu", "process accuracy", "balanced", "outcome accuracy", "accepted tasks")


def table(arms: Sequence[ArmOutcome], *, baseline: str, at: int | None = None) -> Table:
    """One line per arm that has been evaluated; `baseline` names the arm that the others are compared with.

    `at`: the iteration to read all of them at; arms that were not evaluated there are left out.
    """
    against = next((found for found in arms if found.arm.name == baseline), None)
    points = [(found, found.shared_points[-1] if at is None else at) for found in arms if found.shared_points]
    lines = tuple(line(found, against, last) for found, last in points if last in found.shared_points)
    note = (
        "success on all held-out games at the sampling temperature; intervals: bootstrap over seeds and games, for the "
        "one warm start that all share (of few seeds they are somewhat narrow); gain: over the warm start, paired by "
        f"game; baseline: {baseline}; mu and accuracies: of each seed's last iterations; balanced: process accuracy "
        "with good and bad steps weighted alike"
    )
    return Table(title="Ablation", columns=COLUMNS, rows=lines, note=note)


def line(found: ArmOutcome, against: ArmOutcome | None, last: int) -> tuple[str, ...]:
    after = sample(found, last)
    reached = bootstrap.mean(after)
    start = gain = over = ABSENT
    if 0 in found.shared_points:
        before = sample(found, 0)
        start, gain = percent(float(before.mean())), points(bootstrap.difference(after, before))
    if against is not None and against is not found and last in against.shared_points:
        over = points(bootstrap.difference(after, sample(against, last)))
    return (
        found.arm.title,
        str(len(found.runs)),
        str(last),
        start,
        percent(reached.estimate),
        f"{100 * reached.low:.1f}-{100 * reached.high:.1f}%",
        " ".join(f"{100 * run.rate(last):.1f}" for run in found.runs),
        gain,
        over,
        number(average(found, "mu", last), 2),
        percent(average(found, "rm_process_accuracy", last)),
        percent(average(found, "rm_process_balanced", last)),
        percent(average(found, "rm_outcome_accuracy", last)),
        number(sum(run.total("accepted", until=last) for run in found.runs) / len(found.runs), 1),
    )


def sample(found: ArmOutcome, iteration: int) -> bootstrap.Rates:
    return bootstrap.rates([run.evaluations[iteration] for run in found.runs])


def average(found: ArmOutcome, key: str, until: int) -> float | None:
    """The mean over seeds of `key` up to an iteration; none where no seed has it."""
    values = [value for run in found.runs if (value := run.mean(key, until=until)) is not None]
    return sum(values) / len(values) if values else None


def points(gained: Interval) -> str:
    return f"{100 * gained.estimate:+.1f} [{100 * gained.low:+.1f}, {100 * gained.high:+.1f}]"
