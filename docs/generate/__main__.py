"""`python -m docs.generate`: write every reference page, remove pages that nothing makes any more, and write the tables
of the paper's parameters.
"""

from __future__ import annotations

from pathlib import Path

from docs.generate.pages import reference_pages
from docs.generate.published import PAGE, with_tables

FOLDER = Path(__file__).resolve().parents[1] / "reference"


def write_reference(folder: Path) -> None:
    """`folder` then holds the reference pages and nothing else."""
    pages = reference_pages()
    for path, text in pages.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for found in folder.rglob("*.md"):
        if found.relative_to(folder).as_posix() not in pages:
            found.unlink()


if __name__ == "__main__":
    write_reference(FOLDER)
    PAGE.write_text(with_tables(PAGE.read_text()))
