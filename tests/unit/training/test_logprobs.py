"""Log-probabilities of chosen tokens against the plain definition, on a tiny real model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rla.errors import UserError
from rla.models.load import load_model
from rla.training.model import TokenScorer, collate
from rla.training.sequences import TrainingSequence, reward_model_sequences, split_branches
from tests.unit.training.builders import random_sequences, reward, tiny_model

TEMPERATURE = 0.7
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_model(tiny_model(tmp_path_factory.mktemp("model") / "tiny"))


def by_definition(model: Any, sequence: TrainingSequence) -> tuple[list[float], list[float]]:
    """One sequence at a time, with an attention mask, softmax over a Python list of ids."""
    ids = torch.tensor([sequence.token_ids])
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0].double()
    logp, entropy = [], []
    for position, allowed in zip(sequence.positions, sequence.allowed, strict=True):
        offered = allowed or list(range(logits.shape[1]))
        distribution = (logits[position - 1, offered] / TEMPERATURE).log_softmax(-1)
        logp.append(distribution[offered.index(sequence.token_ids[position])].item())
        entropy.append(-(distribution.exp() * distribution).sum().item())
    return logp, entropy


@pytest.mark.parametrize("packed", [True, False])
def test_a_batch_without_mask_scores_as_each_sequence_alone(packed: bool, model: Any) -> None:
    sequences = random_sequences(6)
    batch = collate(sequences, device=CPU, packed=packed)
    logp, entropy = TokenScorer(model, temperature=TEMPERATURE)(batch)
    expected = [by_definition(model, sequence) for sequence in sequences]
    assert logp.tolist() == pytest.approx([x for one, _ in expected for x in one], abs=1e-5)
    assert entropy.tolist() == pytest.approx([x for _, one in expected for x in one], abs=1e-5)


def test_branches_of_a_prompt_score_as_each_judgement_alone(model: Any) -> None:
    prompt = list(range(30, 42))
    replies = [[10, 11, 12, 13], [20, 21], [22, 23, 24, 25, 26]]
    score = {
        "trajectory_id": "t",
        "step": 0,
        "prompt_ids": prompt,
        "judgements": [
            {"token_ids": ids, "logprobs": [-1.0] * len(ids), "allowed": [[]] * len(ids)} for ids in replies
        ],
    }
    rewards = [reward("t", 0, 1.0, judgement=index) for index in range(3)]
    [shared] = reward_model_sequences([score], rewards)
    alone = split_branches(shared, budget=0)
    sequences = [shared, *random_sequences(3), *alone]
    logp, _ = TokenScorer(model, temperature=TEMPERATURE)(collate(sequences, device=CPU, packed=True))
    expected = [value for one in alone for value in by_definition(model, one)[0]]
    assert logp[: len(expected)].tolist() == pytest.approx(expected, abs=1e-5)
    assert logp[-len(expected) :].tolist() == pytest.approx(expected, abs=1e-5)


def test_chunks_change_neither_values_nor_gradients(model: Any) -> None:
    batch = collate(random_sequences(5, seed=1), device=CPU, packed=True)
    results = []
    for chunk_logits in (2**25, 3 * model.config.vocab_size):
        model.zero_grad()
        logp, _ = TokenScorer(model, temperature=TEMPERATURE, chunk_logits=chunk_logits)(batch)
        logp.sum().backward()
        results.append((logp.detach(), [parameter.grad.clone() for parameter in model.parameters()]))
    (whole, gradients), (chunked, chunked_gradients) = results
    torch.testing.assert_close(chunked, whole)
    torch.testing.assert_close(chunked_gradients, gradients, atol=1e-5, rtol=1e-4)


def test_a_model_that_rescales_its_logits_is_refused(tmp_path: Path) -> None:
    softcapped = load_model(tiny_model(tmp_path / "tiny"))
    softcapped.config.final_logit_softcapping = 30.0
    with pytest.raises(UserError, match="final_logit_softcapping"):
        TokenScorer(softcapped, temperature=1.0)
