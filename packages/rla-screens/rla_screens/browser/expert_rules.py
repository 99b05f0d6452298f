"""The expert's rule for each page. A rule sees only the current state, so it can continue after anybody's actions."""

from __future__ import annotations

from collections.abc import Callable

from rla_screens.browser import expert_clicking as clicking
from rla_screens.browser import expert_typing as typing
from rla_screens.browser.deeds import DeedKind, PageDeed
from rla_screens.browser.expert_inbox import inbox
from rla_screens.browser.state import PageState

Rule = Callable[[PageState], PageDeed | None]
RULES: dict[str, Rule] = {
    "buy-ticket": typing.ticket,
    "choose-date": typing.picked_date,
    "choose-date-easy": typing.picked_date,
    "choose-date-medium": typing.picked_date,
    "choose-date-nodelay": typing.picked_date,
    "choose-list": clicking.from_list,
    "click-button": clicking.quoted_button,
    "click-button-sequence": clicking.one_then_two,
    "click-checkboxes": clicking.boxes,
    "click-checkboxes-large": clicking.boxes,
    "click-checkboxes-transfer": clicking.boxes,
    "click-collapsible": clicking.open_then_submit,
    "click-collapsible-2": clicking.link_behind_tabs,
    "click-collapsible-2-nodelay": clicking.link_behind_tabs,
    "click-collapsible-nodelay": clicking.open_then_submit,
    "click-color": clicking.colored_box,
    "click-dialog": clicking.close_dialog,
    "click-dialog-2": clicking.close_dialog,
    "click-link": clicking.quoted_link,
    "click-menu": clicking.menu_path,
    "click-menu-2": clicking.menu_entry,
    "click-option": clicking.one_option,
    "click-scroll-list": clicking.from_list,
    "click-tab": clicking.tab_of_number,
    "click-tab-2": clicking.link_behind_tabs,
    "click-tab-2-easy": clicking.link_behind_tabs,
    "click-tab-2-hard": clicking.link_behind_tabs,
    "click-tab-2-medium": clicking.link_behind_tabs,
    "click-test": clicking.only_button,
    "click-test-2": clicking.button_one,
    "click-test-transfer": clicking.button_one,
    "click-widget": clicking.widget,
    "email-inbox": inbox,
    "email-inbox-delete": inbox,
    "email-inbox-forward": inbox,
    "email-inbox-important": inbox,
    "email-inbox-noscroll": inbox,
    "email-inbox-reply": inbox,
    "email-inbox-star-reply": inbox,
    "enter-date": typing.said_date,
    "enter-password": typing.text_in_all,
    "enter-text": typing.quoted_text,
    "enter-text-2": typing.quoted_text,
    "enter-text-dynamic": typing.quoted_text,
    "enter-time": typing.said_time,
    "find-word": typing.nth_word,
    "focus-text": typing.focus,
    "focus-text-2": typing.focus,
    "form-sequence-2": typing.radio_and_number,
    "form-sequence-3": typing.option_and_button,
    "generate-number": typing.generated,
    "grid-coordinate": clicking.grid_point,
    "identify-shape": clicking.figure,
    "login-user": typing.sign_in,
    "login-user-popup": typing.sign_in,
    "multi-layouts": typing.movie_search,
    "multi-orderings": typing.movie_search,
    "navigate-tree": clicking.tree_entry,
    "phone-book": clicking.contact_detail,
    "read-table": typing.table_value,
    "read-table-2": typing.table_value,
    "search-engine": typing.searched,
    "sign-agreement": clicking.agreement,
    "social-media": clicking.post_button,
    "social-media-all": clicking.many_post_buttons,
    "social-media-some": clicking.many_post_buttons,
    "unicode-test": clicking.quoted_button,
    "use-autocomplete": typing.completed,
    "use-autocomplete-nodelay": typing.completed,
    "use-spinner": typing.spinner,
}


def expert_deed(page: str, state: PageState) -> PageDeed:
    """The next deed of the expert. If no rule applies, it gives up (`DeedKind.DONE`)."""
    rule = RULES.get(page)
    return (rule(state) if rule is not None else None) or PageDeed(kind=DeedKind.DONE)
