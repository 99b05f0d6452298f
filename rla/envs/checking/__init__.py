"""Checks whether an environment keeps its contract, as `rla envs --check` does.

    findings = check_environment(environment("guess-number"), config, episodes=4, seed=0)

Every finding is about one sentence of the contract. The environment is played with random and hostile actions, and each
optional protocol that it implements is checked (`rla.envs.protocols`). `Imports` is not, because it
needs files; `Probes` and `Proves` are not, because they are slow.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace

from rla.config import Config
from rla.envs.checking import optional, required
from rla.envs.checking.subject import Check, Finding, Subject, error_line, finding, short
from rla.envs.protocols import Env, Pooled
from rla.errors import UserError

__all__ = ["Finding", "check_environment", "check_parameters"]


def check_parameters(env: Env, *, seed: int = 0) -> list[Finding]:
    """The checks that do not need a config. A config can only be read if they pass."""
    return list(_until_broken(required.PARAMETERS, Subject(env=env, config=Config(), seed=seed)))


def check_environment(env: Env, config: Config, *, episodes: int = 4, seed: int = 0) -> list[Finding]:
    """All findings, in order. `episodes`: how many tasks of the training split to play, besides one held-out task.

    Call it outside of an event loop. In the main thread it also finds answers that take longer than
    `pool.step_deadline_s`. Raises UserError if the environment cannot be created on this machine.
    """
    out = io.StringIO()
    with redirect_stdout(out):
        findings = list(_findings(env, config, count=episodes, seed=seed))
    said, broken = out.getvalue(), ""
    if said:
        broken = f"it printed {short(said)}; nothing else may write to stdout while a stage runs, so use logging"
    return [*findings, Finding(protocol="Env", check="It prints nothing to stdout", broken=broken)]


def _findings(env: Env, config: Config, *, count: int, seed: int) -> Iterator[Finding]:
    """Stops after a broken check that the others depend on."""
    subject = Subject(env=env, config=config, seed=seed)
    for checks in (required.PARAMETERS, required.TASKS):
        found = list(_until_broken(checks, subject))
        yield from found
        if not found[-1].ok:
            return
    train, test = subject.drawn(held_out=False), subject.drawn(held_out=True)
    chosen = subject.rng("tasks").sample(train, min(count, len(train)))
    subject = replace(subject, tasks=(*chosen, test[0]))
    try:
        if isinstance(env, Pooled):
            env.warm(config)
        env.make(chosen[0], config).close()
    except UserError:  # a dependency is not installed here
        raise
    except Exception as error:
        yield Finding(protocol="Env", check="An episode can be made", broken=f"raised {error_line(error, env)}")
        return
    first, *others = required.EPISODES
    yield (answered := finding("Env", first, subject))
    if answered.ok:
        yield from (finding("Env", check, subject) for check in others)
        for protocol, checks in optional.CHECKS.items():
            if isinstance(env, protocol):
                yield from (finding(protocol.__name__, check, subject) for check in checks)


def _until_broken(checks: Sequence[Check], subject: Subject) -> Iterator[Finding]:
    for check in checks:
        found = finding("Env", check, subject)
        yield found if found.ok else replace(found, broken=f"{found.broken} (nothing further was checked)")
        if not found.ok:
            return
