"""A cell of TRL: `python -m study_tests.bench.peer.theirs`, its GRPOTrainer on tasks and parameters of `rla`.

The trainer computes in fp32, without gradient checkpointing and with the `transformers` engine: its defaults are for
GPUs, and slower here. Everything that both have is the same: episodes, tasks of each iteration, updates, Adam, warm-up,
clipping, temperature. A cell that was killed goes on from TRL's own checkpoint, which it writes with each iteration.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig, GRPOTrainer

from rla.adaptation.selection import tasks_and_reserve
from rla.config import Config
from rla.config.training import BETA1
from rla.envs.registry import load_config
from rla.models.checkpoint import model_folder
from rla.seeds import derive
from rla.store.layout import artifact
from rla.store.reading import read_tasks
from rla.store.records import Task
from study_tests.bench.peer.calling import called_cell
from study_tests.bench.peer.household import Household, taught_tokenizer
from study_tests.bench.peer.meter import Meter
from study_tests.bench.peer.places import Places, rows_of
from study_tests.bench.peer.plan import Cell

WEIGHTS = ("model.safetensors", "config.json", "generation_config.json")


class MeteredTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose parts are measured: playing, the log-probabilities of before, and updates."""

    def __init__(self, *, meter: Meter, **more: Any) -> None:
        super().__init__(**more)
        self.meter = meter
        self.outcomes = torch.empty(0)  # of the last episodes

    def _calculate_rewards(self, *rest: Any) -> Any:
        rewards = super()._calculate_rewards(*rest)
        self.outcomes = rewards[:, 0]
        return rewards

    def _generate(self, prompts: list[Any]) -> Any:
        with self.meter.part("playing"):
            return super()._generate(prompts)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Any:
        with self.meter.part("log-probabilities of before"):
            return super()._generate_and_score_completions(inputs)


class KeptPolicies(TrainerCallback):  # type: ignore[misc]
    """After the last update of an iteration: the policy as a model folder, and the line of the iteration."""

    def __init__(self, *, meter: Meter, folder: Path, source: Path, updates: int) -> None:
        self.meter, self.folder, self.source, self.updates = meter, folder, source, updates
        self.trainer: MeteredTrainer | None = None

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        iteration, left = divmod(state.global_step, self.updates)
        if left:
            return
        with self.meter.part("saving"):
            target = self.folder / str(iteration)
            model.save_pretrained(target)
            for file in self.source.iterdir():
                if file.name not in WEIGHTS:
                    shutil.copy2(file, target / file.name)
        if self.trainer is not None:
            outcomes = self.trainer.outcomes
            self.meter.record(iteration, episodes=len(outcomes), train_success=float((outcomes > 0).float().mean()))


def rows(config: Config, pool: list[Task], iterations: int) -> list[dict[str, Any]]:
    """The tasks that `rla rollout` plays in each iteration, in its order."""
    return [
        {"prompt": [{"role": "user", "content": ""}], "task_id": task.task_id}
        for iteration in range(1, iterations + 1)
        for task in tasks_and_reserve(
            pool,
            [],
            config=config.rollout,
            acceptance=config.adaptation.acceptance,
            seed=derive(config.seed, "tasks", iteration),
            run_seed=derive(config.seed, "slots"),
        )[0]
    ]


def arguments(config: Config, folder: Path, *, iterations: int) -> GRPOConfig:
    """The trainer's parameters, from those of `rla`. Each generation is spent in `train_policy.updates` updates."""
    train, episodes = config.train_policy, config.rollout.tasks_per_iteration * config.rollout.rollouts_per_task
    if episodes % train.updates:
        raise SystemExit(f"{episodes} episodes do not divide into {train.updates} updates: TRL needs equal ones")
    return GRPOConfig(
        output_dir=str(folder / "trainer"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        model_init_kwargs={"dtype": "float32"},
        per_device_train_batch_size=episodes // train.updates,
        steps_per_generation=train.updates,
        num_generations=config.rollout.rollouts_per_task,
        num_iterations=train.epochs,
        max_steps=iterations * train.updates * train.epochs,
        learning_rate=train.lr,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=train.warmup_steps,
        adam_beta1=BETA1,
        adam_beta2=train.beta2,
        weight_decay=train.weight_decay,
        max_grad_norm=train.max_grad_norm,
        beta=0.0,
        epsilon=train.clip_low,
        epsilon_high=train.clip_high,
        temperature=config.policy.temperature,
        max_completion_length=config.generator.context,
        max_tool_calling_iterations=config.env.max_steps,
        generation_kwargs={"max_new_tokens": config.policy.max_tokens},
        shuffle_dataset=False,
        seed=config.seed,
        logging_steps=train.updates,
        save_strategy="steps",
        save_steps=train.updates * train.epochs,
        save_total_limit=1,
        report_to=[],
        disable_tqdm=True,
    )


def train(places: Places, cell: Cell) -> None:
    """All iterations of the cell, from the start's policy."""
    torch.set_num_threads(1)
    folder = places.cell(cell)
    config = load_config(places.params, [*places.overrides(cell), f"seed={cell.seed}"])
    pool = read_tasks(artifact(places.start, "train_tasks", 0))
    source = model_folder(artifact(places.start, "first_policy", 0))
    tasks = {task.task_id: task for task in pool}
    updates = config.train_policy.updates * config.train_policy.epochs
    meter = Meter(folder / "rows.jsonl")
    keeping = KeptPolicies(meter=meter, folder=folder / "policy", source=source, updates=updates)
    trainer = MeteredTrainer(
        meter=meter,
        model=str(source),
        args=arguments(config, folder, iterations=cell.iterations),
        processing_class=taught_tokenizer(AutoTokenizer.from_pretrained(source)),
        train_dataset=Dataset.from_list(rows(config, pool, cell.iterations)),
        environment_factory=lambda: Household(tasks, config),
        callbacks=[keeping],
    )
    keeping.trainer = trainer
    checkpoint = get_last_checkpoint(folder / "trainer") if (folder / "trainer").exists() else None
    forget_after(folder, 0 if checkpoint is None else int(checkpoint.rpartition("-")[2]) // updates)
    with meter.part("updates"):
        trainer.train(resume_from_checkpoint=checkpoint)


def forget_after(folder: Path, iteration: int) -> None:
    """Keep the lines of so many iterations: a later one was killed before its checkpoint was whole."""
    lines = rows_of(folder)[:iteration]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    train(*called_cell())
