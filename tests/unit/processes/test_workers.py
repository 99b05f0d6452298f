"""What the workers of one machine get: GPUs that no other has, and a share of the threads."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.processes import WORKER, gpu_shares, run_workers, worker_environment, workers_of
from rla.store.atomic import slices


@pytest.mark.parametrize(
    ("visible", "generator", "workers"),
    [
        ("0,1,2,3,4,5,6,7", {"backend": "vllm"}, 8),
        ("0,1,2,3,4,5,6,7", {"backend": "vllm", "tensor_parallel": 2}, 4),
        ("0,1,2", {"backend": "vllm", "tensor_parallel": 2}, 1),
        ("0,1", {"backend": "transformers", "tensor_parallel": 2}, 2),
        ("0,1", {"backend": "server"}, 1),
        ("", {"backend": "vllm"}, 1),
    ],
)
def test_auto_uses_all_gpus(
    visible: str, generator: dict[str, Any], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert workers_of(GeneratorConfig(data_parallel="auto", **generator)) == workers
    assert workers_of(GeneratorConfig(data_parallel=3, **generator)) == 3


@pytest.mark.parametrize(
    ("visible", "generator", "workers", "expected"),
    [
        ("0,1,2,3", GeneratorConfig(backend="vllm", tensor_parallel=2), 2, [["0", "1"], ["2", "3"]]),
        ("4, GPU-ab", GeneratorConfig(backend="transformers"), 2, [["4"], ["GPU-ab"]]),
        ("0,1", GeneratorConfig(backend="scripted"), 3, [[], [], []]),
        ("", GeneratorConfig(backend="transformers"), 2, [[], []]),
        ("-1", GeneratorConfig(backend="vllm"), 2, [[], []]),
    ],
)
def test_each_worker_has_gpus_of_its_own(
    visible: str, generator: GeneratorConfig, workers: int, expected: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_shares(generator, workers) == expected


def test_more_workers_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    config = GeneratorConfig(backend="vllm", tensor_parallel=2)
    with pytest.raises(UserError, match=r"--workers 3: each worker takes 2 GPUs, and 4 are .* --workers 2"):
        gpu_shares(config, 3)


def test_too_few_gpus_for_one_worker_names_the_key_that_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    config = GeneratorConfig(backend="vllm", tensor_parallel=2, data_parallel=2)
    message = r"generator\.data_parallel: 2: each worker takes 2 GPUs, and 1 is visible; .* a smaller generator\.tensor"
    with pytest.raises(UserError, match=message):
        gpu_shares(config, 2, asked="generator.data_parallel:")


def test_workers_know_that_a_call_has_started_them(monkeypatch: pytest.MonkeyPatch) -> None:
    told, popen = [], subprocess.Popen

    def started(command: Sequence[str], *, env: Mapping[str, str], **_: object) -> subprocess.Popen[bytes]:
        told.append(env[WORKER])
        return popen(["true"], stderr=subprocess.PIPE)

    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    config = GeneratorConfig(backend="scripted")
    failed = run_workers(["rollout"], slices(2), generator=config, asked="--workers")
    assert told == ["1", "1"] and failed == {}


def test_what_a_worker_is_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    own = worker_environment(workers=3, gpus=["2", "3"])
    assert (own["OMP_NUM_THREADS"], own["CUDA_VISIBLE_DEVICES"]) == ("2", "2,3")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert worker_environment(workers=16, gpus=[])["OMP_NUM_THREADS"] == "5"
