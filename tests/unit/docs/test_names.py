"""No page names a module, a key or a file that does not exist."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from docs.generate.parameters import unchecked
from docs.generate.source import PACKAGES
from rla.config.load import ENGINES, LAUNCHERS, MODELS, config_type
from rla.envs.registry import installed_environments, params_of
from rla.plugins import registered
from tests.unit.docs.markdown_pages import TOP, blocks, code_spans, name_of, pages

DOTTED = re.compile(r"\brla(?:\.[A-Za-z_]\w*)+")
KEY = re.compile(r"([a-z_]+(?:\.[a-z_]\w*)+)(?::? .*|=.*)?$")
PLACE = re.compile(r"(?:rla|stages|schemas|pipelines|tests|docs|examples)/[\w./-]*\w")
FILES = {"json", "yaml", "md"}  # endings of files, whose names are no keys
SECTIONS = {entry.name for entry in fields(config_type())}
GROUPS = ("commands", "engines", "envs", "launchers", "options", "pipelines", "schemas", "sections", "tables")
NO_MODULES = {f"rla.{name}" for name in (*GROUPS, "x.y")}  # entry-point groups; how a page names any module


def keys(section: Any, prefix: str = "") -> set[str]:
    """Every dotted key below a section, sections themselves included."""
    found = set()
    for entry in (one for one in fields(section) if one.init):
        value, name = getattr(section, entry.name), f"{prefix}{entry.name}"
        found |= {name} | (keys(value, f"{name}.") if is_dataclass(value) else set())
    return found


KEYS = keys(config_type()()).union(*(keys(params_of(name)(), "env.own.") for name in installed_environments()))
KEYS |= {key for entry in registered(ENGINES).values() for key in keys(unchecked(entry.load()), "generator.own.")}
KEYS |= {key for entry in registered(MODELS).values() for key in keys(unchecked(entry.load()), "model.own.")}
for launcher in (entry.load() for entry in registered(LAUNCHERS).values()):
    KEYS |= keys(launcher.Training(), "launch.own.") | keys(launcher.Pool(), "pool.own.")


def resolves(name: str) -> bool:
    """Whether `rla.a.b` is a module, or an attribute of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_dotted_name_exists(page: Path) -> None:
    names = set(DOTTED.findall(page.read_text())) - NO_MODULES
    assert not sorted(name for name in names if not resolves(name))


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_key_exists(page: Path) -> None:
    """In running text, and after --set in commands."""
    text = page.read_text()
    named = [found[1] for span in code_spans(text) if (found := KEY.match(span))]
    for block in blocks(text):
        named += re.findall(r"--set '?([a-z_.]+)=", block.text)
        named += re.findall(r'SET="([a-z_.]+)=', block.text)
    of_params = {name for name in named if name.split(".")[0] in SECTIONS and name.split(".")[-1] not in FILES}
    unknown = of_params - KEYS
    assert not sorted(unknown)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_file_exists(page: Path) -> None:
    named = {span.rstrip("/") for span in code_spans(page.read_text()) if PLACE.fullmatch(span.rstrip("/"))}
    assert not sorted(name for name in named if not (TOP / name).exists())


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_the_words_are_those_of_the_code(page: Path) -> None:
    """An environment, parameters and a pipeline are never called a setting."""
    found = re.findall(r".*\bsettings?\b.*", page.read_text(), re.IGNORECASE)
    assert not found


def test_the_readme_is_short() -> None:
    assert len(TOP.joinpath("README.md").read_text().split()) <= 600


def test_links_of_the_readme_lead_somewhere() -> None:
    """docs/generate/site.py checks those of all other pages, but does not see this one."""
    targets = re.findall(r"\]\(([^)#]+)\)", TOP.joinpath("README.md").read_text())
    assert not sorted(target for target in targets if not (TOP / target).exists())


def test_code_names_pages_that_exist() -> None:
    """Comments, messages and parameters send readers to a page, of the core or of a package."""
    places = [TOP / "params.yaml", TOP / "Makefile", TOP / "dvc.yaml", TOP / "mkdocs.yml"]
    for folder in ("rla", "stages", "schemas", "pipelines", "examples", *(root.relative_to(TOP) for root in PACKAGES)):
        places += [path for path in (TOP / folder).rglob("*") if path.suffix in (".py", ".json", ".yaml", ".sbatch")]
    named = {(path, found) for path in places for found in re.findall(r"docs/[\w/-]+\.md", path.read_text())}
    exists = {found: any((root / found).is_file() for root in (TOP, *PACKAGES)) for _, found in named}
    assert not sorted(f"{name_of(path)}: {found}" for path, found in named if not exists[found])
