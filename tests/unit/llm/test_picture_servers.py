"""Prompts with pictures as vLLM takes them."""

from __future__ import annotations

import pytest

from rla.errors import UserError
from rla.pictures.vision import refuse_other_prompt, vllm_prompt
from tests.picture_prompts import prompt, vision
from tests.seeing import png_of


def test_vllm_is_given_one_token_for_each_picture_and_expands_it_itself() -> None:
    given = prompt("look", png_of("red"), "now", png_of("blue"))
    told = vllm_prompt(given.ids, given.images, vision())
    ids = told["prompt_token_ids"]
    assert ids.count(vision().image) == 2
    assert [token for token in ids if token != vision().image] == [
        token for token in given.ids if token != vision().image
    ]
    assert told["multi_modal_uuids"]["image"] == [one.digest for one in given.images]
    assert [picture.size for picture in told["multi_modal_data"]["image"]] == [(40, 28), (40, 28)]


def test_texts_go_to_vllm_as_before() -> None:
    assert vllm_prompt([4, 5], (), None) == {"prompt_token_ids": [4, 5]} == vllm_prompt([4, 5], (), vision())
    with pytest.raises(ValueError, match="texts alone"):
        vllm_prompt([4, 5], prompt(png_of("red")).images, None)


def test_a_prompt_that_the_engine_made_otherwise_is_refused() -> None:
    given = prompt(png_of("red"))
    refuse_other_prompt(given.ids, given.ids, given.images)
    with pytest.raises(UserError, match="image processor"):
        refuse_other_prompt(given.ids, given.ids[1:], given.images)
