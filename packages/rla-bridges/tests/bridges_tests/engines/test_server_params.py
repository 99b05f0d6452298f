"""The keys of `generator.backend: server`: what is refused, and that outputs do not depend on the address."""

from __future__ import annotations

import pytest

from rla.config.load import config_digest
from rla.errors import UserError
from tests.unit.builders import configured

SERVER = "generator.backend=server"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", r"generator\.own\.url: .*; set generator\.own\.url to the base URL of an OpenAI-compatible server"),
        ("localhost:8000", "such as http://localhost:8000/v1"),
        ("http://me:key@host/v1", "generator.own.url holds more than host and path; keys belong into the environment"),
        ("'http://['", "set generator.own.url to the base URL"),
        ("http://a:b/v1", "set generator.own.url to the base URL"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        configured(SERVER, f"generator.own.url={url or repr('')}")


def test_outputs_do_not_depend_on_the_server() -> None:
    one = configured(SERVER, "generator.own.url=http://a/v1")
    other = configured(SERVER, "generator.own.url=http://b/v1", "generator.own.model=m", "generator.data_parallel=4")
    assert one != other
    assert config_digest(one, ["generator", "policy.reply"]) == config_digest(other, ["generator", "policy.reply"])
    assert config_digest(one, ["generator"]) != config_digest(configured(), ["generator"])


def test_the_server_of_the_proposer_is_checked_like_that_of_the_policy() -> None:
    config = configured("adaptation.llm.server=http://a/v1")
    assert config.adaptation.llm.server == "http://a/v1"
    with pytest.raises(UserError, match=r"set adaptation\.llm\.server to the base URL"):
        configured("adaptation.llm.server=a")
