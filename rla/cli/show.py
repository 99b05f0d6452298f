"""Commands that look: `rla show` prints episodes of a run with their votes and rewards, `rla envs` the environments."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from rla.cli.guard import NEWEST, Overrides, guard

if TYPE_CHECKING:
    from rla.config import Config
    from rla.envs.registry import Installed
    from rla.showing.episodes import Excerpt, Played


CHOICES = ("worst", "best", "disputed", "flipped")
COUNT = 20  # of a choice that names no number
KITTY = ("kitty", "ghostty")  # terminals that draw pictures by kitty's protocol, as TERM names them


class OptionalCount(TyperCommand):
    """`--worst` means `--worst 20`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        filled: list[str] = []
        for place, word in enumerate(args):
            filled.append(word)
            following = args[place + 1] if place + 1 < len(args) else ""
            if word.removeprefix("--") in CHOICES and word.startswith("--") and not following.isdecimal():
                filled.append(str(COUNT))
        return super().parse_args(ctx, filled)


def count_option(said: str) -> Any:
    return typer.Option(min=1, metavar="[N]", help=f"{said}; {COUNT} without a number.")


def show(
    run: Annotated[Path | None, typer.Option(help=f"Run folder; {NEWEST}.")] = None,
    iteration: Annotated[int | None, typer.Option(min=0, help="Which iteration; the last that was played.")] = None,
    split: Annotated[str | None, typer.Option(help="Episodes of the evaluation on this held-out split.")] = None,
    task: Annotated[str | None, typer.Option(metavar="ID", help="All episodes of a task.")] = None,
    episode: Annotated[str | None, typer.Option(metavar="ID", help="This episode.")] = None,
    worst: Annotated[int | None, count_option("Steps on which the judge is most wrong against fact")] = None,
    best: Annotated[int | None, count_option("Steps on which every vote is right")] = None,
    disputed: Annotated[int | None, count_option("Steps whose votes are split most evenly")] = None,
    flipped: Annotated[int | None, count_option("Tasks that are won less often when they are played next")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page to this file instead.")] = None,
    params: Annotated[Path | None, typer.Option(help="Parameters; the run's config.yaml, else ./params.yaml.")] = None,
    set_: Overrides = None,
) -> None:
    """Show episodes: observations and actions, each vote with its reason, reward, advantage, and whether the step
    helped. Ids may be shortened. Without a choice: the tasks that were played.

    Example: rla show --run runs/alfworld-tiny --iteration 3 --worst 20
    """
    counts = {"worst": worst, "best": best, "disputed": disputed, "flipped": flipped}
    asked = {name: value for name, value in {"task": task, "episode": episode, **counts}.items() if value is not None}

    def call() -> None:
        place, config = run_and_config(run, params, set_)
        show_episodes(place, config, iteration, split, asked, html)

    guard(call)


def run_and_config(run: Path | None, params: Path | None, overrides: list[str] | None) -> tuple[Path, Config]:
    """The run, by default the newest, and its parameters. Raises UserError naming the runs that there are."""
    from rla.envs.registry import load_config
    from rla.pipeline.run import differing_parameters, existing_run, run_and_params

    place, file = run_and_params(run, params, newest=True)
    existing_run(place)
    if run is None and params is None:
        typer.echo(f"the newest run: {place}", err=True)
    config = load_config(file, overrides or [])
    for note in differing_parameters(place, config, (), read=file) if params or overrides else ():
        typer.echo(note, err=True)
    return place, config


def show_episodes(
    run: Path, config: Config, iteration: int | None, split: str | None, asked: dict[str, Any], html: Path | None
) -> None:
    """Raises UserError if something is missing, or if two choices are made."""
    from rla.errors import UserError
    from rla.report.build import played_table
    from rla.report.render import as_text, terminal_width
    from rla.report.tables import parameters_tables
    from rla.showing.drawing import draw, excerpts_page
    from rla.showing.episodes import played_iterations

    if len(asked) > 1:
        raise UserError(f"--{' and --'.join(asked)}: give one of them")
    found = played_iterations(run, config, split)
    chosen = found[-1] if iteration is None and found else iteration
    if chosen is None:
        raise UserError(f"{run}: nothing was played yet; call `rla rollout` first")
    played = episodes_place(run, config, chosen, split)
    title = f"{run}, {f'evaluation on {split} of ' if split else ''}iteration {chosen}"
    if not asked:
        shown = [played_table(played), *parameters_tables(run)]
        typer.echo(as_text(title, shown, width=terminal_width()), nl=False)
        return
    excerpts = asked_excerpts(run, config, played, chosen, split, asked)
    if html is not None:
        from rla.store.atomic import write_text
        from rla.store.texts import counted

        write_text(html, excerpts_page(f"{title}: {next(iter(asked))}", excerpts))
        typer.echo(f"{html}: {counted(len(excerpts), 'excerpt')}")
        return
    if not excerpts:
        typer.echo(f"{title}: nothing of the kind")
    pictures = sys.stdout.isatty() and any(name in os.environ.get("TERM", "") for name in KITTY)
    draw(excerpts, sys.stdout, pictures=pictures)


def episodes_place(run: Path, config: Config, iteration: int, split: str | None) -> Played:
    from rla.showing.episodes import evaluated_in, played_in

    return played_in(run, iteration) if split is None else evaluated_in(run, config, iteration, split)


def asked_excerpts(
    run: Path, config: Config, played: Played, iteration: int, split: str | None, asked: dict[str, Any]
) -> Sequence[Excerpt]:
    from rla.errors import UserError
    from rla.showing.episodes import played_iterations
    from rla.showing.excerpts import chosen_excerpts, flipped_excerpts, named_excerpts

    ((name, value),) = asked.items()
    match name:
        case "task":
            return named_excerpts(played, config, "task_id", value)
        case "episode":
            return named_excerpts(played, config, "trajectory_id", value)
        case "worst" | "best" | "disputed":
            return chosen_excerpts(played, config, name, value)
    later = [number for number in played_iterations(run, config, split) if number > iteration]
    if not later:
        raise UserError(f"--flipped: nothing was played after iteration {iteration}; give an earlier --iteration")
    return flipped_excerpts(played, (episodes_place(run, config, number, split) for number in later), config, value)


def envs(
    as_json: Annotated[bool, typer.Option("--json", help="Everything that is known, as JSON.")] = False,
    check: Annotated[
        str | None, typer.Option(metavar="NAME", help="Check this one, or name:id, by playing it; list nothing.")
    ] = None,
    params: Annotated[Path | None, typer.Option(help="Parameters to check it with; the defaults.")] = None,
    set_: Overrides = None,
    episodes: Annotated[int, typer.Option(min=1, help="Tasks that the check plays.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of all random choices of the check.")] = 0,
) -> None:
    """List the installed environments: name, package, and the optional protocols that each has.

    With --check, play one with random and hostile actions and name each part of the contract that is broken. Exit code
    0: nothing is broken. 1: something is. 2: it cannot be checked here.

    Example: rla envs --check guess-number --episodes 8
    """

    def call() -> None:
        if check is None:
            typer.echo(listed(as_json=as_json), nl=False)
        else:
            report_findings(check, params, set_ or [], episodes=episodes, seed=seed)

    guard(call)


def listed(*, as_json: bool) -> str:
    """Two lines for each environment, or JSON."""
    from rla.envs.registry import installed_list

    found = installed_list()
    if as_json:
        return json.dumps([asdict(one) for one in found], indent=1) + "\n"
    widths = [max(len(cell) for cell in column) for column in zip(*map(first_columns, found), strict=True)]
    return "".join(block(one, widths) for one in found)


def first_columns(one: Installed) -> tuple[str, str]:
    return one.name, f"{one.package} {one.version}".strip()


def block(one: Installed, widths: list[int]) -> str:
    """Name, package and docstring; below, the abilities or the reason why it cannot be used."""
    head = "  ".join(cell.ljust(width) for cell, width in zip(first_columns(one), widths, strict=True))
    below = f"broken: {one.broken}" if one.broken else ", ".join(one.abilities) or "(the five required members alone)"
    return f"{head}  {one.about}".rstrip() + f"\n{' ' * (widths[0] + 2)}{' '.join(below.split())}\n"


def report_findings(name: str, params: Path | None, overrides: list[str], *, episodes: int, seed: int) -> None:
    """Print a line for each check. Raises typer.Exit(1) if one is broken, and UserError."""
    from rla.envs.checking import check_environment, check_parameters
    from rla.envs.registry import environment, load_config

    name, colon, own = name.partition(":")
    env = environment(name)
    findings = check_parameters(env, seed=seed)
    if all(finding.ok for finding in findings):
        named = [f"env.name={json.dumps(name)}", *([f"env.own.id={json.dumps(own)}"] if colon else [])]
        config = load_config(params, [*overrides, *named])
        findings = check_environment(env, config, episodes=episodes, seed=seed)
    for finding in findings:
        typer.echo(f"{'ok    ' if finding.ok else 'BROKEN'}  {finding.protocol}: {finding.check}")
        if not finding.ok:
            typer.echo(f"        {finding.broken}")
    typer.echo(f"{len(findings)} checks, {sum(not finding.ok for finding in findings)} broken")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
