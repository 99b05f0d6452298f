"""A section, an engine and a launcher of another package: what their keys hold, and that the stages use them."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import rla.config.load
from rla.cli.app import run
from rla.config.load import SECTIONS, config_digest, config_type, effective_parameters, resolved
from rla.envs.alfworld.environment import Alfworld
from rla.envs.pool import environments
from rla.envs.registry import from_mapping, schema_of_params
from rla.errors import UserError
from rla.llm.base import Request
from rla.llm.factory import free_memory, make_generator
from rla.pipeline.plan import run_differences
from tests.unit.builders import configured, install
from tests.unit.training.builders import tiny_model

MODULE = '''
from contextlib import contextmanager
from dataclasses import dataclass, field

from rla.config.schema import from_one, without_effect
from rla.envs.pool import own_environments
from rla.llm.factory import ScriptedGenerator

told = []


@dataclass(frozen=True, kw_only=True)
class Harvest:
    """What is gathered."""

    size: int = from_one(2)
    barn: str = without_effect("")

    def __post_init__(self):
        if self.size > 9 and not self.barn:
            raise ValueError(f"size is {self.size}; set harvest.barn")


@dataclass(frozen=True, kw_only=True)
class FarmEngines:
    engine: str = "transformers"
    barns: int = 2
    hands: int = 0

    def __post_init__(self):
        if self.hands > self.barns:
            raise ValueError("hands: more than barns; lower it")

    def generator(self, config, *, model, chat, seed, training):
        told.append((self.barns, seed, training))
        return ScriptedGenerator(context=config.context, stop_id=chat.end_id)

    def free_memory(self, config):
        told.append("free")


class FarmLauncher:
    @dataclass(frozen=True, kw_only=True)
    class Pool:
        fields: int = 1

        @contextmanager
        def environments(self, config, *, note):
            note(f"{self.fields} fields")
            with own_environments(config, note=note) as made:
                yield made


class Half:
    Training = "no dataclass"


@dataclass(frozen=True, slots=True)
class Bare:
    size: int
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package as an installer leaves it: a module, and its entry points in a folder beside it."""
    (tmp_path / "farm_of_a_test.py").write_text(MODULE)
    install(
        tmp_path,
        "farm",
        "1.0",
        "[rla.sections]\n"
        "harvest = farm_of_a_test:Harvest\n"
        "[rla.engines]\n"
        "farm = farm_of_a_test:FarmEngines\n"
        "gone = no_such_module_of_a_test:Engines\n"
        "[rla.launchers]\n"
        "farm = farm_of_a_test:FarmLauncher\n"
        "half = farm_of_a_test:Half\n",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("farm_of_a_test", None)


def test_an_engine_of_a_package_answers_and_is_asked_for_its_memory(package: None, tmp_path: Path) -> None:
    config = configured("generator.backend=farm", "generator.own.barns=3").generator
    generator, _ = make_generator(config, model=tiny_model(tmp_path / "model", seed=0), seed=7)
    reply = asyncio.run(generator.generate(Request(prompt_ids=[1, 2], max_tokens=2, temperature=1.0, seed=1)))
    assert len(reply[0].token_ids) <= 2
    free_memory(config)
    assert sys.modules["farm_of_a_test"].told == [(3, 7, True), "free"]


def test_outputs_depend_on_the_engine_that_computes_and_not_on_where(package: None) -> None:
    plain, elsewhere = configured(), configured("generator.backend=farm", "generator.own.barns=9")
    assert elsewhere.generator.engine_name == "transformers"
    assert run_differences(resolved(elsewhere), plain, ["generator"]) == {}
    assert run_differences(resolved(plain), elsewhere, ["generator"]) == {}
    own = configured("generator.backend=farm", "generator.own.engine=farm")
    assert run_differences(resolved(own), plain, ["generator"]) != {}


def test_parameters_come_back_as_they_were_written(package: None) -> None:
    config = configured("generator.backend=farm", "generator.own.barns=3", "pool.backend=farm", "pool.own.fields=4")
    assert from_mapping(resolved(config), where="a stage") == config
    back = {**resolved(config), "generator": resolved(config)["generator"] | {"backend": "transformers"}}
    assert from_mapping(back, where="a stage").generator.own is None  # those of another engine are left


def test_a_section_of_a_package_stands_beside_those_of_the_core(
    package: None, capsys: pytest.CaptureFixture[str]
) -> None:
    config, other = configured("harvest.size=3", "harvest.barn=red"), configured("harvest.size=3")
    assert resolved(config)["harvest"] == {"size": 3, "barn": "red"}
    assert resolved(configured())["harvest"] == {"size": 2, "barn": ""}
    assert from_mapping(resolved(config), where="a stage") == config == pickle.loads(pickle.dumps(config)) != other
    assert effective_parameters(config, ["harvest"])["harvest"] == {"size": 3}
    assert config_digest(config, ["harvest"]) == config_digest(other, ["harvest"])
    assert list(run_differences(resolved(config), configured(), ["harvest"])) == ["harvest.size"]
    assert run(["params", "--env", "alfworld", "--set", "harvest.size=3"]) == 0
    assert "harvest:\n  size: 3\n" in capsys.readouterr().out


def test_the_schema_has_the_sections_of_packages(package: None) -> None:
    section = schema_of_params(alone=False)["properties"]["harvest"]
    assert section["description"] == "What is gathered."
    assert section["properties"]["size"] == {"type": "integer", "minimum": 1, "maximum": 2**31 - 1, "default": 2}
    assert "harvest" not in schema_of_params()["properties"]  # of another package than the environment
    assert "harvest" in config_type({"farm"}).__annotations__


def test_a_section_that_no_package_has_is_refused_even_if_its_name_resembles_another() -> None:
    with pytest.raises(UserError, match=r"--set jugde=1: unknown key jugde; did you mean judge\? No installed p"):
        configured("jugde=1")
    with pytest.raises(UserError, match=r"--set harvest.size=3: unknown key harvest; no installed package has this"):
        configured("harvest.size=3")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("policy", "Harvest", "rla.sections: policy must be a dataclass, and its name an identifier that rla does not"),
        ("har-vest", "Harvest", "rla.sections: har-vest must be a dataclass, and its name an identifier"),
        ("class", "Harvest", r"rla.sections: class must be a dataclass.*; mend the package \(unknown\)"),
        ("half", "Half", "rla.sections: half must be a dataclass"),
        ("bare", "Bare", r"rla.sections: bare is farm_of_a_test:Bare, which cannot be made \(TypeError: .*'size'"),
        ("gone", "Gone", "rla.sections: gone is farm_of_a_test:Gone, which cannot be imported"),
    ],
)
def test_a_section_that_cannot_be_one_is_refused(
    package: None, name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint(name=name, value=f"farm_of_a_test:{value}", group=SECTIONS)
    monkeypatch.setattr(rla.config.load, "registered", lambda group: {name: entry})
    with pytest.raises(UserError, match=said):
        configured()


def test_a_launcher_of_a_package_has_the_environments(package: None) -> None:
    config = configured("pool.backend=farm", "pool.own.fields=4", "pool.mode=always", "pool.workers=1")
    notes: list[str] = []
    with environments(config, note=notes.append) as made:
        task = Alfworld().tasks(config, split="train", seed=1)[0]
        assert made.make(task)
        asyncio.run(made.close())
    assert notes == ["4 fields"]
    with environments(configured("pool.backend=farm"), note=notes.append):  # a fast one stays in the process
        assert notes == ["4 fields"]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["generator.backend=fram"], r"generator.backend is 'fram'; installed: transformers, .*farm.*; choose one of"),
        (["generator.backend=gone"], r"rla.engines: gone is no_such_module_of_a_test:Engines, which cannot be"),
        (
            ["pool.backend=fram"],
            r"pool.backend is 'fram'; installed: local, farm.*; .* install the package that",
        ),
        (["launch.training=farm"], r"launch.training: farm is farm_of_a_test:FarmLauncher.*"),
        (["launch.training=half"], r"launch.training: half is farm_of_a_test:Half, which is not a dataclass"),
        (["generator.backend=farm", "generator.own.barn=1"], r"unknown key generator.own.barn; did you mean .*barns"),
        (["generator.backend=farm", "generator.own.barns=x"], r"generator.own.barns is 'x'; expected int"),
        (["generator.backend=farm", "generator.own.hands=3"], r"generator.own.hands: more than barns; lower it"),
        (["harvest.size=0"], r"harvest.size is 0; it must be 1 or more"),
        (["harvest.sise=1"], r"unknown key harvest.sise; did you mean harvest.size\?"),
        (["harvest.size=10"], r"harvest.size is 10; set harvest.barn"),
    ],
)
def test_what_cannot_be_used_is_one_clear_error(package: None, overrides: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        configured(*overrides)
