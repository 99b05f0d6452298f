"""The sentences ALFWorld speaks, as format strings. Two dialects differ in three of them, see `Verbs`.

The help text exists in the packaged dialect only. It belongs to the `alfworld` package: where that is
installed its text is read from there, so that `help` too answers as the stock engine does; elsewhere ours is.
"""

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rla.envs.alfworld.problem import Verbs

WELCOME = "-= Welcome to TextWorld, ALFRED! =-\n\n{look}\n\nYour task is to: {sentence}"
NOTHING_HAPPENS = "Nothing happens."
PUT_COMMAND = {Verbs.PUT: "put {item} in/on {place}", Verbs.MOVE: "move {item} to {place}"}
PUT_FEEDBACK = {
    Verbs.PUT: "You put the {item} in/on the {place}.",
    Verbs.MOVE: "You move the {item} to the {place}.",
}
OUR_HELP = (
    "Commands: look, inventory, examine, go to, open, close, take ... from, move ... to, use,\n"
    "heat ... with, clean ... with, cool ... with, slice ... with\n"
)
_HELP = re.compile(r'"help\.feedback"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*("(?:[^"\\]|\\.)*")')


def listing(names: Sequence[str]) -> str:
    """ "a mug 1, a mug 2, and a cup 1"; "nothing" where there is none."""
    return conjunction([f"a {name}" for name in names])


def conjunction(phrases: Sequence[str]) -> str:
    """The phrases joined by ", " and, before the last one, ", and "."""
    if len(phrases) < 2:
        return phrases[0] if phrases else "nothing"
    return f"{', '.join(phrases[:-1])}, and {phrases[-1]}"


@cache
def help_text() -> str:
    """What `help` answers in the packaged dialect."""
    package = find_spec("alfworld")
    if package is None or package.origin is None:
        return OUR_HELP
    grammar = Path(package.origin).parent / "data" / "alfred.twl2"
    found = _HELP.search(grammar.read_text()) if grammar.is_file() else None
    return str(json.loads(found[1])).lstrip() if found else OUR_HELP
