"""The engine against the plain model: the same log-probabilities, whatever else is in the batch."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from rla.config.sections import GeneratorConfig, ModelConfig
from rla.errors import UserError
from rla.llm.base import Completion, FinishReason, Generator, Request, TokenTrie
from rla.llm.chat import ChatFormat
from rla.llm.factory import ScriptedGenerator, make_generator
from rla.llm.transformers_engine import TransformersGenerator
from rla.models.init import init_model, new_tokenizer
from rla.models.load import load_model, load_tokenizer

TEXTS = ["you are in a room . you see a cabinet 1 , a desk 2 , a mug 1 .", "go to", "put mug 1 in/on desk 2"]
COMMANDS = [
    "go to cabinet 3",
    "go to desk 1",
    "go to desk 2",
    "put mug 1 in/on desk 2",
    "put mug 1 in/on desk 1",
]
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
TINY = {**SIZES, "num_key_value_heads": 2, "vocab_size": 60, "max_position_embeddings": 256}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("models") / "tiny"
    config = ModelConfig(hidden_size=32, layers=2, heads=4, intermediate_size=48, context=512)
    init_model(target, tokenizer=new_tokenizer(TEXTS, context=config.context), config=config, seed=1)
    return target


@pytest.fixture(scope="module")
def chat(folder: Path) -> ChatFormat:
    return ChatFormat(load_tokenizer(folder))


@pytest.fixture(scope="module")
def trie(chat: ChatFormat) -> TokenTrie:
    return TokenTrie([[*chat.encode(command), chat.end_id] for command in COMMANDS])


def engine(folder: Path, *, slots: int = 4, tokens_per_pass: int = 8192) -> TransformersGenerator:
    return TransformersGenerator(
        load_model(folder),
        stop_ids=ChatFormat(load_tokenizer(folder)).stop_ids,
        max_sequences=slots,
        context=512,
        tokens_per_pass=tokens_per_pass,
        idle_seconds=0.0,
    )


def request(prompt: list[int], **changes: object) -> Request:
    fields: dict[str, object] = {"max_tokens": 10, "temperature": 0.8, "seed": 5}
    return Request(prompt_ids=prompt, **{**fields, **changes})  # type: ignore[arg-type]


@torch.inference_mode()
def largest_error(model: PreTrainedModel, asked: Request, reply: Completion) -> float:
    """Largest difference between the reply's log-probabilities and those of one plain forward pass."""
    ids = [*asked.prompt_ids, *reply.token_ids]
    logits = model(input_ids=torch.tensor([ids])).logits[0].float() / asked.temperature
    worst = 0.0
    for index, (token, logprob, offered) in enumerate(zip(reply.token_ids, reply.logprobs, reply.allowed, strict=True)):
        row = logits[len(asked.prompt_ids) + index - 1]
        total = row[offered] if offered else row
        worst = max(worst, abs(float(row[token] - torch.logsumexp(total, 0)) - logprob))
    return worst


Played = list[tuple[Request, list[Completion]]]


async def play(generator: Generator, chat: ChatFormat, trie: TokenTrie, *, episode: int) -> Played:
    """Four turns; odd episodes are restricted to commands, every third asks for three samples."""
    prompt = chat.first([{"role": "user", "content": f"you see a desk {episode} . " * (1 + episode % 4)}])
    played: Played = []
    for turn in range(4):
        asked = request(
            prompt,
            seed=1000 * episode + turn,
            session=f"episode {episode}",
            allowed=trie if episode % 2 else None,
            samples=3 if episode % 3 == 0 else 1,
        )
        replies = await generator.generate(asked)
        played.append((asked, replies))
        ended = replies[0].finish_reason is FinishReason.STOP
        prompt = prompt + replies[0].token_ids + chat.next_turn(f"you see a mug {turn} .", ended=ended)
    generator.release(f"episode {episode}")
    return played


async def together(generator: Generator, chat: ChatFormat, trie: TokenTrie) -> list[Played]:
    return list(await asyncio.gather(*(play(generator, chat, trie, episode=episode) for episode in range(10))))


@pytest.mark.parametrize("slots", [3, 16])
def test_log_probabilities_are_those_of_the_plain_model(
    folder: Path, chat: ChatFormat, trie: TokenTrie, slots: int
) -> None:
    plain = load_model(folder)
    for played in asyncio.run(together(engine(folder, slots=slots), chat, trie)):
        for asked, replies in played:
            assert len(replies) == asked.samples
            for reply in replies:
                assert largest_error(plain, asked, reply) < 1e-5


def test_a_reply_does_not_depend_on_the_batch(folder: Path, chat: ChatFormat, trie: TokenTrie) -> None:
    crowd = asyncio.run(together(engine(folder, slots=16), chat, trie))
    pieces = asyncio.run(together(engine(folder, slots=3, tokens_per_pass=7), chat, trie))
    lonely = engine(folder, slots=1)
    for episode, (one, two) in enumerate(zip(crowd, pieces, strict=True)):
        alone = asyncio.run(play(lonely, chat, trie, episode=episode))
        tokens = [[reply.token_ids for reply in replies] for _, replies in alone]
        assert [[reply.token_ids for reply in replies] for _, replies in one] == tokens
        assert [[reply.token_ids for reply in replies] for _, replies in two] == tokens


def test_restricted_replies_are_commands_and_forced_tokens_are_free(
    folder: Path, chat: ChatFormat, trie: TokenTrie
) -> None:
    generator = engine(folder)
    (reply,) = asyncio.run(generator.generate(request(chat.encode("you see a desk 1"), allowed=trie)))
    assert chat.decode(reply.token_ids) in COMMANDS
    assert reply.finish_reason is FinishReason.STOP
    assert reply.allowed[0] == sorted(chat.encode("go put"))
    forced = [logprob for logprob, offered in zip(reply.logprobs, reply.allowed, strict=True) if len(offered) == 1]
    assert forced and set(forced) == {0.0}
    assert generator.stats()["passes"] == len(reply.token_ids) - len(forced)


def test_a_wholly_forced_reply_needs_no_pass(folder: Path, chat: ChatFormat) -> None:
    generator = engine(folder)
    only = [*chat.encode("go to desk 1"), chat.end_id]
    asked = request(chat.encode("you see"), allowed=TokenTrie([only]), session="a")
    (reply,) = asyncio.run(generator.generate(asked))
    assert reply.token_ids == only
    assert reply.logprobs == [0.0] * 5
    assert generator.stats()["passes"] == 0
    later = request([*asked.prompt_ids, *only, *chat.encode("you see a mug")], session="a")
    (after,) = asyncio.run(generator.generate(later))
    assert largest_error(load_model(folder), later, after) < 1e-5


def test_a_session_computes_each_token_once(folder: Path, chat: ChatFormat) -> None:
    generator = engine(folder)
    prompt = chat.encode("you see a desk 1 , mug 1 .")
    (reply,) = asyncio.run(generator.generate(request(prompt, session="a", max_tokens=3)))
    assert generator.stats()["prefilled_tokens"] == len(prompt) == 9
    more = [*prompt, *reply.token_ids, *chat.encode("you see a mug 1 .")]
    asyncio.run(generator.generate(request(more, session="a")))
    # All but the last sampled token, whose keys and values nobody needed before.
    assert generator.stats()["cached_tokens"] == 9 + len(reply.token_ids) - 1


def test_samples_share_the_prompt(folder: Path, chat: ChatFormat) -> None:
    generator = engine(folder, slots=8)
    prompt = chat.encode("you see a desk 1 , a mug 1 . " * 5)
    replies = asyncio.run(generator.generate(request(prompt, samples=6)))
    stats = generator.stats()
    assert stats["prefilled_tokens"] == len(prompt) + 5  # the last token of the prompt, for each other sample
    single = [asyncio.run(engine(folder).generate(request(prompt, seed=5 + index)))[0] for index in range(6)]
    assert [reply.token_ids for reply in replies] == [reply.token_ids for reply in single]


def test_samples_that_say_the_same_are_computed_once(folder: Path, chat: ChatFormat) -> None:
    prompt = chat.encode("you see a desk 1 , a mug 1 . ")
    passes = []
    for samples in (1, 5):
        generator = engine(folder, slots=2)
        replies = asyncio.run(generator.generate(request(prompt, samples=samples, temperature=0.0, max_tokens=6)))
        assert len({tuple(reply.token_ids) for reply in replies}) == 1
        stats = generator.stats()
        assert stats["prefilled_tokens"] == len(prompt)
        assert stats["generated_tokens"] == samples * len(replies[0].token_ids)
        passes.append(stats["passes"])
    assert passes[0] == passes[1]


def test_a_small_top_p_gives_the_likeliest_tokens(folder: Path, chat: ChatFormat, trie: TokenTrie) -> None:
    prompt = chat.encode("you see a desk 1 , a mug 1 .")
    for allowed in (None, trie):
        hot = request(prompt, temperature=2.0, allowed=allowed)
        (greedy,) = asyncio.run(engine(folder).generate(request(prompt, temperature=0.0, allowed=allowed)))
        (narrow,) = asyncio.run(engine(folder).generate(replace(hot, top_p=1e-6)))
        (wide,) = asyncio.run(engine(folder).generate(hot))
        assert narrow == greedy
        assert wide.token_ids != greedy.token_ids


def test_log_probabilities_are_those_of_the_nucleus(folder: Path, chat: ChatFormat) -> None:
    """Against a plain pass: for each token the likeliest ids are counted one by one until they have 0.6."""
    asked = request(chat.encode("you see a desk 1 ,"), top_p=0.6, max_tokens=20)
    (reply,) = asyncio.run(engine(folder).generate(asked))
    with torch.inference_mode():
        logits = load_model(folder)(input_ids=torch.tensor([[*asked.prompt_ids, *reply.token_ids]])).logits[0].double()
    for index, (token, logprob) in enumerate(zip(reply.token_ids, reply.logprobs, strict=True)):
        shares = torch.softmax(logits[len(asked.prompt_ids) + index - 1] / asked.temperature, 0).tolist()
        kept: list[int] = []
        while sum(shares[one] for one in kept) < 0.6:
            kept.append(max(set(range(len(shares))) - set(kept), key=shares.__getitem__))
        assert token in kept
        assert logprob == pytest.approx(math.log(shares[token] / sum(shares[one] for one in kept)), abs=1e-5)


def test_bad_requests_hurt_only_themselves(folder: Path, chat: ChatFormat) -> None:
    """A pass with an id that the model has not, or logits divided by almost nothing, would fail for all in it."""
    prompt = chat.encode("you see a desk 1 , a mug 1 . ")
    bad = [
        request([*prompt, 10**6]),
        request([*prompt, -1]),
        request([10**30]),
        request(prompt, allowed=TokenTrie([[10**6, 1]])),
        request(prompt, temperature=1e-40),
        request(prompt, temperature=float("nan")),
        request(prompt, temperature=float("inf")),
        request(prompt, temperature=-1.0),
        request(prompt, samples=10**9),
        request(prompt, top_p=0.0),
        request(prompt, top_p=float("nan")),
    ]

    async def together(*others: Request) -> list[list[Completion] | BaseException]:
        generator = engine(folder)
        good = (request(prompt, seed=seed, max_tokens=4) for seed in range(3))
        return await asyncio.gather(*map(generator.generate, (*good, *others)), return_exceptions=True)

    answers = asyncio.run(together(*bad))
    assert answers[:3] == asyncio.run(together())
    assert [type(answer) for answer in answers[3:]] == [ValueError] * len(bad)


def test_lengths_are_bounded(folder: Path, chat: ChatFormat) -> None:
    generator = engine(folder)
    (reply,) = asyncio.run(generator.generate(request([5] * 508, max_tokens=4, temperature=1.0)))
    assert len(reply.token_ids) == 4 or reply.finish_reason is FinishReason.STOP
    with pytest.raises(ValueError, match="exceed the context"):
        asyncio.run(generator.generate(request([5] * 508, max_tokens=5)))


def test_a_cancelled_caller_makes_room_for_the_next(folder: Path, chat: ChatFormat) -> None:
    async def scenario() -> Completion:
        generator = engine(folder, slots=1)
        hasty = asyncio.create_task(generator.generate(request([8, 9], max_tokens=400)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        hasty.cancel()
        (reply,) = await asyncio.wait_for(generator.generate(request([8, 9])), timeout=20)
        return reply

    assert asyncio.run(scenario()).token_ids


def test_a_request_may_come_at_any_moment_after_the_last_reply(folder: Path) -> None:
    """One that came between the end of the work and the notice of it was cancelled."""
    generator = engine(folder)

    async def ask() -> int:
        tokens = 0
        for turns in range(16):
            for _ in range(turns):
                await asyncio.sleep(0)
            (reply,) = await generator.generate(request([5, 6, 7], max_tokens=1, seed=turns))
            tokens += len(reply.token_ids)
        return tokens

    assert asyncio.run(ask()) == 16


def test_other_weights_in_place_are_those_of_a_new_engine(folder: Path, tmp_path: Path, chat: ChatFormat) -> None:
    config = ModelConfig(hidden_size=32, layers=2, heads=4, intermediate_size=48, context=512)
    init_model(tmp_path / "other", tokenizer=new_tokenizer(TEXTS, context=config.context), config=config, seed=2)
    asked = request(chat.encode("you see a cabinet 1"), session="s", seed=5)

    async def reloaded() -> list[Completion]:
        generator = engine(folder)
        before = await generator.generate(asked)
        await generator.reload(tmp_path / "other", stop_ids=chat.stop_ids)
        after = await generator.generate(asked)
        assert before != after
        return after

    assert asyncio.run(reloaded()) == asyncio.run(engine(tmp_path / "other").generate(asked))


def test_weights_of_another_shape_are_refused(folder: Path, tmp_path: Path, chat: ChatFormat) -> None:
    config = ModelConfig(hidden_size=16, layers=2, heads=4, intermediate_size=48, context=512)
    init_model(tmp_path / "other", tokenizer=new_tokenizer(TEXTS, context=config.context), config=config, seed=2)
    with pytest.raises(UserError, match="is not a weight of the model that is loaded"):
        asyncio.run(engine(folder).reload(tmp_path / "other", stop_ids=chat.stop_ids))


def test_an_error_in_the_model_reaches_every_caller(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = engine(folder)

    def broken(*_: object, **__: object) -> None:
        raise IndexError("the embedding fails")

    async def scenario() -> list[object]:
        asked = (generator.generate(request([8, 9])) for _ in range(3))
        return list(await asyncio.gather(*asked, return_exceptions=True))

    with monkeypatch.context() as patched:
        patched.setattr(generator._model, "forward", broken)
        assert all(isinstance(error, IndexError) for error in asyncio.run(scenario()))
    assert asyncio.run(generator.generate(request([8, 9])))


@pytest.mark.parametrize(
    "model",
    [
        Qwen2ForCausalLM(Qwen2Config(**TINY)),
        LlamaForCausalLM(
            LlamaConfig(**TINY, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4})
        ),
        MistralForCausalLM(MistralConfig(**TINY, sliding_window=8)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_other_architectures(model: PreTrainedModel) -> None:
    model.eval()
    asked = [request(list(range(3, 3 + 7 * size)), seed=size) for size in range(1, 6)]

    async def scenario(generator: Generator) -> list[list[Completion]]:
        return list(await asyncio.gather(*(generator.generate(one) for one in asked)))

    model.set_attn_implementation("eager")
    plain = type(model)(model.config).eval()
    plain.load_state_dict(model.state_dict())
    replies = asyncio.run(scenario(TransformersGenerator(model, stop_ids=[2], max_sequences=3, context=128)))
    plain.set_attn_implementation("eager")
    for one, (reply,) in zip(asked, replies, strict=True):
        assert largest_error(plain, one, reply) < 1e-5


def test_attention_with_a_soft_cap_is_refused() -> None:
    model = Gemma2ForCausalLM(Gemma2Config(**TINY, head_dim=8, attn_logit_softcapping=5.0))
    generator = TransformersGenerator(model, stop_ids=[2], max_sequences=2, context=64)
    with pytest.raises(UserError, match="vllm"):
        asyncio.run(generator.generate(request([3, 4, 5])))


def test_the_factory_makes_what_the_backend_names(folder: Path, chat: ChatFormat, trie: TokenTrie) -> None:
    for backend, kind in (("transformers", TransformersGenerator), ("scripted", ScriptedGenerator)):
        config = GeneratorConfig(backend=backend, context=256)  # type: ignore[arg-type]
        generator, tokenizer = make_generator(config, model=folder, seed=0)
        assert isinstance(generator, kind)
        assert generator.context == 256
        (reply,) = asyncio.run(generator.generate(request(chat.encode("you see"), allowed=trie)))
        assert tokenizer.decode(reply.token_ids, skip_special_tokens=True) in COMMANDS


def test_a_context_beyond_the_model_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"generator\.context"):
        make_generator(GeneratorConfig(context=1024), model=folder, seed=0)
