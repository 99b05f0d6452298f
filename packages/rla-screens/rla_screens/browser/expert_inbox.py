"""Expert rules for the inbox: find an email by its sender, then delete, mark, answer or forward it."""

from __future__ import annotations

import re

from rla_screens.browser.deeds import PageDeed
from rla_screens.browser.expert_finding import at, click, element_named, first, first_quote, of_role
from rla_screens.browser.expert_finding import fill as typed
from rla_screens.browser.state import PageElement, PageState

SENDER = re.compile(r"email by (\w+)")
RECEIVER = re.compile(r"forward that email to (\w+)")


def inbox(state: PageState) -> PageDeed | None:
    """`Find the email by Ada and ...`."""
    sender = SENDER.search(state.utterance)
    if sender is None:
        return None
    for word, icon in (("delete", "trash"), ("important", "star")):
        if word in state.utterance:
            return click(_icon_beside(state, sender[1], icon))
    receiver = RECEIVER.search(state.utterance)
    return _sent_mail(state, sender[1], receiver[1] if receiver else "", first_quote(state))


def _icon_beside(state: PageState, sender: str, icon: str) -> PageElement | None:
    """The icon in the row of an email, or in the open email."""
    rows = of_role(state, "item")
    found = [number for number, one in enumerate(rows) if one.text.startswith(f"{sender} ")]
    rest = rows[found[0] :] if found else rows if element_named(state, "close-email") else []
    return next((one for one in rest if one.sign == icon), None)


def _sent_mail(state: PageState, sender: str, receiver: str, answer: str) -> PageDeed | None:
    """Open the email, choose the operation, write, and send."""
    send = element_named(state, "send-forward" if receiver else "send-reply")
    if send is not None:
        field = of_role(state, "textbox") if receiver else of_role(state, "textarea")
        return first(typed(at(field, 0), receiver or answer), click(send))
    if element_named(state, "close-email") is not None:
        return click(element_named(state, "Forward" if receiver else "Reply"))
    return click(next((one for one in of_role(state, "item") if one.text.startswith(f"{sender} ")), None))
