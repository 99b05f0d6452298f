"""Where an agent is in a game, as a text: what credit takes for the same place (`Observation.place`).

    location | what is held, and what was done to it | what is open at the location

An observation says less and more: arriving with empty hands and with the thing looked for read alike, "Nothing
happens." reads the same everywhere, and what lies in a place that was emptied meanwhile reads differently.
"""

from __future__ import annotations

from rla.envs.alfworld.state import NOTHING, State
from rla.envs.alfworld.tables import FastGame


def place_text(tables: FastGame, state: State) -> str:
    """`3 fridge 1 | mug 1 clean | fridge 1`; equal for equal location, held thing and its condition, open doors there.

    Doors elsewhere do not count: after a few of them no two episodes would ever be in the same place.
    """
    here = tables.receptacles_at.get(state.location, ())
    names = [tables.receptacles[receptacle] for receptacle in here]
    opened = [tables.receptacles[receptacle] for receptacle in here if receptacle in state.opened]
    conditions = {"clean": state.clean, "hot": state.hot, "cool": state.cool, "sliced": state.sliced}
    done = [name for name, items in conditions.items() if state.held in items]
    held = "" if state.held == NOTHING else " ".join([tables.objects[state.held], *done])
    return f"{state.location} {', '.join(names)} | {held} | {', '.join(opened)}"
