"""What a stage does where an environment lacks an ability that it cannot do without."""

from __future__ import annotations

from typing import TypeVar

from rla.envs.protocols import Adapts, AsksModel, Demonstrates, Env, Exports, Imports, Judged, Labels, Solves, Stitches
from rla.errors import UserError

INSTEAD = {  # what to do about a stage that needs an ability which the environment does not have
    Judged: "set judge.enabled: false",
    Imports: "set tasks.source: builtin",
    Exports: "leave out --export",
    Demonstrates: "set warm_start.enabled: false",
    Labels: "set warm_start.enabled: false",
    Solves: "set collect.teacher: server, or give --trajectories",
    Stitches: "set collect.variant: real",
    Adapts: "set adaptation.enabled: false",
    AsksModel: "set adaptation.proposer: rules",
}
Ability = TypeVar("Ability")


def need(env: Env, ability: type[Ability], stage: str) -> Ability:
    """`env` as what has that ability. Raises UserError that names the protocol and what to do without it."""
    if isinstance(env, ability):
        return env
    remedy = INSTEAD.get(ability, "choose another environment")
    raise UserError(
        f"env.name: {env.name} does not implement {ability.__name__} (rla.envs.protocols), which {stage} needs; "
        f"{remedy}"
    )
