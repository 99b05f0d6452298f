"""A table of episodes for W&B and trackio: a bounded sample of each iteration, next to the curves of the run.

Texts are of models and environments. They are cut, printable, and without HTML tags and Markdown links: trackio reads
the texts of a table as Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from rla.config import Config
from rla.errors import UserError
from rla.rollouts.labels import LABELS
from rla_study.showing.episodes import ShownEpisode, episode_frame, played_in, shown_episodes

COLUMNS = ["iteration", "task", "kind", "instruction", "outcome", "steps", "reward", "votes", "before", "after"]
EPISODES = 8  # of an iteration, half of them won if there are as many
SHOWN = 500  # characters of a text
MARKUP = re.compile(r"(?<=<)(?=\S)|(?<=\])(?=[(\[:])|(?<=&)(?=[#\w])|(?<=`)(?=`)")
ADDRESS = re.compile(r"\b(https?|data|javascript):(?=\S)", re.IGNORECASE)


def episode_table(run: Path, config: Config, iteration: int, tracker: str) -> dict[str, Any]:
    """The table `episodes` of an iteration; nothing if its episodes cannot be read."""
    try:
        played = played_in(run, config, iteration)
        table = episode_frame(played).sort("trajectory_id")
        won, lost = (table.filter(outcome=outcome)["trajectory_id"].to_list() for outcome in (1, -1))
        wanted = won[: max(EPISODES // 2, EPISODES - len(lost))]
        wanted += lost[: EPISODES - len(wanted)]
        found = shown_episodes(played, wanted, config, labels=pl.DataFrame(schema=LABELS))
    except (UserError, OSError):
        return {}
    rows = [list(_row(iteration, found[name])) for name in wanted]
    return {"episodes": import_module(tracker).Table(columns=COLUMNS, data=rows)}


def _row(iteration: int, episode: ShownEpisode) -> Iterator[Any]:
    scores = [vote.score for step in episode.steps for vote in step.votes if vote.score is not None]
    good = sum(score > 0 for score in scores)
    first = episode.steps[0].observation if episode.steps else ""
    last = episode.steps[-1].reply if episode.steps else ""
    yield from (iteration, episode.task_id, plain_cell(episode.kind), plain_cell(episode.instruction))
    yield from (plain_cell(episode.ended), len(episode.steps), episode.reward)
    yield f"{good} of {len(scores)} good" if scores else ""
    yield from (plain_cell(first), plain_cell(f"{cut(last)}\n{episode.error or episode.verdict}"))


def cut(text: str, most: int = SHOWN // 2) -> str:
    """The beginning and the end of a text."""
    return text if len(text) <= most else f"{text[: most // 2]} [...] {text[-(most // 2) :]}"


def plain_cell(text: str) -> str:
    """At most SHOWN characters and a mark, without control characters or markup that a viewer could obey."""
    kept = "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return ADDRESS.sub(r"\1 :", MARKUP.sub(" ", cut(kept, SHOWN)))
