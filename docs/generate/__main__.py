"""`python -m docs.generate`: write the tables of the paper's parameters into their page, which is committed.
`python -m docs.generate FOLDER`: write the sources of the site into a folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from docs.generate.published import PAGE, with_tables
from docs.generate.site import write_sources

if __name__ == "__main__":
    if sys.argv[1:]:
        write_sources(Path(sys.argv[1]))
    else:
        PAGE.write_text(with_tables(PAGE.read_text()))
