"""Whether the real applications are here."""

from __future__ import annotations

import shutil

import pytest

LIGHT = ("bwrap", "Xvfb", "openbox", "dbus-daemon", "wmctrl", "mousepad", "pcmanfm")
MISSING = [program for program in LIGHT if shutil.which(program) is None]
needs_desktop = pytest.mark.skipif(
    bool(MISSING), reason=f"needs {', '.join(MISSING)} (docs/guide/desktop.md names the packages)"
)
