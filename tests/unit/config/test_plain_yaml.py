"""YAML that somebody else has written: one line names the flaw, and no text costs more than its length."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from rla.config.load import plain_data
from rla.envs.registry import load_config
from rla.errors import UserError


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("a: &a [*a]", "an alias is not possible here, line 1"),
        ("seed: 1\nrollout: &r\n  own: *r", "an alias is not possible here, line 3"),
        ("a: &a {<<: *a}", "an alias is not possible here"),
        ("{&a x: 1, *a : 2}", "an alias is not possible here"),
        ("[" * 100_000, "nested too deeply"),
        ("{a: " * 100_000, "nested too deeply"),
        ("- " * 5_000 + "x", "nested too deeply"),
        ("seed: 1\nrollout: {slots: 1}\nseed: 2", "the key 'seed' is there twice, line 3"),
        ("train_policy: {lr: 1, 'lr': 2}", "the key 'lr' is there twice"),
        ("? [a, b]\n: c", "found unhashable key"),
        ("seed: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("seed: !!set {a, b}", "a value cannot be read"),
        ("seed: !!binary aGk=", "a value cannot be read"),
        ("seed: !!int x", "a value cannot be read"),
        ("seed: !!int ''", "a value cannot be read"),
        ("seed: !!bool x", "a value cannot be read"),
        ("seed: " + "9" * 50_000, "a value cannot be read"),
        ('env: {name: "a\\0b"}', "a null character"),
        ('env: {name: "\\ud800"}', "invalid Unicode character escape"),
        ("a" * (1 << 21), "longer than"),
        ("a: 1\n---\nb: 2", "found another document, line 2"),
        ("a: *b", "found undefined alias"),
        ("a: &a [x]\nb: [" + "*a, " * 101 + "]", "an alias is not possible here, line 2"),
        ("a: &a [x]\nb: &b [*a, *a]", "an alias is not possible here, line 2"),
    ],
)
def test_hostile_yaml_is_refused_in_one_line(tmp_path: Path, text: str, flaw: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    started = time.monotonic()
    with pytest.raises(UserError) as error:
        load_config(path)
    said = str(error.value)
    assert flaw in said and said.startswith(f"{path}: not valid YAML (") and "\n" not in said
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("value", ["2020-01-01", "2020-01-01 10:00:00", "2020-99-99"])
def test_a_date_where_a_number_stands_is_a_text(value: str) -> None:
    with pytest.raises(UserError, match=f"seed is '{value}'; expected int"):
        load_config(None, ["env.name=alfworld", f"seed={value}"])
    assert plain_data(f"a: {value}") == {"a": value}


def test_an_override_is_read_as_strictly() -> None:
    with pytest.raises(UserError, match=r"--set rollout=.*is there twice"):
        load_config(None, ["env.name=alfworld", "rollout={slots: 1, slots: 2}"])


def test_plain_yaml_is_what_pyyaml_reads() -> None:
    text = "a: &a {b: [1, 2.5, true, null, ~, 'x'], c: 1.0e-6}\nd: *a\ne: {<<: *a, c: 2}\n"
    assert plain_data(text) == yaml.safe_load(text)
    assert plain_data("") is None
    # Numbers of YAML 1.2, which PyYAML reads as text.
    numbers, texts = "[1e-6, -2E3, 1.5e6, +2.e3, .5e3, -.5E-3]", ["1e5x", "1.e", ".e3", "1.5e6.0", "e3"]
    assert plain_data(numbers) == [1e-6, -2e3, 1.5e6, 2e3, 500.0, -0.0005]
    assert plain_data(f"[{', '.join(texts)}]") == texts
