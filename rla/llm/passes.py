"""Passes of the transformers engine: new tokens of many sequences in one row, keys and values to their slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rla.llm import attention
from rla.llm.slot_cache import SlotCache
from rla.llm.slots import Ints, SlotTable

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rla.llm.base import Request
    from rla.llm.jobs import Row


class TextPasses:
    """Passes of a model that reads texts."""

    def __init__(self, model: PreTrainedModel, cache: SlotCache, *, context: int) -> None:
        self.model, self.cache, self.context = model, cache, context

    def prompt(self, request: Request) -> Ints:
        """The ids of a prompt as the cache keeps them. Raises ValueError for pictures."""
        if request.images:
            raise ValueError("the prompt has pictures, and the model reads texts alone")
        return np.asarray(request.prompt_ids, dtype=np.int64)

    def forget(self) -> None:
        """Give up what was computed with weights that go."""

    @torch.inference_mode()
    def logits(
        self, table: SlotTable, rows: Sequence[Row], slots: Ints, starts: Ints, counts: Ints, complete: np.ndarray
    ) -> Tensor:
        """Logits [complete rows, V] after each complete row's last token; row i brings `counts[i]` new tokens."""
        device = self.model.device
        plan = attention.make_plan(slots=slots, starts=starts, counts=counts, context=self.context, device=device)
        slot = np.repeat(slots, counts)
        position = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(len(slot))
        last = torch.from_numpy((np.cumsum(counts) - 1)[complete]).to(device)
        self.cache.plan = plan
        options = {"past_key_values": self.cache, "use_cache": True, "slot_plan": plan}
        ids = table.ids[slot, position].astype(np.int64)
        return self.computed(ids, position, last, rows=rows, starts=starts, counts=counts, options=options)

    def computed(
        self,
        ids: Ints,
        position: Ints,
        last: Tensor,
        *,
        rows: Sequence[Row],
        starts: Ints,
        counts: Ints,
        options: dict[str, Any],
    ) -> Tensor:
        """The pass itself, over tokens `ids` at the places `position` of their sequences."""
        device = self.model.device
        output = self.model(
            input_ids=torch.from_numpy(ids)[None].to(device),
            position_ids=torch.from_numpy(position)[None].to(device),
            logits_to_keep=last,
            **options,
        )
        logits: Tensor = output.logits[0]
        return logits
