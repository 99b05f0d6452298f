"""A judge's training step on rows with branches, full mask against blocks: part of `bench-train`.

Two rows of the shape that the judge learns on: a trunk of about 1,000 tokens, and of each of 30 steps three branches of
24 tokens. Both ways give the same loss; the two take turns.
"""

from __future__ import annotations

import time
from statistics import median

import torch
from transformers import PreTrainedModel, Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

from rla.training.packing import Branch, Forks, enable_branches, forks

TRUNKS, STEPS, OTHERS, REPLY = (1000, 960), 30, 3, 24
REPEATS = 5
SHAPE = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "head_dim": 32, "vocab_size": 339}


def row(trunk: int) -> list[Branch]:
    """Three branches behind each step's share of the trunk."""
    anchors = [trunk * (step + 1) // STEPS - 1 for step in range(STEPS) for _ in range(OTHERS)]
    starts = range(trunk, trunk + REPLY * len(anchors), REPLY)
    return [(start, start + REPLY, anchor) for start, anchor in zip(starts, anchors, strict=True)]


def model(*, blocks: bool) -> PreTrainedModel:
    torch.manual_seed(0)
    made = Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_attention_heads=4, num_key_value_heads=4))
    if blocks:
        enable_branches(made)
    return made


def step(trained: PreTrainedModel, ids: torch.Tensor, found: Forks) -> tuple[float, float]:
    """Seconds and loss of one gradient."""
    started = time.perf_counter()
    mask = found.mask(trained)
    loss = trained(input_ids=ids, labels=ids, attention_mask=mask, position_ids=found.place, use_cache=False).loss
    loss.backward()
    return time.perf_counter() - started, float(loss.detach())


def main() -> None:
    branches = [row(trunk) for trunk in TRUNKS]
    length = max(marks[-1][1] for marks in branches)
    ids = torch.randint(SHAPE["vocab_size"], (len(branches), length), generator=torch.Generator().manual_seed(0))
    found = forks(branches, length)
    assert found is not None
    models = [model(blocks=blocks) for blocks in (False, True)]
    losses = [step(one, ids, found)[1] for one in models]
    assert abs(losses[0] - losses[1]) < 1e-4, losses
    taken = [[step(one, ids, found)[0] for one in models] for _ in range(REPEATS)]
    full, ours = (median(column) for column in zip(*taken, strict=True))
    ratio = median(one / other for one, other in taken)
    print(
        f"branches  {ids.numel()} tokens: {full:.2f} s with a full mask, {ours:.2f} s in blocks: {ratio:.2f} x faster"
    )


if __name__ == "__main__":
    main()
