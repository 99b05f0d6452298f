"""A tokenizer's fingerprint: the same however it is saved, another where ids or their meaning change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla.errors import UserError
from rla.models.init import new_tokenizer
from rla.models.load import load_tokenizer, refuse_other_tokenizer, tokenizer_fingerprint

TEXTS = ["go to cabinet 3", "put mug 1 in/on desk 2"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_tokenizer(TEXTS, context=64).save_pretrained(tmp_path / "made")
    return tmp_path / "made"


def edit(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_saving_again_changes_nothing(folder: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(folder)
    tokenizer(TEXTS, truncation=True, max_length=3, padding=True)  # leaves both switched on in what is saved
    tokenizer.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again/tokenizer.json").read_text())["truncation"] is not None
    assert tokenizer_fingerprint(tmp_path / "again") == tokenizer_fingerprint(folder)


def test_the_template_counts_wherever_it_is_written(folder: Path) -> None:
    before, template = tokenizer_fingerprint(folder), (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    assert tokenizer_fingerprint(folder) != before
    for written in (template, template + "\n", [{"name": "default", "template": template}]):
        edit(folder / "tokenizer_config.json", lambda settings, value=written: settings.update(chat_template=value))
        assert tokenizer_fingerprint(folder) == before


@pytest.mark.parametrize(
    ("texts", "phrases"),
    [([*TEXTS, "drawer"], ()), (TEXTS[:1], ()), (TEXTS, ("go to",))],
    ids=["more", "less", "phrase"],
)
def test_another_vocabulary_is_another_tokenizer(
    texts: list[str], phrases: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    new_tokenizer(texts, context=64, phrases=phrases).save_pretrained(tmp_path / "other")
    assert tokenizer_fingerprint(tmp_path / "other") != tokenizer_fingerprint(folder)


def test_two_ids_that_change_places_and_an_added_token_are_noticed(folder: Path, tmp_path: Path) -> None:
    def swap(content: dict[str, Any]) -> None:
        words = content["model"]["vocab"]
        words["cabinet"], words["desk"] = words["desk"], words["cabinet"]

    def add(settings: dict[str, Any]) -> None:
        settings["added_tokens_decoder"] = {"900": {"content": "<tool>"}}

    changes: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
        ("tokenizer.json", swap),
        ("tokenizer.json", lambda content: content.update(normalizer=None)),
        ("tokenizer_config.json", add),
    ]
    found = {tokenizer_fingerprint(folder)}
    for number, (name, change) in enumerate(changes):
        shutil.copytree(folder, tmp_path / str(number))
        edit(tmp_path / str(number) / name, change)
        found.add(tokenizer_fingerprint(tmp_path / str(number)))
    assert len(found) == 4


def test_merges_as_strings_or_pairs(tmp_path: Path) -> None:
    found = set()
    for name, merges in (("old", ["a b", "ab c"]), ("new", [["a", "b"], ["ab", "c"]]), ("other", [["a", "b"]])):
        (tmp_path / name).mkdir()
        content = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, "merges": merges}}
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(content))
        found.add(tokenizer_fingerprint(tmp_path / name))
    assert len(found) == 2


def test_what_cannot_be_compared_is_not_refused(folder: Path, tmp_path: Path) -> None:
    assert tokenizer_fingerprint(Path("Qwen/Qwen2.5-0.5B")) is None  # no such folder
    refuse_other_tokenizer(Path("Qwen/Qwen2.5-0.5B"), recorded="0" * 16, shard=tmp_path)
    refuse_other_tokenizer(folder, recorded=None, shard=tmp_path)
    refuse_other_tokenizer(folder, recorded=tokenizer_fingerprint(folder), shard=tmp_path)
    with pytest.raises(UserError, match=r"_manifest\.parquet: its token ids were made with another tokenizer"):
        refuse_other_tokenizer(folder, recorded="0" * 16, shard=tmp_path)


def test_a_broken_file_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"tokenizer\.json: not valid JSON"):
        tokenizer_fingerprint(folder)
