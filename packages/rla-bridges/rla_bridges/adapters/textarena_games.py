"""The single-player games of TextArena: which of them can be played here, their moves, and how to open one.

Each was tried with textarena 0.7.4 on Python 3.11, without a network: ten seeds, random moves, two processes with
different hash seeds. `GAMES` has the games that ran, gave the same results in both processes, and can be won by a
player who sees the hidden state; the tests have such players.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
from collections.abc import Iterator
from functools import cache
from typing import Any

from rla.errors import UserError
from rla.plugins import need_package

Moves = tuple[str, ...]
DIRECTIONS: Moves = ("[up]", "[down]", "[left]", "[right]")


def _board_moves(rows: int, columns: int) -> Moves:
    return tuple(f"[{row} {column}]" for row in range(rows) for column in range(columns))


def numbers(first: int, last: int) -> Moves:
    return tuple(f"[{number}]" for number in range(first, last + 1))


# All moves of a game if they are few and always the same; empty if they are many or depend on the board.
GAMES: dict[str, Moves] = {
    **dict.fromkeys(("2048-v0", "2048-v0-ultra-easy", "2048-v0-mega-easy", "2048-v0-super-easy"), DIRECTIONS),
    **dict.fromkeys(("2048-v0-very-easy", "2048-v0-easy", "2048-v0-hard", "2048-v0-very-hard"), DIRECTIONS),
    **dict.fromkeys(("2048-v0-extreme", "2048-v0-5x5", "2048-v0-6x6", "2048-v0-8x8"), DIRECTIONS),
    "2048-v0-10x10": DIRECTIONS,
    **dict.fromkeys(("Crosswords-v0", "Crosswords-v0-hardcore"), ()),
    **dict.fromkeys(("FrozenLake-v0", "FrozenLake-v0-random", "FrozenLake-v0-hardcore"), DIRECTIONS),
    "GuessTheNumber-v0": numbers(1, 20),
    "GuessTheNumber-v0-hardcore": numbers(1, 50),
    "LightsOut-v0": _board_moves(5, 5),
    **dict.fromkeys(("LogicPuzzle-v0", "LogicPuzzle-v0-hard"), ()),
    **dict.fromkeys(("Mastermind-v0", "Mastermind-v0-hard", "Mastermind-v0-extreme"), ()),
    "Minesweeper-v0": _board_moves(8, 8),
    "Minesweeper-v0-small": _board_moves(5, 5),
    "Minesweeper-v0-medium": _board_moves(10, 10),
    "Minesweeper-v0-hard": _board_moves(12, 12),
    "RushHour-v0": (),
    **dict.fromkeys(("Secretary-v0", "Secretary-v0-long"), ("[accept]", "[continue]")),
    "Sokoban-v0": DIRECTIONS,
    **dict.fromkeys(("Sudoku-v0", "Sudoku-v0-very-easy", "Sudoku-v0-easy", "Sudoku-v0-medium", "Sudoku-v0-hard"), ()),
    "ThreeCardMonte-v0": numbers(0, 2),
}
# For these games the seed decides the side, because a board takes long, or is drawn after the first move. They have so
# many boards that two seeds hardly ever draw the same.
BY_SEED = frozenset(
    {"Minesweeper-v0", "Minesweeper-v0-small", "Minesweeper-v0-medium", "Minesweeper-v0-hard"}
    | {"RushHour-v0", "Sokoban-v0", "Sudoku-v0-medium", "Sudoku-v0-hard"}
)
WORDS, TAGGER = "words", "averaged_perceptron_tagger_eng"
CORPORA: dict[str, tuple[str, ...]] = {  # games that need data of nltk
    **dict.fromkeys(("Hangman-v0", "Hangman-v0-hardcore", "WordSearch-v0", "WordSearch-v0-hardcore"), (WORDS,)),
    **dict.fromkeys(("WordLadder-v0", "WordLadder-v0-medium", "WordLadder-v0-hard"), (WORDS,)),
    **dict.fromkeys(("Wordle-v0", "Wordle-v0-long"), (WORDS, TAGGER)),
}
ONE_GAME = "it has one game only, so none can be held out"
SERVICE = "it asks a language model of a service on the network"
BROKEN = "its source has a syntax error on Python 3.11"
REFUSED_GAMES = {
    **dict.fromkeys(("Countdown-v0", "Cryptarithm-v0", "PegJump-v0", "Slitherlink-v0", "TowerOfHanoi-v0"), ONE_GAME),
    **dict.fromkeys((f"TowerOfHanoi-v0-{size}" for size in ("medium", "hard", "hardcore", "extreme")), ONE_GAME),
    **dict.fromkeys(("GuessWho-v0", "TwentyQuestions-v0", "TwentyQuestions-v0-hardcore"), SERVICE),
    **dict.fromkeys(("Klondike-v0", "UltimateTexasHoldem-v0"), BROKEN),
    "Sokoban-v0-medium": "a room may take minutes",
    "2048-v0-3x3": "it cannot be won: a board of nine cells holds no tile above 1024",
    **dict.fromkeys(("Bandit-v0", "Bandit-v0-hard"), "it cannot be won: it pays wrong buttons and never the right one"),
    **dict.fromkeys(
        ("Blackjack-v0", "Blackjack-v0-long"), "most games cannot be won: the cards lose one hand or another"
    ),
    "FifteenPuzzle-v0": "it cannot be won: half of the boards have no solution, and at the end of the others it fails",
    "Set-v0": "it is won by naming one card three times",
    **dict.fromkeys(
        ("Wordle-v0-hardcore", "Wordle-v0-long-hardcore"), "its word may have a capital, which no guess has"
    ),
}
PLAYABLE = sorted(GAMES.keys() | CORPORA.keys())


def check_game(name: str) -> None:
    """Raises UserError for an id that cannot be played. Does not import the package."""
    if name in REFUSED_GAMES:
        raise UserError(f"env.own.id is {name}, which rla cannot play: {REFUSED_GAMES[name]}; choose another game")
    if name not in PLAYABLE:
        near = difflib.get_close_matches(name, PLAYABLE, n=1)
        hint = f"did you mean {near[0]}?" if near else "docs/guide/textarena.md lists the games that can be played"
        raise UserError(f"env.own.id is {name!r}, which is not a single-player game of textarena 0.7.4; {hint}")


@contextlib.contextmanager
def kept_to_itself() -> Iterator[None]:
    """Games print, and download word lists even if they have them. Inside, they do neither."""
    import nltk

    fetch = nltk.download
    nltk.download = lambda *_, **__: False
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        nltk.download = fetch


@cache
def game_library() -> Any:
    """The package. Raises UserError if it is not installed."""
    need_package("textarena", install="rla-bridges[textarena]", why="env.name is textarena")
    with contextlib.redirect_stdout(io.StringIO()):
        return importlib.import_module("textarena")


@cache
def opened_game(name: str) -> Any:
    """The specification of a game, with its module imported. Raises UserError if that fails."""
    check_game(name)
    library = game_library()
    check_corpora(name)
    spec = importlib.import_module("textarena.envs.registration").ENV_REGISTRY.get(name)
    if spec is None:
        raise UserError(
            f"env.own.id is {name}: textarena {library.__version__} has no such game; install textarena 0.7.4"
        )
    try:
        with kept_to_itself():
            importlib.import_module(spec.entry_point.split(":")[0])
    except (ImportError, SyntaxError) as error:
        raise UserError(f"env.own.id: {name} cannot be imported ({error}); choose another game") from error
    return spec


def check_corpora(name: str) -> None:
    """Raises UserError with the command that downloads missing data."""
    import nltk

    folders = {WORDS: "corpora/words", TAGGER: f"taggers/{TAGGER}"}
    for corpus in CORPORA.get(name, ()):
        try:
            nltk.data.find(folders[corpus])
        except LookupError:
            try:
                nltk.data.find(f"{folders[corpus]}.zip")
            except LookupError:
                raise UserError(
                    f"env.own.id: {name} needs data of nltk: python -m nltk.downloader {' '.join(CORPORA[name])}"
                ) from None
