"""RLAnything in one file: a policy, its reward model and its tasks improve each other. Two minutes on one CPU core.

The policy plays household games and the reward model judges every step. Outcomes and judgements train both, and tasks
that are won too often or too seldom are changed. Everything stays in memory. Start reading at `main`.

    python examples/rlanything.py

The losses, credit, prompts, engine and acceptance rules are those that the stages of `rla run` call. The pipeline adds:
shards between the steps, so that a killed run resumes to the bit and each step can be inspected and rerun alone;
held-out evaluation with intervals; vLLM, servers and Ray as engines; several GPUs and adapters; pictures; KL, other
losses, other credit; a language model as critic and proposer; reports.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import polars as pl
import torch
from transformers import PreTrainedModel

from rla.adaptation.acceptance import judge_pending, measured_accuracies, next_pool
from rla.adaptation.candidates import Candidate, prove
from rla.adaptation.drafting import RulesDrafter, evidence_of
from rla.adaptation.selection import choose
from rla.config.sections import CreditConfig
from rla.config.training import TrainConfig
from rla.credit import consistency, estimators
from rla.credit.advantages import only_mixed
from rla.envs.alfworld.environment import Alfworld
from rla.envs.authoring import tokenizer_texts
from rla.envs.registry import from_mapping
from rla.llm.base import Generator, Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import ScriptedGenerator
from rla.llm.transformers_engine import TransformersGenerator
from rla.metrics.diagnostics import diagnostics
from rla.models.init import new_model, new_tokenizer
from rla.rollouts.play import Rollouts, episodes_of, play_groups
from rla.rollouts.scores import EngineReplier, Judging, judge_groups, reply_trie
from rla.seeds import derive
from rla.store.frames import episode_frames, with_scores
from rla.store.records import Task
from rla.store.schema import to_table
from rla.training.losses import LossInputs, policy_loss, token_weights
from rla.training.model import TokenScorer, collate, micro_batches
from rla.training.sequences import TrainingSequence, plan_updates, policy_sequences, reward_model_sequences
from rla.training.shared import make_optimizer

PARAMS: dict[str, Any] = {
    "env": {"name": "alfworld", "max_steps": 12, "omit_commands": ["look", "inventory", "help", "examine"]},
    "tasks": {"train_scenes": 8, "tasks_per_scene": 1, "kinds": ["pick_and_place_simple"]},
    "model": {"hidden_size": 96, "layers": 2, "context": 768},
    # Both models choose among known replies, token by token; log-probabilities are those among the ids on offer.
    "policy": {"reply": "text", "repeat_task": True, "decoding": "admissible", "temperature": 1.0, "max_tokens": 12},
    "judge": {"decoding": "admissible", "temperature": 1.0, "max_tokens": 6, "votes": 3},
    "rollout": {"rollouts_per_task": 12},
    "train_policy": {"lr": 2e-3, "updates": 4},
    "train_rm": {"lr": 3e-4, "updates": 4, "max_samples": 300},
    "adaptation": {"max_tasks": 4},
}
WARM_START: dict[str, Any] = {"episodes": 60, "updates": 300, "lr": 3e-3, "judged_steps": 1500}
env, config = Alfworld(edits=frozenset({"move", "add", "remove"})), from_mapping(PARAMS, where="examples/rlanything.py")
Rows = list[dict[str, Any]]  # of a shard: columns as in schemas/


def play(generator: Generator, chat: ChatFormat, tasks: Sequence[Task], *, count: int, iteration: int) -> Rows:
    """`count` episodes of every task, with token ids and log-probabilities as they were sampled."""
    shared = Rollouts(
        generator=generator,
        chat=chat,
        prompt=env.policy_prompt(config),
        config=config.policy,
        env=config.env,
        make_env=lambda task: env.make(task, config),
        iteration=iteration,
        policy="in memory",
    )
    groups = [episodes_of(task, count=count, seed=config.seed, iteration=iteration) for task in tasks]
    played: dict[int, Any] = {}
    asyncio.run(play_groups(groups, shared, concurrency=64, finished=played.__setitem__))
    return [episode.row() for number in range(len(tasks)) for episode in played[number]]


def judge(generator: Generator, chat: ChatFormat, episodes: Rows, *, votes: int, seed: int) -> Rows:
    """S_ij: `votes` judgements of every step. The judge sees the episode up to the step, and what followed it."""
    prompt, asked = env.judge_prompt(config), replace(config.judge, votes=votes)
    replier = EngineReplier(generator=generator, chat=chat, config=asked, allowed=reply_trie(chat, prompt, asked))
    shared = Judging(replier=replier, prompt=prompt, seed=seed)
    judged: dict[int, Any] = {}
    asyncio.run(judge_groups([[row] for row in episodes], shared, concurrency=64, finished=judged.__setitem__))
    return [score.row() for number in range(len(episodes)) for score in judged[number]]


def train(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    sequences: list[TrainingSequence],
    its: TrainConfig,
    *,
    seed: int,
    clone: bool = False,
) -> None:
    """An epoch of clipped policy gradient. `clone` keeps the ratio at 1: with an advantage of 1 that is imitation."""
    scorer = TokenScorer(model, temperature=1.0)
    lengths = [len(one.token_ids) for one in sequences]
    for chosen in plan_updates(len(sequences), updates=its.updates, epochs=1, seed=seed):
        # Weights of an update's tokens add up to 1, however the update is cut into forward passes.
        weights = token_weights([sequences[index] for index in chosen], its.aggregation)
        for indices in micro_batches(lengths, chosen, tokens_per_batch=2048):
            part = [sequences[index] for index in indices]
            batch = collate(part, device=torch.device("cpu"), packed=scorer.packs)
            logp, _ = scorer(batch)
            inputs = LossInputs(
                logp=logp,
                logp_old=logp.detach() if clone else batch.logp_sampled,
                logp_sampled=batch.logp_sampled,
                advantage=batch.advantages,
                mask=torch.ones_like(batch.replies, dtype=torch.bool),
                reply=batch.replies,
                segment=batch.segments,
            )
            loss, _ = policy_loss(inputs, its)
            (loss * torch.tensor([weight for one in part for weight in weights(one)])).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), its.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()


def engine(model: PreTrainedModel, chat: ChatFormat) -> TransformersGenerator:
    """Samples from a copy, because an engine attends through its KV cache and the trainer through packed rows."""
    return TransformersGenerator(copy.deepcopy(model), stop_ids=chat.stop_ids, context=config.model.context)


def scripted(chat: ChatFormat, replies: dict[str, Iterator[str]]) -> ScriptedGenerator:
    """An engine that gives the next reply of a session."""

    def reply(request: Request, _: int) -> list[int]:
        return [*chat.encode(next(replies[request.session or ""])), chat.end_id]

    return ScriptedGenerator(reply)


def warm_start(policy: PreTrainedModel, rm: PreTrainedModel, chat: ChatFormat, tasks: Sequence[Task]) -> None:
    """The policy imitates an expert that errs, the reward model the environment's labels of the expert's steps."""
    count, commands, labels = WARM_START["episodes"], {}, {}
    for task in tasks:
        for number in range(count):
            seed = derive(config.seed, task.task_id, number)
            shown = env.demonstrate(task, config, seed=seed, random_share=0.3)
            commands[f"{task.task_id}/{number}"] = iter(shown.actions)
    episodes = play(scripted(chat, commands), chat, tasks, count=count, iteration=0)
    by_id, render = {task.task_id: task for task in tasks}, env.judge_prompt(config).render
    for row in episodes:
        found = env.label(by_id[row["task_id"]], config, [step["action"] for step in row["steps"]])
        labels[row["trajectory_id"]] = iter([render(taken.score, taken.reason) for taken, *_ in found])
    scores = judge(scripted(chat, labels), chat, episodes, votes=1, seed=0)
    right = [row | {"judgement": 0, "advantage": 1.0} for row in scores]
    its = replace(config.train_policy, lr=WARM_START["lr"], updates=WARM_START["updates"])
    train(policy, make_optimizer(policy, its), list(policy_sequences(episodes, right)), its, seed=0, clone=True)
    rm.load_state_dict(policy.state_dict())  # a judge that has learnt to read the game needs fewer labels
    sequences = list(reward_model_sequences(scores, right, max_samples=WARM_START["judged_steps"]))
    train(rm, make_optimizer(rm, its), sequences, its, seed=0, clone=True)


async def adapt(
    pool: Sequence[Task], roots: dict[str, Task], episodes: Rows, scores: Rows, *, iteration: int
) -> list[Candidate]:
    """A harder task for each that is won too often, an easier one for each that is won too seldom, proven solvable."""
    accuracies = {task: accuracy for task, (accuracy, _) in measured_accuracies(episodes).items()}
    choices = choose(pool, accuracies, config=config.adaptation, seed=derive(config.seed, "choose", iteration))
    evidence = evidence_of({choice.task.task_id for choice in choices}, episodes, scores)
    taken = {name for task in (*pool, *roots.values()) for name in (task.task_id, env.likeness(task))}
    valid = []
    for choice in choices:
        # The critic counts where episodes ended and what was said against their steps; edits are drawn accordingly.
        known = evidence[choice.task.task_id]
        course, seed = env.course(choice.task, known.episodes), derive(config.seed, choice.task.task_id, iteration)
        draft = await RulesDrafter(env).draft(choice, known, course, count=8, seed=seed)
        root, about = roots[choice.task.slot], {"critique": draft.critique, "created": iteration}
        found = await prove(draft.proposals, choice, editor=env, root=root, taken=taken, **about)
        valid += [candidate for candidate in found if candidate.valid]  # one at most
    return valid


def main(iterations: int) -> list[dict[str, Any]]:
    """Returns a row per iteration: success, mu, the tasks that were pending and those that were accepted."""
    torch.set_num_threads(1)
    pool = env.tasks(config, split="train", seed=config.seed)
    roots = {task.slot: task for task in pool}
    tokenizer = new_tokenizer(**asdict(tokenizer_texts(env, pool, config)), context=config.model.context)
    chat = ChatFormat(tokenizer)
    policy, rm = (new_model(tokenizer, config=config.model, seed=seed) for seed in (0, 1))
    warm_start(policy, rm, chat, pool)
    rollouts = config.rollout.rollouts_per_task
    optimizers = make_optimizer(policy, config.train_policy), make_optimizer(rm, config.train_rm)
    step_weight, band = config.credit.step_weight, (config.adaptation.alpha_low, config.adaptation.alpha_high)
    candidates: list[Candidate] = []
    curve: list[dict[str, Any]] = []
    print("iteration  success     mu  accepted", flush=True)
    for iteration in range(1, iterations + 1):
        # 1. Play all tasks, those proposed in the last iteration (pending) among them. Judge every step m times.
        pending = [candidate.task for candidate in candidates]
        episodes = play(engine(policy, chat), chat, [*pool, *pending], count=rollouts, iteration=iteration)
        scores = judge(engine(rm, chat), chat, episodes, votes=config.judge.votes, seed=iteration)

        # 2. Accept a harder task iff alpha_low < acc(q') < acc(q), an easier one iff acc(q) < acc(q') < alpha_high.
        asked = {candidate.task.task_id: candidate.parent_accuracy for candidate in candidates}
        found = measured_accuracies(episodes)
        verdicts = judge_pending(pending, found, asked, iteration=iteration, config=config.adaptation)
        pool = next_pool(pool, pending, verdicts)  # accepted tasks replace their parents
        accepted = [verdict.task_id for verdict in verdicts if verdict.accepted]

        # 3. Rewards. Episodes of rejected tasks do not train.
        played = with_scores(*episode_frames(to_table("trajectories", episodes)), to_table("scores", scores))
        metrics = diagnostics(played.episodes, played.judgements, played.steps)
        training = played.episodes.filter((pl.col("status") == "active") | pl.col("task_id").is_in(accepted))
        steps, judgements = (frame.join(training, on="trajectory_id", how="semi") for frame in played[1:])
        accuracy = estimators.accuracies(training)
        # R_i = O + lambda / m * sum_j S_ij, standardised over the trajectories of the same task at the same step i.
        rewards = estimators.integrated_advantages(training, steps, step_weight=step_weight)
        rewards = only_mixed(rewards, accuracy, (0.0, 1.0))  # if all outcomes are equal, only noise is left
        # R_S_ij = R_i * S_ij, standardised over the m judgements of the same step.
        options = CreditConfig(step_weight=step_weight, reward_model_band=band, reward_model_balanced=True)
        consistent = consistency.rewards(judgements, rewards, accuracy, options)

        # 4. Two updates.
        paid, judged = (frame.filter(pl.col("advantage") != 0).to_dicts() for frame in (rewards, consistent))
        train(policy, optimizers[0], list(policy_sequences(episodes, paid)), config.train_policy, seed=iteration)
        sequences = reward_model_sequences(scores, judged, max_samples=config.train_rm.max_samples, seed=iteration)
        train(rm, optimizers[1], list(sequences), config.train_rm, seed=iteration)

        # 5. Propose. The next iteration decides.
        candidates = asyncio.run(adapt(pool, roots, episodes, scores, iteration=iteration))
        success, mu = metrics["success"], metrics["mu"]
        curve.append({"success": success, "mu": mu, "pending": len(pending), "accepted": len(accepted)})
        print(f"{iteration:>9}  {success:>7.1%}  {mu or 0:.3f}  {len(accepted)} of {len(pending)}", flush=True)
    return curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a policy, its reward model and its tasks in memory.")
    parser.add_argument("--iterations", type=int, default=8)
    main(parser.parse_args().iterations)
