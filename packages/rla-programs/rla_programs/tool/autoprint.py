"""Prepares the program of a call: removes the fence around it, and prints its last expression.

| mode | addition |
|---|---|
| `syntax` | if the last statement of the program is an expression, its value is printed unless it is None |
| `off` | nothing |
| `published` | the last line is put into `print(...)` unless it starts with `print`, whatever it is |

`syntax` works on the syntax tree, so a valid program stays valid, and no line moves. `published` breaks many valid
programs: `x = 3`, a last line in a loop, a trailing comment. It exists to reproduce the published code.
"""

from __future__ import annotations

import ast
from typing import Literal

from rla_programs.coding.fences import fenced_blocks, lines_of

Autoprint = Literal["syntax", "off", "published"]
LONGEST_PARSED = 20_000  # characters, because parsing may take quadratic time; a longer program is run as it is
TAGS = ("", "python", "py", "python3")
OPENING, CLOSING = "```python", "```"
SHOW = '\nif _ is not None: __import__("builtins").print(_)\n'  # `_` as in an interactive interpreter


def prepared(code: str, autoprint: Autoprint) -> str:
    """The program to run. It is never evaluated here, and may be any text."""
    if autoprint == "published":
        return _last_line_printed(_published_inside(code))
    source = code.replace("\r\n", "\n").replace("\r", "\n")  # as Python reads it
    tree = parsed(source)
    if tree is None and (inside := _fenced_inside(source)) is not None:
        source, tree = inside, parsed(inside)
    if autoprint == "off" or tree is None:
        return source
    return _last_expression_shown(source, tree)


def parsed(source: str) -> ast.Module | None:
    """The syntax tree; None if the program is invalid, too long or too deep."""
    if len(source) > LONGEST_PARSED:
        return None
    try:
        return ast.parse(source)
    # the parser has its own stack, and raises MemoryError
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _fenced_inside(source: str) -> str | None:
    """The first fenced Python block in a text that is not a program itself."""
    if CLOSING not in source:
        return None
    return next((block.text for block in fenced_blocks(lines_of(source)) if block.tag in TAGS), None)


def _last_expression_shown(source: str, tree: ast.Module) -> str:
    """The program with a last statement that is an expression turned into `_ = (...)` and a line that prints `_`."""
    if not tree.body or not isinstance(last := tree.body[-1], ast.Expr) or prints(last.value):
        return source
    assert last.end_lineno is not None and last.end_col_offset is not None  # set for parsed code
    lines = [line.encode() for line in source.split("\n")]  # columns are bytes
    first, end = last.lineno - 1, last.end_lineno - 1
    lines[end] = lines[end][: last.end_col_offset] + b")" + lines[end][last.end_col_offset :]
    lines[first] = lines[first][: last.col_offset] + b"_ = (" + lines[first][last.col_offset :]
    shown = b"\n".join(lines).decode() + SHOW
    return source if parsed(shown) is None else shown


def prints(value: ast.expr) -> bool:
    """Whether it is a call of `print`, whose value is None: the usual last line, which is left alone."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print"


def _published_inside(code: str) -> str:
    """The inside of the first closed Python fence, wherever it is."""
    start = code.find(OPENING)
    end = code.find(CLOSING, start + len(OPENING)) if start >= 0 else -1
    return code[start + len(OPENING) : end].strip() if end >= 0 else code


def _last_line_printed(code: str) -> str:
    """The published rewrite, applied to the last line that is not empty; a line of spaces counts."""
    lines = code.split("\n")
    last = next((index for index in reversed(range(len(lines))) if lines[index]), None)
    if last is not None and not lines[last].startswith("print"):
        lines[last] = f"print({lines[last]})"
    return "\n".join(lines)
