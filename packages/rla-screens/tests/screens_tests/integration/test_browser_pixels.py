"""The loop on real screenshots of a browser: tokens, log-probabilities, gradients, judges, and clicks drawn in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from rla_screens.browser.params import PROGRAM
from rla_screens.screens.pointing import with_pointer
from rla_study.showing.episodes import played_in, shown_episodes
from torch import Tensor

from rla.cli.app import run
from rla.envs.registry import load_config
from rla.models.load import load_model
from rla.pictures.encoder import VisionCollator
from rla.pictures.shard import with_pngs
from rla.pictures.vision import VisionFormat, load_vision
from rla.store.reading import read_rows, shard_parts
from rla.store.records import ImageSpan
from rla.training.model import TokenScorer, collate
from rla.training.sequences import TrainingSequence

pytestmark = pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=f"needs {PROGRAM}")
PARAMS = """
seed: 5
env: {name: browser, max_steps: 2, own: {mode: pixels, cell: 20}}
tasks: {kinds: [click-button-sequence], train_scenes: 4, test_scenes: 2, tasks_per_scene: 1}
model:
  {hidden_size: 32, layers: 2, heads: 2, intermediate_size: 48, context: 384,
   architecture: vision, own: {kind: qwen3-vl, hidden_size: 16, layers: 2, heads: 2, patch_size: 14, most_tokens: 64}}
launch: {threads: 1}
generator: {context: 384, max_sequences: 8}
policy: {reply: text, history: window, images: 2, decoding: admissible, max_tokens: 12, temperature: 1.0}
judge: {prompt: plain, decoding: admissible, max_tokens: 12, temperature: 1.0, votes: 2}
rollout: {tasks_per_iteration: 2, rollouts_per_task: 2}
adaptation: {enabled: false}
warm_start: {enabled: false}
evaluation: {rollouts_per_task: 1, max_steps: 2}
"""
CPU = torch.device("cpu")


def call(stage: str) -> None:
    numbered = () if stage in ("make-tasks", "init-model") else ("--iteration", "1")
    assert run([stage, "--run", "r", *numbered]) == 0, stage


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """Trajectories with their pictures, of a run in the working folder."""
    torch.set_num_threads(1)
    place, before = tmp_path_factory.mktemp("pixels"), Path.cwd()
    os.chdir(place)
    (place / "params.yaml").write_text(PARAMS)
    for stage in ("make-tasks", "init-model", "rollout", "score-steps"):
        call(stage)
    parts = shard_parts(Path("r/1/trajectories"))
    yield [row for part in parts for row in with_pngs(part, pq.read_table(part).to_pylist())]
    os.chdir(before)


def vision() -> VisionFormat:
    found = load_vision(Path("r/init/policy"))
    assert found is not None
    return found


def sequences(rows: list[dict[str, Any]]) -> list[TrainingSequence]:
    """Every segment of the rows, as the trainer gets it."""
    found = []
    for row in rows:
        for number, segment in enumerate(row["segments"]):
            places = [place for place, flag in enumerate(segment["sampled"]) if flag]
            spans = [span for span in row["image_spans"] if span["segment"] == number]
            found.append(
                TrainingSequence(
                    token_ids=segment["token_ids"],
                    positions=places,
                    logp=[segment["logprobs"][place] for place in places],
                    allowed=segment["allowed"],
                    advantages=[1.0 - 0.5 * number] * len(places),
                    images=tuple(ImageSpan(**{n: span[n] for n in ("digest", "start", "length")}) for span in spans),
                )
            )
    return found


def scored(scorer: TokenScorer, rows: list[dict[str, Any]], *, packed: bool) -> Tensor:
    pngs = {digest: png for row in rows for digest, png in row["pngs"].items()}
    logp, _ = scorer(
        collate(sequences(rows), device=CPU, packed=packed, vision=VisionCollator(vision(), pngs.__getitem__))
    )
    assert isinstance(logp, Tensor)
    return logp


def gradients(rows: list[dict[str, Any]], *, packed: bool) -> dict[str, Tensor]:
    scorer = TokenScorer(load_model(Path("r/init/policy")), temperature=1.0, banned=vision().banned)
    if not packed:
        scorer.model.set_attn_implementation("sdpa")
    weights = torch.tensor([value for one in sequences(rows) for value in one.advantages])
    (weights * scored(scorer, rows, packed=packed)).sum().backward()
    return {name: one.grad for name, one in scorer.model.named_parameters() if one.grad is not None}


def test_a_screenshot_is_48_tokens_and_a_window_holds_two(rows: list[dict[str, Any]]) -> None:
    assert {span["length"] for row in rows for span in row["image_spans"]} == {48}
    assert max(len(one.images) for one in sequences(rows)) == 2


def test_the_trainer_finds_the_log_probabilities_of_the_sampler(rows: list[dict[str, Any]]) -> None:
    scorer = TokenScorer(load_model(Path("r/init/policy")), temperature=1.0, banned=vision().banned)
    stored = torch.tensor([value for one in sequences(rows) for value in one.logp])
    with torch.no_grad():
        torch.testing.assert_close(scored(scorer, rows, packed=True), stored, atol=1e-4, rtol=0)


def test_packed_and_padded_gradients_agree(rows: list[dict[str, Any]]) -> None:
    packed, padded = (gradients(rows, packed=flag) for flag in (True, False))
    assert any("visual" in name and one.abs().max() > 0 for name, one in packed.items())
    for name, one in packed.items():
        size = max(1.0, float(padded[name].abs().max()))
        torch.testing.assert_close(one, padded[name], atol=1e-5 * size, rtol=0)


def test_the_judge_sees_the_screens_before_and_after_a_click(rows: list[dict[str, Any]]) -> None:
    screens = {row["trajectory_id"]: row["screens"] for row in rows}
    for score in read_rows(Path("r/1/scores"), "scores"):
        before, after = screens[score["trajectory_id"]][score["step"] : score["step"] + 2]
        assert [span["digest"] for span in score["image_spans"]] == [*before, *after]


def test_viewers_show_the_click_in_the_picture_and_the_shard_keeps_it_as_it_was(rows: list[dict[str, Any]]) -> None:
    config = load_config(Path("params.yaml"), [])
    shown = shown_episodes(played_in(Path("r"), config, 1), None, config)
    for row in rows:
        for number, step in enumerate(shown[row["trajectory_id"]].steps):
            (digest,) = row["screens"][number]
            stored = row["pngs"][digest]
            if step.action.startswith("click "):
                _, x, y = step.action.split()
                place = (10 * int(x) + 5) / 999, (10 * int(y) + 5) / 999
                assert list(step.images) == [with_pointer(stored, [place])] != [stored]
            else:
                assert list(step.images) == [stored]
