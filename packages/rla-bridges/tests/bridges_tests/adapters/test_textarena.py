"""Games of TextArena, by the package itself, without a network."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rla_bridges.adapters.textarena import MOST_FOR_LOST, OVER, TextArena, TextArenaGame
from rla_bridges.adapters.textarena_games import GAMES, game_library, kept_to_itself, opened_game

from bridges_tests.adapters.textarena_players import best_score
from rla.envs.observation import EnvironmentFailure, Observation, settled
from rla.envs.pool import environments
from rla.errors import UserError
from rla.store.records import Task
from tests.unit.builders import configured

pytestmark = pytest.mark.skipif(find_spec("textarena") is None, reason="the textarena extra is not installed")

ENV = TextArena()
COUNTS = ("tasks.train_scenes=12", "tasks.test_scenes=6", "tasks.tasks_per_scene=1")
SLOW_TO_START = ("RushHour-v0", "Sokoban-v0")


def config(game: str, *overrides: str) -> Any:
    return configured(f"env.own.id={game}", *COUNTS, *overrides, env="textarena")


def tasks(game: str, *, split: str = "train", seed: int = 0) -> list[Task]:
    return ENV.tasks(config(game), split=split, seed=seed)


def game(name: str, seed: int = 4) -> TextArenaGame:
    return TextArenaGame(name, seed=seed, moves=GAMES[name])


def moves_of(name: str, seed: int) -> list[str]:
    rng = random.Random(seed)
    tried = GAMES[name] or ("[1 1 1]", "[1, 2, 3]", "[1 2 3 4]", "[A+]", "[0 0 e]")
    return [rng.choice(tried) for _ in range(12)]


def played(one: Any, moves: list[str]) -> list[Observation]:
    seen = [one.reset()]
    for move in moves:
        if seen[-1].done:
            break
        seen.append(one.step(move))
    return seen


@pytest.mark.parametrize("name", [name for name in sorted(GAMES) if name not in SLOW_TO_START])
def test_every_game_opens_and_plays_the_same_again(name: str) -> None:
    opened_game(name)
    first, moves = played(game(name), moves_of(name, 1)), moves_of(name, 1)
    random.seed(99)
    assert played(game(name), moves) == first
    assert first[0].text and len(first) > 1
    assert all((seen.reward is not None) == seen.done for seen in first)


def test_two_games_at_once_do_not_draw_each_others_numbers() -> None:
    moves = ["[up]", "[left]", "[down]", "[right]", "[up]"]
    alone = [played(game("2048-v0", seed), moves) for seed in (1, 2)]
    both = [game("2048-v0", seed) for seed in (1, 2)]
    seen = [[one.reset()] for one in both]
    for move in moves:
        for one, so_far in zip(both, seen, strict=True):
            if not so_far[-1].done:
                so_far.append(one.step(move))
    assert seen == alone


def test_the_random_numbers_of_the_process_stay_as_they_were() -> None:
    random.seed(3)
    before = random.getstate()
    played(game("2048-v0"), ["[up]", "[left]"])
    assert random.getstate() == before


def said_by_games() -> list[list[str]]:
    names = ("2048-v0", "Crosswords-v0", "LogicPuzzle-v0", "Mastermind-v0", "RushHour-v0")
    return [[seen.text for seen in played(game(name), moves_of(name, 2))] for name in names]


def test_processes_that_hash_texts_differently_play_alike() -> None:
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    code = "from bridges_tests.adapters.test_textarena import *\nprint(said_by_games())"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": other}
    ).stdout
    assert said.decode() == f"{said_by_games()}\n" and len(said) > 1000


def test_a_win_is_a_reward_of_one_and_what_the_player_said_does_not_come_back() -> None:
    guesses = (played(game("GuessTheNumber-v0"), [f"[{number}]"])[-1] for number in range(1, 21))
    won = next(seen for seen in guesses if seen.done)
    assert (won.reward, won.text, won.commands) == (1.0, OVER, ())
    hint = played(game("GuessTheNumber-v0"), ["[1]"])[-1]
    assert hint.text.startswith("The target number is") and not hint.done and hint.reward is None


@pytest.mark.parametrize("name", sorted(GAMES))
def test_every_game_is_won_by_a_player_who_reads_what_is_hidden(name: str) -> None:
    opened_game(name)
    assert {best_score(name, seed) for seed in ((7,) if name in (*SLOW_TO_START, "Sudoku-v0-hard") else (1, 2, 3))} == {
        1.0
    }


SHORT = ("cat", "cot", "cog", "dog", "dot", "lot", "log", "let", "leg", "bat", "bit", "big", "bag")
LONG = ("apple", "house", "river", "kitchen", "weather", "garden")


def test_every_game_of_words_is_won_by_a_player_who_reads_what_is_hidden(tmp_path: Path) -> None:
    """A word list of our own, and a tagger to whom all words are nouns, in a process of its own."""
    folder = tmp_path / "corpora" / "words"
    folder.mkdir(parents=True)
    for name in ("en", "en-basic"):
        (folder / name).write_text("\n".join((*SHORT, *LONG)))
    (folder / "README").write_text("words")
    code = (
        "import nltk\n"
        "nltk.pos_tag = lambda words: [(word, 'NN') for word in words]\n"
        "from rla_bridges.adapters import textarena_games as games\n"
        "from bridges_tests.adapters.textarena_players import best_score\n"
        "names = [name for name in sorted(games.CORPORA) if not name.startswith('WordLadder-v0-')]\n"
        "games.check_corpora = lambda name: None\n"
        "[games.opened_game(name) for name in names]\n"
        "print([best_score(name, 1) for name in names])"
    )
    run = [sys.executable, "-c", code]
    said = subprocess.run(
        run, capture_output=True, check=True, text=True, env={**os.environ, "NLTK_DATA": str(tmp_path)}
    )
    scores = json.loads(said.stdout)
    assert len(scores) == 7 and set(scores) == {1.0}


@pytest.mark.parametrize(
    "name", ["Bandit-v0", "Blackjack-v0", "FifteenPuzzle-v0", "2048-v0-3x3", "Set-v0", "Wordle-v0-hardcore"]
)
def test_games_that_cannot_be_won_fairly_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(UserError, match=r"cannot be won|naming one card|may have a capital"):
        opened_game(name)


def test_a_lost_game_of_2048_is_not_paid_in_full() -> None:
    """With a tile of half the target the score alone pays 1."""
    one = game("2048-v0")
    one.reset()
    state = one._game.state.game_state
    state["board"], state["score"] = [[1024, 0, 0, 0], *([0] * 4 for _ in range(3))], 10_000
    seen = [one.step("nothing"), one.step("nothing")][-1]
    assert seen.done and seen.reward == MOST_FOR_LOST


def test_a_win_with_the_last_turn_is_a_win() -> None:
    one = game("GuessTheNumber-v0")
    one.reset()
    secret = one._game.game_number
    wrong = [number for number in range(1, 21) if number != secret][:9]
    seen = [one.step(f"[{number}]") for number in (*wrong, secret)]
    assert [found.done for found in seen] == [False] * 9 + [True] and seen[-1].reward == 1.0


def test_a_seed_whose_game_does_not_begin_gives_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = TextArenaGame.beginning

    def some(one: TextArenaGame) -> str:
        if one._seed % 2:
            raise EnvironmentFailure("all lights are out")
        return begin(one)

    monkeypatch.setattr(TextArenaGame, "beginning", some)
    assert all(json.loads(found.payload)["seed"] % 2 == 0 for found in tasks("LightsOut-v0"))


def test_a_move_without_brackets_is_read_as_one_with_them() -> None:
    assert played(game("FrozenLake-v0"), ["down"]) == played(game("FrozenLake-v0"), ["[down]"])


def test_a_step_after_the_end_is_a_failure_of_the_episode() -> None:
    one = game("ThreeCardMonte-v0")
    one.reset()
    assert one.step("[0]").done
    with pytest.raises(EnvironmentFailure, match="after the end"):
        one.step("[0]")


def test_a_game_that_raises_ends_its_own_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    one = game("ThreeCardMonte-v0")
    one.reset()
    monkeypatch.setattr(one._game, "step", lambda action: 1 // 0)
    with pytest.raises(EnvironmentFailure, match="ThreeCardMonte-v0: a step raised ZeroDivisionError"):
        one.step("[0]")


@pytest.mark.parametrize("name", ["GuessTheNumber-v0", "Mastermind-v0"])
def test_no_game_is_on_both_sides_whatever_the_seed_of_the_run(name: str) -> None:
    sides = [
        {
            game(name, json.loads(found.payload)["seed"]).beginning()
            for seed in (0, 1)
            for found in tasks(name, split=split, seed=seed)
        }
        for split in ("train", "test")
    ]
    assert all(sides) and not sides[0] & sides[1]
    numbers = tuple(map(len, sides))
    assert sum(numbers) <= 20 if name == "GuessTheNumber-v0" else numbers == (24, 12)


def test_a_game_that_has_few_instances_gives_few_tasks() -> None:
    made = ENV.tasks(config("GuessTheNumber-v0", "tasks.train_scenes=50"), split="train", seed=0)
    secrets = [game("GuessTheNumber-v0", json.loads(one.payload)["seed"]).beginning() for one in made]
    assert 10 < len(secrets) < 20 and len(set(secrets)) == len(secrets)


def test_a_number_that_a_game_cannot_read_is_a_move_that_does_nothing() -> None:
    seen = played(game("GuessTheNumber-v0"), [f"[{'9' * 5000}]", "[1]"])
    assert len(seen) == 3


def test_moves_are_offered_where_they_are_asked_for() -> None:
    made = tasks("FrozenLake-v0")[0]
    assert ENV.make(made, config("FrozenLake-v0")).reset().commands == ()
    assert ENV.make(made, config("FrozenLake-v0", "env.own.commands=true")).reset().commands == GAMES["FrozenLake-v0"]


def test_a_game_steps_in_a_process_of_its_own_as_it_does_here() -> None:
    asked = config("2048-v0")
    made = tasks("2048-v0")[0]
    moves = ["[up]", "[left]"]

    async def pooled() -> list[Observation]:
        with environments(asked, note=lambda text: None) as found:
            one = found.make(made)
            seen = [await settled(one.reset())]
            for move in moves:
                seen.append(await settled(one.step(move)))
            one.close()
        return seen

    assert ENV.slow(asked)
    assert asyncio.run(pooled()) == played(ENV.make(made, asked), moves)


def test_games_of_words_need_data_which_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nltk

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    opened_game.cache_clear()
    with pytest.raises(UserError, match=r"Hangman-v0 needs data of nltk: python -m nltk\.downloader words$"):
        opened_game("Hangman-v0")
    with kept_to_itself():
        assert nltk.download("words") is False
    assert not list(tmp_path.iterdir())


def test_games_of_words_play_with_the_data(tmp_path: Path) -> None:
    """A word list of our own, in a process of its own: nltk keeps what it has read."""
    folder = tmp_path / "corpora" / "words"
    folder.mkdir(parents=True)
    for name in ("en", "en-basic"):
        (folder / name).write_text("apple\nhouse\ngarden\nwinter\nsummer\nriver\nmountain\n")
    (folder / "README").write_text("words")
    code = (
        "from bridges_tests.adapters.test_textarena import *\n"
        "opened_game('Hangman-v0')\n"
        "print(TextArenaGame('Hangman-v0', seed=1, moves=()).reset().text[:40])"
    )
    run = [sys.executable, "-c", code]
    said = subprocess.run(
        run, capture_output=True, check=True, text=True, env={**os.environ, "NLTK_DATA": str(tmp_path)}
    )
    assert "Hangman" in said.stdout


def test_the_package_is_the_one_that_the_games_were_tried_with() -> None:
    assert game_library().__version__ == "0.7.4"
