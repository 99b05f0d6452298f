"""Prints the widgets of all applications as XML with the names of OSWorld's server. Run by Debian's own Python.

Each element is named by its role and has its name, its states (`st:`), place and size (`cp:`), and its text.
"""

from __future__ import annotations

import re
import sys
from typing import Any
from xml.sax.saxutils import escape, quoteattr

BASE = "https://accessibility.ubuntu.example.org/ns/"
DEEPEST, MOST = 40, 4000  # levels and elements
STATES = ("enabled", "focused", "showing", "selected", "checked", "editable", "expanded", "active")


def element(node: Any, library: Any, depth: int, left: list[int]) -> str:
    left[0] -= 1
    if depth > DEEPEST or left[0] <= 0:
        return ""
    role = re.sub(r"[^a-z-]", "-", node.getRoleName().lower()) or "unknown"
    parts = [f"name={quoteattr(_xml_text(node.name))}"]
    held = node.getState()
    for name in STATES:
        if held.contains(getattr(library, f"STATE_{name.upper()}")):
            parts.append(f'st:{name}="true"')
    try:
        box = node.queryComponent().getExtents(library.DESKTOP_COORDS)
        parts.append(f'cp:screencoord="({box.x}, {box.y})" cp:size="({box.width}, {box.height})"')
    except NotImplementedError:
        pass
    try:
        text = _xml_text(node.queryText().getText(0, -1))
    except NotImplementedError:
        text = ""
    inner = "".join(element(child, library, depth + 1, left) for child in node if child is not None)
    return f"<{role} {' '.join(parts)}>{escape(text)}{inner}</{role}>"


def _xml_text(text: str | None) -> str:
    """Without characters that XML does not allow."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "", text or "")


def main() -> None:
    import pyatspi  # type: ignore[import-not-found]

    spaces = " ".join(f'xmlns:{short}="{BASE}{name}"' for short, name in (("st", "state"), ("cp", "component")))
    left = [MOST]
    inner = "".join(element(each, pyatspi, 0, left) for each in pyatspi.Registry.getDesktop(0) if each is not None)
    sys.stdout.write(f'<desktop-frame name="main" {spaces}>{inner}</desktop-frame>')


if __name__ == "__main__":
    main()
