"""What a page returns is checked, whatever it is; and colours have names."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from rla_screens.browser.colors import color_name
from rla_screens.browser.state import MOST_ELEMENTS, page_point, page_state, plain_line

from rla.envs.observation import EnvironmentFailure
from screens_tests.browser.states import state, thing

LINE: dict[str, Any] = {
    **{"ref": 1, "role": "button", "text": "Ok", "sign": "", "tag": "button", "id": "", "classes": "", "value": ""},
    **{"checked": None, "focused": False, "disabled": False, "readonly": False, "kind": "submit", "options": []},
    **{"chosen": [], "color": "rgb(0, 0, 0)", "box": [1, 2, 30, 40]},
}
PAGE: dict[str, Any] = {"utterance": "Do it.", "lines": [LINE], "ready": True, "done": False, "reward": 0}


def test_a_page_is_read() -> None:
    found = page_state(PAGE)
    assert (found.utterance, found.done, found.reward) == ("Do it.", False, 0.0)
    assert found.element(1) is found.elements[0] and found.element(0) is None
    assert found.elements[0].middle == (16.0, 22.0)


INF = float("inf")
LIES = [{"ref": INF}, {"box": [1, INF, 2, 3]}, {"box": [float("nan"), 1, 2, 3]}, {"box": [1, 2, 1e300, 3]}]


@pytest.mark.parametrize(
    "wrong",
    [
        *(None, 3, [], {}, PAGE | {"lines": [{}]}, PAGE | {"lines": 3}, PAGE | {"reward": "x"}),
        *(PAGE | {"lines": [LINE | lie]} for lie in LIES),
    ],
)
def test_anything_else_ends_the_episode(wrong: Any) -> None:
    with pytest.raises(EnvironmentFailure, match="cannot be read"):
        page_state(wrong)


@pytest.mark.parametrize("wrong", [3, [1], [1, INF], ["x", 1], [1, 2, 3], [None, 1]])
def test_a_place_that_is_none_ends_the_episode(wrong: Any) -> None:
    with pytest.raises(EnvironmentFailure, match="has no place"):
        page_point(wrong)


def test_more_elements_than_a_page_has_are_cut_and_a_reward_is_a_number() -> None:
    found = page_state(copy.deepcopy(PAGE) | {"lines": [LINE] * 1000, "reward": float("nan")})
    assert len(found.elements) == MOST_ELEMENTS and found.reward == 0.0


def test_a_text_is_one_line_of_what_can_be_written() -> None:
    assert plain_line(" a\n\u2028b\x00\ud800  c\u202e ") == "a b c"


def test_the_digest_is_of_what_is_there_and_not_of_where_it_stands_or_what_has_the_focus() -> None:
    here, there = (
        thing(1, "button", "Ok"),
        thing(1, "button", "Ok", box=(9, 9, 9, 9), focused=True, color="rgb(1, 1, 1)"),
    )
    assert state("a", here).digest() == state("a", there).digest()
    assert (
        len({state("a", here).digest(), state("b", here).digest(), state("a", thing(1, "button", "No")).digest()}) == 3
    )


@pytest.mark.parametrize(
    ("computed", "name"),
    [
        ("rgb(255, 0, 0)", "red"),
        ("rgb(250, 5, 9)", "red"),
        ("rgba(0, 0, 0, 0)", ""),
        ("rgba(0, 0, 0, 0.5)", "black"),
        ("none", ""),
        ("url(#x)", ""),
    ],
)
def test_a_colour_has_the_nearest_name(computed: str, name: str) -> None:
    assert color_name(computed) == name
