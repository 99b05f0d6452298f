"""The `.dvc` folder that `dvc repro` needs, in a git repository or outside of any."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from rla.errors import UserError

DVC = (sys.executable, "-P", "-m", "dvc")  # this environment's, whatever the shell finds
WITHOUT_GIT = "core.no_scm"
SAYS_WITHOUT_GIT = re.compile(r"^\s*no_scm\s*=", re.MULTILINE)
LEVELS: dict[str, tuple[str, ...]] = {"config": (), "config.local": ("--local",)}  # file -> options of `dvc config`
SITE_CACHE = ".dvc/tmp/site-cache"
SAYS_SITE_CACHE = re.compile(r"^([ \t]*site_cache_dir[ \t]*=[ \t]*)(.*)$", re.MULTILINE)
IGNORED = "/config.local\n/tmp\n/cache\n"  # as DVC writes it when it opens a project inside of git


def begin_dvc(folder: Path, *, git: bool = False) -> None:
    """Make `folder` a project of DVC.

    `dvc init` runs in a temporary folder, whose `.dvc` is then renamed. So a killed call leaves no half project, and of
    two calls at once the first one wins. `git`: DVC works with the git repository at `folder`.
    """
    with TemporaryDirectory(dir=folder, prefix=".init-") as made:
        call_dvc(Path(made), "init", "--no-scm", "--quiet")
        if git:
            begin_git(Path(made))
        if not (folder / ".dvcignore").exists():
            (Path(made) / ".dvcignore").replace(folder / ".dvcignore")
        try:
            (Path(made) / ".dvc").rename(folder / ".dvc")
        except OSError:
            if not (folder / ".dvc").exists():
                raise
    own_site_cache(folder)


def ready_dvc(folder: Path) -> None:
    """Make `folder` a project of DVC unless it is one already.

    A project at the top of a git repository works with it, even if the repository is newer than the project. Without a
    repository, or if it ignores `dvc.lock` as a clone of rla does, the project works without git.
    """
    folder = folder.resolve()
    top = (folder / ".git").exists()
    git = top and follows_lock(folder)
    if not (folder / ".dvc").exists():
        begin_dvc(folder, git=git)
    elif git:
        begin_git(folder)
    elif not without_git(folder) and (top or not any((parent / ".git").exists() for parent in folder.parents)):
        call_dvc(folder, "config", "--local", WITHOUT_GIT, "true")
    own_site_cache(folder)


def own_site_cache(folder: Path) -> None:
    """Keep DVC's site cache in a folder of the project that only this user can write to. By default every user of the
    host can write to it. A `core.site_cache_dir` that the user has chosen stays.
    """
    cache, local = folder.resolve() / SITE_CACHE, folder / ".dvc/config.local"
    said = local.read_text() if local.is_file() else ""
    chosen = SAYS_SITE_CACHE.search(said + (folder / ".dvc/config").read_text())
    if chosen and not chosen[2].strip(" \t\"'").endswith(SITE_CACHE):
        return
    with contextlib.suppress(FileExistsError):
        cache.mkdir(mode=0o700, parents=True)
    found = cache.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise UserError(
            f"{cache}: not a folder of this user; remove it, or name another one by "
            "`dvc config --local core.site_cache_dir FOLDER`"
        )
    cache.chmod(0o700)  # DVC makes it for everybody if it is missing
    value = f"'{cache}'" if '"' in str(cache) else f'"{cache}"'  # bare, a comma or # would end it
    if SAYS_SITE_CACHE.search(said):  # the project may have been moved or copied
        text = SAYS_SITE_CACHE.sub(lambda found: f"{found[1]}{value}", said)
    else:
        core = "[core]\n" if "[core]\n" in said else ""
        text = f"[core]\n    site_cache_dir = {value}\n" + said.replace(core, "", 1)
    if text != said:
        local.write_text(text)


def follows_lock(folder: Path) -> bool:
    """Whether the git repository in `folder` would follow dvc.lock: if it ignores the file, DVC refuses to work with
    git. False if git cannot say, since DVC works without git everywhere.
    """
    command = ["git", "check-ignore", "--quiet", "--no-index", "dvc.lock"]
    try:
        return subprocess.run(command, cwd=folder, stderr=subprocess.DEVNULL, check=False).returncode == 1
    except FileNotFoundError:  # git is not installed
        return False


@contextlib.contextmanager
def one_run(pipeline: Path) -> Iterator[None]:
    """Lock the loop of this dvc.yaml until the block ends, because a second plan would replace the iterations.yaml that
    the first one turns. Raises UserError if another process holds the lock.
    """
    writable = os.access(pipeline, os.W_OK)  # NFS locks only files that are open for writing
    with pipeline.open("r+b" if writable else "rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{pipeline}: another `rla run` is turning this loop; wait for its end, or turn yours in a folder of "
                "its own (rla init FOLDER)"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield


def begin_git(folder: Path) -> None:
    """Let the project of `folder`, the top of a git repository, work with git."""
    for name in without_git(folder):
        call_dvc(folder, "config", *LEVELS[name], "--unset", WITHOUT_GIT)
        if not (ignored := folder / ".dvc/.gitignore").exists():
            ignored.write_text(IGNORED)


def without_git(folder: Path) -> list[str]:
    """The configuration files of the project in `folder` that say whether it works without git."""
    paths = {name: folder / ".dvc" / name for name in LEVELS}
    return [name for name, path in paths.items() if path.is_file() and SAYS_WITHOUT_GIT.search(path.read_text())]


def call_dvc(folder: Path, *arguments: str) -> None:
    with TemporaryDirectory() as cache:  # of this call alone: the project may not name one yet
        space = os.environ | {"DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": cache}
        subprocess.run([*DVC, *arguments], cwd=folder, env=space, check=True)
