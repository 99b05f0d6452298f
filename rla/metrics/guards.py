"""Warnings: figures of an iteration that show that something goes wrong, each with a remedy.

A guard reads the flat figures of an iteration (`rla.report.collect.iteration_row`) and of the first one. Its remedy
names keys that have an effect in this run (`Setting`). `docs/guide/warnings.md` has a section for each name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rla.config import Config
from rla.config.training import TrainConfig

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
class Setting:
    """The run that warnings are about. `probes`: its reward model writes tests of whole tasks instead of judging steps.
    `reply_form`: whether the environment's prompt follows `policy.reply`.
    """

    config: Config = field(default_factory=Config)
    probes: bool = False
    reply_form: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """The message of a guard about an iteration."""

    iteration: int
    guard: str
    said: str
    remedy: str

    def __str__(self) -> str:
        return f"warning ({self.guard}): {self.said}; {self.remedy}"


Found = tuple[str, str] | None  # message and remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """`stage`: after which its figures are there. `find`: its message about (an iteration, the first one, the run)."""

    name: str
    stage: str
    find: Callable[[Figures, Figures, Setting], Found]


def warned(
    figures: Figures, first: Figures, setting: Setting | None = None, *, stage: str | None = None
) -> Iterator[Warned]:
    """The warnings about an iteration, by the guards of one stage or by all. A guard needs its figures."""
    run = setting or Setting()
    for guard in GUARDS:
        if stage in (None, guard.stage) and (found := guard.find(figures, first, run)):
            said, remedy = found
            yield Warned(iteration=figures["iteration"], guard=guard.name, said=said, remedy=remedy)


def _share_of(figures: Figures, part: str, whole: str) -> float:
    """0 if one of the two is unknown."""
    return figures[part] / figures[whole] if figures.get(whole) and figures.get(part) is not None else 0.0


def _no_action(figures: Figures, first: Figures, run: Setting) -> Found:
    found = _share_of(figures, "rollout_invalid_actions", "rollout_steps")
    if found < NO_ACTION:
        return None
    policy, compare = run.config.policy, "compare the prompt with what the model writes (`rla show`)"
    remedy = f"{compare}, and see that policy.max_tokens suffices"
    if _share_of(figures, "rollout_truncated", "rollout_steps") >= found / 2:
        remedy = f"raise policy.max_tokens, which is {policy.max_tokens}: most of them are cut"
    elif run.reply_form and policy.decoding == "free":
        remedy = (
            f"{compare}, and policy.reply, which is {policy.reply}, with its form; or set policy.decoding: admissible"
        )
    return f"{found:.0%} of the policy's replies hold no action", remedy


def _cut_episodes(figures: Figures, first: Figures, run: Setting) -> Found:
    policy, generator = run.config.policy, run.config.generator
    full = _share_of(figures, "rollout_context_stops", "rollout_episodes")
    if full >= CUT:
        ways = [f"raise generator.context, which is {generator.context}"]
        ways += ["raise policy.response_tokens"] if policy.response_tokens else []
        ways += [] if policy.response_tokens else ["lower policy.max_tokens"]
        ways += ["set policy.history: window"] if policy.history == "full" and run.config.env.max_steps > 1 else []
        return f"{full:.0%} of the episodes ended because the policy's context was full", _either(ways)
    replies = _share_of(figures, "rollout_truncated", "rollout_steps")
    if replies < CUT:
        return None
    ways = [f"raise policy.max_tokens, which is {policy.max_tokens}"]
    ways += ["raise policy.response_tokens"] if policy.response_tokens else []
    return f"{replies:.0%} of the policy's replies were cut", _either(ways)


def _no_mixed_group(figures: Figures, first: Figures, run: Setting) -> Found:
    if figures.get("one_sided_tasks") != 1:
        return None
    rollout, ways = run.config.rollout, ["take other tasks", "start from a better policy"]
    ways.insert(1, f"raise rollout.rollouts_per_task, which is {rollout.rollouts_per_task}")
    ways += ["set rollout.fill: mixed"] if rollout.fill == "tasks" else []
    return "no task was both won and lost", f"outcomes give the policy no signal: {_either(ways)}"


def _unreadable_votes(figures: Figures, first: Figures, run: Setting) -> Found:
    judge, name = run.config.judge, "tests" if run.probes else "votes"
    missing = figures.get("judged_failed") or 0  # of a chat server
    votes = {
        "asked": (figures.get("judged_judgements") or 0) + missing,
        "lost": (figures.get("judged_unparsable") or 0) + missing,
    }
    found = _share_of(votes, "lost", "asked")
    if found < UNREADABLE:
        return None
    remedy = f"compare judge.prompt, which is {judge.prompt}, with what the judge writes (`rla show`)"
    if _share_of(figures, "judged_truncated", "judged_judgements") >= found / 2:
        remedy = f"raise judge.max_tokens, which is {judge.max_tokens}: most of them are cut"
    elif 2 * missing >= votes["lost"]:
        remedy = "see the reasons that score-steps printed; judge.server says how long and how often it asks"
    said = "could not be read or did not come" if missing else "could not be read"
    return f"{found:.0%} of the {name} {said}", remedy


def _one_sided_judge(figures: Figures, first: Figures, run: Setting) -> Found:
    plus, minus = figures.get("p_plus"), figures.get("p_minus")
    if run.probes:
        right = figures.get("ut_accuracy", plus)
        if right is not None and right < ONE_SIDED:
            return f"{_told_tests(figures)}: wrong tests reject right programs", _better_judge(run)
        if minus is not None and minus < ONE_SIDED:
            return f"{_told_tests(figures)}: wrong programs pass {1 - minus:.0%} of the tests", _better_judge(run)
        return None
    if plus is not None and plus < ONE_SIDED:
        said = f"only {plus:.0%} of the votes on won episodes are +1: the judge calls nearly every step bad"
    elif minus is not None and minus < ONE_SIDED:
        said = f"only {minus:.0%} of the votes on lost episodes are -1: the judge calls nearly every step good"
    else:
        return None
    if not run.config.judge.trains:
        return said, _better_judge(run)
    ways = [] if run.config.credit.reward_model_balanced else ["set credit.reward_model_balanced"]
    ways += ["train the reward model on more votes (train_rm.max_samples)"] if run.config.train_rm.max_samples else []
    return said, _either([*ways, _better_judge(run)])


def _useless_judge(figures: Figures, first: Figures, run: Setting) -> Found:
    mu = figures.get("mu")
    if mu is None or mu > 1:
        return None
    if run.probes:
        said = f"{_told_tests(figures)}: right programs pass no more of them than wrong ones do (mu is {mu:.2f})"
    else:
        said = f"mu is {mu:.2f}: the judge's votes say nothing about the outcome"
    paid = run.config.credit.step_weight and run.config.credit.estimator == "integrated"
    ways = ["lower credit.step_weight or disable the judge until its mu is above 1"] if paid else []
    return said, _either([*ways, _better_judge(run)])


def _told_tests(figures: Figures) -> str:
    """The quality of the tests that a reward model has written."""
    shares = (("ut_accuracy", "are right"), ("detect", "tell all right programs from all wrong ones"))
    known = [f"{figures[key]:.0%} {verb}" for key, verb in shares if figures.get(key) is not None]
    return f"of the tests that the reward model wrote, {' and '.join(known) or 'few are right'}"


def _better_judge(run: Setting) -> str:
    """The way to a better judge."""
    if not run.config.judge.trains:
        return "take a better model for judge.server.model, which does not train"
    if run.config.model.reward == "init" and run.config.warm_start.enabled:
        return "teach the reward model longer before the run (warm_start.reward)"
    return "take a better model for model.reward"


def _entropy_collapse(figures: Figures, first: Figures, run: Setting) -> Found:
    now, then = figures.get("policy_entropy"), first.get("policy_entropy")
    if now is None or not then or now >= ENTROPY_LEFT * then:
        return None
    train = run.config.train_policy
    remedy = (
        f"lower train_policy.lr, which is {train.rate:g}, or raise train_policy.kl_coef, which is {train.kl_coef:g}"
    )
    return f"the policy's entropy fell to {now:.3g} from {then:.3g} in iteration {first['iteration']}", remedy


def _trained_by(run: Setting, model: str) -> tuple[str, TrainConfig]:
    """The section that trains `policy` or `rm`, with its name."""
    return ("train_policy", run.config.train_policy) if model == "policy" else ("train_rm", run.config.train_rm)


def _exploding_update(model: str, name: str, figures: Figures, first: Figures, run: Setting) -> Found:
    kl, ratio = figures.get(f"{model}_approx_kl"), figures.get(f"{model}_ratio_max")
    if kl is not None and kl > KL:
        said = f"the updates moved {name} by a KL of {kl:.2g} nats a token"
    elif ratio is not None and ratio > RATIO:
        said = f"{name} calls a token {ratio:.0f} times as probable as it was"
    else:
        return None
    section, train = _trained_by(run, model)
    ways = [f"lower {section}.lr, which is {train.rate:g}"]
    ways += [f"lower {section}.epochs"] if train.epochs > 1 else []
    ways += [f"narrow {section}.clip_low and clip_high"]
    return said, _either(ways)


def _sampler_gap(model: str, name: str, figures: Figures, first: Figures, run: Setting) -> Found:
    gap = figures.get(f"{model}_sampler_gap_mean")
    if gap is None or gap <= GAP:
        return None
    section, train = _trained_by(run, model)
    ways = [] if train.correction else [f"set {section}.old: token_tis"]
    ways += ["set generator.dtype: float32"] if run.config.generator.dtype != "float32" else []
    said = f"engine and trainer differ by {gap:.2g} nats a token about {name}"
    return said, _either(ways or ["see that the engine serves the weights and the tokenizer that train"])


def _refused_proposals(figures: Figures, first: Figures, run: Setting) -> Found:
    if not figures.get("tasks_proposed") or figures.get("tasks_valid"):
        return None
    adaptation = run.config.adaptation
    ways = ["raise adaptation.proposals_per_task"]
    if adaptation.proposer == "llm":
        ways += [f"raise adaptation.llm.max_tokens, which is {adaptation.llm.max_tokens}", "take a better proposer"]
    elif adaptation.edits:
        ways += ["allow more of adaptation.edits"]
    said = f"none of {figures['tasks_proposed']} proposed tasks is valid"
    return said, f"read the column reason of its candidates; {_either(ways)}"


def _either(ways: list[str]) -> str:
    """`a`, `a, or b`, `a, b, or c`."""
    return ways[0] if len(ways) == 1 else f"{', '.join(ways[:-1])}, or {ways[-1]}"


TRAININGS = (("train-policy", "policy", "the policy"), ("train-rm", "rm", "the reward model"))

GUARDS = (
    Guard(name="no-action", stage="rollout", find=_no_action),
    Guard(name="cut-episodes", stage="rollout", find=_cut_episodes),
    Guard(name="unreadable-votes", stage="score-steps", find=_unreadable_votes),
    Guard(name="no-mixed-group", stage="compute-rewards", find=_no_mixed_group),
    Guard(name="one-sided-judge", stage="compute-rewards", find=_one_sided_judge),
    Guard(name="useless-judge", stage="compute-rewards", find=_useless_judge),
    Guard(name="entropy-collapse", stage="train-policy", find=_entropy_collapse),
    *(
        Guard(name="exploding-update", stage=stage, find=partial(_exploding_update, model, name))
        for stage, model, name in TRAININGS
    ),
    *(
        Guard(name="sampler-gap", stage=stage, find=partial(_sampler_gap, model, name))
        for stage, model, name in TRAININGS
    ),
    Guard(name="refused-proposals", stage="adapt-env", find=_refused_proposals),
)
