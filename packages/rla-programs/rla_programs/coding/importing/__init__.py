"""Problems of public data sets, from local files or from the Hub.

Layouts are told apart by their columns (`layouts.py`). A row that is no problem is counted with the reason; no problem
at all is a `UserError`. Nothing of a data set is executed: not its solutions, not its assertions, not its pickles.
"""

from rla_programs.coding.importing.importer import Imported, import_problems

__all__ = ["Imported", "import_problems"]
