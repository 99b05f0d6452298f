"""The program of a standing box (`standing.py`): each run of it reads another program from stdin, and turns into it.

A script that uses only the standard library, run by the controller as `__main__`. The other program gets an empty
namespace, an exhausted stdin, and its own lines in tracebacks. It is not in a file, so tracebacks are written by
`traceback`, which uses `linecache`. When memory has run out, the interpreter writes them, without lines.
"""

import linecache
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

NAME = "program.py"


def begin(space: "dict[str, Any]") -> None:
    """Read the program, empty this script's namespace `space`, and execute the program."""
    data, hook, written, remembered = sys.stdin.buffer.read(), sys.__excepthook__, traceback.print_exception, linecache
    code = None

    def shown(kind: "type[BaseException]", error: BaseException, trace: "TracebackType | None") -> None:
        while trace is not None and trace.tb_frame.f_code is not code:  # up to the other program
            trace = trace.tb_next
        if isinstance(error, MemoryError):
            hook(kind, error.with_traceback(trace), trace)
        else:
            written(kind, error, trace)

    sys.excepthook = shown
    name, text = NAME, data.decode("utf-8", "replace")
    for own in [own for own in space if not own.startswith("__")]:
        del space[own]
    space["__doc__"] = None
    remembered.cache[name] = (len(text), None, [f"{line}\n" for line in text.split("\n")], name)
    code = compile(data, name, "exec", dont_inherit=True)
    exec(code, space)


if __name__ == "__main__":
    begin(globals())
