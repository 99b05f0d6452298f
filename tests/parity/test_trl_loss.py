"""On the same tensors our loss, gradient and metrics equal those of TRL 1.16's GRPO loss (fp32, 1e-5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl", reason="the oracle, TRL, is not installed")

from rla.config.training import TrainConfig  # noqa: E402
from rla.models.load import load_model  # noqa: E402
from rla.training.losses import LossInputs, k3, policy_loss, token_weights  # noqa: E402
from rla.training.model import TokenScorer, collate  # noqa: E402
from rla.training.sequences import TrainingSequence  # noqa: E402
from tests.parity.trl_adapter import GivenLogps, GrpoLoss, with_fused_head  # noqa: E402
from tests.unit.training.builders import tiny_model  # noqa: E402

ROWS, TOKENS, PROMPT, VOCABULARY, TEMPERATURE = 6, 9, 5, 100, 0.8
CLOSE: dict[str, float] = {"atol": 1e-5, "rtol": 1e-5}


def tensors(seed: int) -> dict[str, Any]:
    """Completions of different lengths, an advantage per token, ratios of 0.4 to 2.5: both bounds clip."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, TOKENS + 1, (ROWS, 1), generator=generator)
    old = -3 * torch.rand(ROWS, TOKENS, generator=generator) - 0.05
    return {
        "mask": (torch.arange(TOKENS)[None] < lengths).int(),
        "old": old,
        "reference": old + 0.5 * torch.randn(ROWS, TOKENS, generator=generator),
        "advantages": torch.randn(ROWS, TOKENS, generator=generator),
        "logps": old + 0.9 * (2 * torch.rand(ROWS, TOKENS, generator=generator) - 1),
        "prompt_ids": torch.randint(VOCABULARY, (ROWS, PROMPT), generator=generator),
        "completion_ids": torch.randint(VOCABULARY, (ROWS, TOKENS), generator=generator),
    }


def trl_inputs(given: dict[str, Any]) -> dict[str, Any]:
    return {
        "prompt_ids": given["prompt_ids"],
        "prompt_mask": torch.ones_like(given["prompt_ids"]),
        "completion_ids": given["completion_ids"],
        "completion_mask": given["mask"],
        "advantages": given["advantages"],
        "old_per_token_logps": given["old"],
        "ref_per_token_logps": given["reference"],
    }


# Our names, and TRL's for the same: (config, TRL's loss type, its level, its delta)
CASES: dict[str, tuple[dict[str, Any], str, str, float | None]] = {
    "dapo": ({"aggregation": "token"}, "dapo", "token", None),
    "grpo": ({"aggregation": "sequence"}, "grpo", "token", None),
    "dr_grpo": ({"aggregation": "fixed", "max_tokens": 7}, "dr_grpo", "token", None),
    "dual clip": ({"aggregation": "token", "dual_clip": 1.6}, "dapo", "token", 1.6),
    "cispo": ({"loss": "cispo", "aggregation": "token"}, "cispo", "token", None),
    "cispo by sequence": ({"loss": "cispo", "ratio": "reply", "aggregation": "token"}, "cispo", "sequence", None),
    "gspo": ({"loss": "gspo", "aggregation": "sequence"}, "grpo", "sequence", None),
    "gspo, token mean": ({"loss": "gspo", "aggregation": "token"}, "dapo", "sequence", None),
    # Two replies of a segment, one on every other of its tokens: TRL's completion is the segment.
    "segment": ({"loss": "gspo", "ratio": "segment", "aggregation": "trajectory"}, "grpo", "sequence", None),
    "segment, token mean": ({"ratio": "segment", "aggregation": "token"}, "dapo", "sequence", None),
}


@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize(("low", "high"), [(0.2, 0.2), (0.2, 0.28)])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("case", CASES)
def test_loss_gradient_and_metrics_on_identical_log_probabilities(
    case: str, seed: int, low: float, high: float, beta: float
) -> None:
    settings, loss_type, level, delta = CASES[case]
    given = tensors(seed)
    if level == "sequence":  # TRL's sequences have one advantage, and their ratios lie closer to 1
        given["advantages"] = given["advantages"][:, :1].expand(ROWS, TOKENS)
        given["logps"] = given["old"] + 3 * (given["logps"] - given["old"]).mean(1, keepdim=True).expand(ROWS, TOKENS)
    theirs = given["logps"].clone().requires_grad_()
    oracle = GivenLogps(
        logps=theirs, clip_low=low, clip_high=high, beta=beta, loss_type=loss_type, level=level, delta=delta, length=7
    )
    asked = trl_inputs(given)
    if level == "sequence":
        asked["advantages"] = given["advantages"][:, 0]
    expected, metrics = oracle(oracle.model, asked)
    expected.backward()

    ours = given["logps"].clone().requires_grad_()
    chosen = given["mask"].bool()
    config = TrainConfig(**settings, clip_low=low, clip_high=high)
    rows = torch.arange(ROWS)[:, None].expand(ROWS, TOKENS)
    old, reference, advantages = (given[name][chosen] for name in ("old", "reference", "advantages"))
    inputs = LossInputs(
        logp=ours[chosen],
        logp_old=old,
        logp_sampled=old,
        logp_ref=reference,
        advantage=advantages,
        mask=torch.ones(len(old), dtype=torch.bool),
        reply=(rows if config.ratio != "segment" else 2 * rows + torch.arange(TOKENS)[None] % 2)[chosen],
        segment=rows[chosen],
    )
    per_token, marks = policy_loss(inputs, config)
    kl = k3(inputs.logp, reference)
    step = sequences_of(given)
    weights = token_weights(step, config.aggregation, fixed_length=config.max_tokens)
    loss = (torch.tensor([weight for one in step for weight in weights(one)]) * (per_token + beta * kl)).sum()
    loss.backward()

    torch.testing.assert_close(loss, expected, **CLOSE)
    torch.testing.assert_close(ours.grad, theirs.grad, **CLOSE)
    if "clip_ratio/low_mean" in metrics:
        by_token = (
            torch.ones(len(old)) if level == "token" else 1 / (chosen.sum(1, keepdim=True).expand_as(chosen)[chosen])
        )
        share = lambda name: float((marks[name] * by_token).sum() / by_token.sum())  # noqa: E731
        assert share("clip_low_share") == pytest.approx(metrics["clip_ratio/low_mean"], abs=1e-6)
        assert share("clip_high_share") == pytest.approx(metrics["clip_ratio/high_mean"], abs=1e-6)
        assert max(metrics["clip_ratio/low_mean"], metrics["clip_ratio/high_mean"]) > 0
    if beta:
        assert kl.mean().item() == pytest.approx(metrics["kl"], abs=1e-5)


def sequences_of(given: dict[str, Any]) -> list[TrainingSequence]:
    sequences = []
    for row in range(ROWS):
        count = int(given["mask"][row].sum())
        sequences.append(
            TrainingSequence(
                token_ids=[
                    *given["prompt_ids"][row].tolist(),
                    *given["completion_ids"][row, :count].tolist(),
                ],
                positions=list(range(PROMPT, PROMPT + count)),
                logp=given["old"][row, :count].tolist(),
                allowed=[[]] * count,
                advantages=given["advantages"][row, :count].tolist(),
                owner=str(row),
            )
        )
    return sequences


def test_the_gradient_of_a_model_equals_trls_from_token_ids_on(tmp_path: Path) -> None:
    """Everything between token ids and weights: padding, attention, temperature, log-softmax, loss, mean."""
    folder = tiny_model(tmp_path / "tiny")
    given = tensors(seed=0)
    theirs = with_fused_head(load_model(folder), temperature=TEMPERATURE)
    oracle = GrpoLoss(clip_low=0.2, clip_high=0.2, beta=0.04)
    # Around the model's own log-probabilities, where neither side clips everything.
    inputs = trl_inputs(given)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    with torch.no_grad():
        logps, _, _ = oracle._get_per_token_logps_and_entropies(theirs, ids, torch.ones_like(ids), TOKENS)
    given["old"] = logps + given["old"] - given["logps"]
    given["reference"] = logps + given["reference"] - given["logps"]
    expected, metrics = oracle(theirs, trl_inputs(given))
    expected.backward()

    ours = load_model(folder)
    batch = collate(sequences_of(given), device=torch.device("cpu"), packed=True)
    logp, entropy = TokenScorer(ours, temperature=TEMPERATURE)(batch)
    inputs = LossInputs(
        logp=logp,
        logp_old=batch.logp_sampled,
        logp_sampled=batch.logp_sampled,
        advantage=batch.advantages,
        mask=torch.ones(len(logp), dtype=torch.bool),
        reply=batch.replies,
        segment=batch.segments,
    )
    per_token, _ = policy_loss(inputs, TrainConfig())
    kl = k3(logp, given["reference"][given["mask"].bool()])
    loss = (per_token + 0.04 * kl).mean()
    loss.backward()

    torch.testing.assert_close(loss, expected, **CLOSE)
    assert entropy.mean().item() == pytest.approx(metrics["entropy"], abs=1e-5)
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(
            gradients[name], parameter.grad, **CLOSE, msg=lambda text, name=name: f"{name}: {text}"
        )
