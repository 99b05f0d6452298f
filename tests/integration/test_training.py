"""Training stages end to end on tiny real models: kills, hand-over, nothing to train on, warm start."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file  # noqa: E402

from rla.config.training import SftConfig, TrainConfig  # noqa: E402
from rla.errors import UserError  # noqa: E402
from rla.models.load import load_model, load_tokenizer  # noqa: E402
from rla.store.records import Segment  # noqa: E402
from rla.store.shards import Origin, write_shard  # noqa: E402
from rla.training import loop  # noqa: E402
from rla.training.checkpoints import TrainState  # noqa: E402
from rla.training.loop import NO_SIGNAL, train  # noqa: E402
from rla.training.sequences import (  # noqa: E402
    Example,
    TrainingSequence,
)
from rla.training.stage import POLICY, joined_sequences  # noqa: E402
from tests.unit.builders import step, trajectory  # noqa: E402
from tests.unit.training.builders import random_sequences, tiny_model  # noqa: E402
from tests.unit.training.test_packing import family, forked  # noqa: E402

CONFIG = TrainConfig(lr=1e-3, updates=4, kl_coef=0.05, tokens_per_batch=64, warmup_steps=6)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("start") / "tiny")


@pytest.fixture(scope="module")
def sequences() -> list[TrainingSequence]:
    return random_sequences(11)


def run(model: Path, out: Path, sequences: list[TrainingSequence], **changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"config": CONFIG, "temperature": 0.8, "seed": 7, **changes}
    return train(model_folder=model, out=out, sequences=sequences, **settings)


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Every stored tensor of a checkpoint, by file and name."""
    files = sorted(folder.rglob("*.safetensors"))
    return {f"{file.relative_to(folder)}/{key}": value for file in files for key, value in load_file(file).items()}


def assert_same(left: Path, right: Path) -> None:
    first, second = tensors(left), tensors(right)
    assert first.keys() == second.keys()
    assert [key for key in first if not torch.equal(first[key], second[key])] == []


class Killed(BaseException):
    """Stands for a kill between two updates: nothing of the stage runs after it."""


def test_a_killed_stage_goes_on_to_the_same_bits(
    start: Path, sequences: list[TrainingSequence], tmp_path: Path
) -> None:
    undisturbed = run(start, tmp_path / "straight", sequences)
    seen: list[int] = []

    def kill_after(metrics: dict[str, Any]) -> None:
        seen.append(metrics["update"])
        if len(seen) == 3:
            raise Killed

    with pytest.raises(Killed):
        run(start, tmp_path / "killed", sequences, log=kill_after, save_interval_s=0.0)
    assert not (tmp_path / "killed").exists()
    again: list[dict[str, Any]] = []
    resumed = run(start, tmp_path / "killed", sequences, log=again.append)

    assert [one["update"] for one in again] == [1, 2, 3, 4]
    assert [one["update"] for one in again if "resumed" not in one] == [3, 4]
    assert_same(tmp_path / "straight", tmp_path / "killed")
    timing = {"seconds", "tokens_per_second"}
    assert {k: v for k, v in resumed.items() if k not in timing} == {
        k: v for k, v in undisturbed.items() if k not in timing
    }
    assert json.loads((tmp_path / "killed" / "metrics.json").read_text()) == resumed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "straight"]


def test_ctrl_c_saves_the_updates_made_so_far(
    start: Path, sequences: list[TrainingSequence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update in which it was pressed is completed."""
    undisturbed = run(start, tmp_path / "straight", sequences)
    forward, made, before = loop.forward, 0, signal.getsignal(signal.SIGINT)

    def interrupted(*given: Any) -> Any:
        nonlocal made
        made += 1
        if made == 3:
            signal.raise_signal(signal.SIGINT)
        return forward(*given)

    monkeypatch.setattr(loop, "forward", interrupted)
    seen: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        run(start, tmp_path / "stopped", sequences, log=lambda metrics: seen.append(metrics["update"]))
    assert 0 < len(seen) < 4 and signal.getsignal(signal.SIGINT) is before
    again: list[dict[str, Any]] = []
    run(start, tmp_path / "stopped", sequences, log=again.append)
    assert [one["update"] for one in again if "resumed" in one] == seen and undisturbed["updates"] == 4
    assert_same(tmp_path / "straight", tmp_path / "stopped")


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        ({"prepare": 1800.0}, ["last"]),  # the updates take no time: there is nothing to save before the end
        ({"update": 1800.0}, ["update-000001.tmp", "update-000002.tmp", "update-000003.tmp", "last"]),
        ({"save": 500.0, "update": 1800.0}, ["update-000001.tmp", "last"]),  # two updates are less than ten saves
    ],
)
def test_the_train_state_is_written_when_updates_that_took_long_would_be_lost(
    seconds: dict[str, float],
    written: list[str],
    start: Path,
    sequences: list[TrainingSequence],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four updates under a clock that jumps. Saving takes at most a tenth of the time."""
    late, clock = [0.0], time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + late[0])

    def slowed(module: Any, name: str) -> None:
        real = getattr(module, name)

        def slowly(*arguments: Any, **options: Any) -> Any:
            late[0] += seconds[name]
            return real(*arguments, **options)

        monkeypatch.setattr(module, name, slowly)

    found: list[str] = []
    save = TrainState.save
    monkeypatch.setattr(TrainState, "save", lambda state, folder: (found.append(folder.name), save(state, folder))[1])
    for name in seconds:
        slowed(TrainState if name == "save" else loop, name)
    run(start, tmp_path / "out", sequences)
    assert found == written


def test_progress_of_other_inputs_is_not_taken_up(
    start: Path, sequences: list[TrainingSequence], tmp_path: Path
) -> None:
    def kill(metrics: dict[str, Any]) -> None:
        if metrics["update"] == 3:
            raise Killed

    with pytest.raises(Killed):
        run(start, tmp_path / "out", sequences, log=kill, save_interval_s=0.0)
    run(start, tmp_path / "out", sequences, seed=8)
    run(start, tmp_path / "straight", sequences, seed=8)
    assert_same(tmp_path / "straight", tmp_path / "out")


def poisoned(sequences: list[TrainingSequence], *numbers: int) -> list[TrainingSequence]:
    """The sequences of these numbers have advantages that no fp32 gradient holds."""
    return [replace(one, advantages=[3e38] * 4) if n in numbers else one for n, one in enumerate(sequences)]


def test_a_gradient_that_is_not_finite_is_skipped_and_counted(
    start: Path, sequences: list[TrainingSequence], tmp_path: Path
) -> None:
    """Of four updates the one with the poisoned sequence changes nothing; a kill behind it does not bring it back."""
    history: list[dict[str, Any]] = []
    rows = poisoned(sequences, 3)
    metrics = run(start, tmp_path / "out", rows, log=history.append)
    assert [one["skipped"] for one in history] == [0, 1, 0, 0]
    assert [one["update"] for one in history] == [1, 2, 3, 4]
    assert (metrics["updates"], metrics["skipped_updates"], metrics["total_updates"]) == (4, 1, 4)
    assert all(torch.isfinite(value).all() for value in tensors(tmp_path / "out").values() if value.is_floating_point())
    assert tensors(tmp_path / "out")["state/moments.safetensors/step.model.norm.weight"].item() == 3
    lines = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert [one["skipped"] for one in lines] == [one["skipped"] for one in history]

    def kill(one: dict[str, Any]) -> None:
        if one["update"] == 3:
            raise Killed

    with pytest.raises(Killed):
        run(start, tmp_path / "again", rows, log=kill, save_interval_s=0.0)
    assert run(start, tmp_path / "again", rows)["skipped_updates"] == 1
    assert_same(tmp_path / "out", tmp_path / "again")


def test_too_many_skipped_updates_end_the_stage(
    start: Path, sequences: list[TrainingSequence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = poisoned(sequences, *range(11))
    with pytest.raises(UserError, match=r"updates 1, 2, 3, 4: the gradient is not finite, more than 3 times"):
        run(start, tmp_path / "out", rows)
    monkeypatch.setattr(loop, "MAX_SKIPPED", 4)
    metrics = run(start, tmp_path / "none", rows)
    assert (metrics["updates"], metrics["skipped_updates"]) == (4, 4)
    before = load_file(start / "model.safetensors")
    after = load_file(tmp_path / "none/model/model.safetensors")
    assert all(torch.equal(after[key], before[key]) for key in before)


def test_optimizer_warm_up_and_reference_are_handed_from_iteration_to_iteration(
    start: Path, sequences: list[TrainingSequence], tmp_path: Path
) -> None:
    rates: list[float] = []
    for number, source in enumerate([start, tmp_path / "1", tmp_path / "2"], start=1):
        metrics = run(source, tmp_path / str(number), sequences, log=lambda one: rates.append(one["lr"]))
        assert metrics["total_updates"] == 4 * number
    assert rates == pytest.approx([1e-3 * min(1, n / 6) for n in range(1, 13)])

    stored = [tensors(tmp_path / str(number)) for number in (1, 2, 3)]
    initial = dict(load_model(start).named_parameters())
    for name, parameter in initial.items():
        assert torch.equal(stored[2][f"state/reference.safetensors/{name}"], parameter)
    assert stored[2]["state/moments.safetensors/step.model.norm.weight"].item() == 12
    assert not torch.equal(
        stored[0]["model/model.safetensors/model.norm.weight"],
        stored[1]["model/model.safetensors/model.norm.weight"],
    )
    assert load_tokenizer(tmp_path / "3" / "model")("go to shelf")["input_ids"]


def test_kl_is_measured_to_the_chosen_reference(start: Path, sequences: list[TrainingSequence], tmp_path: Path) -> None:
    """Before the first update the KL to `previous` is 0 and the KL to `initial` is not."""
    run(start, tmp_path / "1", sequences)
    first: dict[str, float] = {}
    for reference in ("initial", "previous"):
        history: list[dict[str, Any]] = []
        config = replace(CONFIG, kl_reference=reference)
        run(tmp_path / "1", tmp_path / reference, sequences, config=config, log=history.append)
        first[reference] = history[0]["kl"]
    assert first["previous"] == pytest.approx(0.0, abs=1e-6)
    assert first["initial"] > 1e-5


@pytest.mark.parametrize("advantages", ["none", "zero"])
def test_without_signal_the_checkpoint_is_carried_over_unchanged(
    advantages: str, start: Path, sequences: list[TrainingSequence], tmp_path: Path
) -> None:
    run(start, tmp_path / "1", sequences)
    silent = [] if advantages == "none" else [replace(one, advantages=[0.0] * 4) for one in sequences]
    metrics = run(tmp_path / "1", tmp_path / "2", silent)
    assert (metrics["updates"], metrics["total_updates"], metrics["note"]) == (0, 4, NO_SIGNAL)
    assert_same(tmp_path / "1", tmp_path / "2")
    assert (tmp_path / "1" / "checkpoint.json").read_text() == (tmp_path / "2" / "checkpoint.json").read_text()


# Task a was won once of two times, task b always. An episode is one reply of so many tokens.
EPISODES = {"a0": (3, 1.0), "a1": (1, -1.0), "b0": (2, 0.0), "b1": (2, 0.0)}
GRPO = replace(CONFIG, kl_coef=0.0, warmup_steps=0, old="trainer", updates=1)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder, origin = tmp_path_factory.mktemp("shards"), Origin(config="c", inputs={}, seed=0)
    trajectories, rewards = [], []
    for name, (tokens, advantage) in EPISODES.items():
        sampled = [False, False, *[True] * tokens]
        spoken = Segment(
            token_ids=[5, 6, *[7] * tokens],
            sampled=sampled,
            logprobs=[-0.5 * chosen for chosen in sampled],
            allowed=[[]] * tokens,
        )
        played = trajectory(name, task_id=name[0], segments=[spoken], steps=[step(end=2 + tokens)])
        trajectories.append(played.row())
        key = {"trajectory_id": name, "task_id": name[0], "step": 0}
        paid = {"outcome": 1, "mean_score": None, "reward": 1.0, "advantage": advantage}
        rewards.append(key | paid)
    write_shard(folder / "trajectories", "trajectories", trajectories, origin)
    write_shard(folder / "rewards", "policy_rewards", rewards, origin)
    return folder / "trajectories", folder / "rewards"


def losses(shards: tuple[Path, Path], start: Path, out: Path, **keys: Any) -> list[float]:
    """Of each update: at rate 0 every ratio stays 1, and the loss is minus the mean advantage over its tokens."""
    config, history = replace(GRPO, lr=0.0, **keys), list[dict[str, Any]]()
    joined = joined_sequences(POLICY, shards, config=config, seed=0)
    run(start, out, list(joined), config=config, log=history.append)
    return sorted(round(one["loss"], 6) for one in history)


def test_a_group_without_spread_trains_nothing_and_counts_nowhere(
    shards: tuple[Path, Path], start: Path, tmp_path: Path
) -> None:
    """Two sequences in twos are one update, whose four tokens have advantages of 1, 1, 1 and -1."""
    assert losses(shards, start, tmp_path / "out", sequences_per_update=2) == [-0.5]


def test_a_group_without_spread_may_count_in_the_token_mean(
    shards: tuple[Path, Path], start: Path, tmp_path: Path
) -> None:
    """Its four tokens of advantage 0 halve the mean."""
    found = losses(shards, start, tmp_path / "out", sequences_per_update=4, zero_advantage="count")
    assert found == [-0.25]


def test_whole_groups_make_the_updates_that_verl_makes(shards: tuple[Path, Path], start: Path, tmp_path: Path) -> None:
    """A mini-batch of one task with its two episodes: two updates of an iteration, one of them without a gradient."""
    found = losses(shards, start, tmp_path / "out", sequences_per_update=2, zero_advantage="count_groups")
    assert found == [-0.5, 0.0]


def test_counted_groups_are_an_update_even_where_nothing_was_learnt(
    start: Path, sequences: list[TrainingSequence], tmp_path: Path
) -> None:
    """The penalty of the KL divergence acts, and the schedule goes on."""
    silent = [replace(one, advantages=[0.0] * 4) for one in sequences]
    run(start, tmp_path / "1", sequences)
    metrics = run(tmp_path / "1", tmp_path / "2", silent, config=replace(CONFIG, zero_advantage="count"))
    assert (metrics["updates"], metrics["total_updates"]) == (4, 8)
    assert metrics["kl"] > 0


def test_a_plain_model_folder_is_carried_over_as_a_checkpoint(start: Path, tmp_path: Path) -> None:
    assert run(start, tmp_path / "1", [])["updates"] == 0
    assert load_model(tmp_path / "1" / "model").config.vocab_size == load_model(start).config.vocab_size


def test_segments_longer_than_max_tokens_are_counted_and_left_out(
    start: Path, sequences: list[TrainingSequence], tmp_path: Path
) -> None:
    limit = sorted(len(one.token_ids) for one in sequences)[-3]
    fitting = [one for one in sequences if len(one.token_ids) <= limit]
    metrics = run(start, tmp_path / "cut", sequences, config=replace(CONFIG, max_tokens=limit))
    assert metrics["replies_too_long"] == len(sequences) - len(fitting) == 2
    run(start, tmp_path / "fitting", fitting, config=replace(CONFIG, max_tokens=limit))
    assert_same(tmp_path / "cut", tmp_path / "fitting")


@pytest.mark.parametrize("changes", [{}, {"loss": "gspo", "ratio": "segment", "aggregation": "trajectory"}])
def test_the_size_of_a_forward_pass_does_not_matter(
    start: Path, sequences: list[TrainingSequence], tmp_path: Path, changes: dict[str, Any]
) -> None:
    for tokens in (1, 10_000):
        config = replace(CONFIG, tokens_per_batch=tokens, **changes)
        run(start, tmp_path / str(tokens), sequences, config=config)
    small, large = (tensors(tmp_path / str(tokens) / "model") for tokens in (1, 10_000))
    torch.testing.assert_close(small, large, atol=1e-5, rtol=0.0)


def test_a_pass_of_the_reward_model_keeps_its_budget_and_changes_no_result(start: Path, tmp_path: Path) -> None:
    """Rows of a prompt and five judgements, 44 tokens, in passes of 24: the weights are those of whole rows."""
    rows = [replace(forked(9, 7, 7, 7, 7, 7, first=number), replies=[n // 7 for n in range(35)]) for number in range(6)]
    history: dict[int, list[dict[str, Any]]] = {24: [], 10_000: []}
    for tokens, seen in history.items():
        config = replace(CONFIG, tokens_per_batch=tokens, updates=2, old="trainer", aggregation="sequence")
        run(start, tmp_path / str(tokens), rows, config=config, log=seen.append)
    assert [one["length_max"] for one in history[24]] == [23, 23]
    assert [one["length_max"] for one in history[10_000]] == [44, 44]
    small, large = (tensors(tmp_path / str(tokens) / "model") for tokens in history)
    torch.testing.assert_close(small, large, atol=1e-5, rtol=0.0)


def test_a_pass_of_padded_rows_keeps_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bloom cannot pack. The 44 tokens fit in the budget, but padded rows are five judgements of 16 tokens each."""
    family("bloom").save_pretrained(tmp_path / "bloom")
    rows = [replace(forked(9, 7, 7, 7, 7, 7, first=number), replies=[n // 7 for n in range(35)]) for number in range(4)]
    collate, inputs = loop.collate, set[tuple[int, ...]]()

    def watched(*given: Any, **options: Any) -> Any:
        batch = collate(*given, **options)
        inputs.add(tuple(batch.input_ids.shape))
        return batch

    monkeypatch.setattr(loop, "collate", watched)
    run(tmp_path / "bloom", tmp_path / "48", rows, config=replace(CONFIG, tokens_per_batch=48))
    assert inputs == {(3, 15), (2, 15)}
    run(tmp_path / "bloom", tmp_path / "all", rows, config=replace(CONFIG, tokens_per_batch=10_000))
    small, large = (tensors(tmp_path / name / "model") for name in ("48", "all"))
    torch.testing.assert_close(small, large, atol=1e-5, rtol=0.0)


@pytest.mark.parametrize("old", ["sampler", "token_tis"])
def test_one_token_at_minus_9999_costs_its_own_gradient_and_no_update(
    start: Path, sequences: list[TrainingSequence], tmp_path: Path, old: Literal["sampler", "token_tis"]
) -> None:
    """So vLLM writes minus infinity. The other tokens of the update train, and the metrics count this one."""
    first, *others = sequences
    damaged = [replace(first, logp=[-9999.0, *first.logp[1:]]), *others]
    config = replace(CONFIG, old=old, updates=1)
    seen: list[dict[str, Any]] = []
    metrics = run(start, tmp_path / "out", damaged, config=config, log=seen.append)
    assert seen[0]["extreme_tokens"] == metrics["extreme_tokens"] == 1 and metrics["skipped_updates"] == 0
    assert 0 < seen[0]["grad_norm"] < 1e4 and seen[0]["sampler_gap_max"] < 100


def test_training_raises_the_probability_of_what_was_rewarded(start: Path, tmp_path: Path) -> None:
    """Two answers to one prompt, one of them praised: after training it is the more probable by far."""
    answers = {20: 1.0, 21: -1.0}
    choices = [
        TrainingSequence(
            token_ids=[5, 6, answer],
            positions=[2],
            logp=[-0.6931],
            allowed=[[20, 21]],
            advantages=[advantage],
        )
        for answer, advantage in answers.items()
    ]
    config = replace(CONFIG, epochs=20, updates=1, kl_coef=0.0, warmup_steps=0, clip_low=9.0, clip_high=9.0)
    run(start, tmp_path / "out", choices * 4, config=config)
    with torch.no_grad():
        logits = load_model(tmp_path / "out" / "model")(torch.tensor([[5, 6]])).logits[0, -1]
    assert logits[20] - logits[21] > 1.0


def test_bfloat16_is_an_export_and_the_state_stays_fp32(
    start: Path, sequences: list[TrainingSequence], tmp_path: Path
) -> None:
    run(start, tmp_path / "1", sequences, config=replace(CONFIG, dtype="bfloat16", lr=1e-6))
    stored = tensors(tmp_path / "1")
    assert stored["model/model.safetensors/model.norm.weight"].dtype == torch.bfloat16
    assert stored["state/weights.safetensors/model.norm.weight"].dtype == torch.float32
    assert json.loads((tmp_path / "1" / "model" / "config.json").read_text())["dtype"] == "bfloat16"
    # Too small a step for bf16 to show, and yet it is not lost.
    assert not torch.equal(
        stored["state/weights.safetensors/model.norm.weight"],
        stored["model/model.safetensors/model.norm.weight"].float(),
    )


def test_an_output_that_exists_is_not_trained_over(
    start: Path, sequences: list[TrainingSequence], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("")
    with pytest.raises(UserError, match="exists already"):
        run(start, tmp_path / "out", sequences)


def test_tokens_of_another_model_are_refused(start: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"knows no token"):
        run(start, tmp_path / "out", random_sequences(2, vocabulary=10_000))


def counting_examples() -> list[Example]:
    """Sequences that count up by one: the second half says what the first half shows."""
    return [Example(token_ids=list(range(n, n + 12)), weights=[0.3] * 6 + [1.0] * 6) for n in range(10, 60)]


def test_a_warm_start_learns_and_is_the_reference_of_the_run(start: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the warm start needs TRL")
    from rla.training.sft import sft

    config = SftConfig(steps=60, batch_size=8, lr=1e-2)
    metrics = sft(model_folder=start, out=tmp_path / "sft", rounds=[(counting_examples(), config)], seed=0)
    assert metrics["steps"] == 60
    assert metrics["last_loss"] < 0.5 * metrics["first_loss"]
    history: list[dict[str, Any]] = []
    run(tmp_path / "sft", tmp_path / "1", random_sequences(4), log=history.append)
    assert torch.equal(
        tensors(tmp_path / "1")["state/reference.safetensors/model.norm.weight"],
        tensors(tmp_path / "sft")["model/model.safetensors/model.norm.weight"],
    )
    assert history[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert history[0]["update"] == 1


def test_a_warm_start_repeats_itself(start: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the warm start needs TRL")
    from rla.training.sft import sft

    for name in ("a", "b"):
        config = SftConfig(steps=3, batch_size=4, lr=1e-2)
        sft(model_folder=start, out=tmp_path / name, rounds=[(counting_examples(), config)], seed=3)
    assert_same(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("stop", [2, 5])
def test_ctrl_c_saves_the_steps_of_a_warm_start(stop: int, start: Path, tmp_path: Path) -> None:
    """In the first of two trainings, and in the second."""
    from rla.training.sft import sft

    examples = [Example(token_ids=[5, 6, 7, 8, 9 + n], weights=[0.0, 1, 1, 1, 1]) for n in range(6)]
    config = SftConfig(examples=6, steps=3, batch_size=2, lr=1e-3)
    seen: list[float] = []

    def warmed(name: str, *, stop_at: int = 0) -> None:
        def log(step: dict[str, Any]) -> None:
            seen.append(step["loss"])
            if len(seen) == stop_at:
                signal.raise_signal(signal.SIGINT)

        seen.clear()
        sft(model_folder=start, out=tmp_path / name, rounds=[(examples, config)] * 2, seed=3, log=log)

    warmed("straight")
    losses = list(seen)
    with pytest.raises(KeyboardInterrupt):
        warmed("stopped", stop_at=stop)
    assert len(seen) == stop
    warmed("stopped")
    assert seen == losses
    assert_same(tmp_path / "straight", tmp_path / "stopped")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stopped", "straight"]


@pytest.mark.parametrize("rounds", [1, 2])
def test_ctrl_c_during_the_last_step_of_a_round_costs_nothing(
    rounds: int, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training ends with the first step of the next round, or with the checkpoint."""
    from transformers.trainer_callback import DefaultFlowCallback

    from rla.training.sft import sft

    def press(callback: object, args: object, state: Any, control: object, **_: object) -> None:
        if state.global_step == 2:
            signal.raise_signal(signal.SIGINT)

    known: dict[str, Any] = {"model_folder": start, "rounds": [(counting_examples(), SftConfig(steps=3))] * rounds}
    sft(out=tmp_path / "straight", seed=3, **known)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(DefaultFlowCallback, "on_pre_optimizer_step", press)
        sft(out=tmp_path / "stopped", seed=3, **known)
    if rounds == 2:
        steps: list[dict[str, Any]] = []
        sft(out=tmp_path / "stopped", seed=3, log=steps.append, **known)
        assert [step.get("resumed", False) for step in steps] == [True] * 4 + [False] * 2
    assert_same(tmp_path / "straight", tmp_path / "stopped")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stopped", "straight"]


def test_a_second_training_goes_on_from_the_first(start: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the warm start needs TRL")
    from rla.training.sft import sft

    first, second = (counting_examples(), SftConfig(steps=3, lr=1e-2)), (counting_examples()[:9], SftConfig(steps=2))
    metrics = sft(model_folder=start, out=tmp_path / "a", rounds=[first, second], seed=3)
    assert (metrics["steps"], metrics["examples"]) == (5, 59)
    sft(model_folder=start, out=tmp_path / "b", rounds=[first], seed=3)
    sft(model_folder=tmp_path / "b", out=tmp_path / "c", rounds=[second], seed=3)
    weights = "model/model.safetensors/model.norm.weight"
    apart = [tensors(tmp_path / name)[weights] for name in ("a", "b", "c")]
    assert torch.equal(apart[0], apart[2]) and not torch.equal(apart[0], apart[1])


def test_examples_of_which_nothing_trains_are_refused(start: Path, tmp_path: Path) -> None:
    from rla.training.sft import sft

    with pytest.raises(UserError, match="no token of any example has a weight"):
        sft(
            model_folder=start,
            out=tmp_path / "out",
            rounds=[([Example(token_ids=[1, 2], weights=[1.0, 0.0])], SftConfig())],
            seed=0,
        )
