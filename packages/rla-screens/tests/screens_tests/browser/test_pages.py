"""Pages and families by name, and parameters that do not go together."""

from __future__ import annotations

import dataclasses
from itertools import chain
from pathlib import Path

import pytest
from rla_screens.browser.adapting import checked_hint
from rla_screens.browser.episode import won
from rla_screens.browser.page_course import first_change, page_course
from rla_screens.browser.pages import (
    FAMILIES,
    all_pages,
    family_of,
    neighbour_pages,
    page_file,
    pages_of_kinds,
    playable_pages,
)
from rla_screens.browser.scenes import PageScene, scene_of
from rla_screens.browser.tasks import scene_is_held_out, scene_likeness, task_of_scene

from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import RejectedEdit
from rla.envs.registry import load_config
from rla.errors import UserError

SCENE = PageScene(page="click-tab-2-easy", seed=3, utterance='Find "nam".', digest="0123456789abcdef")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "miniwob").mkdir()
    for name in ("one", "two", "simon-says"):
        (tmp_path / "miniwob" / f"{name}.html").touch()
    return tmp_path


def test_the_package_has_a_hundred_and_thirty_pages_without_being_imported() -> None:
    from rla_screens.browser.pages import miniwob_folder

    try:
        pages = all_pages(miniwob_folder())
    except UserError:
        pytest.skip("needs the browser extra")
    assert len(pages) == 130 and set(chain.from_iterable(FAMILIES.values())) <= set(pages)


def test_pages_that_depend_on_the_clock_are_not_played(folder: Path) -> None:
    assert playable_pages(folder) == ("one", "two")


@pytest.mark.parametrize("name", ["simon-says", "three", "../secret", "", "one/../two"])
def test_a_name_that_is_no_page_is_no_file(folder: Path, name: str) -> None:
    with pytest.raises(UserError, match="is not a page"):
        page_file(folder, name)


def test_families_have_no_page_in_common_and_no_name_of_a_page() -> None:
    members = list(chain.from_iterable(FAMILIES.values()))
    assert len(members) == len(set(members)) and not FAMILIES.keys() & set(members)


def test_neighbours_are_the_pages_before_and_behind_the_nearest_first() -> None:
    assert neighbour_pages("click-tab-2-medium", harder=True) == ("click-tab-2-hard", "click-tab-2")
    assert neighbour_pages("click-tab-2-medium", harder=False) == ("click-tab-2-easy", "click-tab")
    assert neighbour_pages("click-link", harder=True) == () and family_of("click-link") == "click-link"


def test_kinds_name_pages_and_families(folder: Path) -> None:
    assert pages_of_kinds(("two", "one", "two"), folder) == ("two", "one")
    with pytest.raises(UserError, match=r"tasks\.kinds: 'click-tab' is not a page"):
        pages_of_kinds(("tab",), folder)


def test_a_page_that_is_not_there_is_refused_as_parameters_are_read(folder: Path) -> None:
    pages = f"env.own.folder={folder}"
    load_config(None, ["env.name=browser", pages, "tasks.kinds=[one]"])
    with pytest.raises(UserError, match=r"tasks\.test_kinds: 'three'"):
        load_config(None, ["env.name=browser", pages, "tasks.test_kinds=[three]"])
    with pytest.raises(UserError, match="second held-out split"):
        load_config(None, ["env.name=browser", pages, "env.own.other_pages=[two]"])
    for splits, mode in (("[seeds,blanked]", "text"), ("[blanked,seeds]", "pixels")):
        with pytest.raises(UserError, match="without the page"):
            load_config(None, ["env.name=browser", pages, f"tasks.test_splits={splits}", f"env.own.mode={mode}"])
    with pytest.raises(UserError, match="no folder miniwob"):
        load_config(None, ["env.name=browser", f"env.own.folder={folder / 'miniwob'}"])


def test_a_raw_reward_wins_by_the_rule_that_is_named() -> None:
    assert [won(0.5, "positive"), won(0.0, "positive"), won(0.5, "full"), won(1.0, "full"), won(1.0, "score")] == [
        True,
        False,
        False,
        True,
        False,
    ]


def test_a_task_keeps_its_page_its_seed_and_what_is_seen_first() -> None:
    task = task_of_scene(SCENE, split="train")
    assert (task.kind, task.scene, task.instruction) == ("click-tab-2-easy", "tab", 'Find "nam".')
    assert scene_of(task) == SCENE
    with pytest.raises(EnvironmentFailure, match="not made for pages"):
        scene_of(dataclasses.replace(task, payload='{"page": 3}'))


def test_what_is_shown_decides_the_side_and_not_the_seed_or_the_hint() -> None:
    other = dataclasses.replace(SCENE, seed=4)
    assert scene_is_held_out(SCENE) is scene_is_held_out(other) and scene_likeness(SCENE) == scene_likeness(other)
    assert scene_likeness(dataclasses.replace(SCENE, hint="Hurry.")) != scene_likeness(SCENE)
    shares = [scene_is_held_out(dataclasses.replace(SCENE, digest=f"{number:016x}")) for number in range(1000)]
    assert 120 < sum(shares) < 280


@pytest.mark.parametrize("hint", ["x" * 201, "two\nlines", "a  b", "<tool_call>", "\u202eright to left", " led"])
def test_a_hint_is_one_plain_line(hint: str) -> None:
    with pytest.raises(RejectedEdit, match="one line"):
        checked_hint(hint)
    assert checked_hint("Start with: click 3") == "Start with: click 3"


def test_a_course_tells_episodes_that_never_changed_the_page() -> None:
    def episode(outcome: int, *texts: str) -> dict[str, object]:
        steps = [{"observation": text, "action": "click 1"} for text in texts[:-1]]
        return {"outcome": outcome, "steps": steps, "final_observation": texts[-1]}

    assert first_change(["Do it.\na", "a", "b", "b"]) == 1
    course = page_course(
        [episode(-1, "Do it.\na", "a", "a"), episode(-1, "Do it.\na", "b", "b"), episode(1, "Do it.\na", "c")]
    )
    assert (course.episodes, course.won, [phase.ended for phase in course.phases]) == (3, 1, [1, 1])
    assert [phase.steps for phase in course.phases] == [2, 3] and course.spent == (("click", 5),)


def test_a_course_of_pictures_has_no_phases_to_tell_apart() -> None:
    """Texts of screens are constants: the second step seems to change nothing, and the first to change all."""
    steps = [{"observation": text, "action": "click 46 38"} for text in ("Do it.", "screen")]
    rows = [{"outcome": -1, "steps": steps, "final_observation": "screen", "screens": [["a"], ["a"], ["a"]]}]
    course = page_course(rows)
    assert [(phase.ended, phase.steps) for phase in course.phases] == [(1, 2)] and course.spent == (("click", 2),)
    assert "change" not in course.told()
