"""Checks whether an environment keeps its contract, as `rla envs --check` does.

    findings = check_environment(environment("guess-number"), config, episodes=4, seed=0)

Every finding is about one sentence of the contract. The environment is played with random and hostile actions, and each
optional protocol that it implements is checked (`rla.envs.protocols`). `Imports` is not, because it needs files;
`Probes` and `Proves` are not, because they are slow.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import typer

from rla.config import Config
from rla.envs.protocols import Env
from rla.envs.registry import environment, load_config
from rla.errors import UserError
from rla_study.contract.checks import CHECKS, PARAMETERS, Check
from rla_study.contract.subject import InvalidAnswer, Subject, TimedOut, error_line, short, time_limit

STEPS_OF_CHECK = 10  # a check may take as long as this many steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`protocol`: the part of the contract. `check`: the sentence. `broken`: the complaint, or empty."""

    protocol: str
    check: str
    broken: str = ""

    @property
    def ok(self) -> bool:
        return not self.broken


def check_installed(name: str, params: Path | None, overrides: list[str], *, episodes: int, seed: int) -> int:
    """Print the findings about the environment `name`, as `rla envs --check` does, and return how many are broken."""
    env = environment(name)
    findings = check_parameters(env, seed=seed)
    if all(finding.ok for finding in findings):
        findings = check_environment(env, load_config(params, overrides), episodes=episodes, seed=seed)
    for finding in findings:
        typer.echo(f"{'ok    ' if finding.ok else 'BROKEN'}  {finding.protocol}: {finding.check}")
        if not finding.ok:
            typer.echo(f"        {finding.broken}")
    broken = sum(not finding.ok for finding in findings)
    typer.echo(f"{len(findings)} checks, {broken} broken")
    return broken


def check_parameters(env: Env, *, seed: int = 0) -> list[Finding]:
    """The checks that do not need a config. A config can only be read if they pass."""
    return list(_findings(CHECKS[:PARAMETERS], Subject(env=env, config=Config(), seed=seed)))


def check_environment(env: Env, config: Config, *, episodes: int = 4, seed: int = 0) -> list[Finding]:
    """All findings, in order. `episodes`: how many tasks of the training split to play, besides one held-out task.

    Call it outside of an event loop. In the main thread it also finds answers that take longer than
    `pool.step_deadline_s`. Raises UserError if the environment cannot be created on this machine.
    """
    out = io.StringIO()
    with redirect_stdout(out):
        findings = list(_findings(CHECKS, Subject(env=env, config=config, seed=seed, count=episodes)))
    said, broken = out.getvalue(), ""
    if said:
        broken = f"it printed {short(said)}; nothing else may write to stdout while a stage runs, so use logging"
    return [*findings, Finding(protocol="Env", check="It prints nothing to stdout", broken=broken)]


def _findings(checks: list[Check], subject: Subject) -> Iterator[Finding]:
    """The first complaint of each check, if any. Stops after a broken check that the others depend on."""
    for check in checks:
        if not isinstance(subject.env, check.protocol) and check.protocol is not Env:
            continue
        broken = _complaint(check, subject)
        if broken and check.first:
            broken += " (nothing further was checked)"
        title = (check.run.__doc__ or "").strip().splitlines()[0]
        yield Finding(protocol=check.protocol.__name__, check=title, broken=broken)
        if broken and check.first:
            return


def _complaint(check: Check, subject: Subject) -> str:
    try:
        with time_limit(STEPS_OF_CHECK * subject.patience):
            return next(check.run(subject, subject.env), "")
    except TimedOut:
        return f"no answer within {subject.patience:g} s (pool.step_deadline_s); it must not hang"
    except InvalidAnswer as error:
        return str(error)
    except Exception as error:  # an environment may raise anything, and finding that out is the purpose
        if check.makes and isinstance(error, UserError):  # a dependency is not installed here
            raise
        return f"raised {error_line(error, subject.env)}"
