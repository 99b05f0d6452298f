"""An event loop in a thread of its own, for calls that may come from inside another event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Given = TypeVar("Given")


def in_own_loop(work: Callable[[], Coroutine[Any, Any, Given]]) -> Given:
    """The result of the coroutine of `work`, or its exception. The thread and its loop end with it."""
    with ThreadPoolExecutor(1, thread_name_prefix="desktop") as pool:
        return pool.submit(lambda: asyncio.run(work())).result()
