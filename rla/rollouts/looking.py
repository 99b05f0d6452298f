"""Whether the models of a stage see the pictures that an environment shows, and what a judge is shown of an episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.envs.pictures import shows_images
from rla.models.checkpoint import model_folder
from rla.models.vision import VisionFormat, vision_for
from rla.store.images import images_of_part, named_images

PNGS = "pngs"  # key that a row of trajectories gets: digest -> file


def seeing(env: object, config: Config, checkpoint: Path) -> VisionFormat | None:
    """What the model of a checkpoint makes of pictures; None where the environment shows none to models.

    Raises UserError for a model that reads texts alone in an environment that shows pictures.
    """
    shows = shows_images(env, config)
    return vision_for(model_folder(checkpoint), environment=config.env.name, shows=shows)


def with_pngs(part: Path, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a part of trajectories, with the pictures that they name; the others as they are."""
    named = {digest for row in rows for digest in named_images(row)}
    found = images_of_part(part, named)
    return [row | {PNGS: {digest: found[digest] for digest in named_images(row)}} if named else row for row in rows]


def screens_of(trajectory: Mapping[str, Any]) -> list[tuple[bytes, ...]]:
    """The pictures of each observation of a row, that after the last step included; empty where it has none."""
    pngs = trajectory.get(PNGS)
    if pngs is None:
        return []
    return [tuple(pngs[digest] for digest in shown) for shown in trajectory["screens"]]
