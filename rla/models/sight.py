"""The two halves of a vision-language model: features of pictures, and hidden states of tokens among which they stand.

Both are called apart, because an engine meets the tokens of a picture in any pass, and a trainer many sequences in one
row. The vision tower keeps its own attention: only the text model takes ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOWER_ATTENTION = "sdpa"


class ImageFeatures(NamedTuple):
    """Of n picture tokens: what stands in the place of embeddings (n, H), and what is added behind each of the first
    layers (Qwen3-VL's DeepStack), which may be none.
    """

    embeds: Tensor
    deep: tuple[Tensor, ...]

    @property
    def bytes(self) -> int:
        return sum(one.nbytes for one in (self.embeds, *self.deep))

    def cut(self, low: int, high: int) -> ImageFeatures:
        """Of the tokens from `low` to `high`."""
        return ImageFeatures(self.embeds[low:high], tuple(one[low:high] for one in self.deep))


def joined_features(parts: Sequence[ImageFeatures]) -> ImageFeatures:
    """One behind the other."""
    embeds, deep = zip(*parts, strict=True)
    return ImageFeatures(torch.cat(embeds), tuple(torch.cat(layer) for layer in zip(*deep, strict=True)))


def sees(model: PreTrainedModel) -> bool:
    """Whether a model has a vision tower."""
    return hasattr(model.config, "vision_config")


def vision_tower(model: PreTrainedModel) -> torch.nn.Module:
    """The part of a vision-language model that looks at pictures, its projection into the text model included."""
    tower: torch.nn.Module = model.base_model.visual
    return tower


def set_text_attention(model: PreTrainedModel, implementation: str) -> None:
    """Have the text model attend by an implementation of ours; a vision tower goes on as it is."""
    if not sees(model):
        model.set_attn_implementation(implementation)
        return
    parts = {"": implementation, "text_config": implementation, "vision_config": TOWER_ATTENTION}
    model.set_attn_implementation(parts)


def image_features(model: PreTrainedModel, pixels: Tensor, grids: Tensor) -> list[ImageFeatures]:
    """Of each picture. `pixels` and `grids` as `rla.models.vision` makes them."""
    device = model.device
    core: Any = model.base_model
    found = core.get_image_features(pixels.to(device), grids.to(device), return_dict=True)
    layers = getattr(found, "deepstack_features", None) or []
    deep = list(zip(*layers, strict=True)) if layers else [()] * len(found.pooler_output)
    return [ImageFeatures(embeds, tuple(more)) for embeds, more in zip(found.pooler_output, deep, strict=True)]


def seeing_states(
    model: PreTrainedModel,
    input_ids: Tensor,
    positions: Tensor,
    *,
    looked: Tensor,
    features: ImageFeatures | None,
    **options: Any,
) -> Tensor:
    """Last hidden states (B, L, H). `positions` (3, B, L); `looked` (B, L) marks picture tokens, whose `features` stand
    in the order of rows; None where there are none. `options` go to the text model.
    """
    core: Any = model.base_model
    language = core.language_model
    embeds = language.get_input_embeddings()(input_ids)
    if features is not None:
        embeds = embeds.masked_scatter(looked[..., None], features.embeds.to(embeds.dtype))
        if features.deep:
            options |= {"visual_pos_masks": looked, "deepstack_visual_embeds": list(features.deep)}
    hidden: Tensor = language(inputs_embeds=embeds, position_ids=positions, **options).last_hidden_state
    return hidden
