"""Which games of TextArena are played, read without the package."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest
from rla_bridges.adapters.textarena import TextArena
from rla_bridges.adapters.textarena_games import CORPORA, GAMES, PLAYABLE, REFUSED_GAMES, game_library

from rla.config import Config
from rla.envs.registry import from_mapping
from rla.errors import UserError
from tests.unit.docs.markdown_pages import DOCS


def config(own: dict[str, Any], **sections: Any) -> Config:
    return from_mapping({"env": {"name": "textarena", "own": own}, **sections}, where="test")


def test_a_game_is_played_needs_data_or_is_refused() -> None:
    assert not GAMES.keys() & CORPORA.keys()
    assert not (GAMES.keys() | CORPORA.keys()) & REFUSED_GAMES.keys()
    assert (len(GAMES), len(CORPORA), len(REFUSED_GAMES)) == (40, 9, 24)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"id": "TwentyQuestions-v0"}, "it asks a language model of a service on the network; choose another game"),
        ({"id": "Klondike-v0"}, "its source has a syntax error on Python 3.11"),
        ({"id": "PegJump-v0"}, "it has one game only, so none can be held out"),
        ({"id": "GuessTheNumber-v1"}, "did you mean GuessTheNumber-v0"),
        ({"id": "../x"}, "docs/guide/textarena.md lists the games"),
        ({"id": "Sudoku-v0", "commands": True}, "Sudoku-v0 has no fixed moves; set it to false"),
    ],
)
def test_games_are_checked_when_they_are_read(own: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=r"^test: env\.own") as refused:
        config(own)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"policy": {"decoding": "admissible"}}, "set policy.decoding: free, or env.own.commands: true"),
        ({"policy": {"reply": "index"}}, "set policy.reply: text or tagged, or env.own.commands: true"),
        ({"tasks": {"kinds": ["x"]}}, "set no tasks.path and no tasks.kinds"),
        ({"tasks": {"path": "x"}}, "set no tasks.path and no tasks.kinds"),
    ],
)
def test_what_does_not_go_with_a_game_is_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as refused:
        config({"id": "GuessTheNumber-v0"}, **sections)
    assert said in str(refused.value)


def test_commands_go_with_admissible_decoding_and_with_numbers() -> None:
    config({"id": "GuessTheNumber-v0", "commands": True}, policy={"decoding": "admissible"})
    config({"id": "GuessTheNumber-v0", "commands": True}, policy={"reply": "index"})


def test_no_game_is_asked_for_when_tasks_are_made() -> None:
    with pytest.raises(UserError, match="give one, such as --env textarena:GuessTheNumber-v0"):
        TextArena().tasks(config({}), split="train", seed=0)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    game_library.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"is not installed; install rla-bridges\[textarena\] from a checkout"):
        game_library()


def test_the_page_names_every_game() -> None:
    page = (DOCS / "guide/textarena.md").read_text()
    named = set(re.findall(r"`([\w-]+-v0[\w-]*)`", page)) | {name for name in REFUSED_GAMES if name.startswith("Tower")}
    assert named == {*PLAYABLE, *REFUSED_GAMES}
