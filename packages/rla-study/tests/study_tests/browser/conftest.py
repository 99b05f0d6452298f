"""The browser of the core's tests."""

from tests.browser.conftest import browser, page

__all__ = ["browser", "page"]
