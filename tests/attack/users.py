"""Root and an ordinary user: the same trial as both, because root may write where a mode forbids it."""

from __future__ import annotations

import ctypes
import os
import pwd
import struct

KEEP_CAPABILITIES = 8  # prctl
CAPSET = {"x86_64": 126, "aarch64": 91}
VERSION, READ_ALL = 0x20080522, 1 << 2  # CAP_DAC_READ_SEARCH


def users() -> tuple[str, ...]:
    """Whose rights trials can have here."""
    return ("root", "user") if os.geteuid() == 0 else ("user",)


def note_on_users() -> str:
    """What the table says about them."""
    if os.geteuid():
        return "as the user who called it; call it as root to try both"
    return "as root, and as nobody, who may read every file but write only its own"


def become(user: str) -> None:
    """Give up root for good where `user` is not root.

    The right to read stays, where the system lets it: interpreter and repository may lie in root's own folder, and
    modules are still imported. Rights to write are those of nobody.
    """
    if user == "root" or os.geteuid():
        return
    nobody = pwd.getpwnam("nobody")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(KEEP_CAPABILITIES, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
    header = struct.pack("Ii", VERSION, 0)
    libc.syscall(CAPSET[os.uname().machine], header, struct.pack("IIIIII", READ_ALL, READ_ALL, 0, 0, 0, 0))
