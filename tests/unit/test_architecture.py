"""The shape of the code: which package may import which, no circles, small files, unique names, a small interface."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from rla.envs.protocols import Env
from rla.envs.registry import REQUIRED

TOP = Path(__file__).parents[2]
BASE = {"errors", "plugins", "seeds", "text", "rla"}  # the root of the package holds the version
DATA = BASE | {"store", "config"}
PARTS = DATA | {"processes", "credit", "metrics", "models", "pictures", "envs", "llm", "agents"}
WORK = PARTS | {"pipeline"}
# package of rla/ (or `stages`) -> packages that it may import. Lower rows may import upper ones, never the other way.
MAY_IMPORT: dict[str, set[str]] = {
    "rla": set(),
    "errors": set(),
    "plugins": {"errors", "rla"},
    "seeds": set(),
    "text": set(),
    "store": {"errors", "plugins", "rla", "text", "config"},  # YAML, the version
    "config": {"errors", "plugins", "rla"},
    "processes": DATA,
    "credit": {"config"},
    "metrics": DATA | {"credit"},
    "models": DATA,
    "pictures": DATA | {"models"},
    "envs": DATA | {"processes", "pictures"},  # an environment knows nothing of language models
    "llm": DATA | {"processes", "models", "pictures"},  # an engine knows nothing of environments
    "agents": DATA | {"envs", "llm", "pictures"},
    "pipeline": DATA | {"envs", "models", "processes"},
    "rollouts": WORK,
    "training": WORK,
    "adaptation": WORK,
    "report": WORK | {"adaptation"},
    "stages": WORK | {"rollouts", "training", "adaptation", "report"},
    "cli": WORK | {"report", "stages"},
    "__main__": {"cli", "processes"},
}
# A package of packages/ -> those that it may import beside the core.
PACKAGES = {
    "rla_bridges": set(),
    "rla_programs": {"rla_bridges"},
    "rla_gateway": {"rla_bridges", "rla_programs"},
    "rla_screens": {"rla_bridges", "rla_programs"},
    "rla_harbor": {"rla_programs"},
    "rla_ray": set(),
    "rla_study": set(),
}
# The size of the core (rla/ and stages/): a change that needs more takes something away first.
MOST_LINES, MOST_FILES, MOST_NAMES = 24_940, 121, 840
LONGEST = 600  # lines of a file

ROOT = 8  # modules at most in the root of rla/
SHORT = 80  # lines of a stage

# A program that runs where rla is not: inside the sandbox, as one file.
ALONE = "rla_programs.execution.controller"
# Names that say which part something plays: entry points, stages, and the estimators that `credit` names.
PARTS_PLAYED = {"main", "run", "advantages"}


def modules(*folders: Path) -> dict[str, Path]:
    """Dotted name -> file."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            name = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


CORE = modules(TOP / "rla", TOP / "stages")
MODULES = CORE | modules(*(TOP / "packages" / name.replace("_", "-") / name for name in PACKAGES))


@cache
def imported(name: str) -> set[str]:
    """The modules of ours that a module imports, wherever the import stands."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else node.module)
    return found & MODULES.keys()


def package(name: str) -> str:
    """`llm` for rla_ray.engines.pool, `stages` for a stage, `rla` for the root itself."""
    parts = name.split(".")
    return parts[1] if parts[0] == "rla" and len(parts) > 1 else parts[0]


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Every way round that a walk along the arrows finds."""
    found: list[list[str]] = []
    state: dict[str, int] = {}

    def visit(node: str, way: list[str]) -> None:
        state[node] = 1
        for other in sorted(graph.get(node, ())):
            if state.get(other) == 1:
                found.append([*way[way.index(other) :], other])
            elif other not in state:
                visit(other, [*way, other])
        state[node] = 2

    for node in sorted(graph):
        if node not in state:
            visit(node, [node])
    return found


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == [["a", "b", "c", "a"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.parametrize("name", CORE)
def test_a_module_imports_what_its_package_may(name: str) -> None:
    own = package(name)
    assert own in MAY_IMPORT, f"{name}: say in this table what rla/{own}/ may import"
    others = {package(other) for other in imported(name)} - {own}
    assert others <= MAY_IMPORT[own], f"{name} may not import {sorted(others - MAY_IMPORT[own])}"


def test_the_table_itself_has_no_circle() -> None:
    assert circles(MAY_IMPORT) == []
    assert set(MAY_IMPORT) == {package(name) for name in CORE}


def test_no_circle_of_files() -> None:
    assert circles({name: imported(name) for name in MODULES}) == []


def test_no_circle_of_packages() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for name in MODULES:
        graph[package(name)] |= {package(other) for other in imported(name)} - {package(name)}
    assert circles(graph) == []


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_imports_the_core_and_those_that_it_says(name: str) -> None:
    own = {module for module in MODULES if package(module) == name}
    others = {package(other) for module in own for other in imported(module) if other not in CORE} - {name}
    assert own and others <= PACKAGES[name]


def test_every_package_has_its_parts() -> None:
    assert {path.name.replace("-", "_") for path in (TOP / "packages").iterdir() if path.is_dir()} == set(PACKAGES)
    for name in PACKAGES:
        folder = TOP / "packages" / name.replace("_", "-")
        assert all((folder / part).exists() for part in ("pyproject.toml", "README.md", "LICENSE", "tests", name))
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        wanted = project["dependencies"]
        assert {one.replace("-", "_") for one in wanted if one.startswith("rla-")} == PACKAGES[name]
        assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
        assert (folder / "LICENSE").read_bytes() == (TOP / "LICENSE").read_bytes()


def test_the_core_names_no_package() -> None:
    files = [*CORE.values(), *(TOP / "schemas").iterdir(), *(TOP / "pipelines").rglob("*.*"), TOP / "dvc.yaml"]
    named = re.compile("|".join(f"{name}|{name.replace('_', '-')}" for name in PACKAGES))
    assert {path.name: found for path in files if path.is_file() and (found := named.findall(path.read_text()))} == {}


def test_the_tests_of_the_core_import_no_package() -> None:
    """`make test PACKAGE=core` needs none; what a package brings is found as the core finds it, by its entry points."""
    packages = {root for name in PACKAGES for root in (name, f"{name.removeprefix('rla_')}_tests")}
    found = {}
    for path in (TOP / "tests").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        if roots := {name.split(".")[0] for name in names} & packages:
            found[str(path.relative_to(TOP))] = sorted(roots)
    assert found == {}


def test_the_core_keeps_to_its_size() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in CORE.values())
    assert lines <= MOST_LINES and len(CORE) <= MOST_FILES
    assert sum(len(public(name)) for name in CORE) <= MOST_NAMES


def folder(name: str) -> str:
    """The folder of a module; a module of the root stands for itself, because the others lie above it or below it."""
    place = str(MODULES[name].parent.relative_to(TOP))
    return name if place == "rla" else place


def test_no_circle_of_folders_in_the_core() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for name in CORE:
        graph[folder(name)] |= {folder(other) for other in imported(name)} - {folder(name)}
    assert circles(graph) == []


def test_no_stage_imports_another() -> None:
    stages = {name for name in MODULES if name.startswith("stages.")}
    assert {name: found for name in stages if (found := imported(name) & stages)} == {}


def test_only_the_command_line_imports_the_stages() -> None:
    users = {name for name in MODULES if any(package(other) == "stages" for other in imported(name))}
    assert {package(name) for name in users} <= {"cli", "stages"}


def test_the_root_holds_few_modules() -> None:
    assert len([path for path in (TOP / "rla").iterdir() if path.suffix == ".py"]) <= ROOT


@pytest.mark.parametrize("name", MODULES)
def test_files_are_short(name: str) -> None:
    longest = SHORT if name.startswith("stages.") else LONGEST
    assert len(MODULES[name].read_text().splitlines()) <= longest


@cache
def public(name: str) -> list[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    nodes = ast.parse(MODULES[name].read_text()).body
    return [node.name for node in nodes if isinstance(node, kinds) and not node.name.startswith("_")]


def test_a_public_name_stands_in_one_module() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for name in MODULES:
        if name != ALONE:
            for found in public(name):
                places[found].append(name)
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in PARTS_PLAYED} == {}


def test_no_parameter_of_ours_names_an_environment() -> None:
    texts = {path.name: path.read_text().lower() for path in (TOP / "rla/config").glob("*.py")}
    assert [name for name, text in texts.items() if "alfworld" in text or '"coding"' in text] == []


def test_the_required_interface_has_five_members() -> None:
    members = {name for name in (*vars(Env), *Env.__annotations__) if not name.startswith("_")}
    assert members == set(REQUIRED) and len(REQUIRED) == 5
