"""The endpoint, and its episodes: runs of the agent's program. A request is a step, and the program's end is the end.
Each episode has a path and a key of its own on the loopback address. Size and seconds of a request are limited.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import math
import os
import re
import secrets
import tempfile
from asyncio import BaseTransport, Future
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from rla_bridges.serving.connections import Connections, most_connections, sockets_of
from rla_programs.execution.boxed_command import CommandBox
from rla_programs.execution.rlimits import remove
from rla_programs.execution.session import Session, SessionWatch
from rla_programs.tool.formats import make_format

from rla.config import Config
from rla.envs.observation import EnvironmentFailure, Observation
from rla.store.records import Step, Task
from rla_gateway.conversations import Conversations
from rla_gateway.messages import MODEL, BadRequest, ChatAnswer, ChatRequest, answer_of, read_chat
from rla_gateway.params import AgentParams, check_machine

BYTES_PER_TOKEN = 64  # of a request, for each token of the context: more never fit
BODY_S, WRITE_S, LAST_S = 30.0, 60.0, 10.0  # LAST_S: for the program to end after the last reply
MOST_WAITING = 64  # requests of an episode at a time
OVER = "context_length_exceeded"  # the code that agents know for an end without an answer
UNTOLD = Step(observation="", commands=(), reply="", action="", valid=True, truncated=False, segment=0, start=0, end=0)
PLACES = re.compile(r"\{(instruction|task|outcome|folder)\}")  # in commands
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Gateway:
    """`rla.envs.protocols.Service`. The first episode starts the server. Raises UserError if agents cannot run here."""

    def __init__(self, config: Config) -> None:
        self.own: AgentParams = config.env.own
        check_machine(self.own)
        self.episodes: dict[str, AgentEpisode] = {}
        self._largest = BYTES_PER_TOKEN * config.generator.context + (1 << 16)
        self._connections = Connections(most=most_connections(8 * config.rollout.concurrency))
        self._starting = asyncio.Lock()
        self._runner: web.AppRunner | None = None
        self.ending = set[asyncio.Task[None]]()  # of episodes that are closed
        self.box: CommandBox | None = None

    def make(self, task: Task) -> AgentEpisode:
        return AgentEpisode(self, task)

    async def enter(self, name: str, episode: AgentEpisode) -> str:
        """The address that answers the requests of an episode from now on."""
        async with self._starting:
            if self._runner is None:
                await self._start()
        self.episodes[name] = episode
        return f"http://127.0.0.1:{self._port}/{name}/v1"

    async def _start(self) -> None:
        app = web.Application(middlewares=[self._guarded], client_max_size=self._largest)
        app.router.add_get("/{name}/v1/models", self._models)
        app.router.add_post("/{name}/v1/chat/completions", self._chat)
        runner = self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0, lingering_time=0.0)
        await runner.setup()
        assert runner.server is not None
        sockets = sockets_of("127.0.0.1", 0)
        self._port = sockets[0].getsockname()[1]
        self._accepting = asyncio.create_task(self._connections.accept(sockets, runner.server))
        self.watch = SessionWatch(self.own.processes)
        if self.own.sandbox:
            self.box = CommandBox(readable=self.own.readable, port=self._port, processes=self.own.processes)
            await web.UnixSite(runner, str(self.box.socket)).start()
            self.box.socket.chmod(0o666)

    async def close(self) -> None:
        for episode in list(self.episodes.values()):
            episode.close()
        await asyncio.gather(*(self.ending - {asyncio.current_task()}), return_exceptions=True)
        if self._runner is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            await self._runner.cleanup()
            await asyncio.to_thread(self.watch.close)
            if self.box is not None:
                self.box.close()
            self._runner = None

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._connections.heard(request.transport)
        try:
            return await handler(request)
        except (BadRequest, web.HTTPException) as error:
            told = {"message": str(error), "type": "invalid_request_error", "param": None}
            code = error.code if isinstance(error, BadRequest) else None
            return web.json_response({"error": told | {"code": code}}, status=error.status)

    def _episode(self, request: web.Request) -> AgentEpisode:
        """The episode of the path, if the request has its key. Raises BadRequest."""
        episode = self.episodes.get(request.match_info["name"])
        key = request.headers.get("Authorization", "").encode("utf-8", "replace")
        if episode is None or not hmac.compare_digest(key, f"Bearer {episode.key}".encode()):
            raise BadRequest("the key is not the one of this episode", status=401, code="invalid_api_key")
        return episode

    async def _models(self, request: web.Request) -> web.Response:
        self._episode(request)
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "rla"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        episode = self._episode(request)
        if (request.content_length or 0) > self._largest:
            raise BadRequest(f"the body has more than {self._largest} bytes", status=413)
        try:
            async with asyncio.timeout(BODY_S):
                chat = read_chat(await request.read())
        except TimeoutError:
            raise BadRequest("the body did not arrive in time", status=408) from None
        again = request.headers.get("x-stainless-retry-count", "0") != "0"
        asked = episode.ask(chat, request.transport, again=again)
        with self._connections.playing(request.transport):
            data = (await asyncio.shield(asked.answer)).written(chat)
            kind = "text/event-stream" if chat.stream else "application/json"
            response = web.StreamResponse(headers={"Content-Type": kind})
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(WRITE_S):
                    await response.prepare(request)
                    await response.write_eof(data)
                asked.delivered = asked.delivered or asked.awaited()
        return response


@dataclass(slots=True, eq=False)
class PendingRequest:
    """`listening`: the connections on which its answer is awaited; `delivered`: one of them has got it."""

    request: ChatRequest
    answer: Future[ChatAnswer]
    listening: list[BaseTransport | None] = field(default_factory=list)
    delivered: bool = False

    def awaited(self) -> bool:
        return any(one is not None and not one.is_closing() for one in self.listening)


class AgentEpisode:
    """An `AwaitedEnvironment` that `Concludes` and `Converses`. `alone`: it closes its gateway with itself."""

    def __init__(self, gateway: Gateway, task: Task, *, alone: bool = False) -> None:
        self._gateway, self._task, self._alone = gateway, task, alone
        self._own, self.key = gateway.own, ""
        self._program: Session | None = None

    async def reset(self) -> Observation:
        """Raises EnvironmentFailure if the program does not start, or ends without a request."""
        await self._end()
        self._name, self.key = secrets.token_hex(8), f"sk-{secrets.token_urlsafe(24)}"
        self._conversations = Conversations(make_format(self._own.format))
        self._step = UNTOLD
        self._waiting, self._asked = asyncio.Queue[PendingRequest](), list[PendingRequest]()
        self._now: PendingRequest | None = None
        self._text = self._refusal = ""
        self._folder = Path(tempfile.mkdtemp(prefix="rla-agent-"))
        self._address = await self._gateway.enter(self._name, self)
        self._program = self._started("command", self._own.command, self._folder)
        self._gateway.watch.add(self._program)
        seen = await self._next()
        if seen.done:
            status, said = self._program.status(), self._program.output()
            raise EnvironmentFailure(f"the agent ended with status {status} and no request: {said}")
        return seen

    async def step(self, action: str) -> Observation:
        if self._now is None:
            raise EnvironmentFailure("a step without a request")
        request, calls = self._now.request, self._conversations.calls if self._now.request.tools else None
        answer = answer_of(action, self._step, name=f"{self._name}-{self._asked.index(self._now)}", calls=calls)
        self._conversations.replied(request, answer.message)
        self._now.answer.set_result(answer)
        return await self._next(understood=answer.understood)

    def replied(self, step: Step) -> None:
        self._step = step

    async def stopped(self) -> Observation:
        self._refuse("the episode has no more requests, or no more context")
        assert self._program is not None
        await asyncio.wait([self._program.ended], timeout=LAST_S)
        return await self._concluded(self._text)

    def close(self) -> None:
        """End the program in the background; if the gateway is its own, at once, because the event loop may be over."""
        if self._program is not None:
            self._program.kill()
        if self._program is not None and self._alone:
            self._program.sweep()
            self._gateway.watch.close()
            remove(self._folder)
            self.key, self._program = "", None
            self._gateway.episodes.clear()
        with contextlib.suppress(RuntimeError):
            ending = asyncio.get_running_loop().create_task(self._gateway.close() if self._alone else self._end())
            self._gateway.ending.add(ending)
            ending.add_done_callback(self._gateway.ending.discard)

    def ask(self, request: ChatRequest, transport: BaseTransport | None, *, again: bool) -> PendingRequest:
        """The next request, or an earlier one that is sent `again`, or whose answer nobody got. Raises BadRequest."""
        for one in reversed(self._asked):
            if one.request.digest == request.digest and (again or not (one.delivered or one.awaited())):
                one.listening.append(transport)
                return one
        if self._refusal:
            raise BadRequest(self._refusal, code=OVER)
        if sum(not one.answer.done() for one in self._asked) >= MOST_WAITING:
            raise BadRequest(f"{MOST_WAITING} requests are waiting already", status=429, code="rate_limit_exceeded")
        self._asked.append(PendingRequest(request, asyncio.get_running_loop().create_future(), [transport]))
        self._waiting.put_nowait(self._asked[-1])
        return self._asked[-1]

    async def _next(self, *, understood: bool = True) -> Observation:
        """The observation at the program's next request, or at its end."""
        program, waiting = self._program, asyncio.ensure_future(self._waiting.get())
        assert program is not None
        try:
            ends = (waiting, program.ended)
            await asyncio.wait(ends, timeout=self._own.idle_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if program.pid in self._gateway.watch.crowded:
            return await self._concluded("The program was stopped: it started too many processes.", lost=True)
        if program.ended.done():
            return await self._concluded("The program has ended.", understood=understood)
        if not waiting.done():
            return await self._concluded("The program was stopped: it sent no request for too long.", lost=True)
        self._now = waiting.result()
        self._text, turns = self._conversations.asked(self._now.request)
        return Observation(text=self._text, understood=understood, chat=turns)

    async def _concluded(self, text: str, *, lost: bool = False, understood: bool = True) -> Observation:
        """The outcome, once the program and all that it started are gone."""
        self._refuse("the episode is over")
        assert self._program is not None
        status, won, reward = self._program.status(), False, None
        await self._program.end()
        if not lost and self._own.outcome == "file":
            reward = self._written_reward()
        elif not lost:
            won = (status if self._own.outcome == "exit" else await self._verified()) == 0
        return Observation(text=text, done=True, won=won, reward=reward, understood=understood)

    def _written_reward(self) -> float:
        """The number in the outcome file; 0 if there is none."""
        try:  # not a pipe, for which this would wait
            file = os.open(self._folder / "outcome", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            with open(file, "rb") as found:
                reward = float(found.read(64))
        except (OSError, ValueError):
            return 0.0
        return reward if math.isfinite(reward) else 0.0

    async def _verified(self) -> int:
        with tempfile.TemporaryDirectory(prefix="rla-task-") as private:  # the program may have changed its own copy
            verifier = self._started("verifier", self._own.verifier, Path(private))
            await asyncio.wait([verifier.ended], timeout=self._own.idle_s)
            status = verifier.status()
            await verifier.end()
        if status is None:
            raise EnvironmentFailure(f"env.own.verifier did not end in {self._own.idle_s:g} s: {verifier.output()}")
        return status

    def _started(self, key: str, command: Sequence[str], place: Path) -> Session:
        """The program of a command; `place`: for the file of its task. Raises EnvironmentFailure."""
        task = place / "task.json"
        task.write_text(self._task.payload, encoding="utf-8")
        paths = {"task": str(task), "outcome": str(self._folder / "outcome"), "folder": str(self._folder)}
        named = {"instruction": self._task.instruction, **paths}
        words = [PLACES.sub(lambda found: named[found[1]], word) for word in command]
        env = {f"AGENT_{name.upper()}": value for name, value in named.items()}
        env |= {"OPENAI_BASE_URL": self._address, "OPENAI_API_KEY": self.key, "NO_PROXY": "127.0.0.1,localhost"}
        box = self._gateway.box if key == "command" else None
        try:
            if box is not None:
                return box.session(words, env=env, folder=self._folder, mark=self.key)
            return Session(words, env=os.environ | env, mark=self.key)
        except OSError as error:
            raise EnvironmentFailure(f"env.own.{key} does not start: {error.strerror or error}") from None

    def _refuse(self, why: str) -> None:
        self._refusal, self._now = why, None
        for one in self._asked:
            if not one.answer.done():
                one.answer.set_exception(BadRequest(why, code=OVER))
                one.answer.exception()  # nobody may listen any more

    async def _end(self) -> None:
        if not self.key:
            return
        self._refuse("the episode is over")
        self._gateway.episodes.pop(self._name, None)
        self.key, program, self._program = "", self._program, None
        if program is not None:
            self._gateway.watch.forget(program)
            await program.end()
        await asyncio.to_thread(remove, self._folder)
