"""Who sees whom in a row with branches, and that our attention gives what a full mask gives."""

import pytest
import torch
from transformers import MistralConfig, Qwen3Config
from transformers.models.mistral.modeling_mistral import MistralForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

from rla.errors import UserError
from rla.training.packing import FORKED, enable_branches, forks, mask_blocks

SIZE = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": 8}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1}


def test_visibility_and_places_of_a_worked_example() -> None:
    """Trunk of 3 tokens, one branch of 2 behind the first 2 of them: it stands at places 2 and 3."""
    found = forks([[(3, 5, 2)]], 5)
    assert found is not None
    assert found.trunk == 3
    assert found.place.tolist() == [[0, 1, 2, 2, 3]]
    assert found.visible[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 1, 0, 1, 1],
    ]


def test_without_branches_there_is_nothing() -> None:
    assert forks([[], []], 4) is None


@pytest.mark.parametrize(("block", "worthwhile"), [(3, 2.0), (128, 2.0), (3, 0.0)])  # three blocks, one, uncut
def test_our_attention_gives_the_values_and_gradients_of_a_full_mask(
    block: int, worthwhile: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rla.training.packing.BLOCK", block)
    monkeypatch.setattr("rla.training.packing.WORTHWHILE", worthwhile)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**SIZE, **HEADS))
    ids = torch.randint(32, (3, 12))
    found = forks([[(5, 8, 3), (8, 12, 4)], [(7, 9, 6)], []], 12)
    assert found is not None
    results = []
    for implementation in ("sdpa", FORKED):
        if implementation == FORKED:
            enable_branches(model)
        assert model.config._attn_implementation == implementation
        mask = found.mask(model)
        assert mask.shape == (3, 1, 12 if implementation == "sdpa" else 7, 12)
        logits = model(input_ids=ids, attention_mask=mask, position_ids=found.place).logits
        model.zero_grad()
        logits.logsumexp(-1).sum().backward()
        gradients = [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
        results.append([logits.detach(), *gradients])
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)


def test_a_block_leaves_out_what_none_of_its_queries_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rla.training.packing.BLOCK", 2)
    found = forks([[(3, 5, 2), (5, 6, 1)]], 6)
    assert found is not None
    seen = found.visible[:, :, found.trunk :]
    mask = torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))
    assert mask_blocks(mask) is None, "6 of 12 pairs are left"
    monkeypatch.setattr("rla.training.packing.WORTHWHILE", 0.6)
    assert mask_blocks(mask) is None, "worked out once for a mask"
    cut = mask_blocks(mask.clone())
    assert cut is not None
    masks, columns = cut
    assert columns.tolist() == [0, 1, 3, 4, 0, 5]
    hidden = float("-inf")
    assert [one[0, 0].tolist() for one in masks] == [[[0, 0, 0, hidden], [0, 0, 0, 0]], [[0, 0]]]


def test_a_window_is_left_as_it_is_and_must_hold_the_row() -> None:
    model = MistralForCausalLM(MistralConfig(**SIZE, **HEADS, sliding_window=4, attn_implementation="sdpa"))
    enable_branches(model)
    assert model.config._attn_implementation == "sdpa"
    short, long = forks([[(2, 4, 1)]], 4), forks([[(3, 5, 2)]], 5)
    assert short is not None
    assert long is not None
    assert short.mask(model).shape == (1, 1, 4, 4)
    with pytest.raises(UserError, match="5 tokens with branches, but mistral has layers that see 4"):
        long.mask(model)
