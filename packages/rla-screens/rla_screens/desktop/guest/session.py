"""The first process of a machine: drops its rights, starts display, bus and window manager, then serves.

    session.py '{"display": ":0", "width": 1280, "height": 720, "user": 0, "home": "/home/user", "listening": 3, ...}'

It is process 1 of its namespace, so everything on the machine ends with it. The token arrives on stdin, and the end of
stdin means that the machine's owner is gone.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

PARENT_DEATH, DUMPABLE = 1, 4  # prctl
READY_S = 30.0
LOG, TOLD = "/tmp/session.log", 2000  # characters of the log that are reported at the end
GTK = "[Settings]\ngtk-cursor-blink=0\ngtk-enable-animations=0\ngtk-recent-files-enabled=0\n"
PANEL = "[*]\nwallpaper_mode=color\ndesktop_bg=#4a6a7a\ndesktop_fg=#ffffff\nshow_trash=0\nshow_mounts=0\n"
OFFICE = ".config/libreoffice/4/user"
ITEM = '<item oor:path="/org.openoffice.{}"><prop oor:name="{}" oor:op="fuse"><value>{}</value></prop></item>'
# No tip of the day, no first start, no question about a file's format, no recovery.
CHOSEN = (
    ("Office.Common/Misc", "ShowTipOfTheDay", "false"),
    ("Office.Common/Misc", "FirstRun", "false"),
    ("Office.Common/Save/Document", "WarnAlienFormat", "false"),
    ("Office.Common/Save/Document", "AutoSave", "false"),
    ("Office.Recovery/RecoveryInfo", "Enabled", "false"),
    ("Setup/Product", "ooSetupLastVersion", "99.9"),
    ("Setup/Product", "LastTimeGetInvolvedShown", "4102444800"),
    ("Setup/Product", "LastTimeDonateShown", "4102444800"),
)
FOLDERS = ("Desktop", "Documents", "Downloads", "Music", "Pictures", "Videos")


def descend(user: int, group: int, *, memory: int, disk: int) -> None:
    """Join the cgroup, become a user without any files if the sandbox names one, and set limits. `memory`: bytes of a
    process, and `disk`: bytes of a file; both hold without a cgroup as well. If the host runs out of memory, the kernel
    should kill the processes of machines first.
    """
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    if group >= 0:
        os.write(group, b"0")
        os.close(group)
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL)  # changing the user has reset bwrap's setting
        resource.setrlimit(resource.RLIMIT_NPROC, (1024, 1024))
    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_DATA, memory), (resource.RLIMIT_FSIZE, disk)):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    ctypes.CDLL(None).prctl(DUMPABLE, 0, 0, 0, 0)  # the token is in this process


def _furnish(home: Path) -> None:
    """Create the folders and settings of a new user."""
    for name in (*FOLDERS, ".config/gtk-3.0", ".config/pcmanfm/default", ".cache", ".local/share", ".runtime"):
        (home / name).mkdir(parents=True, exist_ok=True)
    (home / ".runtime").chmod(0o700)
    (home / ".config/gtk-3.0/settings.ini").write_text(GTK)
    (home / ".config/pcmanfm/default/desktop-items-0.conf").write_text(PANEL)
    (home / OFFICE).mkdir(parents=True)
    items = "".join(ITEM.format(*choice) for choice in CHOSEN)
    (home / OFFICE / "registrymodifications.xcu").write_text(
        '<?xml version="1.0" encoding="UTF-8"?><oor:items xmlns:oor="http://openoffice.org/2001/registry">'
        f"{items}</oor:items>"
    )
    listed = "\n".join(f'XDG_{name.upper()}_DIR="$HOME/{name}"' for name in FOLDERS if name != "Downloads")
    (home / ".config/user-dirs.dirs").write_text(f'{listed}\nXDG_DOWNLOAD_DIR="$HOME/Downloads"\n')


def _session_space(settings: dict[str, Any]) -> dict[str, str]:
    home = settings["home"]
    return {
        "HOME": home,
        "USER": "user",
        "LOGNAME": "user",
        "SHELL": "/bin/sh",
        "PATH": f"{settings['programs']}:/usr/local/bin:/usr/bin:/bin:/usr/games",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "DISPLAY": settings["display"],
        "XDG_RUNTIME_DIR": f"{home}/.runtime",
        "XDG_CURRENT_DESKTOP": "X-Generic",
        "SAL_USE_VCLPLUGIN": "gtk3",
        "GSETTINGS_BACKEND": "keyfile",
        "NO_AT_BRIDGE": "0" if settings["accessible"] else "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",  # verifying programs must not run a `usercustomize` of the home
    }


def _started_program(command: list[str], space: dict[str, str], **options: Any) -> subprocess.Popen[bytes]:
    with open(LOG, "ab") as log:
        return subprocess.Popen(command, env=space, stdin=subprocess.DEVNULL, stderr=log, **options)


def _told_line(ready: int) -> str:
    """The whole line: programs write it in parts, and would fail if nobody read the rest."""
    with open(ready) as file:
        return file.readline().strip()


def display(settings: dict[str, Any], space: dict[str, str]) -> None:
    """Start the display and wait until it accepts connections."""
    ready, theirs = os.pipe()
    screen = f"{settings['width']}x{settings['height']}x24"
    command = ["Xvfb", settings["display"], "-screen", "0", screen, "-nolisten", "tcp", "-noreset", "-dpi", "96"]
    _started_program([*command, "-displayfd", str(theirs)], space, stdout=subprocess.DEVNULL, pass_fds=(theirs,))
    os.close(theirs)
    if not _told_line(ready):
        raise OSError("the display did not start")


def bus(space: dict[str, str]) -> str:
    """Start the session's bus. Returns its address."""
    ready, theirs = os.pipe()
    command = ["dbus-daemon", "--session", "--nofork", "--nopidfile", f"--print-address={theirs}"]
    _started_program(command, space, stdout=subprocess.DEVNULL, pass_fds=(theirs,))
    os.close(theirs)
    address = _told_line(ready)
    if not address:
        raise OSError("the bus of the session did not start")
    return address


def managed(space: dict[str, str]) -> None:
    """Wait until the window manager reports that it is ready."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        done = subprocess.run(["wmctrl", "-m"], env=space, capture_output=True, check=False)
        if done.returncode == 0:
            return
        time.sleep(0.02)
    raise OSError("the window manager did not start")


def _begin_session(settings: dict[str, Any], token: str) -> subprocess.Popen[bytes]:
    """Start everything that a machine runs. Returns the process of its server. No program of the agent runs yet."""
    _furnish(Path(settings["home"]))
    os.chdir(settings["home"])
    space = _session_space(settings)
    display(settings, space)
    space["DBUS_SESSION_BUS_ADDRESS"] = bus(space)
    _started_program(["openbox", "--sm-disable"], space, stdout=subprocess.DEVNULL)
    managed(space)
    reading, writing = os.pipe()  # other programs of this user could read an environment variable
    os.write(writing, token.encode())
    os.close(writing)
    kept = (int(settings["listening"]), reading)
    command = [*settings["server"], "--token", str(reading)]
    server = _started_program(command, space, stdout=subprocess.DEVNULL, pass_fds=kept)
    os.close(reading)
    return server


def _end_with_owner() -> None:
    """End the machine once nobody holds the other end of stdin, however its owner has ended."""
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    settings = json.loads(sys.argv[1])
    limits = {"memory": int(settings["memory"]), "disk": int(settings["disk"])}
    descend(int(settings["user"]), int(settings["group"]), **limits)
    token = sys.stdin.readline().strip()
    threading.Thread(target=_end_with_owner, daemon=True).start()
    server = _begin_session(settings, token)
    while True:  # orphaned processes become children of process 1
        done, status = os.wait()
        if done == server.pid:
            with open(os.open(LOG, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # programs can write and replace it
                file.seek(max(0, os.fstat(file.fileno()).st_size - TOLD))
                sys.stderr.write(file.read(TOLD).decode(errors="replace"))
            raise SystemExit(os.waitstatus_to_exitcode(status) or 0)


if __name__ == "__main__":
    main()
