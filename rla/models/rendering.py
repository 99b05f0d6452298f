"""A time limit for chat templates: anyone may have written one, and nested loops in it come to no end."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rla.errors import UserError

LONGEST = 10.0  # seconds of a rendering, which takes milliseconds


class TemplateOverdue(BaseException):
    """Raised inside a template. Not an Exception, so that no filter swallows it."""


@contextmanager
def rendering(name: str) -> Iterator[None]:
    """Inside, a template of the tokenizer `name` is rendered. UserError for one that takes too long or fails."""
    try:
        with rendered_in_time(name):
            yield
    except UserError:
        raise
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{name}: its chat template cannot be used ({said})") from error


@contextmanager
def rendered_in_time(name: str) -> Iterator[None]:
    """UserError for a template that takes too long; its other errors pass.

    Jinja runs templates as Python code in this thread; the interpreter raises `TemplateOverdue` in it between two
    operations.
    """
    thread, lock, over = threading.get_ident(), threading.Lock(), threading.Event()

    def end() -> None:
        with lock:
            if not over.is_set():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TemplateOverdue))

    timer = threading.Timer(LONGEST, end)
    timer.daemon = True
    try:
        try:
            timer.start()
            yield
        finally:
            with lock:
                over.set()
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)  # one that is still to come
            timer.cancel()
    except TemplateOverdue:
        raise UserError(
            f"{name}: its chat template is not rendered after {LONGEST:g} s; use an instruct model's own template"
        ) from None
