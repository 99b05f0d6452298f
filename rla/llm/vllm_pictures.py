"""Pictures for vLLM: each placeholder once in the prompt, which the engine expands by itself, and the files.

The ids that the engine has made are compared with those of the request: what was sampled has to follow the tokens that
are stored. Its prefix cache tells pictures apart by the digests that they come with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rla.errors import UserError
from rla.llm.placed_images import PlacedImage, check_placed
from rla.models.vision import VisionFormat, decoded_picture

NEVER = -100.0  # the lowest bias of a logit that vLLM and servers take
MOST_IMAGES = 64  # of a prompt


def picture_engine_settings(vision: VisionFormat | None) -> dict[str, Any]:
    """Parameters of an engine whose model sees pictures."""
    return {} if vision is None else {"limit_mm_per_prompt": {"image": MOST_IMAGES, "video": 0}}


def never_sampled(vision: VisionFormat | None) -> dict[str, Any]:
    """Parameters of sampling that keep a reply free of picture tokens."""
    return {} if vision is None else {"logit_bias": dict.fromkeys(vision.banned, NEVER)}


def bias_against(banned: Sequence[int]) -> dict[str, Any]:
    """The same in a request to a server, whose keys are texts."""
    return {"logit_bias": {str(token): NEVER for token in banned}} if banned else {}


def vllm_prompt(ids: Sequence[int], images: Sequence[PlacedImage], vision: VisionFormat | None) -> dict[str, Any]:
    """A prompt as vLLM takes it. Raises ValueError where tokens and pictures do not belong together."""
    if vision is None:
        if images:
            raise ValueError("the prompt has pictures, and the model reads texts alone")
        return {"prompt_token_ids": list(ids)}
    check_placed(ids, images, image=vision.image)
    if not images:
        return {"prompt_token_ids": list(ids)}
    return {
        "prompt_token_ids": collapsed(ids, images),
        "multi_modal_data": {"image": [decoded_picture(one.png) for one in images]},
        "multi_modal_uuids": {"image": [one.digest for one in images]},
    }


def collapsed(ids: Sequence[int], images: Sequence[PlacedImage]) -> list[int]:
    """The ids with one token in place of each picture's."""
    found: list[int] = []
    done = 0
    for one in images:
        found += ids[done : one.start + 1]
        done = one.end
    return [*found, *ids[done:]]


def refuse_other_prompt(ids: Sequence[int], made: Sequence[int] | None, images: Sequence[PlacedImage]) -> None:
    """UserError where the engine read other tokens than those that are stored."""
    if images and made is not None and list(made) != list(ids):
        raise UserError(
            f"generator.backend vllm: it made {len(made)} tokens of a prompt with {len(images)} pictures, and "
            f"{len(ids)} are stored; the image processor beside the weights is not the one that vLLM uses"
        )
