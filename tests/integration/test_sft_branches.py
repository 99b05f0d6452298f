"""Judgements as branches of one text: the model says of each what it says when asked alone."""

from pathlib import Path

import pytest
import torch

from rla.config.sections import ModelConfig
from rla.llm.chat import ChatFormat
from rla.models.init import init_model, new_tokenizer
from rla.models.load import load_model, load_tokenizer
from rla.pictures.vision import PromptTokens
from rla.training.packing import FORKED, enable_branches, forks
from rla.training.warm_start import branching_example

TEXTS = ["you see a mug 1 . take go desk judge: it helps does not score +1 -1"]


@pytest.mark.parametrize("implementation", [FORKED, "sdpa", "eager"])
def test_a_branch_is_scored_as_if_it_stood_alone(tmp_path: Path, implementation: str) -> None:
    config = ModelConfig(hidden_size=32, layers=2, heads=2, intermediate_size=32, context=128)
    init_model(tmp_path / "m", tokenizer=new_tokenizer(TEXTS, context=config.context), config=config, seed=0)
    chat, model = ChatFormat(load_tokenizer(tmp_path / "m")), load_model(tmp_path / "m")
    dialogue = [{"role": "user", "content": "you see a mug 1"}, {"role": "assistant", "content": "take mug 1"}]
    first = chat.first([*dialogue, {"role": "user", "content": "you see desk judge:"}])
    longer = [*dialogue, {"role": "user", "content": "you see desk"}, {"role": "assistant", "content": "go desk 1"}]
    second = chat.first([*longer, {"role": "user", "content": "you see a judge:"}])
    replies = [[*chat.encode("it helps score +1"), chat.end_id], [*chat.encode("it does not score -1"), chat.end_id]]

    example = branching_example([PromptTokens(ids=first), PromptTokens(ids=second)], replies)
    assert sum(w == 1.0 for w in example.weights) == sum(map(len, replies))
    ids = torch.tensor([example.token_ids])
    found = forks([example.branches], ids.shape[1])
    assert found is not None
    if implementation == FORKED:
        enable_branches(model)
    else:
        model.set_attn_implementation(implementation)
    assert model.config._attn_implementation == implementation
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=found.mask(model), position_ids=found.place).logits[0]
        for prompt, reply, (_, end, _) in zip([first, second], replies, example.branches, strict=True):
            alone = model(input_ids=torch.tensor([prompt + reply])).logits[0]
            inside = logits[end - len(reply) - 1 : end - 1]
            torch.testing.assert_close(inside, alone[len(prompt) - 1 : -1], atol=1e-5, rtol=1e-5)
