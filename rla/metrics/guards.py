"""Warnings: figures of an iteration that show that something goes wrong, each with a remedy.

A guard reads the flat figures of an iteration (`rla.report.collect.iteration_row`) and of the first one. Its remedy
names keys that have an effect with the parameters of the run. `docs/guide/warnings.md` has a section for each name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rla.config import Config

Figures = Mapping[str, Any]

NO_ACTION = 0.5  # share of the policy's replies
UNREADABLE = 0.1  # share of the votes
CUT = 0.1  # share of the episodes, or of the replies
ONE_SIDED = 0.1  # share of votes of +1 on won episodes, of -1 on lost ones
ENTROPY_LEFT = 0.1  # share of the first iteration's entropy
KL = 0.1  # nats a token, between the policy before and after its updates
RATIO = 20.0  # of a token's probabilities, after and before
GAP = 0.05  # mean nats a token, between the engine that sampled and the trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    iteration: int
    guard: str
    said: str
    remedy: str

    def __str__(self) -> str:
        return f"warning ({self.guard}): {self.said}; {self.remedy}"


Found = Iterator[tuple[str, str, str]]  # name of the guard, message, remedy


def warned(figures: Figures, first: Figures, config: Config, *, stage: str | None = None) -> Iterator[Warned]:
    """The warnings about an iteration, by the guards of one stage or by all. A guard needs its figures."""
    for name, find in GUARDS.items():
        for guard, said, remedy in find(figures, first, config) if stage in (None, name) else ():
            yield Warned(iteration=figures["iteration"], guard=guard, said=said, remedy=remedy)


def _share_of(figures: Figures, part: str, whole: str) -> float:
    """0 if one of the two is unknown."""
    return figures[part] / figures[whole] if figures.get(whole) and figures.get(part) is not None else 0.0


def _either(ways: Sequence[str]) -> str:
    """`a`, `a, or b`, `a, b, or c`."""
    return ways[0] if len(ways) == 1 else f"{', '.join(ways[:-1])}, or {ways[-1]}"


def _of_episodes(figures: Figures, first: Figures, config: Config) -> Found:
    policy, context = config.policy, config.generator.context
    cut = _share_of(figures, "rollout_truncated", "rollout_steps")
    if (found := _share_of(figures, "rollout_invalid_actions", "rollout_steps")) >= NO_ACTION:
        compare = "compare the prompt with what the model writes (docs/guide/episodes.md)"
        if cut >= found / 2:
            remedy = f"raise policy.max_tokens, which is {policy.max_tokens}: most of them are cut"
        elif policy.decoding == "free":
            text = "if the environment offers commands, set policy.reply: text and policy.decoding: admissible"
            remedy = f"{compare} and with policy.reply, which is {policy.reply}; or, {text}"
        else:
            remedy = f"{compare}, and see that policy.max_tokens suffices"
        yield "no-action", f"{found:.0%} of the policy's replies hold no action", remedy
    longer = ["raise policy.response_tokens"] if policy.response_tokens else []
    if (full := _share_of(figures, "rollout_context_stops", "rollout_episodes")) >= CUT:
        ways = [f"raise generator.context, which is {context}", *(longer or ["lower policy.max_tokens"])]
        ways += ["set policy.history: window"] if policy.history == "full" and config.env.max_steps > 1 else []
        said = f"{full:.0%} of the episodes ended because the policy's context was full"
        yield "cut-episodes", said, _either(ways)
    elif cut >= CUT:
        ways = [f"raise policy.max_tokens, which is {policy.max_tokens}", *longer]
        yield "cut-episodes", f"{cut:.0%} of the policy's replies were cut", _either(ways)


def _of_judgements(figures: Figures, first: Figures, config: Config) -> Found:
    judge = config.judge
    missing = figures.get("judged_failed") or 0  # of a chat server
    lost = (figures.get("judged_unparsable") or 0) + missing
    asked = (figures.get("judged_judgements") or 0) + missing
    found = lost / asked if asked else 0.0
    if found < UNREADABLE:
        return
    remedy = f"compare judge.prompt, which is {judge.prompt}, with what the judge writes (docs/guide/episodes.md)"
    if _share_of(figures, "judged_truncated", "judged_judgements") >= found / 2:
        remedy = f"raise judge.max_tokens, which is {judge.max_tokens}: most of them are cut"
    elif 2 * missing >= lost:
        remedy = "see the reasons that score-steps printed; judge.server says how long and how often it asks"
    said = "could not be read or did not come" if missing else "could not be read"
    yield "unreadable-votes", f"{found:.0%} of the votes {said}", remedy


def _of_rewards(figures: Figures, first: Figures, config: Config) -> Found:
    rollout, credit = config.rollout, config.credit
    if figures.get("one_sided_tasks") == 1:
        ways = ["take other tasks", f"raise rollout.rollouts_per_task, which is {rollout.rollouts_per_task}"]
        ways += ["start from a better policy", *(["set rollout.fill: mixed"] if rollout.fill == "tasks" else [])]
        remedy = f"outcomes give the policy no signal: {_either(ways)}"
        yield "no-mixed-group", "no task was both won and lost", remedy
    if not config.judge.trains:
        better = "take a better model for judge.server.model, which does not train"
    elif config.model.reward == "init" and config.warm_start.enabled:
        better = "teach the reward model longer before the run (warm_start.reward)"
    else:
        better = "take a better model for model.reward"
    ways, tests = [], "ut_accuracy" in figures  # the reward model writes tests instead of votes
    if config.judge.trains and not tests:
        ways += [] if credit.reward_model_balanced else ["set credit.reward_model_balanced"]
        ways += ["train the reward model on more votes (train_rm.max_samples)"] if config.train_rm.max_samples else []
    plus, minus, mu = (figures.get(name) for name in ("p_plus", "p_minus", "mu"))
    if plus is not None and plus < ONE_SIDED:
        said = f"only {plus:.0%} of the votes on won episodes are +1: the judge calls nearly every step bad"
        said = f"only {plus:.0%} of the tests accept right programs" if tests else said
        yield "one-sided-judge", said, _either([*ways, better])
    elif minus is not None and minus < ONE_SIDED:
        said = f"only {minus:.0%} of the votes on lost episodes are -1: the judge calls nearly every step good"
        said = f"wrong programs pass {1 - minus:.0%} of the tests" if tests else said
        yield "one-sided-judge", said, _either([*ways, better])
    if mu is not None and mu <= 1:
        paid = credit.step_weight and credit.estimator == "integrated"
        ways = ["lower credit.step_weight or disable the judge until its mu is above 1"] if paid else []
        said = "the judge's votes say nothing about the outcome"
        said = "right programs pass no more of the tests than wrong ones" if tests else said
        yield "useless-judge", f"mu is {mu:.2f}: {said}", _either([*ways, better])


def _of_training(model: str, figures: Figures, first: Figures, config: Config) -> Found:
    """`model`: `policy` or `rm`."""
    policy = model == "policy"
    name, section = ("the policy", "train_policy") if policy else ("the reward model", "train_rm")
    train = config.train_policy if policy else config.train_rm
    now, then = figures.get("policy_entropy"), first.get("policy_entropy")
    if policy and now is not None and then and now < ENTROPY_LEFT * then:
        said = f"the policy's entropy fell to {now:.3g} from {then:.3g} in iteration {first['iteration']}"
        ways = [f"lower train_policy.lr, which is {train.rate:g}"]
        ways += [f"raise train_policy.kl_coef, which is {train.kl_coef:g}"]
        yield "entropy-collapse", said, _either(ways)
    kl, ratio, gap = (figures.get(f"{model}_{key}") for key in ("approx_kl", "ratio_max", "sampler_gap_mean"))
    said = ""
    if kl is not None and kl > KL:
        said = f"the updates moved {name} by a KL of {kl:.2g} nats a token"
    elif ratio is not None and ratio > RATIO:
        said = f"{name} calls a token {ratio:.0f} times as probable as it was"
    if said:
        ways = [f"lower {section}.lr, which is {train.rate:g}"]
        ways += [f"lower {section}.epochs"] if train.epochs > 1 else []
        yield "exploding-update", said, _either([*ways, f"narrow {section}.clip_low and clip_high"])
    if gap is not None and gap > GAP:
        ways = [] if train.correction else [f"set {section}.old: token_tis"]
        ways += ["set generator.dtype: float32"] if config.generator.dtype != "float32" else []
        said = f"engine and trainer differ by {gap:.2g} nats a token about {name}"
        remedy = _either(ways or ["see that the engine serves the weights and the tokenizer that train"])
        yield "sampler-gap", said, remedy


def _of_proposals(figures: Figures, first: Figures, config: Config) -> Found:
    if not figures.get("tasks_proposed") or figures.get("tasks_valid"):
        return
    adaptation = config.adaptation
    ways = ["raise adaptation.proposals_per_task"]
    if adaptation.proposer == "llm":
        ways += [f"raise adaptation.llm.max_tokens, which is {adaptation.llm.max_tokens}", "take a better proposer"]
    elif adaptation.edits:
        ways += ["allow more of adaptation.edits"]
    said = f"none of {figures['tasks_proposed']} proposed tasks is valid"
    yield "refused-proposals", said, f"read the column reason of its candidates; {_either(ways)}"


# stage after which the figures are there -> its guards
GUARDS: dict[str, Callable[[Figures, Figures, Config], Found]] = {
    "rollout": _of_episodes,
    "score-steps": _of_judgements,
    "compute-rewards": _of_rewards,
    "train-policy": partial(_of_training, "policy"),
    "train-rm": partial(_of_training, "rm"),
    "adapt-env": _of_proposals,
}
