"""What of the contract an environment keeps and what it breaks, as `rla envs --check` tells.

    findings = check_environment(environment("guess-number"), config, episodes=4, seed=0)

Every finding is one sentence of the contract. The environment is played with random and with hostile actions; each of
its optional protocols (`rla.envs.protocols`) is checked where it has it. What later checks rest on comes first: after a
broken one of those the rest is left out.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace

from rla.config import Config
from rla.envs.checking import optional, prompts, required
from rla.envs.checking.findings import Check, Finding, Subject, finding, raised, short
from rla.envs.protocols import (
    Adapts,
    AsksModel,
    Demonstrates,
    Env,
    HasExpert,
    Judged,
    Labels,
    Pooled,
    Shares,
    Spreads,
    Teaches,
    Vocabulary,
)
from rla.errors import UserError

__all__ = ["Finding", "check_environment", "check_parameters"]

OPTIONAL: tuple[tuple[type, tuple[Check, ...]], ...] = (
    (Pooled, (optional.pool_is_asked_for,)),
    (Shares, (optional.service_plays,)),
    (Spreads, (optional.spreading_is_answered,)),
    (Demonstrates, (optional.demonstrations_are_deterministic, optional.demonstrations_can_be_played)),
    (HasExpert, (optional.expert_can_be_played,)),
    (Labels, (optional.labels_fit_the_actions,)),
    (Judged, prompts.JUDGE),
    (Teaches, (optional.lessons_are_messages,)),
    (Vocabulary, (optional.vocabulary_is_text,)),
    (Adapts, optional.ADAPTS),
    (AsksModel, (optional.model_is_asked_for_edits,)),
)
STOPPED = "nothing further was checked"


def check_parameters(env: Env, *, seed: int = 0) -> list[Finding]:
    """The checks that need no config: without them none can be read."""
    return list(made(required.PARAMETERS, Subject(env=env, config=Config(), seed=seed), rest=True))


def check_environment(env: Env, config: Config, *, episodes: int = 4, seed: int = 0) -> list[Finding]:
    """All findings, in order. `episodes`: tasks of the training split that are played, and one of the held-out split.

    To be called outside of an event loop; in the main thread, an answer that takes longer than `pool.step_deadline_s`
    is found as well. Raises UserError where the environment cannot be made on this machine.
    """
    out = io.StringIO()
    with redirect_stdout(out):
        findings = list(all_findings(env, config, count=episodes, seed=seed))
    said = out.getvalue()
    broken = (
        f"it printed {short(said)}; nothing else may write to stdout while a stage runs, so use logging" if said else ""
    )
    return [*findings, Finding(protocol="Env", check="It prints nothing to stdout", broken=broken)]


def all_findings(env: Env, config: Config, *, count: int, seed: int) -> Iterator[Finding]:
    """As they are made. Stops after what the rest cannot do without."""
    subject = Subject(env=env, config=config, seed=seed)
    for checks in (required.PARAMETERS, required.TASKS):
        found = list(made(checks, subject, rest=False))
        yield from found
        if not found[-1].ok:
            return
    train, test = required.drawn(subject, False), required.drawn(subject, True)
    chosen = subject.rng("tasks").sample(train, min(count, len(train)))
    subject = replace(subject, tasks=(*chosen, test[0]))
    try:
        if isinstance(env, Pooled):
            env.warm(config)
        env.make(chosen[0], config).close()
    except UserError:  # something is not installed here
        raise
    except Exception as error:
        yield Finding(protocol="Env", check="An episode can be made", broken=f"raised {raised(error, env)}")
        return
    first, *others = EPISODES
    yield (answered := finding("Env", first, subject))
    if not answered.ok:
        return
    yield from (finding("Env", check, subject) for check in (*others, *prompts.POLICY))
    for protocol, checks in OPTIONAL:
        if isinstance(env, protocol):
            yield from (finding(protocol.__name__, check, subject) for check in checks)


def made(checks: Sequence[Check], subject: Subject, *, rest: bool) -> Iterator[Finding]:
    """Findings of `checks`, which rest on each other: none after a broken one, which says so."""
    for check in checks:
        found = finding("Env", check, subject)
        yield found if found.ok else replace(found, broken=f"{found.broken} ({STOPPED})")
        if not found.ok:
            return


EPISODES = required.EPISODES
