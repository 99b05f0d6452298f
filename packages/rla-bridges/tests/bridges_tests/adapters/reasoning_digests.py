"""Prints, as JSON, digests of the first item of each side of the families that are named; run in a process of its
own, because what a family draws must not depend on the process.
"""

from __future__ import annotations

import json
import sys

from rla_bridges.adapters.reasoning_families import REFUSED, SIZES, opened_family, reasoning_library
from rla_bridges.adapters.reasoning_items import drawn_items, made_entry

from rla.store.records import content_id

FEW = frozenset({"tower_of_hanoi"})  # at its lowest level there are six questions, none of them held out


def digests(name: str) -> list[str]:
    """Of question, answer and what the verifier is given."""
    levels = opened_family(name).at(0)
    sides = (False,) if name in FEW else (False, True)
    items = [item for side in sides for item in drawn_items(name, levels, {}, count=1, held_out=side, seed=11)]
    return [content_id(json.dumps(made_entry(item), default=repr)) for item in items]


if __name__ == "__main__":
    assert SIZES.keys() <= reasoning_library().DATASETS.keys() - REFUSED.keys()
    json.dump({name: digests(name) for name in sys.argv[1:]}, sys.stdout)
