"""The commands of an ablation: `rla ablation run` and `rla ablation report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla.cli.guard import guard

if TYPE_CHECKING:
    from rla_study.ablation.design import Design

ablation = typer.Typer(help="Run the arms of one experiment with several seeds each, and compare their results.")

DesignFile = Annotated[Path | None, typer.Option(help="The experiment; ablation.yaml of rla-study.")]
Root = Annotated[Path, typer.Option(help="Folder of the start and of all arms.")]
Only = Annotated[list[str] | None, typer.Option(metavar="ARM", help="Only this arm; may be repeated.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override for all arms.")]


@ablation.command("run")
def ablation_run(
    design: DesignFile = None,
    root: Root = Path("runs/ablation"),
    jobs: Annotated[int, typer.Option(min=1, help="Arms at once.")] = 1,
    only: Only = None,
    seed: Annotated[list[int] | None, typer.Option(help="Only this seed; may be repeated.")] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Iterations of every arm, instead of the design's.")
    ] = None,
    evaluate_every: Annotated[
        int | None, typer.Option(min=1, help="Iterations from one evaluation to the next.")
    ] = None,
    set_: Set = None,
) -> None:
    """Run everything that is not done yet: the shared start, then every arm and seed as a DVC pipeline in its own
    folder.

    Example: rla ablation run --jobs 2 --set tasks.path=data/alfworld
    """
    from rla_study.ablation.run import run_ablation

    guard(
        lambda: run_ablation(
            designed(design, set_ or (), iterations=iterations, evaluate_every=evaluate_every),
            root,
            jobs=jobs,
            only=only or (),
            seeds=seed or (),
            say=typer.echo,
        )
    )


@ablation.command("report")
def ablation_report(
    design: DesignFile = None,
    root: Root = Path("runs/ablation"),
    only: Only = None,
    at: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Read all arms at this iteration, not at their last; repeated: success is the mean."),
    ] = None,
    curves: Annotated[Path | None, typer.Option(help="Also draw learning curves into this SVG file.")] = None,
    record: Annotated[
        Path | None, typer.Option(help="Also write the runs' results to this JSON file, compressed if it ends in .gz.")
    ] = None,
    with_: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="FILE", help="Also count the runs of a file of --record; may be repeated."),
    ] = None,
    set_: Set = None,
) -> None:
    """Print the table of all arms as Markdown. Arms without an evaluation are left out.

    Example: rla ablation report --at 4 --at 8 --curves curves.svg
    """
    from rla_study.ablation.comparison import write_report

    guard(
        lambda: typer.echo(
            write_report(
                designed(design, set_ or ()),
                root,
                only=only or (),
                at=at or (),
                curves=curves,
                records=with_ or (),
                record=record,
            )
        )
    )


def designed(
    path: Path | None,
    overrides: Sequence[str],
    *,
    iterations: int | None = None,
    evaluate_every: int | None = None,
) -> Design:
    from rla.config.load import apply_overrides
    from rla_study import PIPELINES
    from rla_study.ablation.design import load_design

    read = load_design(path or PIPELINES / "ablation.yaml", overrides=apply_overrides({}, overrides))
    return replace(
        read,
        iterations=read.iterations if iterations is None else iterations,
        evaluate_every=read.evaluate_every if evaluate_every is None else evaluate_every,
    )
