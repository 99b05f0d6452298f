"""Numbers of a page that make it easier or harder: how many things it shows, or how many it asks for.

A page of MiniWoB++ draws its problem from numbers in its own variables. A number that alone decides how much there is
to choose from, on a page that the expert knows, is a parameter that a task may set. It is set after the page is loaded
and before its problem is drawn; the page's file is not changed. Names and values come from this table alone, whoever
writes an edit. The table is for the pages of the package, not for other folders.

The pages have one option in their address, `any`. Seven of them read it and none uses it, so it is not a parameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParameter:
    """`name`: the page's variable. `usual`: its value in the package's page. `values`: all values, from easy to
    hard.
    """

    name: str
    about: str
    usual: int
    values: tuple[int, ...]

    def beyond(self, value: int, *, harder: bool) -> tuple[int, ...]:
        """The values on one side of `value`, the nearest first."""
        if harder:
            return tuple(one for one in self.values if one > value)
        return tuple(one for one in reversed(self.values) if one < value)


MAILS = "e-mails: 3 gives three, 6 gives four or five, 12 gives four to eleven"  # the page draws from [4, so many)
FEW_MAILS = PageParameter(name="MAX_EMAILS", about=MAILS, usual=3, values=(3, 6, 12))
MANY_MAILS = PageParameter(name="MAX_EMAILS", about=MAILS, usual=12, values=(3, 6, 12))
PARAMETERS: Mapping[str, PageParameter] = {
    "buy-ticket": PageParameter(name="MAX_TRIPS", about="trips to compare", usual=4, values=(2, 3, 4, 6, 8)),
    "click-color": PageParameter(name="MAX_COLORS", about="boxes to choose among", usual=4, values=(2, 3, 4, 6, 9)),
    "click-scroll-list": PageParameter(name="MAX_CHOSEN", about="entries at most", usual=2, values=(1, 2, 3, 4)),
    "click-widget": PageParameter(name="NUM_ELEMENTS", about="widgets on the page", usual=5, values=(2, 3, 5, 7, 9)),
    "email-inbox": MANY_MAILS,
    "email-inbox-delete": FEW_MAILS,
    "email-inbox-forward": FEW_MAILS,
    "email-inbox-important": FEW_MAILS,
    "email-inbox-reply": FEW_MAILS,
    "email-inbox-star-reply": FEW_MAILS,
    "navigate-tree": PageParameter(
        name="MAX_FILES", about="entries of the tree, nearly", usual=8, values=(4, 6, 8, 12)
    ),
}


def are_parameters(page: str, given: object) -> bool:
    """Whether `given` is a set of known parameters of a page with allowed values. An empty object is fine."""
    known = PARAMETERS.get(page)
    if not isinstance(given, dict):
        return False
    return all(known is not None and name == known.name and _is_value(known, value) for name, value in given.items())


def _is_value(known: PageParameter, value: object) -> bool:
    return type(value) is int and value in known.values


def without_usual(page: str, given: Mapping[str, int]) -> dict[str, int]:
    """The parameters that differ from the page's own values, so that equal pages have equal parameters."""
    return {name: value for name, value in given.items() if value != PARAMETERS[page].usual}


def page_settings(page: str, given: Mapping[str, int]) -> dict[str, int]:
    """The values to set in a page's variables before it begins. The usual ones are set too, because a page that
    continues after an earlier episode may hold other values.
    """
    known = PARAMETERS.get(page)
    return {} if known is None else {known.name: given.get(known.name, known.usual)}


def values_beyond(page: str, given: Mapping[str, int], *, harder: bool) -> list[dict[str, int]]:
    """The parameters of a page beyond those given, the nearest first."""
    known = PARAMETERS.get(page)
    if known is None:
        return []
    return [{known.name: one} for one in known.beyond(given.get(known.name, known.usual), harder=harder)]
