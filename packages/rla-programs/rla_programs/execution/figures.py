"""Measurements of the programs, machines and pages that a stage ran, combined over its calls and slices.

| figure | meaning | over several calls |
|---|---|---|
| `calls`, `calls_STATUS`, `runs` | tool calls; calls that ended with STATUS; calls that ran a program | the sum |
| `run_seconds_mean`, `call_seconds_mean` | time that a program ran; time that its episode waited | the mean over all |
| `run_seconds_p99`, `call_seconds_p99` | the 99th percentiles | the largest, an upper bound |
| `machines`, `machine_start_s` | machines that were started; time that it took | the sum |
| `pages`, `pages_lost` | browser pages that were opened; pages that hung or died | the sum |
| `pages_given_up` | episodes that ended because their pages were lost | the sum |

They depend on the machine, so they are stored in the records of times (`rla.pipeline.finished`) and not in shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

COUNT = "calls"
WEIGHTS = {"run_seconds_mean": "runs", "call_seconds_mean": COUNT}  # the number of items that a mean is over
LONGEST = ("run_seconds_p99", "call_seconds_p99")
SECONDS = (*WEIGHTS, *LONGEST)
BY_STATUS = f"{COUNT}_"


def joined_calls(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The combined figures of all calls, for figures that are not sums."""
    joined: dict[str, float] = {}
    for name, count in WEIGHTS.items():
        weighed = [(figures[name], figures.get(count, 0)) for figures in found if name in figures]
        if total := sum(weight for _, weight in weighed):
            joined[name] = sum(value * weight for value, weight in weighed) / total
    for name in LONGEST:
        if values := [figures[name] for figures in found if name in figures]:
            joined[name] = max(values)
    return joined


def statuses_of(figures: Mapping[str, float]) -> dict[str, float]:
    """Status -> number of calls that ended with it, in the order of the names."""
    names = sorted(name for name in figures if name.startswith(BY_STATUS))
    return {name.removeprefix(BY_STATUS): figures[name] for name in names if name not in SECONDS}


def told_execution(figures: Mapping[str, float]) -> str:
    """One line about tool calls, machines and pages, as far as there are any."""
    told = []
    if COUNT in figures:
        told.append(_told_calls(figures))
    if machines := figures.get("machines"):
        told.append(f"{machines:.0f} machines started, {figures['machine_start_s'] / machines:.2g} s in the mean")
    if "pages" in figures:
        lost, given_up = figures["pages_lost"], figures["pages_given_up"]
        told.append(f"{figures['pages']:.0f} pages opened, {lost:.0f} lost; {given_up:.0f} episodes ended for that")
    return "; ".join(told)


def _told_calls(figures: Mapping[str, float]) -> str:
    """How the calls ended, how long programs ran, and how long episodes waited for them."""
    ended = ", ".join(f"{count:.0f} {status}" for status, count in statuses_of(figures).items())
    line = f"{figures.get(COUNT, 0):.0f} calls of the tool: {ended}"
    for name, what in (("run", "a program ran"), ("call", "an episode waited")):
        if (mean := figures.get(f"{name}_seconds_mean")) is not None:
            line += f"; {what} {mean:.2g} s in the mean, 99% of them at most {figures[f'{name}_seconds_p99']:.2g} s"
    return line
