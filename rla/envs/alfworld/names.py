"""How ALFWorld names things: `Cabinet_bar__plus_00_dot_38_bar_...` is "cabinet 14".

The name is what stands before the first `_bar_` of the lower-cased id, with "basin" added if the id has it.
The number counts down in sorted order: the first id of a name gets the highest one. Every id that some fact
names counts. An id without `_bar_` is called by itself and a space, as in the stock engine.
"""

from collections import Counter
from collections.abc import Iterable


def display_names(identifiers: Iterable[str]) -> dict[str, str]:
    """Maps each of the lower-cased `identifiers` to its display name."""
    ordered = sorted(set(identifiers))
    bases = {identifier: _base(identifier) for identifier in ordered if "_bar_" in identifier}
    left = Counter(bases.values())
    names = {}
    for identifier in ordered:
        base = bases.get(identifier)
        if base is None:
            names[identifier] = f"{identifier} "
        else:
            names[identifier] = f"{base} {left[base]}"
            left[base] -= 1
    return names


def _base(identifier: str) -> str:
    name = identifier.split("_bar_", 1)[0]
    return f"{name}basin" if "basin" in identifier else name
