"""A problem's facts as tables: what is where, what it can do, and which goals are legal in it.

A goal is legal when an agent could be asked for it: the object type is pickupable and occurs (twice for TWO)
within reach, the target type occurs and `canContain` it, and for treatments the object can be treated and
the device is there. It may still be true already; `holds_at_start` says so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rla.envs.alfworld.problem import Goal, PddlProblem, TaskKind

DEVICES = {
    TaskKind.CLEAN: ("cleanable", "SinkBasin"),
    TaskKind.HEAT: ("heatable", "Microwave"),
    TaskKind.COOL: ("coolable", "Fridge"),
}
"""Per treatment: the fact that an object needs, and the receptacle type that does it."""

NEVER_TARGETS = frozenset({"SinkBasin", "BathtubBasin", "Toaster"})


@dataclass(frozen=True, slots=True)
class Layout:
    """Type names carry no "Type" suffix. `homes` maps an object's id to those of all receptacles that it is in at the
    start: real scenes have objects that lie in several at once (a pan on two burners). `inside` names one of them: the
    last one of the facts, in a `View` of the rules the one that is found first.
    """

    receptacles: dict[str, str]
    objects: dict[str, str]
    inside: dict[str, str]
    homes: dict[str, tuple[str, ...]]
    location: dict[str, str]
    can_contain: frozenset[tuple[str, str]]
    flags: frozenset[tuple[str, str]]

    def flag(self, name: str, identifier: str) -> bool:
        """Whether the unary fact `(name identifier)` is among the facts."""
        return (name, identifier) in self.flags

    def closed(self, receptacle: str) -> bool:
        return self.flag("openable", receptacle) and not self.flag("opened", receptacle)

    def within_reach(self, object_type: str) -> list[str]:
        """Ids of the pickupable instances that lie in a receptacle, in fact order."""
        return [
            identifier
            for identifier, kind in self.objects.items()
            if kind == object_type and identifier in self.inside and self.flag("pickupable", identifier)
        ]

    def of_type(self, receptacle_type: str) -> list[str]:
        return [identifier for identifier, kind in self.receptacles.items() if kind == receptacle_type]


def bare(type_name: str) -> str:
    """ "MugType" -> "Mug"."""
    return type_name.removesuffix("Type")


def layout_of(problem: PddlProblem) -> Layout:
    """The tables of `problem`. Facts of other predicates are left out."""
    pairs: dict[str, dict[str, str]] = {}
    homes: dict[str, tuple[str, ...]] = {}
    can_contain, flags = set(), set()
    for fact in problem.facts:
        if fact[0] == "canContain":
            can_contain.add((bare(fact[1]), bare(fact[2])))
        elif len(fact) == 2:
            flags.add((fact[0], fact[1]))
        elif len(fact) == 3:
            pairs.setdefault(fact[0], {})[fact[1]] = fact[2]
            if fact[0] == "inReceptacle":
                homes[fact[1]] = (*homes.get(fact[1], ()), fact[2])
    return Layout(
        receptacles={key: bare(value) for key, value in pairs.get("receptacleType", {}).items()},
        objects={key: bare(value) for key, value in pairs.get("objectType", {}).items()},
        inside=pairs.get("inReceptacle", {}),
        homes=homes,
        location={**pairs.get("receptacleAtLocation", {}), **pairs.get("objectAtLocation", {})},
        can_contain=frozenset(can_contain),
        flags=frozenset(flags),
    )


def why_illegal(goal: Goal, layout: Layout) -> str | None:
    """The first reason why nobody could be asked for `goal` here, or nothing when it is legal."""
    candidates = layout.within_reach(goal.object_type)
    if not candidates:
        return f"there is no {goal.object_type} within reach in the scene"
    if goal.kind is TaskKind.LOOK:
        return _why_no_light(goal, layout)
    if goal.target_type in NEVER_TARGETS or not layout.of_type(goal.target_type):
        return f"there is no {goal.target_type} in the scene that could be a target"
    if (goal.target_type, goal.object_type) not in layout.can_contain:
        return f"a {goal.target_type} cannot contain a {goal.object_type}"
    if goal.kind is TaskKind.TWO and len(candidates) < 2:
        return f"there is only one {goal.object_type} within reach in the scene"
    if goal.kind in DEVICES:
        return _why_untreatable(goal, layout, candidates)
    return None


def _why_no_light(goal: Goal, layout: Layout) -> str | None:
    for identifier, kind in layout.objects.items():
        lit = identifier in layout.inside and layout.flag("toggleable", identifier)
        if kind == goal.target_type and lit:
            return None
    return f"there is no {goal.target_type} standing in the scene that could be switched on"


def _why_untreatable(goal: Goal, layout: Layout, candidates: list[str]) -> str | None:
    able, device = DEVICES[goal.kind]
    if not any(layout.flag(able, identifier) for identifier in candidates):
        return f"a {goal.object_type} is not {able}"
    if not layout.of_type(device):
        return f"there is no {device} in the scene"
    if goal.target_type == device:
        return f"the target of this kind of task may not be the {device} itself"
    return None


def holds_at_start(goal: Goal, layout: Layout) -> bool:
    """Whether `goal` is true before the first action, by the facts (no lamp is on and nothing held at the
    start).
    """
    if goal.kind is TaskKind.LOOK:
        return False
    state = {TaskKind.CLEAN: "isClean", TaskKind.HEAT: "isHot", TaskKind.COOL: "isCool"}.get(goal.kind)
    able = DEVICES[goal.kind][0] if goal.kind in DEVICES else None
    there = Counter(
        receptacle
        for identifier, homes in layout.homes.items()
        for receptacle in homes
        if layout.objects.get(identifier) == goal.object_type
        and layout.receptacles.get(receptacle) == goal.target_type
        and (state is None or layout.flag(state, identifier))
        and (able is None or layout.flag(able, identifier))
    )
    return max(there.values(), default=0) >= (2 if goal.kind is TaskKind.TWO else 1)


def legal_goals(kind: TaskKind, layout: Layout) -> list[Goal]:
    """All legal goals of `kind` that are not true at the start, sorted by type names."""
    objects = sorted({layout.objects[i] for i in layout.inside if i in layout.objects})
    if kind is TaskKind.LOOK:
        targets = sorted({layout.objects[i] for n, i in layout.flags if n == "toggleable" and i in layout.objects})
    else:
        targets = sorted(set(layout.receptacles.values()))
    goals = (Goal(kind, item, target) for item in objects for target in targets)
    return [goal for goal in goals if why_illegal(goal, layout) is None and not holds_at_start(goal, layout)]
