"""Problems of public data sets, from local files or from the Hub.

Layouts are recognised by their columns (`layouts.py`). Rows that are not problems are counted by reason; if no problem
is found, that is a `UserError`. Nothing of a data set is executed: not its solutions, not its assertions, not its
pickles.
"""

from rla_programs.coding.importing.importer import Imported, import_problems

__all__ = ["Imported", "import_problems"]
