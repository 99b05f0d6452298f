"""`make gpu-check` without a GPU: its parts on tiny shapes, its record, its page, and the parcel for a bare machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from study_tests.gpu_check import page, parcel, sampling, training
from study_tests.gpu_check.call import Call
from study_tests.gpu_check.record import PARTS, add, merged, record_of, write_record
from tests.gpu.older_torch import repeat_heads

MACHINE = {"device": "NVIDIA H100 80GB HBM3", "torch": "2.11.0", "when": "2026-11-27T10:00+00:00"}


def called(part: str, out: Path, **options: Any) -> Call:
    return Call(**{"part": part, "out": out, "until": time.time() + 600, "tiny": True, "model": ""} | options)


def test_a_part_that_is_killed_keeps_its_rows_and_one_that_is_called_again_begins_anew(tmp_path: Path) -> None:
    add(tmp_path, "training", machine=MACHINE)
    add(tmp_path, "training", shape="tiny", seconds=1.5)
    write_record(tmp_path)
    [kept] = json.loads((tmp_path / "gpu.json").read_text()).values()
    assert (kept["state"], kept["rows"]) == ("begun", [{"shape": "tiny", "seconds": 1.5}])
    add(tmp_path, "training", state="stopped", reason="it was not done after its 9 s", seconds=24.0)
    assert record_of(tmp_path)["training"] | {"rows": 1} == {
        "state": "stopped",
        "reason": "it was not done after its 9 s",
        "seconds": 24.0,
        "machine": MACHINE,
        "rows": 1,
    }
    add(tmp_path, "training", machine=MACHINE)
    assert record_of(tmp_path)["training"]["rows"] == []


def test_of_two_records_a_part_that_was_skipped_does_not_replace_one_that_was_measured() -> None:
    measured, skipped = {"rows": [{"passed": 6}]}, {"rows": [], "reason": "no device"}
    found = merged([{"loop": skipped, "tests": measured}, {"tests": skipped, "training": skipped}])
    assert found == {"tests": measured, "training": skipped, "loop": skipped}


def test_training_generation_and_log_probabilities_of_the_tiny_shape(tmp_path: Path) -> None:
    training.training(called("training", tmp_path))
    sampling.generation(called("generation", tmp_path))
    sampling.logprobs(called("logprobs", tmp_path))
    found = record_of(tmp_path)

    rate, *trained = found["training"]["rows"]
    assert rate["precision"] == "float32" and rate["tflops"] > 0
    assert [(row["rows"], row["trains"]) for row in trained] == [
        (rows, trains) for rows in ("packed", "padded") for trains in ("all weights", "LoRA of rank 4")
    ]
    assert all(row["tokens_per_second"] > 0 and 0 < row["flop_utilisation"] < 1 for row in trained)
    assert trained[0]["parts"].keys() == {*page.KINDS, "idle"}
    assert sum(trained[0]["parts"].values()) == pytest.approx(1.0, abs=0.01)
    assert trained[0]["parts"]["matrix products"] > 0.0
    assert [row["sequences"] for row in found["generation"]["rows"]] == [4, 8]
    assert all(row["reply_tokens_per_second"] > 0 for row in found["generation"]["rows"])
    same, *others = found["logprobs"]["rows"]
    assert (same["sampler"], same["trainer"], same["tokens"]) == ("float32", "float32", 64)
    assert same["largest_gap"] < 1e-4 < others[0]["largest_gap"]
    assert "| tiny | LoRA of rank 4 | padded |" in page.text_of(found)


def test_a_case_that_fails_says_so_and_the_next_one_is_measured(tmp_path: Path) -> None:
    call = called("training", tmp_path)

    def failing() -> dict[str, Any]:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 1 GiB")

    call.attempt({"shape": "large"}, failing)
    call.attempt({"shape": "small"}, lambda: {"seconds": 1.0})
    called("training", tmp_path, until=0.0).attempt({"shape": "late"}, failing)
    assert record_of(tmp_path)["training"]["rows"] == [
        {"shape": "large", "reason": "OutOfMemoryError: CUDA out of memory."},
        {"shape": "small", "seconds": 1.0},
        {"shape": "late", "reason": "no time was left"},
    ]


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_kernel<cutlass::bfloat16_t>", "attention"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTN", "matrix products"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "matrix products"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>", "optimizer"),
        ("void at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda>", "copies and casts"),
        ("void at::native::vectorized_elementwise_kernel<4, silu>", "elementwise and norms"),
    ],
)
def test_kernels_are_told_apart_by_name(kernel: str, kind: str) -> None:
    assert training.kind_of(kernel) == kind


def test_keys_and_values_are_repeated_for_an_attention_that_takes_no_grouped_heads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch.nn.attention import varlen

    def older(query: Any, key: Any, value: Any, *bounds: Any, scale: Any = None, window_size: Any = (-1, -1)) -> Any:
        assert query.shape == key.shape == value.shape and bounds == (1, 2) and window_size == (-1, 0)
        return key

    monkeypatch.setattr(varlen, "varlen_attn", older)
    assert repeat_heads()
    key = torch.arange(2.0)[None, :, None].expand(3, 2, 8)
    found = varlen.varlen_attn(torch.zeros(3, 4, 8), key, key, 1, 2, window_size=(-1, 0), enable_gqa=True)
    assert found[0, :, 0].tolist() == [0.0, 0.0, 1.0, 1.0]
    assert not repeat_heads()


def wheel(folder: Path, name: str, content: str) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", content)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


def test_a_parcel_is_installed_when_its_last_part_has_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wheels").mkdir()
    for name in ("arrived", "beside"):
        wheel(tmp_path / "wheels", name, f"VALUE = '{name}'  # {os.urandom(10_000).hex()}")
    parts = parcel.pack(tmp_path / "wheels", tmp_path / "parts", size=8192)
    assert len(parts) >= 3 and all((part / "content").stat().st_size <= 8192 for part in parts)
    for part in reversed(parts):
        monkeypatch.setattr(sys, "argv", ["parcel", "take", str(part)])
        parcel.main()
    *waiting, last = capsys.readouterr().out.splitlines()
    assert waiting[0].endswith(f"missing: {', '.join(map(str, range(1, len(parts))))}")
    assert last == "all parts have arrived; installed in runs/gpu-check/site-packages"
    assert (tmp_path / "runs/gpu-check/site-packages/arrived.py").read_text().startswith("VALUE = 'arrived'")


def test_a_damaged_part_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    wheel(tmp_path / "wheels", "arrived", "")
    first, *_ = parcel.pack(tmp_path / "wheels", tmp_path / "parts", size=4096)
    (first / "content").write_bytes((first / "content").read_bytes()[:-1] + b"x")
    with pytest.raises(SystemExit, match="send it again"):
        parcel.take(first, tmp_path / "home")


def test_the_page_is_that_of_the_committed_record() -> None:
    assert page.PAGE.read_text() == page.text_of(page.committed()), "stale: make -f tests/bench/Makefile gpu-page"


def test_the_page_of_a_whole_record() -> None:
    case = {"trains": "all weights", "rows": "packed"}
    parts = dict.fromkeys(page.KINDS, 0.15) | {"idle": 0.25}
    speed = {"tokens_per_second": 1e5, "flop_utilisation": 0.4, "peak_gib": 12.5}
    gain = {"change": 10.0, "change_low": -2.0, "change_high": 22.0}
    rows: dict[str, list[dict[str, Any]]] = {
        "tests": [{"passed": 6, "failed": 0, "skipped": 0, "names": []}],
        "training": [
            {"precision": "bfloat16", "tflops": 790.4},
            {"shape": "qwen2.5-7b", **case, "reason": "does not fit: about 135 GiB of 79"},
            {"shape": "qwen2.5-0.5b", **case, **speed, "parts": parts},
        ],
        "generation": [],
        "logprobs": [],
        "loop": [
            {"arm": "the loop", "iteration": 1, "total": 29.6, "episodes": 128, "won": 25.0},
            {"arm": "the loop", "iterations": 1, "success": 30.0, "success_low": 20.0, "success_high": 40.0, **gain},
        ],
    }
    about = {"state": "done", "reason": "", "seconds": 1.0, "machine": MACHINE}
    record = {name: about | {"rows": rows[name]} for name in PARTS}
    record["generation"] |= {"state": "stopped", "reason": "it was not done after its 60 s"}
    text = page.text_of(record)
    assert "NVIDIA H100 80GB HBM3 (torch 2.11.0), 2026-11-27T10:00+00:00." in text
    assert "| qwen2.5-7b | all weights | packed | | | | does not fit: about 135 GiB of 79 |" in text
    assert "| qwen2.5-0.5b | all weights | packed | 100,000 | 12.5 | 40.0% | |" in text
    assert "| bfloat16 | 790 |" in text
    assert "| qwen2.5-0.5b | all weights | 15.0% | 15.0% | 15.0% | 15.0% | 15.0% | 25.0% |" in text
    assert "The part was stopped: it was not done after its 60 s." in text
    assert "| the loop | 1 | +10.0 [-2.0, +22.0] | 30.0 [20.0, 40.0] |" in text
    assert "| the loop | 1 | 30 | 128 | 25.0 % |" in text


@pytest.mark.slow
def test_a_rehearsal_measures_every_part(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "study_tests.gpu_check", "--shapes", "tiny", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (tmp_path / "log").read_text()[-3000:]
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert {name: part["state"] for name, part in record.items()} == dict.fromkeys(PARTS, "done")
    assert not [row for part in record.values() for row in part["rows"] if "reason" in row]
    arms = [row["arm"] for row in record["loop"]["rows"] if "success_low" in row]
    assert sorted(arms) == ["outcomes alone", "the loop", "warm start"]
