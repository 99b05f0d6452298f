"""Players of TextArena's games that read the hidden state: if one of them cannot win, nobody can."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from rla_bridges.adapters.textarena import TextArenaGame

from rla.envs.observation import Observation

Player = Callable[[TextArenaGame], Iterator[str]]
STEPS = ((-1, 0, "[up]"), (1, 0, "[down]"), (0, -1, "[left]"), (0, 1, "[right]"))


def best_score(name: str, seed: int) -> float:
    """What the player of the game gets in the end."""
    one = TextArenaGame(name, seed=seed, moves=())
    one.reset()
    seen = Observation(text="")
    for move in PLAYERS[name.partition("-v0")[0]](one):
        seen = one.step(move)
        if seen.done:
            break
    return seen.reward if seen.reward is not None else float("nan")


def merges_the_last_two(one: TextArenaGame) -> Iterator[str]:
    """The last move of a game of 2048, with two tiles of half the target; the board has to have room for the target."""
    env = one._game
    cells = env.board_size**2
    assert env.target_tile <= 2 ** (cells + 1), "a board of n cells holds no tile above 2 ** (n + 1)"
    env.state.game_state["board"][0][:2] = [env.target_tile // 2] * 2
    yield "[left]"


def crosswords(one: TextArenaGame) -> Iterator[str]:
    rows = enumerate(one._game.state.game_state["solution"])
    cells = [(row, column, letter) for row, line in rows for column, letter in enumerate(line) if letter != "."]
    for begin in range(0, len(cells), 4):  # a long word has more cells than there are turns
        yield " ".join(f"[{row} {column} {letter}]" for row, column, letter in cells[begin : begin + 4])


def frozen_lake(one: TextArenaGame) -> Iterator[str]:
    state = one._game.state.game_state
    grid, size = state["grid"], one._game.size

    def moves(place: Any) -> Iterator[tuple[str, Any]]:
        for down, right, move in STEPS:
            row, column = place[0] + down, place[1] + right
            if 0 <= row < size and 0 <= column < size and grid[row][column] != "H":
                yield move, (row, column)

    return shortest(tuple(state["player_pos"]), moves, lambda place: place == tuple(state["goal_pos"]))


def shortest(
    start: Any, moves: Callable[[Any], Iterator[tuple[str, Any]]], done: Callable[[Any], bool]
) -> Iterator[str]:
    """The moves of a shortest way; none if there is none. Breadth first."""
    came: dict[Any, tuple[Any, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if done(state):
            path = []
            while (step := came[state]) is not None:
                state, move = step
                path.append(move)
            return reversed(path)
        for move, after in moves(state):
            if after not in came:
                came[after] = (state, move)
                queue.append(after)
    return iter(())


def lights_out(one: TextArenaGame) -> Iterator[str]:
    """Each first row of presses decides the rows below it."""
    size, grid = one._game.size, one._game.state.game_state["grid"]
    best: list[str] | None = None
    for first in range(2**size):
        lights = [list(row) for row in grid]
        presses = []
        for row in range(size):
            for column in range(size):
                if first >> column & 1 if row == 0 else lights[row - 1][column]:
                    one._game._toggle_lights(lights, row, column)
                    presses.append(f"[{row} {column}]")
        if not any(map(any, lights)) and (best is None or len(presses) < len(best)):
            best = presses
    return iter(best or ())


def logic_puzzle(one: TextArenaGame) -> Iterator[str]:
    """All marks of a table at once: there are more cells than turns."""
    for table in one._game.game_board_solution.values():
        yield " ".join(f"[{row} {item} {mark}]" for row, marks in table.items() for item, mark in marks.items())


def minesweeper(one: TextArenaGame) -> Iterator[str]:
    env = one._game
    yield f"[{env.rows // 2} {env.cols // 2}]"
    cells = [(row, column) for row in range(env.rows) for column in range(env.cols)]
    for row, column in sorted(cells, key=lambda cell: env.grid[cell[0]][cell[1]] != 0):  # empty cells open others
        if env.grid[row][column] != -1 and not env.revealed[row][column]:
            yield f"[{row} {column}]"


def rush_hour(one: TextArenaGame) -> Iterator[str]:
    cars = one._game.state.game_state["vehicles"]
    names, size = list(cars), one._game.BOARD_SIZE

    def cells(name: str, place: tuple[int, int]) -> Iterator[tuple[int, int]]:
        for number in range(cars[name].length):
            yield (place[0], place[1] + number) if cars[name].horizontal else (place[0] + number, place[1])

    def moves(places: Any) -> Iterator[tuple[str, Any]]:
        taken = {cell: name for name, place in zip(names, places, strict=True) for cell in cells(name, place)}
        for number, name in enumerate(names):
            row, column = places[number]
            for sign, by in (("+", 1), ("-", -1)):
                after = (row, column + by) if cars[name].horizontal else (row + by, column)
                if all(
                    0 <= r < size and 0 <= c < size and taken.get((r, c), name) == name for r, c in cells(name, after)
                ):
                    yield f"[{name}{sign}]", (*places[:number], after, *places[number + 1 :])

    start = tuple((cars[name].row, cars[name].col) for name in names)
    target = names.index("X")
    return shortest(start, moves, lambda places: places[target][1] >= size - cars["X"].length)


def secretary(one: TextArenaGame) -> Iterator[str]:
    draws = one._game.state.game_state["draws"]
    yield from ["[continue]"] * draws.index(max(draws))
    yield "[accept]"


def sokoban(one: TextArenaGame) -> Iterator[str]:
    env = one._game
    rows, columns = env.room_fixed.shape
    free = {(row, column) for row in range(rows) for column in range(columns) if env.room_fixed[row, column] != 0}
    goals = {cell for cell in free if env.room_fixed[cell] == 2}
    boxes = frozenset(cell for cell in free if env.room_state[cell] in (3, 4))

    def moves(state: Any) -> Iterator[tuple[str, Any]]:
        (row, column), boxed = state
        for down, right, move in STEPS:
            after, beyond = (row + down, column + right), (row + 2 * down, column + 2 * right)
            if after in boxed:
                if beyond in free and beyond not in boxed:
                    yield move, (after, boxed - {after} | {beyond})
            elif after in free:
                yield move, (after, boxed)

    start = (tuple(int(number) for number in env.player_position), boxes)
    return shortest(start, moves, lambda state: state[1] == goals)


def sudoku(one: TextArenaGame) -> Iterator[str]:
    board = one._game.state.game_state["board"]
    for row in range(9):
        for column in range(9):
            if not board[row][column]:
                yield f"[{row + 1} {column + 1} {one._game.full_grid[row][column]}]"


def finds_words(one: TextArenaGame) -> Iterator[str]:
    for word, (row, column, direction) in one._game.placed_words.items():
        last = len(word) - 1
        end = (row, column + last) if direction == "across" else (row + last, column)
        yield f"[{row} {column} {end[0]} {end[1]}]"


def word_ladder(one: TextArenaGame) -> Iterator[str]:
    env = one._game
    words = [word for word in env.word_list if len(word) == len(env.start_word)]
    neighbours = env._build_neighbor_map(words)
    return shortest(
        env.start_word,
        lambda word: ((f"[{after}]", after) for after in neighbours[word]),
        lambda word: word == env.target_word,
    )


PLAYERS: dict[str, Player] = {
    "2048": merges_the_last_two,
    "Crosswords": crosswords,
    "FrozenLake": frozen_lake,
    "GuessTheNumber": lambda one: iter([f"[{one._game.game_number}]"]),
    "Hangman": lambda one: iter([f"[{one._game.state.game_state['target_word']}]"]),
    "LightsOut": lights_out,
    "LogicPuzzle": logic_puzzle,
    "Mastermind": lambda one: iter([f"[{' '.join(map(str, one._game.state.game_state['secret_code']))}]"]),
    "Minesweeper": minesweeper,
    "RushHour": rush_hour,
    "Secretary": secretary,
    "Sokoban": sokoban,
    "Sudoku": sudoku,
    "ThreeCardMonte": lambda one: iter([f"[{one._game.ball_pos}]"]),
    "WordLadder": word_ladder,
    "WordSearch": finds_words,
    "Wordle": lambda one: iter([f"[{one._game.state.game_state['secret_word']}]"]),
}
