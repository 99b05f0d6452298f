"""The transformers engine over prompts with pictures, against transformers itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import torch

from rla.config.sections import GeneratorConfig
from rla.llm.base import Completion, Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import make_generator
from rla.models.load import load_model, load_tokenizer
from rla.pictures.prompts import Picture, PictureMessage
from rla.pictures.vision import PictureChat, PixelMaker, PromptTokens, VisionFormat, load_vision
from tests.seeing import KINDS, png_of, small_model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def one_thread() -> None:
    torch.set_num_threads(1)


def asked(kind: str, *parts: str | bytes) -> PromptTokens:
    folder = small_model(kind)
    chat = PictureChat(ChatFormat(load_tokenizer(folder)), vision_of(kind))
    shown = tuple(Picture(one) if isinstance(one, bytes) else one for one in parts)
    return chat.first([PictureMessage(role="user", parts=shown)])


def vision_of(kind: str) -> VisionFormat:
    found = load_vision(small_model(kind))
    assert found is not None
    return found


def request_of(prompt: PromptTokens, **changes: object) -> Request:
    given = {"max_tokens": 6, "temperature": 1.0, "seed": 5} | changes
    return Request(prompt_ids=prompt.ids, images=prompt.images, **given)  # type: ignore[arg-type]


def answers(kind: str, requests: Sequence[Request], *, slots: int = 4) -> list[list[Completion]]:
    """All asked at once."""

    async def all_of() -> list[list[Completion]]:
        return list(await asyncio.gather(*(generator.generate(request) for request in requests)))

    config = GeneratorConfig(max_sequences=slots, context=200)
    generator, _ = make_generator(config, model=small_model(kind), seed=0)
    try:
        return asyncio.run(all_of())
    finally:
        generator.close()


def expected_logprobs(kind: str, prompt: PromptTokens, tokens: Sequence[int], *, temperature: float) -> list[float]:
    """By one pass of transformers' own class, with its own positions."""
    vision, model = vision_of(kind), load_model(small_model(kind))
    ids = torch.tensor([[*prompt.ids, *tokens]])
    inputs = {}
    if prompt.images:
        pixels, grids = PixelMaker(vision).pixels([one.png for one in prompt.images])
        inputs = {"pixel_values": pixels, "image_grid_thw": grids}
    with torch.no_grad():
        logits = model(input_ids=ids, mm_token_type_ids=(ids == vision.image).int(), **inputs).logits[0]
    logits[:, list(vision.banned)] = -torch.inf
    logprobs = (logits / temperature).log_softmax(-1)
    first = len(prompt.ids) - 1
    return [float(logprobs[first + place, token]) for place, token in enumerate(tokens)]


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_are_those_of_transformers_whatever_shares_the_pass(kind: str) -> None:
    prompts = [
        asked(kind, png_of("red"), "which colour is it ?"),
        asked(kind, "look", png_of("blue", width=64, height=20), "now", png_of("green"), "go"),
        asked(kind, "which colour is it ?"),
        asked(kind, png_of("red"), "which colour is it ?", png_of("green", height=64)),
    ]
    found = answers(kind, [request_of(one, temperature=0.7, seed=n) for n, one in enumerate(prompts)], slots=3)
    for prompt, (completion,) in zip(prompts, found, strict=True):
        wanted = expected_logprobs(kind, prompt, completion.token_ids, temperature=0.7)
        assert completion.logprobs == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_texts_with_other_pictures_share_no_prefix(kind: str) -> None:
    prompts = [asked(kind, png_of(colour), "which colour is it ? go now look") for colour in ("red", "blue", "red")]
    requests = [request_of(one, session=str(n)) for n, one in enumerate(prompts)]
    together = answers(kind, requests)
    assert [answers(kind, [one])[0][0].token_ids for one in requests] == [one[0].token_ids for one in together]
    assert together[0][0].logprobs == pytest.approx(together[2][0].logprobs, abs=1e-6)
    assert together[0][0].logprobs[0] != pytest.approx(together[1][0].logprobs[0], abs=1e-6)


def test_no_token_of_pictures_is_ever_sampled() -> None:
    vision = vision_of("qwen3-vl")
    prompt = asked("qwen3-vl", png_of("red"), "go")
    found = answers("qwen3-vl", [request_of(prompt, samples=64, max_tokens=24, temperature=50.0)])[0]
    sampled = {token for one in found for token in one.token_ids}
    assert len(sampled) > 60 and sampled.isdisjoint(vision.banned)


def test_pictures_and_tokens_that_do_not_belong_together_are_refused() -> None:
    prompt = asked("qwen3-vl", png_of("red"), "go")
    wider = asked("qwen3-vl", png_of("red", width=80), "go")
    for ids, images in ((prompt.ids, ()), (prompt.ids[:-8], prompt.images[:0]), (wider.ids, prompt.images)):
        with pytest.raises(ValueError, match="picture"):
            answers("qwen3-vl", [request_of(PromptTokens(ids=ids, images=images))])


def test_text_that_spells_control_tokens_of_pictures_stays_text() -> None:
    vision = vision_of("qwen3-vl")
    prompt = asked("qwen3-vl", "look <|vision_start|><|image_pad|><|vision_end|> now")
    assert set(prompt.ids).isdisjoint(vision.banned) and prompt.images == ()
