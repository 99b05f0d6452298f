"""Pages of MiniWoB++ in a real Chromium: tasks, episodes, demonstrations, labels, changed tasks, and what is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from rla_screens.browser import adapting
from rla_screens.browser.adapting import START
from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.desk import browser_desk
from rla_screens.browser.drivers import DRIVER
from rla_screens.browser.environment import BrowserPages
from rla_screens.browser.episode import BrowserEpisode
from rla_screens.browser.lone import LonePage
from rla_screens.browser.modes import played_mode
from rla_screens.browser.pages import page_file
from rla_screens.browser.params import BrowserParams
from rla_screens.browser.proving import proven_scene
from rla_screens.browser.scenes import scene_of
from rla_screens.browser.text_view import TextView

from rla.config import Config
from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import RejectedEdit
from rla.envs.registry import load_config
from rla.store.records import Task
from screens_tests.integration.shared_browsers import SharedBrowsers, shared_browsers
from tests.browser.chromium import chromium

pytest.importorskip("playwright", reason="needs the browser extra")
pytestmark = pytest.mark.skipif(
    chromium() is None, reason="no Chromium on PATH: apt-get install chromium-headless-shell"
)

KINDS = ("login-user", "click-tab-2-hard", "click-button")
Answer = TypeVar("Answer")


@pytest.fixture(scope="module")
def config() -> Config:
    sizes = ["tasks.train_scenes=6", "tasks.test_scenes=3", "tasks.tasks_per_scene=1", "env.max_steps=8"]
    return load_config(None, ["env.name=browser", f"tasks.kinds=[{','.join(KINDS)}]", *sizes])


@pytest.fixture(scope="module")
def env() -> BrowserPages:
    return BrowserPages()


@pytest.fixture(scope="module")
def tasks(env: BrowserPages, config: Config) -> list[Task]:
    return env.tasks(config, split="train", seed=0)


def of_kind(tasks: list[Task], kind: str) -> Task:
    return next(task for task in tasks if task.kind == kind)


@pytest.fixture(scope="module")
def browsers() -> Iterator[SharedBrowsers]:
    with shared_browsers() as made:
        yield made


def in_pool(work: Callable[[BrowserPool], Awaitable[Answer]], own: BrowserParams | None = None) -> Answer:
    """What `work` returns of a pool, which is closed then."""

    async def run() -> Answer:
        pool = BrowserPool(own or BrowserParams())
        try:
            return await work(pool)
        finally:
            await pool.close()

    return asyncio.run(run())


def episode_of(pool: BrowserPool, task: Task) -> BrowserEpisode:
    return BrowserEpisode(pool, scene_of(task), TextView(), success="positive")


def test_tasks_are_pages_in_turn_and_splits_share_no_scene(
    env: BrowserPages, config: Config, tasks: list[Task]
) -> None:
    assert [task.kind for task in tasks] == [*KINDS, *KINDS]
    assert env.tasks(config, split="train", seed=0) == tasks
    held_out = env.tasks(config, split="test", seed=0)
    assert len(held_out) == 3
    assert not {env.likeness(task) for task in tasks} & {env.likeness(task) for task in held_out}


def test_a_seed_begins_alike_in_every_browser_and_an_episode_is_won(
    env: BrowserPages, config: Config, tasks: list[Task], browsers: SharedBrowsers
) -> None:
    task = of_kind(tasks, "login-user")
    shown = env.demonstrate(task, config, seed=0, random_share=0.0)
    assert shown.won and len(shown.actions) == 3

    async def played(pool: BrowserPool) -> list[str]:
        episode = episode_of(pool, task)
        seen = [await episode.reset()]
        for action in shown.actions:
            assert action in seen[-1].commands
            seen.append(await episode.step(action))
        assert seen[-1].won and seen[-1].commands == ()
        episode.close()
        return [one.text for one in seen]

    assert browsers.run(played) == [*shown.observations, shown.final_observation]


def test_a_task_of_another_version_of_a_page_is_not_played(tasks: list[Task], browsers: SharedBrowsers) -> None:
    task = of_kind(tasks, "click-button")
    other = json.loads(task.payload) | {"digest": "0" * 16}
    changed = Task(**(task.row() | {"payload": json.dumps(other)}))

    async def begun(pool: BrowserPool) -> None:
        episode = episode_of(pool, changed)
        try:
            await episode.reset()
        finally:
            episode.close()

    with pytest.raises(EnvironmentFailure, match="begins differently"):
        browsers.run(begun)


@pytest.mark.parametrize("whom", ["browser", "driver", "page"])
def test_a_lost_browser_is_replaced_and_the_episode_goes_on(
    env: BrowserPages, config: Config, tasks: list[Task], browsers: SharedBrowsers, whom: str
) -> None:
    task = of_kind(tasks, "login-user")
    actions = env.demonstrate(task, config, seed=0, random_share=0.0).actions

    async def played(pool: BrowserPool) -> dict[str, float]:
        episode = episode_of(pool, task)
        seen = await episode.reset()
        for number, action in enumerate(actions):
            if number == 2:
                await lose(pool, whom)
            seen = await episode.step(action)
        assert seen.won
        episode.close()
        return pool.figures()

    assert browsers.run(played) == {"pages": 2.0, "pages_lost": 1.0, "pages_given_up": 0.0}


async def lose(pool: BrowserPool, whom: str) -> None:
    (page, running), *_ = pool.running()
    if whom == "page":
        await page.context.close()
    else:
        os.kill(running.pid if whom == "browser" else driver_above(running.pid), signal.SIGKILL)


def driver_above(pid: int) -> int:
    """Playwright's driver that has started a browser; there may be a shell between."""
    while DRIVER not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def test_where_a_further_browser_does_not_start_the_first_one_gets_its_pages(tmp_path: Path) -> None:
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nmkdir "{tmp_path}/once" || exit 1\nexec "{chromium()}" "$@"\n')
    program.chmod(0o700)

    async def played(pool: BrowserPool) -> dict[str, float]:
        pages = [await pool.take() for _ in range(2)]
        assert len({running for _, running in pool.running()}) == 1
        for page in pages:
            assert (await page.start(page_file(pool.folder, "click-test"), 1)).ready
            await pool.give(page)
        return pool.figures()

    own = BrowserParams(executable=str(program), processes=2, contexts=1)
    assert in_pool(played, own) == {"pages": 2.0, "pages_lost": 0.0, "pages_given_up": 0.0}


def test_episodes_of_a_stage_share_browsers_and_wait_for_a_place(tasks: list[Task]) -> None:
    async def together(pool: BrowserPool) -> list[str]:
        async def one(task: Task) -> str:
            episode = episode_of(pool, task)
            text = (await episode.reset()).text
            episode.close()
            return text

        return list(await asyncio.gather(*(one(task) for task in tasks[:3])))

    texts = in_pool(together, BrowserParams(processes=1, contexts=2))
    assert all(text.startswith(task.instruction) for task, text in zip(tasks[:3], texts, strict=True))


def test_labels_say_whether_the_expert_still_wins_and_is_nearer(
    env: BrowserPages, config: Config, tasks: list[Task]
) -> None:
    task = of_kind(tasks, "login-user")
    name, word, press = env.demonstrate(task, config, seed=0, random_share=0.0).actions
    swapped = name.removesuffix("1") + "2"
    labels = env.label(task, config, [name, swapped, word, press], others=2, seed=0)
    taken = [(one.score, one.before, one.after) for one, *_ in labels]
    assert taken == [(1, 3.0, 2.0), (-1, 2.0, 2.0), (1, 2.0, 1.0), (1, 1.0, 0.0)]
    assert all(len(step) == 3 for step in labels)
    ((early, *_),) = env.label(task, config, [press])
    assert (early.score, early.after) == (-1, float("inf"))


def test_a_label_shows_what_an_episode_shows_after_an_action_that_is_none(
    env: BrowserPages, config: Config, tasks: list[Task], browsers: SharedBrowsers
) -> None:
    task, action = of_kind(tasks, "login-user"), "press whatever you like"

    async def answer(pool: BrowserPool) -> str:
        episode = episode_of(pool, task)
        await episode.reset()
        text = (await episode.step(action)).text
        episode.close()
        return text

    ((taken, *_),) = env.label(task, config, [action])
    assert taken.next_observation == browsers.run(answer) and taken.score == -1


def test_a_changed_task_is_a_neighbour_a_seed_or_a_hint_and_is_proven(
    env: BrowserPages, tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapting, "TRIED", 1)
    task = of_kind(tasks, "click-tab-2-hard")
    easier = [json.loads(edit) for edit in env.propose(task, direction="easier", seed=1, count=8)]
    assert [edit["page"] for edit in easier[:3]] == ["click-tab-2-medium", "click-tab-2-easy", "click-tab"]
    assert [edit["page"] for edit in easier[4:]] == [task.kind] and easier[4]["seed"] != scene_of(task).seed
    hinted = next(edit for edit in easier if edit["hint"].startswith(START))
    child = env.apply(task, json.dumps(hinted), root=task, taken=set(), created=1)
    assert child.instruction == f"{task.instruction} {hinted['hint']}" and child.plan_length
    assert child.scene == task.scene and child.parent_id == task.task_id
    with pytest.raises(RejectedEdit, match="already"):
        env.apply(child, json.dumps(hinted | {"hint": ""}), root=task, taken=set(), created=2)


def test_a_parameter_of_a_page_makes_it_harder_and_is_set_back_for_the_next_episode(
    env: BrowserPages, config: Config, colors: Task, browsers: SharedBrowsers
) -> None:
    (first, *_), scene = env.propose(colors, direction="harder", seed=1, count=1), scene_of(colors)
    edit = {"page": "click-color", "seed": scene.seed, "hint": "", "parameters": {"MAX_COLORS": 6}}
    assert json.loads(first) == edit

    child = env.apply(colors, first, root=colors, taken=set(), created=1)
    assert scene_of(child).parameters == {"MAX_COLORS": 6} and child.edit == json.dumps(edit, sort_keys=True)

    def boxes(task: Task) -> int:
        return env.demonstrate(task, config, seed=0, random_share=0.0).observations[0].count(" item ")

    assert [boxes(task) for task in (colors, child, colors)] == [4, 6, 4]
    assert env.demonstrate(child, config, seed=0, random_share=0.0).won

    async def begun(pool: BrowserPool) -> str:
        episode = episode_of(pool, child)
        text = (await episode.reset()).text
        episode.close()
        return text

    assert browsers.run(begun).count(" item ") == 6
    easier = [json.loads(one) for one in env.propose(child, direction="easier", seed=1, count=3)]
    assert [one["parameters"]["MAX_COLORS"] for one in easier] == [4, 4, 3]


@pytest.fixture(scope="module")
def colors(env: BrowserPages) -> Task:
    """A task some of whose children with six boxes are on its side of the splits: with this seed the first one is."""
    sizes = ["tasks.train_scenes=1", "tasks.tasks_per_scene=1", "env.max_steps=8"]
    (task,) = env.tasks(
        load_config(None, ["env.name=browser", "tasks.kinds=[click-color]", *sizes]), split="train", seed=0
    )
    return task


@pytest.mark.parametrize(("name", "value"), [("MAX_COLORS", 5), ("MAX_COLORS", 10**9), ("EPISODE_MAX_TIME", 4)])
def test_parameters_that_are_not_in_the_table_reach_no_page(
    env: BrowserPages, colors: Task, name: str, value: int
) -> None:
    edit = {"page": "click-color", "seed": 1, "hint": "", "parameters": {name: value}}
    with pytest.raises(RejectedEdit, match="no such parameters"):
        env.apply(colors, json.dumps(edit), root=colors, taken=set(), created=1)


def test_one_context_is_enough_for_proofs_and_for_a_desk(tasks: list[Task], env: BrowserPages) -> None:
    own, task = BrowserParams(contexts=1, width=161), of_kind(tasks, "click-button")
    mode = played_mode(own, 1.0)

    async def proven(pool: BrowserPool) -> int:
        async with asyncio.timeout(60):
            return len((await proven_scene(pool, task.kind, scene_of(task).seed, mode)).commands)

    assert in_pool(proven, own) == 1
    desk = browser_desk(own)
    game = LonePage(desk, scene_of(task), TextView(), own)
    try:
        game.reset()
        state = desk.play(lambda player: asyncio.wait_for(player.begin(scene_of(task)), 60))
        assert state.utterance == task.instruction
        assert desk.ask(proven) == 1
    finally:
        game.close()
        desk.close()


@pytest.fixture
def pixels(env: BrowserPages, config: Config) -> Iterator[Config]:
    """While it is in use, tasks are changed for pixels: children are told no parameters, so the process remembers."""
    kinds = "tasks.kinds=[login-user,choose-list]"
    sizes = ["tasks.train_scenes=2", "tasks.tasks_per_scene=1", "env.max_steps=8"]
    yield load_config(None, ["env.name=browser", "env.own.mode=pixels", "policy.reply=text", kinds, *sizes])
    env.check(config)


def test_children_in_pixels_are_proven_by_actions_on_pixels(env: BrowserPages, pixels: Config) -> None:
    login, chosen = env.tasks(pixels, split="train", seed=0)
    edit = {"page": "login-user", "seed": 11, "hint": ""}
    child = env.apply(login, json.dumps(edit), root=login, taken=set(), created=1)
    shown = env.demonstrate(child, pixels, seed=0, random_share=0.0)
    assert shown.won and child.plan_length == len(shown.actions) == 5  # on elements three: fields are clicked on, too
    with pytest.raises(RejectedEdit, match="does not win choose-list"):  # its options cannot be seen
        env.apply(chosen, json.dumps(edit | {"page": "choose-list"}), root=chosen, taken=set(), created=1)


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ({"page": "login-user", "seed": 1, "hint": ""}, "no page of the family"),
        ({"page": "../secret", "seed": 1, "hint": ""}, "no page of the family"),
        ({"page": "click-tab", "seed": -1, "hint": ""}, "seed must lie"),
        ({"page": "click-tab", "seed": 1, "hint": "a\nb"}, "one line"),
    ],
)
def test_other_edits_are_refused(env: BrowserPages, tasks: list[Task], edit: dict[str, object], why: str) -> None:
    task = of_kind(tasks, "click-tab-2-hard")
    with pytest.raises(RejectedEdit, match=why):
        env.apply(task, json.dumps(edit), root=task, taken=set(), created=1)


SCRIPT = """
import asyncio
from rla_screens.browser.browsers import BrowserPool
from rla_screens.browser.lone import LonePage
from rla_screens.browser.modes import played_mode
from rla_screens.browser.pages import page_file
from rla_screens.browser.params import BrowserParams

async def main():
    pool = BrowserPool(BrowserParams())
    page = await pool.take()
    await page.start(page_file(pool.folder, "click-test"), 1)
    print("begun", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_nothing_is_left_of_a_stage_that_is_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=os.environ | {"TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    assert [folder.name[:12] for folder in tmp_path.iterdir()] == ["rla-browser-"] and speaking_of(tmp_path)
    process.kill()
    process.wait()
    process.stdout.close()
    end = time.monotonic() + 60
    while (speaking_of(tmp_path) or list(tmp_path.iterdir())) and time.monotonic() < end:
        time.sleep(0.2)
    assert speaking_of(tmp_path) == [] and list(tmp_path.iterdir()) == []


def speaking_of(folder: Path) -> list[str]:
    """Processes whose command line or environment names a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in said and entry.name != str(os.getpid()):
            found.append(entry.name)
    return found


def test_a_page_and_its_browser_leave_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def played(pool: BrowserPool) -> None:
        page = await pool.take()
        await page.start(page_file(pool.folder, "click-test"), 1)
        assert [folder.name[:12] for folder in tmp_path.iterdir()] == ["rla-browser-"]
        assert (await page.screenshot()).startswith(b"\x89PNG")
        await pool.give(page)

    in_pool(played)
    assert list(tmp_path.iterdir()) == []
