"""What the source of a module says, read without importing it: docstrings, signatures, comments beside fields."""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path.parent for path in TOP.glob("packages/*/pyproject.toml"))  # distributions beside the core
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A public class or function: `signature` is source text, `members` are the public methods of a class."""

    name: str
    signature: str
    docstring: str
    members: tuple[Definition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSource:
    """A module as text and tree."""

    text: str
    tree: ast.Module

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    def definitions(self) -> Iterator[Definition]:
        """Public classes and functions, in the order in which they stand."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
                yield definition(node, self.text)

    def class_node(self, name: str) -> ast.ClassDef:
        return next(node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == name)


@cache
def read_module(name: str) -> ModuleSource:
    """The module or package `name`, of the core or of a distribution beside it."""
    roots = (root.joinpath(*name.split(".")) for root in (TOP, *PACKAGES))
    files = [file for path in roots for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
    if not files:
        raise FileNotFoundError(f"no module {name} in {TOP} or its packages")
    text = files[0].read_text(encoding="utf-8")
    return ModuleSource(text=text, tree=ast.parse(text))


def definition(node: ast.ClassDef | Function, text: str) -> Definition:
    if not isinstance(node, ast.ClassDef):
        return Definition(name=node.name, signature=header(node, text), docstring=ast.get_docstring(node) or "")
    methods = [item for item in node.body if isinstance(item, Function) and not item.name.startswith("_")]
    return Definition(
        name=node.name,
        signature=class_signature(node, text),
        docstring=ast.get_docstring(node) or "",
        members=tuple(definition(method, text) for method in methods),
    )


def header(node: ast.ClassDef | Function, text: str) -> str:
    """The source from `def` or `class` up to its body; decorators are left out."""
    lines = text.splitlines()[node.lineno - 1 : node.body[0].lineno]
    lines[-1] = lines[-1][: node.body[0].col_offset]
    return inspect.cleandoc("\n" + "\n".join(lines)).rstrip().removesuffix(":")


def class_signature(node: ast.ClassDef, text: str) -> str:
    """`class Name(Base):` with its fields and the comments beside them."""
    lines = text.splitlines()
    assigned = [item for item in node.body if isinstance(item, ast.AnnAssign | ast.Assign)]
    shown = [line for item in assigned for line in lines[item.lineno - 1 : item.end_lineno]]
    return "\n".join([header(node, text) + (":" if shown else ""), *shown])


def field_comments(module: str, name: str) -> dict[str, str]:
    """Field -> the comment on its line, or the comment lines above it, of the class `name`."""
    source = read_module(module)
    node = source.class_node(name)
    beside, above = comments(source.text)
    found = {}
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            said = [*lines_above(above, item.lineno), beside.get(item.end_lineno or item.lineno, "")]
            found[item.target.id] = " ".join(part for part in said if part)
    return found


def comments(text: str) -> tuple[dict[int, str], dict[int, str]]:
    """Comments by line: those beside code, and those that have a line of their own."""
    beside: dict[int, str] = {}
    alone: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            own_line = not token.line[: token.start[1]].strip()
            (alone if own_line else beside)[token.start[0]] = token.string.lstrip("# ").strip()
    return beside, alone


def lines_above(alone: dict[int, str], line: int) -> list[str]:
    """The block of comment lines that ends directly above `line`."""
    first = line
    while first - 1 in alone:
        first -= 1
    return [alone[number] for number in range(first, line)]
