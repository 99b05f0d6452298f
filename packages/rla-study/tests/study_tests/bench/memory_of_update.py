"""Peak host memory on a CPU: what `rla plan-memory` says, and what it is.

python -m study_tests.bench.memory_of_update --hidden 512 --layers 8 [--checkpointing] [--rank 8]
Of one update, or of a whole stage that trains an adapter, the checkpoint included. Prints the bytes that were measured,
those that the formula gives, and their ratio. Measured: the process's largest resident set while it trains, without
what it had after the updates of a tiny model, which import all libraries.

python -m study_tests.bench.memory_of_update --model FOLDER [--set key=value ...]
Of every stage that has a model, each in a process of its own: the largest resident set, planned and measured. One
iteration on the built-in scenes, with as many episodes as fill the engine's slots and the trainer's passes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rla_study.planning.command import configured_models
from rla_study.planning.memory import CPU_TOKENS, Launched, training_bytes
from rla_study.planning.plan import Machine, stage_needs
from rla_study.planning.shapes import SHAPES, ModelShape
from rla_study.planning.work import Guesses
from transformers import AutoModelForCausalLM

from rla.config.training import LoraConfig, TrainConfig
from rla.training.checkpoints import TrainState
from rla.training.loop import PreparedStage, train, update
from rla.training.model import TokenScorer, checkpoint_gradients
from rla.training.sequences import StoredSequences, write_sequences
from rla.training.shared import Compute, Ranks, make_backend
from study_tests.bench.bench_shape import config_of, trajectories
from tests.bench.resident import peak_resident, resident

SIZES = {"hidden": 384, "layers": 6, "vocabulary": 4000, "tokens": 512, "length": 256}


def measured(shape: ModelShape, config: TrainConfig, *, length: int) -> int:
    """Of two updates on passes of `config.tokens_per_batch` tokens."""
    compute = Compute.choose(config, Ranks())
    before = resident()
    model = AutoModelForCausalLM.from_config(config_of(shape)).eval()
    if config.gradient_checkpointing:
        checkpoint_gradients(model)
    scorer = TokenScorer(model, temperature=1.0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sequences.jsonl"
        rows = trajectories(config.tokens_per_batch // length, tokens=length, vocabulary=shape.vocabulary)
        stage = PreparedStage(
            config=config,
            compute=compute,
            scorer=scorer,
            state=TrainState(model=model, backend=make_backend(scorer, config, compute), ranks=compute.ranks),
            sequences=StoredSequences(
                file, write_sequences(file, rows, max_tokens=length, budget=config.tokens_per_batch)
            ),
            reference=None,
            old=None,
        )
        for _ in range(2):  # the moments are there from the first step on
            update(stage, range(len(rows)))
    return peak_resident() - before


def measured_stage(shape: ModelShape, config: TrainConfig, *, length: int) -> int:
    """Of a stage, from a model folder to the next checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(config_of(shape)).save_pretrained(Path(folder) / "start")
        rows = trajectories(config.tokens_per_batch // length, tokens=length, vocabulary=shape.vocabulary)
        before = resident()
        train(
            model_folder=Path(folder) / "start",
            out=Path(folder) / "1",
            sequences=rows,
            config=config,
            temperature=1.0,
            seed=0,
        )
    return peak_resident() - before


RECIPE = """
env: {name: alfworld, max_steps: 20, omit_commands: [look, inventory, help, examine]}
tasks: {size: tiny, train_scenes: 8, test_scenes: 2, tasks_per_scene: 1}
model: {context: 1024}
launch: {threads: 1}
generator: {context: 1024, max_sequences: 8}
policy: {reply: text, decoding: admissible, temperature: 1.0, max_tokens: 16}
judge: {prompt: plain, decoding: admissible, temperature: 1.0, max_tokens: 6}
rollout: {tasks_per_iteration: 2, rollouts_per_task: 4}
train_policy: {updates: 2, tokens_per_batch: 1024, lr: 1.0e-6, zero_advantage: count}
train_rm: {updates: 2, tokens_per_batch: 1024, lr: 1.0e-6, max_samples: 24}
warm_start:
  policy: {examples: 4, steps: 2, batch_size: 2, lr: 1.0e-5}
  reward: {examples: 1, steps: 1, batch_size: 1, lr: 1.0e-5}
adaptation: {enabled: false}
"""  # two updates: the moments exist from the end of the first
CALL = """
import sys
from rla.cli.app import run
from tests.bench.resident import peak_resident
code = run(sys.argv[1:])
print(peak_resident())
sys.exit(code)
"""
BETWEEN = ("validate-tasks", "compute-rewards")
LORA = ("train_policy.lora.rank=8", "train_rm.lora.rank=8")


def stage_rows(model: Path, overrides: Sequence[str]) -> Iterator[dict[str, str | float]]:
    """Planned and measured bytes of each stage, as they are done."""
    with tempfile.TemporaryDirectory() as folder:
        params, run = Path(folder) / "params.yaml", Path(folder) / "run"
        params.write_text(RECIPE)
        own = [f"model.policy={model}", f"model.reward={model}", *overrides]

        def peak(stage: str, *more: str, keys: Sequence[str] = ()) -> int:
            given = [part for key in (*own, *keys) for part in ("--set", key)]
            command = [sys.executable, "-c", CALL, stage, "--params", str(params), "--run", str(run), *more, *given]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{stage}: {done.stderr}")
            return int(done.stdout.split()[-1])

        for stage in ("make-tasks", "init-model"):
            peak(stage)
        planned, lora = planned_bytes(params, own), planned_bytes(params, [*own, *LORA])
        for stage in ("warm-start", "rollout", "score-steps", *BETWEEN, "train-policy", "train-rm"):
            found = peak(stage)
            if planned.get(stage):  # a warm start that is off has nothing to plan
                yield {"stage": stage, "planned": planned[stage], "measured": found}
            if stage.startswith("train-"):
                found = peak(stage, f"--out={Path(folder) / stage}", keys=LORA)
                yield {"stage": f"{stage}, LoRA", "planned": lora[stage], "measured": found}


def planned_bytes(params: Path, overrides: list[str]) -> dict[str, float]:
    """The host memory of each stage."""
    config, models = configured_models(params, overrides, None, None, None)
    return {one.stage: one.host for one in stage_needs(config, models, Machine(gpus=0), Guesses(), by_task=False)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--set", action="append", default=[])
    chosen = parser.parse_args()
    if chosen.model:
        for one in stage_rows(chosen.model.resolve(), chosen.set):
            print(json.dumps(one | {"ratio": float(one["measured"]) / float(one["planned"])}), flush=True)
        return
    shape = ModelShape(
        name="measured",
        hidden=chosen.hidden,
        intermediate=4 * chosen.hidden,
        layers=chosen.layers,
        heads=chosen.hidden // 64,
        key_heads=2,
        width=64,
        vocabulary=chosen.vocabulary,
        tied=True,
    )
    config = TrainConfig(
        lr=1e-6,
        kl_coef=0.0,
        tokens_per_batch=min(chosen.tokens, CPU_TOKENS),
        max_tokens=chosen.length,
        gradient_checkpointing=chosen.checkpointing,
        lora=LoraConfig(rank=chosen.rank),
    )
    measure = measured_stage if chosen.rank else measured
    measure(SHAPES["tiny"], config, length=chosen.length)  # imports what the first update imports
    expected = training_bytes(shape, config, Launched(), cuda=False)
    found = measure(shape, config, length=chosen.length)
    row = {"weights": shape.weights, "measured": found, "expected": expected.total, "ratio": found / expected.total}
    print(json.dumps(row | {"state": expected.state, "activations": expected.activations, "output": expected.output}))


if __name__ == "__main__":
    main()
