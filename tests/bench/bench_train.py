"""Training, ours against another way on the same data, in one run: `python -m tests.bench.bench_train`.

episodes   whole trajectories as one sequence against one sample per step, each with its whole history: tokens and
           seconds of one gradient, which is the same (built-in ALFWorld scenes, a model that has learnt nothing)
packing    the same gradient with padded rows, and with sequences packed into one row
trl        tokens a second of the loss step of TRL's GRPO trainer, and of ours, on the same completions
memory     what one gradient adds to the resident set at 4,096 tokens and a vocabulary of 32,768, against a log-softmax
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from rla.cli.app import run
from rla.config.sections import ModelConfig
from rla.config.training import TrainConfig
from rla.models.load import load_model
from rla.store.reading import read_rows
from rla.training.losses import LossInputs, policy_loss
from rla.training.model import TokenScorer, collate, micro_batches
from rla.training.sequences import TrainingSequence, policy_sequences
from tests.bench.resident import peak_resident
from tests.parity.trl_adapter import GrpoLoss, with_fused_head

CPU = torch.device("cpu")
TOKENS = 2048  # of one forward pass
REPEATS = 3


def gradient(scorer: TokenScorer, sequences: Sequence[TrainingSequence]) -> int:
    """Leave the gradient of the token-mean loss in the model; the tokens that were computed, padding included."""
    total, computed = sum(len(one.positions) for one in sequences), 0
    lengths = [len(one.token_ids) for one in sequences]
    rows = None if scorer.packs else [1] * len(sequences)  # no sequence has branches
    for part in micro_batches(lengths, range(len(sequences)), tokens_per_batch=TOKENS, rows=rows):
        batch = collate([sequences[index] for index in part], device=CPU, packed=scorer.packs)
        logp, _ = scorer(batch)
        inputs = LossInputs(
            logp=logp,
            logp_old=batch.logp_sampled,
            logp_sampled=batch.logp_sampled,
            advantage=batch.advantages,
            mask=torch.ones_like(batch.replies, dtype=torch.bool),
            reply=batch.replies,
            segment=batch.segments,
        )
        loss, _ = policy_loss(inputs, TrainConfig())
        (loss.sum() / total).backward()
        computed += batch.input_ids.numel()
    return computed


def seconds_of(work: Callable[[], object]) -> float:
    """The best of a few, after one that warms up."""
    work()
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def per_step(sequences: Sequence[TrainingSequence]) -> list[TrainingSequence]:
    """Each reply as a sample of its own, behind everything that came before it."""
    samples = []
    for one in sequences:
        for reply in sorted(set(one.replies)):
            chosen = [index for index, number in enumerate(one.replies) if number == reply]
            samples.append(
                TrainingSequence(
                    token_ids=one.token_ids[: one.positions[chosen[-1]] + 1],
                    positions=[one.positions[index] for index in chosen],
                    logp=[one.logp[index] for index in chosen],
                    allowed=[one.allowed[index] for index in chosen],
                    advantages=[one.advantages[index] for index in chosen],
                    owner=one.owner,
                )
            )
    return samples


def played(folder: Path) -> tuple[Path, list[TrainingSequence]]:
    """A model that has learnt nothing and the episodes that it plays, each step with an advantage."""
    sets = ("tasks.train_scenes=4", "warm_start.enabled=false", "rollout.tasks_per_iteration=2")
    options = ["--run", str(folder / "run"), *(word for text in sets for word in ("--set", text))]
    if run(["rollout", *options]):
        raise SystemExit("the rollout failed")
    rows = list(read_rows(folder / "run/1/trajectories", "trajectories"))
    advantages = [
        {"trajectory_id": row["trajectory_id"], "step": step, "advantage": (-1.0) ** (number + step)}
        for number, row in enumerate(rows)
        for step in range(len(row["steps"]))
    ]
    return next((folder / "run").rglob("model.safetensors")).parent, list(policy_sequences(rows, advantages))


def episodes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model, whole = played(Path(folder))
        steps = per_step(whole)
        results = []
        for sequences in (whole, steps):
            scorer = TokenScorer(load_model(model), temperature=1.0)
            computed = gradient(scorer, sequences)
            found = [weight.grad.clone() for weight in scorer.parameters() if weight.grad is not None]
            tokens = sum(len(one.token_ids) for one in sequences)
            results.append((tokens, computed, found, seconds_of(lambda s=scorer, q=sequences: gradient(s, q))))  # type: ignore[misc]
    (tokens, few, found, fast), (more, many, same, slow) = results
    largest = max(float((left - right).abs().max()) for left, right in zip(found, same, strict=True))
    scale = max(float(one.abs().max()) for one in found)
    print(
        f"episodes: {len(whole)} of {len(steps) / len(whole):.1f} steps; the gradients differ by {largest / scale:.0e} "
        "of their largest entry"
    )
    print(f"  whole     {tokens:>9,} tokens ({few:,} computed)  {fast:6.2f} s")
    print(f"  per step  {more:>9,} tokens ({many:,} computed)  {slow:6.2f} s")
    print(f"  ratio     {more / tokens:.1f} x tokens, {slow / fast:.1f} x time")


def small_model(folder: Path, *, words: int, hidden: int) -> Path:
    from rla.models.init import init_model, new_tokenizer

    sizes = ModelConfig(hidden_size=hidden, layers=3, heads=4, intermediate_size=2 * hidden, context=4096)
    init_model(
        folder,
        tokenizer=new_tokenizer([" ".join(f"w{number}" for number in range(words))], context=sizes.context),
        config=sizes,
        seed=0,
    )
    return folder


def completions(count: int, *, vocabulary: int, seed: int) -> list[TrainingSequence]:
    """Prompts of 64 tokens and completions of 16 to 384, as lengths of replies vary."""
    draw = torch.Generator().manual_seed(seed)
    sequences = []
    for _ in range(count):
        length = int(16 * 24 ** float(torch.rand(1, generator=draw)))
        ids = torch.randint(5, vocabulary, (64 + length,), generator=draw).tolist()
        sequences.append(
            TrainingSequence(
                token_ids=ids,
                positions=list(range(64, len(ids))),
                logp=[-6.0] * length,
                allowed=[[]] * length,
                advantages=[float(torch.randn(1, generator=draw))] * length,
            )
        )
    return sequences


def trl(batch_size: int = 8) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = small_model(Path(folder) / "m", words=2000, hidden=128)
        sequences = completions(64, vocabulary=2000, seed=0)
        tokens = sum(len(one.token_ids) for one in sequences)
        scorer = TokenScorer(load_model(source), temperature=1.0)
        ours = seconds_of(lambda: gradient(scorer, sequences))
        model = with_fused_head(load_model(source), temperature=1.0)
        oracle = GrpoLoss(clip_low=0.2, clip_high=0.2, beta=0.0)

        def theirs() -> None:
            for start in range(0, len(sequences), batch_size):
                loss, _ = oracle(model, padded_inputs(sequences[start : start + batch_size]))
                loss.backward()

        other = seconds_of(theirs)
    print(f"trl: {len(sequences)} completions, {tokens:,} tokens, TRL in batches of {batch_size} as they come")
    print(
        f"  ours  {tokens / ours:>9,.0f} tokens/s\n  TRL   {tokens / other:>9,.0f} tokens/s\n  ratio {other / ours:.2f}"
    )


def packing() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = small_model(Path(folder) / "m", words=500, hidden=128)
        sequences = completions(96, vocabulary=500, seed=1)
        results = []
        for packed in (False, True):
            scorer = TokenScorer(load_model(source), temperature=1.0)
            if not packed:
                scorer.packs = False
                scorer.model.set_attn_implementation("sdpa")
            computed = gradient(scorer, sequences)
            results.append((computed, seconds_of(lambda s=scorer: gradient(s, sequences))))  # type: ignore[misc]
    print(f"packing: {len(sequences)} sequences, at most {TOKENS} tokens a pass, padded ones sorted by length")
    for name, (computed, seconds) in zip(("padded", "packed"), results, strict=True):
        print(f"  {name}    {computed:>7,} tokens computed  {seconds:6.2f} s")
    print(f"  ratio     {results[0][1] / results[1][1]:.2f}")


def padded_inputs(sequences: Sequence[TrainingSequence]) -> dict[str, torch.Tensor]:
    """What TRL's loss takes: prompts, and completions padded on the right."""
    longest = max(len(one.positions) for one in sequences)

    def rows(values: Callable[[TrainingSequence], list[float]], kind: torch.dtype) -> torch.Tensor:
        return torch.tensor([values(one) + [0] * (longest - len(one.positions)) for one in sequences], dtype=kind)

    prompts = torch.tensor([one.token_ids[:64] for one in sequences])
    old = rows(lambda one: one.logp, torch.float32)
    return {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": rows(lambda one: list(one.token_ids[64:]), torch.long),
        "completion_mask": rows(lambda one: [1] * len(one.positions), torch.long),
        "advantages": torch.tensor([one.advantages[0] for one in sequences]),
        "old_per_token_logps": old,
        "ref_per_token_logps": old,
    }


def peak(way: str) -> None:
    """In a process of its own: MiB that one gradient adds to the resident set of the loaded model."""
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        from transformers import Qwen3Config
        from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

        config = Qwen3Config(
            vocab_size=32_768,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            tie_word_embeddings=True,
        )
        Qwen3ForCausalLM(config).save_pretrained(folder)
        model = load_model(folder)
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(32_768, (4097,), generator=draw).tolist()
    one = TrainingSequence(
        token_ids=ids,
        positions=list(range(1, 4097)),
        logp=[-10.0] * 4096,
        allowed=[[]] * 4096,
        advantages=[1.0] * 4096,
    )
    before = peak_resident()
    if way == "ours":
        gradient(TokenScorer(model, temperature=1.0), [one])
    else:
        logits = model(input_ids=torch.tensor([ids[:-1]]), use_cache=False).logits
        logp = logits.float().log_softmax(-1)[0].gather(1, torch.tensor(ids[1:])[:, None])
        (-logp.mean()).backward()
    print((peak_resident() - before) / 2**20)


def memory() -> None:
    found = {}
    for way in ("ours", "plain"):
        command = [sys.executable, "-m", "tests.bench.bench_train", "--peak", way]
        found[way] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])
    print("memory: one gradient, 4,096 tokens, vocabulary 32,768")
    for way, value in found.items():
        print(f"  {way:5} {value:7.0f} MiB")
    print(f"  ratio {found['ours'] / found['plain']:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peak", choices=("ours", "plain"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        peak(arguments.peak)
        return
    episodes()
    packing()
    trl()
    memory()


if __name__ == "__main__":
    main()
