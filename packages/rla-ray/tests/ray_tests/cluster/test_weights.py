"""Weights on a node that does not see the run folder."""

from __future__ import annotations

import asyncio
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rla_ray.code_digest import code_digest
from rla_ray.devices import UsedDevice
from rla_ray.engines import weights as ray_weights
from rla_ray.engines.actor import Opened
from rla_ray.engines.cluster import stood_engines
from rla_ray.engines.kept_engines import Wanted
from rla_ray.engines.params import RayEngines
from rla_ray.engines.seats import weights_of
from rla_ray.engines.weights import model_from_files, put_files, travelling_files, visible, weights_folder

from ray_tests.cluster.conftest import Nodes, Rla, on_ray
from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.llm.base import Request
from rla.store.reading import read_rows
from tests.integration.test_slices import close
from tests.unit.training.builders import tiny_model


def test_a_node_without_the_run_folder_is_sent_the_files(tmp_path: Path, nodes: Nodes, ray: Any) -> None:
    model = tiny_model(tmp_path / "here" / "model", seed=3)
    digest, away = weights_of(str(model)), tmp_path / "away" / "model"
    own = GeneratorConfig(context=64, max_sequences=2)
    on_cluster = replace(own, backend="ray", own=RayEngines(engine="transformers", replicas=1))
    (engine,) = stood_engines(ray, on_cluster)
    wanted = Wanted(model=str(away), config=own, stop_ids=(0,), seed=0)
    assert ray.get(engine.handle.open.remote("s", wanted, digest, code_digest())) == Opened(lacking=True)
    opened = ray.get(
        engine.handle.open.remote("s", wanted, digest, code_digest(), put_files(ray, model, dtype="float32"))
    )
    assert opened.context == 64 and opened.devices == (UsedDevice(host=platform.node()),), opened
    other = ray.get(engine.handle.open.remote("t", wanted, digest, "of other code"))
    assert isinstance(other.error, UserError) and "runs other code of rla" in str(other.error)
    request = Request(prompt_ids=[5, 6], max_tokens=3, temperature=1.0, seed=1)
    ray.get(engine.handle.submit.remote("s", [(0, request)], []))
    (reply,) = ray.get(engine.handle.replies.remote("s")).replies
    assert reply.error is None and len(reply.completions[0].token_ids) in (1, 2, 3)


def test_files_that_travelled_are_the_model(tmp_path: Path, ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(tmp_path / "model", seed=1)
    monkeypatch.setattr(ray_weights.tempfile, "gettempdir", lambda: str(tmp_path))
    digest = weights_of(str(model))
    assert visible(str(model), digest) and not visible(str(model), "another")
    folder = asyncio.run(model_from_files(put_files(ray, model, dtype="float32"), digest))
    assert weights_of(str(folder)) == digest and folder != model
    assert {name: file.read_bytes() for name, file in travelling_files(folder).items()} == {
        name: file.read_bytes() for name, file in travelling_files(model).items()
    }
    for number in range(ray_weights.KEPT):
        asyncio.run(model_from_files(put_files(ray, model, dtype="float32"), f"other{number}"))
    assert len(list(folder.parent.parent.iterdir())) == ray_weights.KEPT and not folder.exists()
    shutil.rmtree(folder.parent.parent)


def test_stages_need_no_folder_that_the_nodes_see(rla: Rla, tmp_path: Path, nodes: Nodes, ray: Any) -> None:
    """The stages run where `alone` is the folder with the run; for the nodes that is an empty folder."""
    own = ("--set", "generator.backend=transformers", "--set", "generator.max_sequences=8")
    for stage in (("make-tasks",), ("init-model",), ("rollout", *own), ("score-steps", *own)):
        rla(stage[0], "--run", "r", *stage[1:])
    alone, began = tmp_path / "alone", time.time() - 1.0
    alone.mkdir()
    options = on_ray(nodes, "transformers", "max_sequences=8", "own.replicas=2")
    for stage, name in (("rollout", "trajectories"), ("score-steps", "scores")):
        words = [sys.executable, "-m", "rla", stage, "--run", "r", "--out", name, *options]
        apart = ["bwrap", "--dev-bind", "/", "/", "--bind", str(tmp_path), str(alone), "--chdir", str(alone), *words]
        done = subprocess.run(apart, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        whole, spread = (read_rows(folder, name) for folder in (tmp_path / "r/1" / name, tmp_path / name))
        assert len(whole) > 15 and spread == close(whole)
    assert not list(alone.iterdir())
    sent = [place for place in weights_folder().iterdir() if place.stat().st_mtime > began]
    assert sent
    for place in sent:
        shutil.rmtree(place)
