"""Episodes, which are runs of the agent's program: a request is a step, and the program's end is the end.
Each episode has a server and a key of its own on the loopback address. Size and seconds of a request are limited.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import math
import os
import re
import secrets
import socket
import tempfile
from asyncio import BaseTransport, Future
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aiohttp import web
from rla_bridges.serving import connections as serving
from rla_programs.execution import Limits
from rla_programs.execution.boxed_command import PORT, CommandBox
from rla_programs.execution.rlimits import remove
from rla_programs.execution.session import Session, supervised
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
    """`rla.envs.protocols.Service`: what the episodes of a stage share. Raises UserError if agents cannot run here."""

    def __init__(self, config: Config) -> None:
        self.own: AgentParams = config.env.own
        check_machine(self.own)
        self.limits = Limits(processes=self.own.processes, memory_mb=self.own.memory_mb, file_mb=self.own.file_mb)
        self.box = CommandBox(readable=self.own.readable, limits=self.limits) if self.own.sandbox else None
        self.largest = BYTES_PER_TOKEN * config.generator.context + (1 << 16)
        self.most = serving.share_of_connections(2 * MOST_WAITING, config.rollout.concurrency)
        self.episodes = set[AgentEpisode]()  # that have begun
        self.ending = set[asyncio.Task[None]]()  # of episodes that are closed

    def make(self, task: Task) -> AgentEpisode:
        return AgentEpisode(self, task)

    async def close(self) -> None:
        for episode in list(self.episodes):
            episode.close()
        await asyncio.gather(*self.ending, return_exceptions=True)


@dataclass(slots=True, eq=False)
class PendingRequest:
    """`connection`: on which its answer is awaited; `delivered`: the answer was sent."""

    request: ChatRequest
    answer: Future[ChatAnswer]
    connection: BaseTransport | None
    delivered: bool = False

    @property
    def lost(self) -> bool:
        """Whether the connection has ended before the answer was sent."""
        return not self.delivered and (self.connection is None or self.connection.is_closing())


class Endpoint:
    """The server of one episode, with `most` connections. One counts as a client's after a request with the key."""

    def __init__(self, episode: AgentEpisode, *, largest: int, most: int) -> None:
        self.key = f"sk-{secrets.token_urlsafe(24)}"
        self._reading, self._accepting = asyncio.Lock(), list[asyncio.Task[None]]()
        self._ask, self._largest, self._connections = episode.ask, largest, serving.Connections(most=most)
        app = web.Application(middlewares=[self._guarded], client_max_size=largest)
        app.add_routes([web.get("/v1/models", self._models), web.post("/v1/chat/completions", self._chat)])
        runner = partial(web.AppRunner, app, access_log=None, logger=serving.log_of_requests)
        self._runner = runner(shutdown_timeout=0.0, lingering_time=0.0, handler_cancellation=True)

    async def start(self, listening: socket.socket) -> None:
        await self._runner.setup()
        assert self._runner.server is not None
        self._accepting = [asyncio.create_task(self._connections.accept([listening], self._runner.server))]

    async def close(self) -> None:
        for accepting in self._accepting:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
        await self._runner.cleanup()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            key = request.headers.get("Authorization", "").encode("utf-8", "replace")
            if not hmac.compare_digest(key, f"Bearer {self.key}".encode()):
                raise BadRequest("the key is not the one of this episode", status=401, code="invalid_api_key")
            self._connections.heard(request.transport)
            return await handler(request)
        except (BadRequest, web.HTTPException) as error:
            told = {"message": str(error), "type": "invalid_request_error", "param": None}
            return web.json_response({"error": told | {"code": getattr(error, "code", None)}}, status=error.status)

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "rla"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        if (request.content_length or 0) > self._largest:
            raise BadRequest(f"the body has more than {self._largest} bytes", status=413)
        try:
            async with asyncio.timeout(BODY_S):
                body = await request.read()
            async with self._reading:  # in a thread, so that large bodies hold up no other episode
                chat = await asyncio.to_thread(read_chat, body)
        except TimeoutError:
            raise BadRequest("the body did not arrive in time", status=408) from None
        asked = self._ask(chat, request.transport)
        with self._connections.playing(request.transport):
            data = (await asyncio.shield(asked.answer)).written(chat)
            kind = "text/event-stream" if chat.stream else "application/json"
            response = web.StreamResponse(headers={"Content-Type": kind})
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(WRITE_S):
                    await response.prepare(request)
                    await response.write_eof(data)
                asked.delivered = not asked.lost
        return response


class AgentEpisode:
    """An `AwaitedEnvironment` that `Concludes` and `Converses`. `alone`: it closes its gateway with itself."""

    def __init__(self, gateway: Gateway, task: Task, *, alone: bool = False) -> None:
        self._gateway, self._own, self._task, self._alone = gateway, gateway.own, task, alone
        self._program: Session | None = None

    async def reset(self) -> Observation:
        """Raises EnvironmentFailure if the program does not start, or ends without a request."""
        await self._end()
        self._conversations, self._step = Conversations(make_format(self._own.format)), UNTOLD
        self._waiting, self._asked = asyncio.Queue[PendingRequest](), list[PendingRequest]()
        self._now: PendingRequest | None = None
        self._text = self._refusal = ""
        self._place = Path(tempfile.mkdtemp(prefix="rla-agent-"))
        self._folder, self._socket = self._place / "work", self._place / "socket"
        self._folder.mkdir()
        self._endpoint = Endpoint(self, largest=self._gateway.largest, most=self._gateway.most)
        self._gateway.episodes.add(self)
        (listening,) = [serving.unix_socket(self._socket)] if self._gateway.box else serving.sockets_of("127.0.0.1", 0)
        self._port = PORT if self._gateway.box else listening.getsockname()[1]
        await self._endpoint.start(listening)
        self._program = self._started("command", self._own.command, self._folder)
        seen = await self._next()
        if seen.done:
            status, said = self._program.status(), self._program.output()
            raise EnvironmentFailure(f"the agent ended with status {status} and no request: {said}")
        return seen

    async def step(self, action: str) -> Observation:
        if self._now is None:
            raise EnvironmentFailure("a step without a request")
        request, calls = self._now.request, self._conversations.calls if self._now.request.tools else None
        answer = answer_of(action, self._step, name=f"{self._place.name}-{self._asked.index(self._now)}", calls=calls)
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
            if self._alone:
                self._program.sweep()
                remove(self._place)
        with contextlib.suppress(RuntimeError):
            ending = asyncio.get_running_loop().create_task(self._end())
            self._gateway.ending.add(ending)
            ending.add_done_callback(self._gateway.ending.discard)

    def ask(self, request: ChatRequest, connection: BaseTransport | None) -> PendingRequest:
        """The next request, or an equal one whose connection was lost, which is sent again. Raises BadRequest."""
        for one in self._asked:
            if one.lost and one.request.digest == request.digest:
                one.connection = connection
                return one
        if self._refusal:
            raise BadRequest(self._refusal, code=OVER)
        if sum(not one.answer.done() for one in self._asked) >= MOST_WAITING:
            raise BadRequest(f"{MOST_WAITING} requests are waiting already", status=429, code="rate_limit_exceeded")
        self._asked.append(PendingRequest(request, asyncio.get_running_loop().create_future(), connection))
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
        if self._program.crowded:
            text, lost = "The program was stopped: it started too many processes.", True
        await self._program.end()
        if not self._program.whole and self._own.outcome != "exit":
            text, lost = "The program's files were too many or too large to be kept.", True
        if not lost and self._own.outcome == "file":
            reward = self._written_reward()
        elif not lost:
            won = (status if self._own.outcome == "exit" else await self._verified()) == 0
        return Observation(text=text, done=True, won=won, reward=reward, understood=understood)

    def _written_reward(self) -> float:
        """The number in the outcome file; 0 if there is none."""
        path, reward = self._folder / "outcome", 0.0
        if path.is_file() and not path.is_symlink():  # a pipe would wait
            with contextlib.suppress(OSError, ValueError), path.open("rb") as found:
                reward = float(found.read(64))
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
        env |= {"OPENAI_BASE_URL": f"http://127.0.0.1:{self._port}/v1", "OPENAI_API_KEY": self._endpoint.key}
        env |= {"NO_PROXY": "127.0.0.1,localhost"}
        box, limits = (self._gateway.box, self._gateway.limits) if key == "command" else (None, None)
        try:
            if box is not None:
                return box.session(words, env=env, folder=self._folder, socket=self._socket, mark=self._endpoint.key)
            return Session(supervised(words, limits), env=os.environ | env, mark=self._endpoint.key)
        except OSError as error:
            raise EnvironmentFailure(f"env.own.{key} does not start: {error.strerror or error}") from None

    def _refuse(self, why: str) -> None:
        self._refusal, self._now = why, None
        for one in self._asked:
            if not one.answer.done():
                one.answer.set_exception(BadRequest(why, code=OVER))
                one.answer.exception()  # nobody may listen any more

    async def _end(self) -> None:
        if self not in self._gateway.episodes:
            return
        self._gateway.episodes.remove(self)
        self._refuse("the episode is over")
        program, self._program = self._program, None
        try:
            if program is not None:
                await program.end()
        finally:
            await self._endpoint.close()
            await asyncio.to_thread(remove, self._place)
