"""`rla plan-memory`: what it prints, and which params files it refuses, with the remedy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rla_study.planning.memory import Launched
from rla_study.planning.plan import Machine, Models, StageNeed, read_launch, stage_needs, training_remedy
from rla_study.planning.shapes import SHAPES
from rla_study.planning.tables import both_checkpoints
from rla_study.planning.work import Guesses, Tokens, inference_flops, judged, played, training_flops

from rla.cli.app import run as rla
from rla.config.training import TrainConfig
from rla.pipeline.plan import packaged_files
from rla.store.layout import resource
from tests.unit.builders import configured

Captured = pytest.CaptureFixture[str]
TINY, SEVEN = SHAPES["tiny"], SHAPES["qwen2.5-7b"]
ALFWORLD = str(resource("pipelines") / "alfworld-qwen2.5-7b.yaml")
GUESSES = Guesses(prompt=100, observation=10, reply=0.5, steps=0.5)


def test_tokens_of_episodes_by_hand() -> None:
    """4 steps of 10: a dialogue is read once, a window once a step."""
    config = configured("env.max_steps=8", "policy.max_tokens=20", "generator.context=1000")
    assert played(config, GUESSES, 3) == Tokens(read=3 * (100 + 4 * 10), written=3 * 40, length=180)
    window = replace(config, policy=replace(config.policy, history="window"))
    assert played(window, GUESSES, 3) == Tokens(read=3 * 4 * (100 + 10 * 2), written=3 * 40, length=130)


def test_tokens_of_judgements_by_hand() -> None:
    config = configured("env.max_steps=8", "policy.max_tokens=20", "judge.votes=3", "judge.max_tokens=8")
    assert judged(config, GUESSES, 5) == Tokens(read=5 * (100 + 20 + 10), written=5 * 3 * 4, length=134)
    assert judged(configured("judge.enabled=false"), GUESSES, 5).total == 0


def test_flops_by_hand() -> None:
    """2 layers of 37,120 weights, 64 queries; 10 tokens of sequences of 6, 4 of them with logits of 1,000."""
    tokens = Tokens(read=6, written=4, length=6)
    forward = 2 * 2 * 37120 * 10 + 4 * 2 * 64 * 10 * 3 + 2 * 64 * 1000 * 4
    assert inference_flops(TINY, tokens) == forward
    plain = TrainConfig(kl_coef=0.0)
    assert training_flops(TINY, tokens, plain) == 3 * forward
    assert training_flops(TINY, tokens, replace(plain, gradient_checkpointing=True, epochs=2)) == 8 * forward
    assert training_flops(TINY, tokens, replace(plain, kl_coef=0.1, old="trainer")) == 5 * forward
    once = replace(plain, kl_coef=0.1, old="trainer", kl_reference="previous")
    assert training_flops(TINY, tokens, once) == 4 * forward


def test_flops_of_training_are_those_that_the_loop_counts() -> None:
    pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    from study_tests.bench.bench_shape import config_of
    from study_tests.bench.utilisation import Work

    work = Work.of(AutoModelForCausalLM.from_config(config_of(TINY)))
    sequences, length = 7, 300
    counted = work.flops(tokens=sequences * length, loss_tokens=sequences * 50, pairs=sequences * length**2 / 2)
    planned = training_flops(
        TINY, Tokens(read=sequences * 250, written=sequences * 50, length=length), TrainConfig(kl_coef=0.0)
    )
    assert planned == pytest.approx(counted, rel=0.001)  # the last norm counts there


def test_time_follows_the_rate_and_the_gpus() -> None:
    config = configured("train_policy.kl_coef=0", "train_policy.dtype=bfloat16")
    models = Models(policy=TINY, reward=TINY)

    def seconds(machine: Machine) -> dict[str, float]:
        return {one.stage: one.seconds for one in stage_needs(config, models, machine, GUESSES, by_task=False)}

    slow, fast = seconds(Machine(flops=1e12)), seconds(Machine(flops=2e12))
    assert slow == {stage: pytest.approx(2 * value) for stage, value in fast.items()}
    [need] = [
        one for one in stage_needs(config, models, Machine(), GUESSES, by_task=False) if one.stage == "train-policy"
    ]
    assert need.seconds == pytest.approx(need.flops / (400e12 * 0.4))


def test_the_launch_file_says_how_many_share_the_state() -> None:
    assert read_launch(configured(), Machine()) == Launched()
    assert read_launch(configured("launch.training=pipelines/accelerate/fsdp2.yaml"), Machine()) == Launched(
        processes=8, spread=True, reads_parts=True
    )


def test_workers_on_a_ray_cluster_need_not_be_on_this_machine() -> None:
    own = ("launch.training=ray", "launch.own.configuration=pipelines/accelerate/fsdp2.yaml")
    spread = Launched(processes=4, spread=True, reads_parts=True, cluster=True)
    assert read_launch(configured(*own), Machine(gpus=4)) == spread
    assert read_launch(configured(*own, "launch.own.workers=32"), Machine(gpus=4)) == replace(spread, processes=32)


def test_the_published_file_fits_eight_gpus(capsys: Captured) -> None:
    assert rla(["plan-memory", "--shape", "qwen2.5-7b", "--gpus", "8", "--disk", "2000"]) == 0
    text = capsys.readouterr().out
    assert "7,615,616,512" in text and "91.4 GB" in text and "15.2 GB" in text
    assert "63.2 TB" in text  # 200 iterations of 7.6e9 and 14.8e9 weights at 14 bytes
    for stage in ("rollout", "score-steps", "train-policy", "train-rm", "adapt-env", "evaluate"):
        assert stage in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "4"], "train-policy starts 8 processes, the machine has 4 GPUs; set num_processes in the file"),
        (
            ["--set", "launch.training=null"],
            "train-policy needs 150 GB on a GPU of 80 GB; "
            "set launch.training: pipelines/accelerate/fsdp2.yaml with num_processes: 8",
        ),
        (["--gpu-memory", "20"], "do not fit into generator.gpu_memory = 0.85 of 1 x 20 GB; set generator.tensor_par"),
        (["--set", "generator.data_parallel=16"], "= 16 GPUs, the machine has 8; lower generator.data_parallel"),
        (["--host-memory", "60"], "train-policy needs 84.9 GB of the host's 60 GB; take a machine with more"),
        (["--disk", "500"], "the run needs 1.45 TB of 500 GB on the disk; set checkpoints.keep: 1, or"),
        (
            ["--disk", "500", "--set", "checkpoints.keep=0"],
            "needs 63.2 TB of 500 GB on the disk; set checkpoints.keep: 2",
        ),
        (["--reward-shape", "gpt-5"], "model.reward: the sizes of gpt-5 are not known; give --reward-shape one of"),
    ],
)
def test_what_cannot_fit_is_refused_with_the_remedy(arguments: list[str], message: str, capsys: Captured) -> None:
    assert rla(["plan-memory", "--params", ALFWORLD, "--shape", "qwen2.5-7b", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1


def test_a_transformers_engine_that_cannot_hold_its_slots_is_refused(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "model: {policy: qwen2.5-7b, reward: qwen2.5-7b}\ngenerator: {dtype: bfloat16, context: 20000}\n"
        "warm_start: {enabled: false}\n"
    )
    assert rla(["plan-memory", "--params", str(file), "--gpus", "1"]) == 2
    assert "lower one of them, or set generator.backend: vllm" in capsys.readouterr().err


def test_the_small_run_fits_a_laptop(capsys: Captured) -> None:
    arguments = ["--params", str(resource("params.yaml")), "--gpus", "0", "--host-memory", "4", "--tflops", "0.05"]
    assert rla(["plan-memory", *arguments]) == 0
    assert "init" in capsys.readouterr().out


def test_the_remedy_is_the_first_change_that_fits() -> None:
    config = TrainConfig(dtype="bfloat16", tokens_per_batch=65536, max_tokens=4096, gradient_checkpointing=False)
    small = SHAPES["qwen2.5-0.5b"]
    found = training_remedy("train_rm", small, config, Launched(), Machine(gpus=1))
    assert found == "set train_rm.gradient_checkpointing: true"
    assert training_remedy("train_rm", SHAPES["qwen2.5-32b"], config, Launched(), Machine(gpus=1, gpu_bytes=20e9)) == (
        "take more or larger GPUs, or a smaller model"
    )
    one = training_remedy("train_rm", SEVEN, config, Launched(), Machine(gpus=1))
    assert one == "set train_rm.lora.rank: 32"


def test_a_stage_that_trains_nothing_needs_nothing(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge of this file is off. Its warm start has one GPU and takes more than 80 GB, in fp32."""
    monkeypatch.setenv("COLUMNS", "150")  # a narrower terminal shows the table in parts
    file = str(packaged_files()["demyagent-qwen3-4b"])
    assert rla(["plan-memory", "--params", file]) == 2
    error = capsys.readouterr().err
    assert "warm-start needs 88.9 GB on a GPU of 80 GB; set warm_start.enabled: false, or take a larger GPU" in error
    assert rla(["plan-memory", "--params", file, "--gpu-memory", "141"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    for stage in ("score-steps", "train-rm"):
        assert [stage, *"------"] in rows
    assert ["reward", "model", "qwen3-4b", "4,022,468,096", "-", "-"] in rows


@pytest.mark.parametrize("off", ["judge.enabled=false", "train_rm.enabled=false", "judge.server.model=m"])
def test_a_reward_model_that_does_not_train_has_no_state_on_disk(off: str) -> None:
    server = ["judge.server.model=m", "judge.server.url=http://localhost:1/v1"] if "server" in off else []
    config = configured(off, *server)
    models = Models(policy=TINY, reward=SEVEN)
    [need] = [one for one in stage_needs(config, models, Machine(), GUESSES, by_task=False) if one.stage == "train-rm"]
    assert (need.gpus, need.gpu, need.host, need.refusal) == (0, 0, 0, "")
    policy, reward = both_checkpoints(config, models)
    assert policy.state > 0 and (reward.state, reward.export) == (0, 0)


def test_the_judge_trains_on_the_steps_that_are_drawn() -> None:
    """8 tasks of 8 episodes with half of 20 steps are 640 steps, of which 64 train."""

    def tokens(*more: str) -> float:
        keys = ("rollout.tasks_per_iteration=8", "rollout.rollouts_per_task=8", "env.max_steps=20", *more)
        models = Models(policy=TINY, reward=TINY)
        needs = stage_needs(configured("adaptation.enabled=false", *keys), models, Machine(), GUESSES, by_task=False)
        return next(one.tokens for one in needs if one.stage == "train-rm")

    assert tokens("train_rm.max_samples=64") == pytest.approx(tokens() / 10)
    assert tokens("train_rm.max_samples=64", "train_rm.replay=1") == pytest.approx(tokens() / 5)
    assert tokens("train_rm.max_samples=9000") == tokens()


def test_on_a_cpu_the_rate_is_that_of_a_cpu(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rla.processes.usable_cores", lambda: 4)
    assert rla(["plan-memory", "--params", str(resource("params.yaml")), "--gpus", "0"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "0.12 TFLOP/s of the CPU" in said and "a GPU" not in said


def test_the_warm_start_is_bounded_by_bytes_and_planned(capsys: Captured) -> None:
    """fp32 state of all weights, and activations of 2 GiB unless one example alone is longer."""
    keys = ("generator.context=1024", "model.context=1024", "warm_start.policy.batch_size=64", "judge.enabled=false")
    models, machine = Models(policy=SHAPES["qwen2.5-0.5b"], reward=TINY), Machine(gpus=0)

    def need(*more: str) -> StageNeed:
        config = configured(*keys, *more)
        first, *_ = stage_needs(config, models, machine, GUESSES, by_task=False)
        assert first.stage == "warm-start"
        return first

    weights = models.policy.weights
    least = 0.7e9 + 16 * weights + 4 * 4 * 2**25  # process, train state, output layer; the export comes after the pass
    assert least + 0.9 * 2**31 < need().host < least + 1.4 * 2**31
    assert need("warm_start.policy.gradient_checkpointing=true").host < need().host
    assert need("warm_start.policy.tokens_per_pass=4096").host > need().host + 5e9
    assert need().flops > 6 * weights * need().tokens * 0.5
    assert need("warm_start.enabled=false").host == 0


def test_a_warm_start_of_an_adapter_trains_and_writes_that_alone() -> None:
    keys = ("model.policy=qwen2.5-0.5b", "warm_start.enabled=true", "judge.enabled=false", "train_policy.lora.rank=8")
    keys += ("train_policy.kl_coef=0",)
    models, machine = Models(policy=SHAPES["qwen2.5-0.5b"], reward=TINY), Machine(gpus=0)

    def need(*more: str) -> tuple[StageNeed, float]:
        config = configured(*keys, *more)
        first, *_ = stage_needs(config, models, machine, GUESSES, by_task=False)
        return first, both_checkpoints(config, models)[0].start

    weights, adapter = models.policy.weights, models.policy.adapter_weights(8)
    (alone, stored), (whole, stored_whole) = need(), need("train_policy.lora.rank=0")
    frozen = 16 - 4  # no gradient and no moments
    assert whole.host - alone.host == frozen * weights - 16 * adapter
    assert alone.flops < whole.flops
    assert alone.host - need("train_policy.dtype=bfloat16")[0].host > 2 * weights  # the base, and activations
    assert (stored, stored_whole) == (4 * weights + 8 * adapter, 4 * weights)
    new, stored = need("model.policy=init")  # nothing can be learnt over a base of noise
    assert (new.host, stored) == (whole.host, stored_whole)
