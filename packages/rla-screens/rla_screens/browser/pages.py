"""The pages of MiniWoB++: files of the installed package `miniwob`, found without importing it.

The package imports selenium and gymnasium, which its pages do not need. A page has the name of its file:
`click-button`. Pages whose outcome depends on the clock are left out, because equal actions must give equal answers.

A *family* is a row of pages that ask for the same skill, from easy to hard: `click-tab-2-easy`, `-medium`, `-hard`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rla.errors import UserError
from rla.plugins import from_checkout

INSTALL = from_checkout("rla-screens[browser]")
# Their outcome depends on how long a player takes.
CLOCK_BOUND = frozenset({"chase-circle", "moving-items", "simon-says", "stock-market"})
# They keep state from one episode to the next, so they are reloaded for each.
KEEPING = frozenset(
    {
        "book-flight",
        "book-flight-nodelay",
        "choose-date",
        "choose-date-easy",
        "choose-date-medium",
        "choose-date-nodelay",
        "click-menu",
        "email-inbox-nl-turk",
        "email-inbox-noscroll",
        "scroll-text",
        "scroll-text-2",
        "search-engine",
        "social-media",
        "use-autocomplete",
        "use-autocomplete-nodelay",
        "use-colorwheel",
        "use-colorwheel-2",
    }
)
# Each from easy to hard. A page is in one family at most.
FAMILIES: dict[str, tuple[str, ...]] = {
    "autocomplete": ("use-autocomplete-nodelay", "use-autocomplete"),
    "flights": ("book-flight-nodelay", "book-flight"),
    "checkboxes": (
        "click-checkboxes",
        "click-checkboxes-transfer",
        "click-checkboxes-large",
        "click-checkboxes-soft",
    ),
    "dates": ("choose-date-easy", "choose-date-medium", "choose-date-nodelay", "choose-date"),
    "collapsible": (
        "click-collapsible-nodelay",
        "click-collapsible",
        "click-collapsible-2-nodelay",
        "click-collapsible-2",
    ),
    "dialog": ("click-dialog", "click-dialog-2"),
    "dragging": ("drag-single-shape", "drag-shapes", "drag-shapes-2"),
    "email": (
        "email-inbox-noscroll",
        "email-inbox-delete",
        "email-inbox-important",
        "email-inbox-star-reply",
        "email-inbox-reply",
        "email-inbox-forward",
        "email-inbox",
    ),
    "email-language": (
        "email-inbox-forward-nl",
        "email-inbox-forward-nl-turk",
        "email-inbox-nl-turk",
    ),
    "entering": ("enter-text", "enter-text-dynamic", "enter-text-2", "enter-password"),
    "focusing": ("focus-text", "focus-text-2"),
    "forms": ("form-sequence", "form-sequence-2", "form-sequence-3"),
    "login": ("login-user", "login-user-popup"),
    "menu": ("click-menu", "click-menu-2"),
    "pie": ("click-pie-nodelay", "click-pie"),
    "social": ("social-media", "social-media-some", "social-media-all"),
    "tab": ("click-tab", "click-tab-2-easy", "click-tab-2-medium", "click-tab-2-hard", "click-tab-2"),
    "table": ("read-table", "read-table-2"),
    "test": ("click-test", "click-test-2", "click-test-transfer"),
    "choose-one": ("click-option", "choose-list", "click-scroll-list"),
}


@cache
def miniwob_folder() -> Path:
    """The folder whose `miniwob/*.html` are the pages. Raises UserError if the package is not installed."""
    found = find_spec("miniwob")
    for place in (found.submodule_search_locations or ()) if found is not None else ():
        folder = Path(place) / "html"
        if (folder / "miniwob").is_dir():
            return folder.resolve()
    raise UserError(f"env.name: browser needs the pages of MiniWoB++; {INSTALL}")


def pages_folder(folder: str) -> Path:
    """The parameter `folder` as a folder of pages; the package's folder if it is empty. Raises UserError."""
    if not folder:
        return miniwob_folder()
    own = Path(folder).resolve()
    if not (own / "miniwob").is_dir():
        raise UserError(f"env.own.folder: {folder} has no folder miniwob with pages; give a folder that has one")
    return own


def all_pages(folder: Path) -> tuple[str, ...]:
    """The names of all pages, including those that depend on the clock."""
    return tuple(sorted(file.stem for file in (folder / "miniwob").glob("*.html")))


def playable_pages(folder: Path) -> tuple[str, ...]:
    """The names of the pages that can be played."""
    return tuple(page for page in all_pages(folder) if page not in CLOCK_BOUND)


def page_file(folder: Path, page: str) -> Path:
    """The file of a page that can be played. Raises UserError for any other name: tasks may come from anywhere."""
    if page not in playable_pages(folder):
        raise UserError(f"{page!r} is not a page of {folder}, or depends on the clock; make new tasks of other pages")
    return folder / "miniwob" / f"{page}.html"


def family_of(page: str) -> str:
    """The family of a page; a page without one is its own family."""
    return next((name for name, members in FAMILIES.items() if page in members), page)


def neighbour_pages(page: str, *, harder: bool) -> tuple[str, ...]:
    """The pages of its family beyond it, the nearest first."""
    members = FAMILIES.get(family_of(page), (page,))
    at = members.index(page)
    return members[at + 1 :] if harder else members[:at][::-1]


def pages_of_kinds(kinds: Iterable[str], folder: Path, *, key: str = "tasks.kinds") -> tuple[str, ...]:
    """The pages that `kinds` names, as pages or families, in order. Raises UserError that names `key` for others."""
    there, found = set(playable_pages(folder)), dict[str, None]()
    for kind in kinds:
        named = FAMILIES.get(kind, (kind,))
        unknown = [page for page in named if page not in there]
        if unknown:
            raise UserError(
                f"{key}: {unknown[0]!r} is not a page of {folder} that can be played (docs/guide/browser.md)"
            )
        found |= dict.fromkeys(named)
    return tuple(found)
