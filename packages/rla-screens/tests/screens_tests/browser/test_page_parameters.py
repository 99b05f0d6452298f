"""Parameters of pages: the table against the package's files, what a task keeps of them, and what an edit may say."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import jsonschema
import pytest
from rla_screens.browser import desk
from rla_screens.browser.adapting import page_edit_values
from rla_screens.browser.expert_rules import RULES
from rla_screens.browser.page_parameters import (
    PARAMETERS,
    are_parameters,
    page_settings,
    values_beyond,
    without_usual,
)
from rla_screens.browser.page_proposals import PageProposals
from rla_screens.browser.pages import KEEPING, miniwob_folder, page_file
from rla_screens.browser.params import BrowserParams
from rla_screens.browser.scenes import PageScene, scene_of
from rla_screens.browser.tasks import task_of_scene

from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import ProposalView, RejectedEdit
from rla.errors import UserError
from rla.store.records import content_id

COLORS = PageScene(page="click-color", seed=3, utterance="Click on the red colored box.", digest="0123456789abcdef")
MORE = dataclasses.replace(COLORS, parameters={"MAX_COLORS": 6})


@pytest.mark.parametrize("page", PARAMETERS)
def test_the_package_has_the_variable_with_its_usual_value_and_draws_by_it(page: str) -> None:
    try:
        text = page_file(miniwob_folder(), page).read_text()
    except UserError:
        pytest.skip("needs the browser extra")
    known = PARAMETERS[page]
    assert re.findall(rf"^var {known.name} = (\d+);", text, re.MULTILINE) == [str(known.usual)]
    assert len(re.findall(rf"\b{known.name}\b", text)) >= 2
    assert page in RULES and known.usual in known.values and list(known.values) == sorted(set(known.values))


def test_pages_of_emails_draw_from_four_to_below_the_parameter() -> None:
    """So three is three, since `randi` counts downwards there: what `about` says of them."""
    try:
        folder = miniwob_folder()
        pages = [page_file(folder, page).read_text() for page in PARAMETERS if page.startswith("email-")]
    except UserError:
        pytest.skip("needs the browser extra")
    assert len(pages) == 6 and all("var n = core.randi(4, MAX_EMAILS);" in text for text in pages)
    assert "return Math.floor(Math.random()*(max-min)+min);" in (folder / "core" / "core.js").read_text()
    drawn = {most: {math.floor(luck / 1000 * (most - 4) + 4) for luck in range(1, 1000)} for most in (3, 6, 12)}
    assert drawn == {3: {3}, 6: {4, 5}, 12: set(range(4, 12))}


def test_the_option_of_addresses_is_read_and_never_used() -> None:
    """Else it would be a parameter."""
    try:
        pages = [file.read_text() for file in sorted((miniwob_folder() / "miniwob").glob("*.html"))]
    except UserError:
        pytest.skip("needs the browser extra")
    found = [re.sub(r"//.*", "", text) for text in pages if "QueryString" in text]
    assert len(found) == 7
    assert all(re.findall(r"\bany\b", text) == ["any", "any"] for text in found)  # where it is read, and no further


def test_values_beyond_are_the_nearest_first() -> None:
    assert values_beyond("click-color", {}, harder=True) == [{"MAX_COLORS": 6}, {"MAX_COLORS": 9}]
    assert values_beyond("click-color", {}, harder=False) == [{"MAX_COLORS": 3}, {"MAX_COLORS": 2}]
    assert values_beyond("click-color", {"MAX_COLORS": 9}, harder=True) == []
    assert values_beyond("click-tab", {}, harder=True) == []


def test_a_page_that_goes_on_from_another_episode_gets_its_usual_values_back() -> None:
    assert page_settings("click-color", {}) == {"MAX_COLORS": 4}
    assert page_settings("click-color", {"MAX_COLORS": 9}) == {"MAX_COLORS": 9}
    assert page_settings("click-tab", {}) == {}
    assert without_usual("click-color", {"MAX_COLORS": 4}) == {}


@pytest.mark.parametrize(
    "given",
    [{"MAX_COLORS": 5}, {"MAX_COLORS": True}, {"MAX_COLORS": 6.0}, {"MAX_COLORS": "6"}, {"x": 6}, ["MAX_COLORS"], None],
)
def test_no_other_names_and_values_are_parameters(given: object) -> None:
    assert are_parameters("click-color", {"MAX_COLORS": 6}) and are_parameters("click-tab", {})
    assert not are_parameters("click-color", given) and not are_parameters("click-tab", {"MAX_COLORS": 6})
    payload = json.dumps(COLORS.content() | {"parameters": given})
    task = dataclasses.replace(task_of_scene(COLORS, split="train"), payload=payload)
    with pytest.raises(EnvironmentFailure, match="not made for pages"):
        scene_of(task)


def test_a_task_keeps_its_parameters_and_one_without_is_the_task_of_before() -> None:
    task, other = (task_of_scene(scene, split="train") for scene in (COLORS, MORE))
    assert scene_of(task) == COLORS and scene_of(other) == MORE and task.task_id != other.task_id
    before = json.dumps(
        {"digest": COLORS.digest, "hint": "", "look": "", "page": "click-color", "seed": 3}
        | {"utterance": COLORS.utterance},
        sort_keys=True,
    )
    assert task.payload == before and task.task_id == content_id("browser", before)


def test_an_edit_has_parameters_or_none() -> None:
    edit = {"page": "click-color", "seed": 1, "hint": ""}
    assert page_edit_values(json.dumps(edit)) == edit
    assert page_edit_values(json.dumps(edit | {"parameters": {}})) == edit | {"parameters": {}}
    plain = "{'page': str, 'seed': int, 'hint': str}"
    full = "{'page': str, 'seed': int, 'hint': str, 'parameters': dict}"
    flaws: dict[str, list[dict[str, object]]] = {
        plain: [{"seed": "1"}, {"more": 1}],
        full: [{"parameters": [1]}, {"parameters": {}, "more": 1}],
    }
    for asked, ones in flaws.items():
        for flaw in ones:
            with pytest.raises(RejectedEdit, match=re.escape(f"a JSON object of {asked}") + "$"):
                page_edit_values(json.dumps(edit | flaw))


def test_a_model_is_told_the_parameters_and_may_say_no_others() -> None:
    task, view = task_of_scene(MORE, split="train"), ProposalView(direction="harder", accuracy=0.9, critique="It wins.")
    (message,) = PageProposals().messages(task, view)
    assert "click-color: MAX_COLORS (boxes to choose among), one of 2, 3, 4, 6, 9; without it 4" in message["content"]
    assert "This task has {'MAX_COLORS': 6}." in message["content"]
    schema, edit = PageProposals().schema(task), {"page": "click-color", "seed": 1, "hint": ""}
    jsonschema.validate(edit | {"parameters": {"MAX_COLORS": 9}}, schema)
    for given in ({"MAX_COLORS": 5}, {"x": 2}, [9]):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(edit | {"parameters": given}, schema)
    jsonschema.validate(edit, schema)


def test_a_family_without_parameters_is_asked_for_none() -> None:
    task = task_of_scene(dataclasses.replace(COLORS, page="click-tab"), split="train")
    (message,) = PageProposals().messages(task, ProposalView(direction="harder", accuracy=0.9, critique=""))
    assert "MAX_" not in message["content"] and "parameters" not in PageProposals().schema(task)["properties"]


def test_a_model_is_told_of_no_parameters_of_pages_of_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit that names one would be refused."""
    monkeypatch.setattr(desk, "_LATEST", (BrowserParams(folder="pages"), 1.0))
    task = task_of_scene(COLORS, split="train")
    (message,) = PageProposals().messages(task, ProposalView(direction="harder", accuracy=0.9, critique=""))
    assert "MAX_" not in message["content"] and '"parameters"' not in message["content"]
    assert "parameters" not in PageProposals().schema(task)["properties"]


def test_pages_with_parameters_begin_again_without_being_loaded() -> None:
    """So a number that one episode has set is there when the next one begins, and has to be set back."""
    assert not PARAMETERS.keys() & KEEPING
