"""The mode `pixels` on real pages: what is shown, what hostile actions do, demonstrations and labels with pictures."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest
from PIL import Image
from rla_screens.browser.params import PROGRAM
from rla_screens.browser.scenes import scene_of

from rla.config import Config
from rla.envs.observation import Environment
from rla.envs.registry import environment, load_config
from rla.store.records import Task

pytestmark = pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=f"needs {PROGRAM}")
SETTINGS = (
    "env.name=browser",
    "env.own.mode=pixels",
    "env.max_steps=3",
    "tasks.kinds=[click-test-2,click-button-sequence]",
    "tasks.train_scenes=6",
    "tasks.test_scenes=2",
    "tasks.tasks_per_scene=1",
)
HOSTILE = (
    "click 100 50",
    "click -1 5",
    "mouse_click(1000, 0)",
    "keyboard_press('BrowserBack')",
    "press F5+F5+F5+F5+F5",
    "goto('http://example.com')",
    "no action",
    "<tool_call>",
    "\x00" * 50,
)


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config(None, list(SETTINGS))


@pytest.fixture(scope="module")
def tasks(config: Config) -> list[Task]:
    return environment("browser").tasks(config, split="train", seed=0)


@pytest.fixture(scope="module")
def opened(config: Config, tasks: list[Task]) -> Iterator[Environment]:
    page = environment("browser").make(tasks[0], config)
    yield page  # type: ignore[misc]
    page.close()


def test_scenes_that_look_otherwise_are_different_tasks(tasks: list[Task]) -> None:
    assert len(tasks) == 6  # the texts of click-test-2 are the same for every seed
    assert len({task.task_id for task in tasks}) == 6


def test_a_page_is_a_picture_of_the_size_of_the_viewport(opened: Environment) -> None:
    seen = opened.reset()
    assert seen.text == "Click button ONE."
    with Image.open(io.BytesIO(seen.images[0])) as picture:
        assert picture.size == (160, 210)
        assert picture.convert("RGB").getpixel((5, 40)) == (255, 255, 0)  # behind the words of the task
    assert len(seen.commands) == 16 * 21 + 3


@pytest.mark.parametrize("action", HOSTILE)
def test_what_is_no_action_changes_nothing(opened: Environment, action: str) -> None:
    before = opened.reset()
    after = opened.step(action)
    assert not after.understood and not after.done
    assert after.text.startswith("Nothing happens.")
    assert after.place == before.place and after.images == before.images


def test_the_cursor_is_where_the_click_was(opened: Environment) -> None:
    opened.reset()
    after = opened.step("mouse_click(500, 900)")  # 80, 188 in pixels
    with Image.open(io.BytesIO(after.images[0])) as picture:
        assert picture.convert("RGB").getpixel((80, 192)) == (0, 0, 0)


def test_text_that_is_typed_is_text(opened: Environment) -> None:
    opened.reset()
    after = opened.step("keyboard_type(\"'); alert(1); ('\")")
    assert after.understood and not after.done


def test_blanked_nothing_is_seen_and_everything_else_is_the_same(config: Config, tasks: list[Task]) -> None:
    """The split `blanked` has the tasks of the first held-out split, as other tasks: they start alike in words."""
    splits = replace(config, tasks=replace(config.tasks, test_splits=("test", "blanked")))
    pages = environment("browser")
    seen, blanked = (pages.tasks(splits, split=split, seed=seed) for split, seed in (("test", 0), ("blanked", 7)))
    assert [one.instruction for one in blanked] == [one.instruction for one in seen]
    assert [scene_of(one) for one in blanked] == [replace(scene_of(one), blank=True) for one in seen]
    assert not {one.task_id for one in blanked} & {one.task_id for one in seen}
    page = pages.make(blanked[0], splits)
    first = page.reset()
    then = page.step("click 1 99")
    page.close()
    assert first.images == then.images
    with Image.open(io.BytesIO(first.images[0])) as picture:
        assert picture.getcolors() == [(160 * 210, (255, 255, 255))]
    assert first.text == "Click button ONE."


def test_the_expert_wins_by_clicks_on_the_grid_and_shows_every_screen(config: Config, tasks: list[Task]) -> None:
    for task in tasks[:2]:
        shown = environment("browser").demonstrate(task, config, seed=1, random_share=0.0)
        assert shown.won
        assert len(shown.images) == len(shown.actions) + 1
        assert all(action in offered for action, offered in zip(shown.actions, shown.commands, strict=True))


def test_a_page_with_a_dialog_does_not_scroll_to_what_it_has_paid(config: Config) -> None:
    """A dialog takes the focus, and what a page has paid stands beside it, outside of the viewport."""
    dialogs = replace(config, tasks=replace(config.tasks, kinds=("click-dialog",)))
    pages = environment("browser")
    assert all(
        pages.demonstrate(task, dialogs, seed=1, random_share=0.0).won
        for task in pages.tasks(dialogs, split="train", seed=0)
    )


def test_labels_by_replay_bring_the_pictures_of_what_followed(config: Config, tasks: list[Task]) -> None:
    task = next(one for one in tasks if one.kind == "click-button-sequence")
    shown = environment("browser").demonstrate(task, config, seed=1, random_share=0.0)
    first, second = environment("browser").label(task, config, shown.actions, others=1, seed=2)
    assert [first[0].score, second[0].score] == [1, 1]
    assert (first[0].before, first[0].after, second[0].after) == (2.0, 1.0, 0.0)
    assert first[0].next_images == shown.images[1]
    assert first[1].score == -1 and first[1].next_images
