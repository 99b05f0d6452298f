"""A timeline as coloured lines of a terminal, as a figure, and in a few sentences.

Each line is a device, or a slice of a stage on it; stages that overlap on a device take several lines. Time is cut into
columns, and a column shows the stage that fills most of it. `#3` marks the begin of iteration 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rla.report.curves import rendered
from rla.report.tables import LOOP
from rla.text import counted, printable
from rla_study.timeline.timeline import CPU, HOUR, Device, Span, Timeline, costs, device_order

if TYPE_CHECKING:
    from rich.text import Text

# stage -> its letter, and its colour on a terminal and in the figure
STAGES_DRAWN = {
    "rollout": ("r", "#4c78a8"),
    "score-steps": ("s", "#f58518"),
    "validate-tasks": ("v", "#9d755d"),
    "compute-rewards": ("c", "#72b7b2"),
    "train-policy": ("P", "#54a24b"),
    "train-rm": ("M", "#b279a2"),
    "adapt-env": ("a", "#eeca3b"),
    "evaluate": ("e", "#e45756"),
    "warm-start": ("w", "#8cd17d"),
}
OTHER = ("+", "#9a9a9a")
NOTHING = "."
UNITS = ((1.0, "s"), (60.0, "min"), (HOUR, "h"), (24 * HOUR, "d"))
STEPS = (1, 2, 5, 10, 15, 20, 30)  # units between two marks of the axis
BARS, FINEST = 6000, 1000  # bars of a figure, and columns at most
MARKS = 24  # iterations that a figure labels, about


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One line of the drawing; its spans do not overlap."""

    label: str
    spans: tuple[Span, ...]


def lanes(found: Timeline) -> list[Lane]:
    """By device, then by slice, then as many lanes as overlapping stages need."""
    hosts = {span.device.host for span in found.spans}

    def place(span: Span) -> tuple[Any, ...]:
        return (*device_order(span.device), span.part if span.device.name == CPU else "")

    made = []
    for _, group in groupby(sorted(found.spans, key=lambda span: (place(span), span.start)), key=place):
        spans = list(group)
        label = _named_device(spans[0].device, host=len(hosts) > 1)
        if spans[0].part and spans[0].device.name == CPU:
            label += f" {spans[0].part}"
        made += [Lane(label=label, spans=tuple(row)) for row in _rows_apart(spans)]
    return made


def _named_device(device: Device, *, host: bool) -> str:
    return f"{device.host or '?'} {device.name}" if host else device.name


def _rows_apart(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans in order of their starts, in as few rows as possible without overlap."""
    rows: list[list[Span]] = []
    for span in spans:
        row = next((row for row in rows if row[-1].end <= span.start), None)
        if row is None:
            rows.append([span])
        else:
            row.append(span)
    return rows


def _columns_of(lane: Lane, *, start: float, end: float, count: int) -> list[str | None]:
    """The stage that fills most of each of `count` columns of the time from `start` to `end`; None if none ran."""
    width = (end - start) / count or 1.0
    shares: list[dict[str, float]] = [{} for _ in range(count)]
    for span in lane.spans:
        first = min(int((span.start - start) / width), count - 1)
        last = min(int((span.end - start) / width), count - 1)
        for column in range(first, last + 1):
            low, high = start + column * width, start + (column + 1) * width
            if (seconds := min(span.end, high) - max(span.start, low)) > 0:
                shares[column][span.stage] = shares[column].get(span.stage, 0.0) + seconds
    return [max(share, key=lambda stage: share[stage]) if share else None for share in shares]


def _stage_look(stage: str) -> tuple[str, str]:
    return STAGES_DRAWN.get(stage, OTHER)


def _stages_of(found: Timeline) -> list[str]:
    """The stages that ran, in the order of the loop; others last."""
    there = {span.stage for span in found.spans}
    return [*(stage for stage in STAGES_DRAWN if stage in there), *sorted(there - STAGES_DRAWN.keys())]


def timeline_lines(found: Timeline, *, width: int) -> Iterator[Text]:
    """Lines of rich: the begins of iterations, each lane, the axis, and the legend."""
    from rich.text import Text

    made = lanes(found)
    margin = max(len(lane.label) for lane in made) + 1
    count = max(20, width - margin)
    if marks := iteration_text(found, count):
        yield Text(" " * margin + marks, style="dim")
    for lane in made:
        line = Text(printable(lane.label).ljust(margin))
        for stage in _columns_of(lane, start=found.start, end=found.end, count=count):
            letter, colour = _stage_look(stage) if stage else (NOTHING, "")
            line.append(letter, style=f"#ffffff on {colour}" if stage else "dim")
        yield line
    yield Text(" " * margin + axis_text(found.wall, count))
    legend = Text()
    for stage in _stages_of(found):
        letter, colour = _stage_look(stage)
        legend.append(letter, style=f"#ffffff on {colour}").append(f" {printable(stage)}   ")
    yield legend.append(f"{NOTHING} idle", style="dim")


def _iteration_starts(found: Timeline) -> dict[int, float]:
    """Iteration -> start of its first stage of the loop, in seconds after the first start of all."""
    starts: dict[int, float] = {}
    for span in found.spans:
        if span.stage in LOOP:
            starts.setdefault(span.iteration, span.start - found.start)
    return dict(sorted(starts.items()))


def iteration_text(found: Timeline, count: int) -> str:
    """`#1      #2      #3` above the columns in which iterations begin, as many as have room."""
    line = ""
    for iteration, second in _iteration_starts(found).items():
        place = min(int(second / found.wall * count), count - 1) if found.wall else 0
        if place >= len(line) + bool(line) and place + len(f"#{iteration}") <= count:
            line = f"{line.ljust(place)}#{iteration}"
    return line


def axis_text(wall: float, count: int) -> str:
    """`0      10      20 min`: marks below their columns."""
    step, unit, name = axis_marks(wall, max(1, min(8, (count + 2) // 3)))
    line, number = "", 0
    while (place := round(number * step * unit / wall * count) if wall else 0) < count:
        label = f"{number * step:g}"
        if place + len(label) > count:
            break
        if place > len(line) or not line:
            line = f"{line.ljust(place)}{label}"
        number += 1
        if not wall:
            break
    return f"{line} {name}"


def axis_marks(wall: float, most: int = 8) -> tuple[int, float, str]:
    """Step, unit in seconds and the unit's name, so that there are at most `most` marks."""
    for unit, name in UNITS:
        for step in STEPS:
            if wall <= most * step * unit:
                return step, unit, name
    unit, name = UNITS[-1]
    return max(1, round(wall / unit / most)), unit, name


def timeline_svg(found: Timeline) -> str:
    """The timeline as a figure, an <svg> element."""
    made = lanes(found)
    _, unit, name = axis_marks(found.wall)
    count = max(100, min(FINEST, BARS // len(made)))
    width = found.wall / count / unit

    def draw(axes: Any) -> None:
        from matplotlib.ticker import AutoLocator

        for stage in _stages_of(found):
            axes.broken_barh([], (0, 0), color=_stage_look(stage)[1], label=stage)  # its entry in the legend
        for row, lane in enumerate(made):
            column = 0
            for held, run in groupby(_columns_of(lane, start=found.start, end=found.end, count=count)):
                length = len(list(run))
                if held:
                    axes.broken_barh([(column * width, length * width)], (row - 0.4, 0.8), color=_stage_look(held)[1])
                column += length
        starts = _iteration_starts(found)
        for iteration in list(starts)[:: 1 + len(starts) // MARKS]:
            axes.text(starts[iteration] / unit, -0.55, f"#{iteration}", fontsize=7, color="0.3", va="bottom")
        axes.set(xlim=(0, found.wall / unit or 1), ylim=(len(made) - 0.5, -1.0), xlabel=name)
        axes.set_yticks(range(len(made)))
        for label, lane in zip(axes.set_yticklabels([lane.label for lane in made]), made, strict=True):
            label.set_parse_math(False)  # a host may have any name, so no math markup
            label.set_text(lane.label)
        axes.xaxis.set_major_locator(AutoLocator())
        axes.grid(visible=False, axis="y")
        legend = axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=5, fontsize=7, frameon=False)
        for said in legend.get_texts():
            said.set_parse_math(False)

    return rendered(draw, size=(10.0, 1.2 + 0.3 * len(made)))


def told_timeline(found: Timeline, *, price: float | None = None) -> list[str]:
    """Wall time, idle shares, GPU hours and, with a price, the cost. Raises UserError as `costs` does."""
    devices = found.devices
    names = {device: _named_device(device, host=len({one.host for one in devices}) > 1) for device in devices}
    idle = ", ".join(f"{name} {100 * found.idle_share(device):.1f}%" for device, name in names.items())
    lines = [
        f"wall time {_span_text(found.wall)}; in {100 * found.idle_share():.1f}% of it no stage ran",
        f"idle by device: {idle}",
    ]
    if found.gpus:
        hours = f"{found.busy_gpu_hours:.2f} GPU hours busy of {found.wall_gpu_hours:.2f}"
        models = sorted({device.model for device in found.gpus if device.model})
        lines.append(f"{hours}, on {counted(len(found.gpus), 'GPU')}" + (f" ({', '.join(models)})" if models else ""))
    if price is not None:
        cost = costs(found, price)
        lines.append(f"cost {cost['cost_wall']:.2f} for the wall time, {cost['cost_busy']:.2f} for the busy time")
    return lines


def _span_text(seconds: float) -> str:
    """`4.2 s`, `12 min`, `3.1 h`."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / HOUR:.1f} h"
