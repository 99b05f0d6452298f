"""Episodes in a terminal and on a page: everything is there, and nothing that a model wrote acts."""

from __future__ import annotations

import io
from html.parser import HTMLParser

from rla_study.showing.drawing import LONGEST, draw, excerpts_page
from rla_study.showing.episodes import Excerpt, ShownEpisode, ShownStep, Vote

from study_tests.episodes import shown_episode

HOSTILE = "<script>alert(1)</script>\x1b]0;owned\x07\x1b[31m[red]&amp;\u202e"
PNG = b"\x89PNG\r\n\x1a\nthe bytes of a picture"


def shown(**changes: object) -> ShownEpisode:
    steps = [
        ShownStep(index=0, observation="a room", reply="go east", action="go east", valid=True, images=[PNG]),
        ShownStep(
            index=1,
            observation="a door",
            reply=HOSTILE,
            action="",
            valid=False,
            votes=[Vote(score=1, text="towards the goal", reward=-0.5), Vote(score=None, text=HOSTILE)],
            reward=1.25,
            advantage=-0.75,
            label=-1,
        ),
        ShownStep(index=2, observation="a hall", reply="so I leave: leave", action="leave", valid=True, label=1),
    ]
    return shown_episode(**({"instruction": f"find the exit {HOSTILE}", "steps": steps} | changes))


def drawn(*excerpts: Excerpt) -> str:
    stream = io.StringIO()
    draw(excerpts, stream, width=140)
    return stream.getvalue()


def test_a_terminal_shows_every_step_with_its_votes() -> None:
    text = drawn(Excerpt(episode=shown()))
    for part in ("lost (max_steps) after 3 steps", "> go east", "R +1.25", "advantage -0.75", "it did not help"):
        assert part in text
    for part in ("vote + (paid -0.50) towards the goal", "so I leave: leave", "[1 images]", "the end", "it helped"):
        assert part in text


def test_a_terminal_is_not_spoken_to() -> None:
    text = drawn(Excerpt(episode=shown()))
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    assert "[red]" in text  # markup of rich is text


def test_chosen_steps_stand_alone_with_their_reason() -> None:
    text = drawn(Excerpt(episode=shown(), steps=[2], why="step 2: because"))
    assert "step 2: because" in text and "> leave" in text and "..." in text
    assert "go east" not in text


def test_a_long_text_is_cut_in_the_middle() -> None:
    episode = shown(verdict="first" + "x" * 2 * LONGEST + "last")
    text = drawn(Excerpt(episode=episode))
    assert "first" in text and "last" in text and "characters left out" in text


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.said = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.said += data


def test_a_page_stands_alone_and_shows_text_as_text() -> None:
    page = excerpts_page(f"run {HOSTILE}", [Excerpt(episode=shown(), why=HOSTILE)])
    reader = Reader()
    reader.feed(page)
    assert set(reader.tags) == {"html", "meta", "title", "style", "h1", "article", "h3", "p", "div", "span", "img"}
    assert "http" not in page and "\x1b" not in page
    for part in ("<script>alert(1)</script>", "&amp;", "vote ? ", "vote + paid -0.50", "no action could be read"):
        assert part in reader.said
    assert 'src="data:image/png;base64,iVBORw0KGgp0aGUg' in page


LAST = b"\x89PNG\r\n\x1a\nthe last picture"


def test_the_last_picture_is_shown_with_the_last_step() -> None:
    whole = Excerpt(episode=shown(last_images=[LAST]))
    begun = Excerpt(episode=shown(last_images=[LAST]), steps=[0])
    assert excerpts_page("run", [whole]).count("<img") == 2 and excerpts_page("run", [begun]).count("<img") == 1
    assert "the end [1 images]" in drawn(whole) and "the end" not in drawn(begun)
    bare = Excerpt(episode=shown(steps=[], last_images=[LAST]))
    assert excerpts_page("run", [bare]).count("<img") == 1
