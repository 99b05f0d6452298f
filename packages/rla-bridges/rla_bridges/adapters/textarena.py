"""Single-player games of TextArena: `--env textarena:GuessTheNumber-v0`.

A task is a seed of the game. The game's start, drawn from the seed, decides whether it is held out
(`TextArena.drawn_seeds`). Games draw from the process's global random numbers, so an episode seeds them, saves their
state between its steps, and steps in a process of its own (`Pooled`). The same task and the same moves give the same
answers. See `docs/guide/textarena.md`.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from rla.config import Config
from rla.envs.authoring import plain_texts, root_task
from rla.envs.chat_prompts import judge_prompt, policy_prompt
from rla.envs.observation import Environment, EnvironmentFailure, Observation
from rla.envs.protocols import JudgePrompt, PolicyPrompt
from rla.errors import UserError
from rla.seeds import derive
from rla.store.records import Task, content_id
from rla_bridges.adapters.textarena_games import BY_SEED, GAMES, check_game, game_library, kept_to_itself, opened_game

NAME = "textarena"
RULES = "You play a game. Your action is your move, in the form that the game asks for."
AGENT = "an agent that plays a text game"
OVER = "The game is over."  # if the game itself says nothing at its end
SEEDS = 1 << 30
SIDES = 4  # one game of this many is held out
DRY = 400  # seeds in a row without a new game after which the game is exhausted
LONG_NUMBER = re.compile(r"[0-9]{100}")  # games cannot parse these
NOTHING = "no action"
MOST_FOR_LOST = 0.99
READ = 4  # games that are read to train a new tokenizer
REPEATED = 24  # a piece that is seen less often gets no token of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class TextArenaParams:
    """Parameters of TextArena (`docs/guide/textarena.md`)."""

    id: str = ""  # the game, such as GuessTheNumber-v0
    commands: bool = False  # offer all moves of the game as commands, if they are few and always the same


def _textarena_params(config: Config) -> TextArenaParams:
    """The environment's own parameters."""
    own: TextArenaParams = config.env.own
    return own


@dataclass(frozen=True, slots=True)
class FirstOutcome:
    """Replaces a state's `set_outcome`: after a win in the last turn, some games report the turn limit as well."""

    state: Any

    def __call__(self, reward: float, reason: str | None = None) -> None:
        if not self.state.done:
            type(self.state).set_outcome(self.state, reward, reason)


class TextArenaGame:
    """An `Environment`: one game from one seed."""

    def __init__(self, name: str, *, seed: int, moves: tuple[str, ...]) -> None:
        self._name, self._seed, self._moves = name, seed, moves
        self._luck: Any = None
        self._game: Any = None
        self._formats: list[Any] = []
        self._done = False

    def reset(self) -> Observation:
        self._luck = random.Random(self._seed).getstate()
        with self._playing("reset"):
            game, self._formats, self._done = game_library().make(self._name), [], False
            while isinstance(game, game_library().Wrapper):
                self._formats += [game] if isinstance(game, game_library().ActionWrapper) else []
                game = game.env
            game.reset(num_players=1, seed=self._seed)
            game.state.set_outcome = FirstOutcome(game.state)
            self._game = game
            text = self._said()
        return Observation(text=text, commands=self._moves)

    def step(self, action: str) -> Observation:
        if self._game is None or self._done:
            raise EnvironmentFailure(f"{self._name}: a step before the first reset or after the end")
        with self._playing("a step"):
            for form in self._formats:
                action = form.action(NOTHING if LONG_NUMBER.search(action) else action)
            self._done = bool(self._game.step(action)[0])
            text = self._said()
            reward = self._payment() if self._done else None
        return Observation(
            text=text or OVER, commands=() if self._done else self._moves, done=self._done, reward=reward
        )

    def beginning(self) -> str:
        """Everything that the game has drawn at its start, also hidden parts. Games that begin alike are one game."""
        text = self.reset().text
        state = json.dumps(plain(self._game.state.game_state))
        self.close()
        return f"{text}\n{state}"

    def close(self) -> None:
        self._game = None

    def _payment(self) -> float:
        """The game's reward. A game that ended without a win gets less than full reward: 2048 pays for its score, and
        Minesweeper does not count the cells around the first move, so both may give 1 for a lost game.
        """
        paid, state = float(self._game.close()[0][0]), self._game.state
        lost = state.game_info[0].get("invalid_move", False)
        if hasattr(self._game, "target_tile"):
            lost |= self._game._max_tile() < self._game.target_tile
        return min(paid, MOST_FOR_LOST) if lost else paid

    def _said(self) -> str:
        """The game's messages since the last call, without the echo of the player's own."""
        _, messages = self._game.get_observation()
        game = game_library().GAME_ID
        return "\n".join(text.rstrip() for sender, text, _ in messages if sender == game and isinstance(text, str))

    @contextlib.contextmanager
    def _playing(self, what: str) -> Iterator[None]:
        """Inside, the process's random numbers are the game's own."""
        before = random.getstate()
        random.setstate(self._luck)
        try:
            with kept_to_itself():
                yield
        except Exception as error:  # a game that fails, in any way, ends its own episode and no other
            raise EnvironmentFailure(f"{self._name}: {what} raised {type(error).__name__}: {error}") from error
        finally:
            self._luck = random.getstate()
            random.setstate(before)


def plain(value: Any) -> Any:
    """A game's state as JSON data, the same in every process."""
    if isinstance(value, dict):
        return sorted([str(plain(key)), plain(inner)] for key, inner in value.items())
    if isinstance(value, set | frozenset):
        return sorted(str(plain(inner)) for inner in value)
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    parts = getattr(value, "__dict__", None) or {name: getattr(value, name) for name in getattr(value, "__slots__", ())}
    return [type(value).__name__, plain(parts)]


class TextArena:
    """One single-player game of TextArena."""

    name = NAME
    Params: type = TextArenaParams
    exact_text = True

    def check(self, config: Config) -> None:
        """Refuses games that cannot be played, and parameters that do not fit free text. Raises UserError."""
        own = _textarena_params(config)
        if own.id:
            check_game(own.id)
        if own.commands and not GAMES.get(own.id):
            raise UserError(f"env.own.commands is true, but {own.id} has no fixed moves; set it to false")
        if not own.commands and (config.policy.decoding != "free" or config.policy.reply == "index"):
            key, value = ("decoding", "free") if config.policy.decoding != "free" else ("reply", "text or tagged")
            raise UserError(
                f"policy.{key} is {getattr(config.policy, key)}; set policy.{key}: {value}, or env.own.commands: true"
            )
        if config.tasks.path or config.tasks.kinds or config.tasks.test_kinds:
            raise UserError("textarena makes its own tasks, all of one kind; set no tasks.path and no tasks.kinds")

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        own = _textarena_params(config)
        if not own.id:
            raise UserError("env.own.id names no game; give one, such as --env textarena:GuessTheNumber-v0")
        opened_game(own.id)
        luck = random.Random(derive(seed, NAME, own.id, split))
        held_out, count = config.tasks.held_out(split), config.tasks.count(split)
        return [
            root_task(
                env=NAME,
                split=split,
                instruction=f"Win the game {own.id}.",
                content={"game": own.id, "seed": number},
                kind=own.id,
                scene=own.id,
            )
            for number in self.drawn_seeds(own.id, luck, count=count, held_out=held_out)
        ]

    def drawn_seeds(self, name: str, luck: random.Random, *, count: int, held_out: bool) -> Iterator[int]:
        """Up to `count` seeds of different games on one side; fewer if the game has no more."""
        seen, dry = set[str](), 0
        while len(seen) < count and dry < DRY:
            seed, dry = luck.randrange(SEEDS), dry + 1
            try:
                drawn = str(seed) if name in BY_SEED else TextArenaGame(name, seed=seed, moves=()).beginning()
            except EnvironmentFailure:  # such as LightsOut, when all lights are out at the start
                continue
            if drawn not in seen and (int(content_id(NAME, name, drawn), 16) % SIDES == 0) is held_out:
                seen.add(drawn)
                dry = 0
                yield seed

    def make(self, task: Task, config: Config) -> Environment:
        try:
            content = json.loads(task.payload)
            name, seed = content["game"], content["seed"]
        except (ValueError, TypeError, LookupError, RecursionError):
            name, seed = None, None
        if not isinstance(name, str) or type(seed) is not int:
            raise UserError(f"task {task.task_id}: its payload is not a game of TextArena; make the tasks again")
        opened_game(name)
        moves = GAMES.get(name, ()) if _textarena_params(config).commands else ()
        return TextArenaGame(name, seed=seed, moves=moves)

    def slow(self, config: Config) -> bool:
        return True

    def warm(self, config: Config) -> None:
        opened_game(_textarena_params(config).id)

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterator[str]:
        """The game's texts in a few games of random moves, repeated as if they were many."""
        shown = list(tasks)
        yield from plain_texts(self, shown, config)
        heard = [self._overheard(task, config, rng=random.Random(n)) for n, task in enumerate(shown[:READ])]
        often = ["judge:", OVER, *self.judge_prompt(config).replies(), *chain.from_iterable(heard)]
        yield from (text for text in often for _ in range(REPEATED))

    def tokenizer_phrases(self, config: Config) -> Sequence[str]:
        return ()

    def _overheard(self, task: Task, config: Config, *, rng: random.Random) -> list[str]:
        game = self.make(task, config)
        moves = GAMES.get(_textarena_params(config).id) or ("[1]",)
        seen = [game.reset()]
        while not seen[-1].done and len(seen) < config.env.max_steps:
            seen.append(game.step(rng.choice(moves)))
        return [*moves, *(observation.text for observation in seen)]

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        return policy_prompt(config, rules=RULES)

    def judge_prompt(self, config: Config) -> JudgePrompt:
        return judge_prompt(config, rules=AGENT)
