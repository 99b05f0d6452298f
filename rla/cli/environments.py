"""`rla envs` and `rla check-env`: which environments there are, and whether one keeps the contract."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla.cli.guard import guard
from rla.cli.own_options import Overrides

if TYPE_CHECKING:
    from rla.envs.checking.check import Finding
    from rla.envs.registry import Installed


def envs(
    as_json: Annotated[bool, typer.Option("--json", help="Everything that is known, as JSON.")] = False,
) -> None:
    """List the installed environments: name, package, and the optional protocols that each has.

    Example: rla envs
    """
    guard(lambda: typer.echo(listed(as_json=as_json), nl=False))


def check_env(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of `rla envs`, or name:id.")],
    params: Annotated[Path | None, typer.Option(help="Parameters to check it with; the defaults.")] = None,
    set_: Overrides = None,
    episodes: Annotated[int, typer.Option(min=1, help="Tasks that are played.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = 0,
) -> None:
    """Play an environment with random and hostile actions, and say what of the contract is broken.

    Exit code 0: nothing is. 1: something is. 2: it cannot be checked here.

    Example: rla check-env guess-number --episodes 8
    """
    guard(lambda: report_findings(name, params, set_ or [], episodes=episodes, seed=seed))


def listed(*, as_json: bool) -> str:
    """What `rla envs` prints: two lines for each environment, or JSON."""
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
    """Prints a line for each check. Raises typer.Exit(1) where one is broken, and UserError."""
    from rla.envs.checking.check import check_environment, check_parameters
    from rla.envs.configured import load_config
    from rla.envs.registry import environment

    name, colon, own = name.partition(":")
    env = environment(name)
    findings = check_parameters(env, seed=seed)
    if all(finding.ok for finding in findings):
        named = [f"env.name={json.dumps(name)}", *([f"env.own.id={json.dumps(own)}"] if colon else [])]
        config = load_config(params, [*overrides, *named])
        findings = check_environment(env, config, episodes=episodes, seed=seed)
    for line in finding_lines(findings):
        typer.echo(line)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def finding_lines(findings: Iterable[Finding]) -> Iterable[str]:
    """A line for each finding, and the sum."""
    made = list(findings)
    for finding in made:
        yield f"{'ok    ' if finding.ok else 'BROKEN'}  {finding.protocol}: {finding.check}"
        if not finding.ok:
            yield f"        {finding.broken}"
    yield f"{len(made)} checks, {sum(not finding.ok for finding in made)} broken"
