"""Fresh environments without a network: what a distribution requires is linked from the environment of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement


def link_requirements(name: str, site: Path, *, also: Sequence[str] = ()) -> None:
    """Link what the installed distribution `name` requires into the folder `site`, and `also` with theirs."""
    others = [one for other in also for one in (distribution(other), *needed_distributions(other))]
    for needed in [*needed_distributions(name), *others]:
        for file in needed.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(Path(str(needed.locate_file(top))))


def needed_distributions(name: str) -> list[Distribution]:
    """What a distribution requires without extras, and what those require in turn."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(name)]
    while waiting:
        requirement = waiting.pop()
        own = distribution(requirement.name)
        key = f"{requirement.name}{sorted(requirement.extras)}"
        if key in found:
            continue
        found[key] = own
        for text in own.requires or ():
            further = Requirement(text)
            extras = requirement.extras or {""}
            if further.marker is None or any(further.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(further)
    return [own for key, own in found.items() if key != f"{name}[]"]
