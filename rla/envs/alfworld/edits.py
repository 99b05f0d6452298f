"""Task edits, the alphabet in which tasks are adapted: read, draw, apply and prove them.

`parse_edit(text)` reads untrusted JSON, `propose_edits(game, ...)` draws edits by rule, `apply_edit(game,
edit)` makes the child, `verify(child, parent=...)` proves it. All refuse with `InvalidEdit` and a reason.
"""

from rla.envs.alfworld.edit_format import Add, Edit, InvalidEdit, Move, parse_edit
from rla.envs.alfworld.editing import apply_edit, ids_by_name, verify
from rla.envs.alfworld.proposals import effort, propose_edits

__all__ = [
    "Add",
    "Edit",
    "InvalidEdit",
    "Move",
    "apply_edit",
    "effort",
    "ids_by_name",
    "parse_edit",
    "propose_edits",
    "verify",
]
