"""The loop in an environment that shows pictures: what is stored of them, who sees which, what is refused."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rla.cli.app import run
from rla.errors import UserError
from rla.llm.base import Request
from rla.models.load import load_model
from rla.pictures.shard import images_folder, images_of_part, with_pngs
from rla.pictures.vision import PixelMaker, VisionFormat, load_vision, png_digest
from rla.store.reading import read_rows
from tests.squares import PARAMS, squares_installed

EVERY = ("make-tasks", "init-model", "rollout", "score-steps", "validate-tasks", "compute-rewards")


def call(stage: str, *more: str, code: int = 0) -> None:
    numbered = () if stage in ("make-tasks", "init-model", "warm-start", "evaluate") else ("--iteration", "1")
    assert run([stage, "--run", "r", *numbered, *more]) == code, stage


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run with episodes and judgements, in the working folder."""
    torch.set_num_threads(1)
    place, before = tmp_path_factory.mktemp("pictures"), Path.cwd()
    os.chdir(place)
    (place / "params.yaml").write_text(PARAMS)
    with squares_installed():
        for stage in EVERY:
            call(stage)
        yield place
    os.chdir(before)


def vision(model: str = "policy") -> VisionFormat:
    found = load_vision(Path("r/init") / model)
    assert found is not None
    return found


def trajectories() -> list[dict[str, Any]]:
    """Rows with their pictures."""
    place = Path("r/1/trajectories")
    return [row for part in sorted(place.glob("part-*")) for row in with_pngs(part, rows_of(part))]


def rows_of(part: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return list(pq.read_table(part).to_pylist())


def test_tokens_of_pictures_stand_where_the_spans_say_and_nowhere_else(folder: Path) -> None:
    image = vision().image
    for row in trajectories():
        for number, segment in enumerate(row["segments"]):
            spans = [span for span in row["image_spans"] if span["segment"] == number]
            named = {place for span in spans for place in range(span["start"], span["start"] + span["length"])}
            assert named == {place for place, token in enumerate(segment["token_ids"]) if token == image}
            assert not any(segment["sampled"][place] for place in named)


def test_a_window_shows_the_last_pictures_and_all_earlier_actions(folder: Path) -> None:
    rows = [row for row in trajectories() if len(row["steps"]) == 3]
    assert rows, "no episode of three steps"
    for row in rows:
        shown = [[span["digest"] for span in row["image_spans"] if span["segment"] == n] for n in range(3)]
        screens = [screen for (screen,) in row["screens"]]
        assert shown == [screens[:1], screens[0:2], screens[1:3]]


def test_stored_log_probabilities_are_those_of_transformers_on_the_stored_tokens(folder: Path) -> None:
    seen, model = vision(), load_model(Path("r/init/policy"))
    for row in trajectories()[:6]:
        for number, segment in enumerate(row["segments"]):
            spans = [span for span in row["image_spans"] if span["segment"] == number]
            pixels, grids = PixelMaker(seen).pixels([row["pngs"][span["digest"]] for span in spans])
            ids = torch.tensor([segment["token_ids"]])
            kinds = (ids == seen.image).int()
            with torch.no_grad():
                logits = model(
                    input_ids=ids, pixel_values=pixels, image_grid_thw=grids, mm_token_type_ids=kinds
                ).logits[0]
            sampled = [place for place, flag in enumerate(segment["sampled"]) if flag]
            for place, allowed in zip(sampled, segment["allowed"], strict=True):
                wanted = logits[place - 1, allowed].log_softmax(-1)[allowed.index(segment["token_ids"][place])]
                assert segment["logprobs"][place] == pytest.approx(float(wanted), abs=1e-4)


def test_the_judge_sees_the_picture_before_an_action_and_the_one_after_it(folder: Path) -> None:
    played = {row["trajectory_id"]: row for row in trajectories()}
    image = vision("rm").image
    for score in read_rows(Path("r/1/scores"), "scores"):
        screens = played[score["trajectory_id"]]["screens"]
        step = score["step"]
        assert [span["digest"] for span in score["image_spans"]] == [*screens[step], *screens[step + 1]]
        tokens = sum(span["length"] for span in score["image_spans"])
        assert tokens == score["prompt_ids"].count(image) and score["judgements"]


def test_slices_play_what_one_call_plays(folder: Path, tmp_path: Path) -> None:
    for index in ("2/2", "1/2"):
        call("rollout", "--slice", index, "--out", str(tmp_path / "trajectories"))
    whole, cut = Path("r/1/trajectories"), tmp_path / "trajectories"
    assert read_rows(images_folder(whole), "images") == read_rows(images_folder(cut), "images")
    for one, other in zip(read_rows(whole, "trajectories"), read_rows(cut, "trajectories"), strict=True):
        for name in ("trajectory_id", "steps", "screens", "image_spans"):
            assert one[name] == other[name]
        for mine, theirs in zip(one["segments"], other["segments"], strict=True):
            assert mine["token_ids"] == theirs["token_ids"]
            assert mine["logprobs"] == pytest.approx(theirs["logprobs"], abs=1e-5)  # other sequences share the pass


def test_text_mode_makes_no_folder_of_pictures_and_pictures_are_refused_by_text_models(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, policy = tmp_path / "texts", tmp_path / "policy"
    call("init-model", "--policy", str(policy), "--rm", str(tmp_path / "rm"), "--set", "model.architecture=qwen3")
    texts = ("--out", str(out), "--policy", str(policy))
    call("rollout", *texts, "--set", "env.own.shown=false")
    assert not images_folder(out).exists()
    assert {row["screens"] for row in read_rows(out, "trajectories")} == {None}
    call("rollout", "--out", str(tmp_path / "other"), "--policy", str(policy), code=2)
    assert "set model.architecture" in capfd.readouterr().err


def test_what_is_no_picture_ends_the_episode_and_not_the_run(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "broken"
    shared = ("--set", "env.own.broken=true", "--set", "rollout.max_failed_share=1.0")
    call("rollout", "--out", str(out), *shared)
    rows = read_rows(out, "trajectories")
    assert {row["stop_reason"] for row in rows} == {"env_error"}
    assert all("no PNG file" in row["error"] for row in rows)


def test_a_call_that_is_killed_never_leaves_a_name_without_its_picture(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rla.store.shards import ShardWriter

    out, write, left = tmp_path / "killed", ShardWriter.write, [5]

    def dying(self: ShardWriter, index: int, rows: list[dict[str, Any]]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise UserError("the power went")
        write(self, index, rows)

    for deaths in range(4):
        left[0] = deaths
        with monkeypatch.context() as patched:
            patched.setattr(ShardWriter, "write", dying)
            call("rollout", "--out", str(out), code=2)
        for part in out.glob("part-*"):
            named = {digest for row in rows_of(part) for shown in row["screens"] for digest in shown}
            found = images_of_part(part, named)
            assert {png_digest(png) for png in found.values()} == named
    call("rollout", "--out", str(out))
    named = [[row["trajectory_id"], row["steps"], row["screens"]] for row in read_rows(out, "trajectories")]
    assert named == [[row["trajectory_id"], row["steps"], row["screens"]] for row in trajectories()]


def test_the_frozen_probe_keeps_the_pictures_of_its_episodes_and_the_judge_sees_them(folder: Path) -> None:
    call("evaluate", "--set", "evaluation.probe_tasks=2")
    probe = Path("r/probe/trajectories")
    played = {row["trajectory_id"]: row for row in read_rows(probe, "trajectories")}
    named = {digest for row in played.values() for shown in row["screens"] for digest in shown}
    assert {row["digest"] for row in read_rows(images_folder(probe), "images")} == named
    scores = read_rows(Path("r/eval/0/probe"), "scores")
    assert len(scores) == sum(len(row["steps"]) for row in played.values())
    for score in scores:
        screens = played[score["trajectory_id"]]["screens"]
        seen = [*screens[score["step"]], *screens[score["step"] + 1]]
        assert [span["digest"] for span in score["image_spans"]] == seen
    assert json.loads(Path("r/eval/0/metrics.json").read_text())["probe_votes"] == len(scores)


def test_a_probe_whose_labels_are_missing_gets_them_and_its_episodes_stay(folder: Path) -> None:
    """A call was killed between the two."""
    wanted = ("evaluate", "--set", "evaluation.probe_tasks=2", "--overwrite")
    call(*wanted)
    labels, before = Path("r/probe/labels.json"), sorted(Path("r/probe").rglob("*.parquet"))
    found, times = labels.read_text(), [part.stat().st_mtime_ns for part in before]
    for _ in range(2):
        labels.unlink()
        call(*wanted)
        assert labels.read_text() == found
        assert [part.stat().st_mtime_ns for part in before] == times


def test_the_request_carries_the_pictures_of_its_prompt(folder: Path) -> None:
    from rla.config.sections import GeneratorConfig
    from rla.llm.factory import make_generator

    row = trajectories()[0]
    generator, _ = make_generator(GeneratorConfig(context=256), model=Path("r/init/policy"), seed=0)
    segment = row["segments"][0]
    request = Request(prompt_ids=segment["token_ids"], max_tokens=2, temperature=1.0, seed=0)
    with pytest.raises(ValueError, match="tokens of pictures"):
        asyncio.run(generator.generate(request))
    generator.close()


def metrics_of(stage: str, out: Path, *more: str) -> dict[str, Any]:
    call(stage, "--out", str(out), *more)
    return dict(json.loads((out / "metrics.json").read_text()))


@pytest.mark.parametrize("stage", ["train-policy", "train-rm"])
def test_the_trainer_computes_what_the_sampler_computed(folder: Path, tmp_path: Path, stage: str) -> None:
    found = metrics_of(stage, tmp_path / "out")
    assert found["updates"] == 2 and found["sampler_gap_max"] < 1e-4
    assert load_vision(tmp_path / "out/model") == vision()


def test_a_frozen_tower_stays_and_the_rest_trains(folder: Path, tmp_path: Path) -> None:
    metrics_of("train-policy", tmp_path / "1", "--set", "train_policy.vision=frozen")
    before, after = (
        dict(load_model(place).named_parameters()) for place in (Path("r/init/policy"), tmp_path / "1/model")
    )
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and not any("visual" in name for name in moved)
    more = ("--policy", str(tmp_path / "1"), "--set", "train_policy.vision=frozen")
    assert metrics_of("train-policy", tmp_path / "2", *more)["total_updates"] == 4


@pytest.mark.parametrize("vision_key", ["trained", "frozen"])
def test_an_adapter_trains_and_is_merged(folder: Path, tmp_path: Path, vision_key: str) -> None:
    keys = ("train_policy.lora.rank=4", f"train_policy.vision={vision_key}")
    metrics_of("train-policy", tmp_path / "out", *(part for key in keys for part in ("--set", key)))
    before = dict(load_model(Path("r/init/policy")).named_parameters())
    after = dict(load_model(tmp_path / "out/model").named_parameters())
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert any("language_model" in name for name in moved)
    assert any("visual" in name for name in moved) is (vision_key == "trained")


@pytest.mark.parametrize("keys", [(), ("policy.history=full",), ("warm_start.policy.packing=true",)])
def test_both_models_start_from_what_an_expert_saw_and_said(
    folder: Path, tmp_path: Path, keys: tuple[str, ...]
) -> None:
    given = [part for key in keys for part in ("--set", key)]
    call("warm-start", "--policy", str(tmp_path / "policy"), "--rm", str(tmp_path / "rm"), *given)
    for name in ("policy", "rm"):
        found = json.loads((tmp_path / name / "metrics.json").read_text())
        assert found["last_loss"] < found["first_loss"]


def test_a_text_model_is_not_trained_on_pictures(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = ("--policy", str(tmp_path / "policy"), "--rm", str(tmp_path / "rm"))
    call("init-model", *made, "--set", "model.architecture=qwen3")
    call("warm-start", "--init-policy", str(tmp_path / "policy"), "--policy", str(tmp_path / "out"), code=2)
    assert "reads texts alone" in capfd.readouterr().err


def test_an_engine_takes_the_weights_of_another_iteration(folder: Path) -> None:
    from rla.config.sections import GeneratorConfig
    from rla.llm.factory import make_generator
    from rla.llm.transformers_engine import TransformersGenerator
    from rla.pictures.vision import PlacedImage

    row = trajectories()[0]
    spans = [span for span in row["image_spans"] if span["segment"] == 0]
    start = row["steps"][0]["start"]
    images = [
        PlacedImage(png=row["pngs"][one["digest"]], digest=one["digest"], start=one["start"], length=one["length"])
        for one in spans
    ]
    request = Request(
        prompt_ids=row["segments"][0]["token_ids"][:start], images=images, max_tokens=4, temperature=1.0, seed=1
    )
    config = GeneratorConfig(context=256)
    policy, _ = make_generator(config, model=Path("r/init/policy"), seed=0)
    other, _ = make_generator(config, model=Path("r/init/rm"), seed=0)
    assert isinstance(policy, TransformersGenerator) and isinstance(other, TransformersGenerator)

    async def before_and_after() -> tuple[list[float], list[float], list[float]]:
        (first,) = await policy.generate(request)
        await policy.reload(Path("r/init/rm"), stop_ids=frozenset({3}))
        (second,) = await policy.generate(request)
        (wanted,) = await other.generate(request)
        return first.logprobs, second.logprobs, wanted.logprobs

    first, second, wanted = asyncio.run(before_and_after())
    assert second == pytest.approx(wanted, abs=1e-5) and second != pytest.approx(first, abs=1e-5)


def test_a_text_model_that_sees_a_window_starts_from_demonstrations_too(folder: Path, tmp_path: Path) -> None:
    texts = ("--set", "env.own.shown=false")
    made = ("--policy", str(tmp_path / "policy"), "--rm", str(tmp_path / "rm"))
    call("init-model", *made, *texts, "--set", "model.architecture=qwen3")
    given = ("--init-policy", str(tmp_path / "policy"), "--init-rm", str(tmp_path / "rm"))
    call("warm-start", *given, "--policy", str(tmp_path / "p"), "--rm", str(tmp_path / "r"), *texts)
    found = json.loads((tmp_path / "p/metrics.json").read_text())
    assert found["last_loss"] < found["first_loss"] and found["examples"] == 36
