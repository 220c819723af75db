"""The staging folder in which a build works, beside the repository and on its file system.

``<repository>.repobuild/`` holds what Triton must not see:

    .lock                      held while the repository is changed
    .journal                   the step that is under way, while it is
    .staging/<token>/          one build at work; ``alive`` in it is locked by that build
    <model>/<version>/         manifest.json, report.json, golden.npz
"""

from __future__ import annotations

import contextlib
import copy
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

from repobuild.errors import EnvironmentLacking, Evidence, InputInvalid, from_oserror
from repobuild.interrupts import deferred_interrupts

SUFFIX = ".repobuild"
ATTEMPTS = 100


def state_folder(repository: Path) -> Path:
    """``<repository>.repobuild``, beside the folder itself where the path is a symbolic link to it."""
    real = Path(os.path.realpath(repository))
    return real.with_name(real.name + SUFFIX)


def usable_repository(path: Path) -> Path:
    """The real path of a repository to build into.

    Raises:
        InputInvalid: It is empty or the root, a file or below one, a state folder, or no UTF-8.
    """
    real = Path(os.path.realpath(path))
    blocked = next((p for p in (real, *real.parents) if p.exists() and not p.is_dir()), None)
    if blocked is not None:
        why = f"{blocked} is not a folder"
    elif not real.name:
        why = "name a folder of its own, which gets a sibling of its name and .repobuild"
    elif SUFFIX in (p.suffix for p in (real, *real.parents)):
        why = f"a folder named *{SUFFIX} holds the state of another repository"
    elif not real.as_posix().isprintable():
        why = "the path has characters that cannot be printed"
    else:
        return real
    raise InputInvalid(
        "repository-unusable",
        f"'{path}' cannot be a model repository",
        (Evidence(why, file=str(path)),),
        "name another path with --repository",
    )


class Workshop:
    """A build's own folder; entering makes it, leaving removes it and every folder that came with it.

    Args:
        repository: The model repository, which need not exist.

    Raises:
        InputInvalid: The path cannot be that of a repository.

    Attributes:
        repository: The repository's real path.
        state: ``<repository>.repobuild``.
        token: Name of this build's folder.
        folder: This build's folder.
        work: Scratch space in it.
        models: A model repository of its own in it, for the staged model.
        meta: What goes to ``<state>/<model>/<version>``.
    """

    def __init__(self, repository: Path) -> None:
        self.repository = usable_repository(repository)
        self.state = state_folder(self.repository)
        self.token = secrets.token_hex(8)
        self.folder = self.state / ".staging" / self.token
        self.work = self.folder / "work"
        self.models = self.folder / "repository"
        self.meta = self.folder / "meta"
        self._made: list[Path] = []
        self._alive: IO[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._settle_in()
            for folder in (self.work, self.models, self.meta):
                folder.mkdir()
            self._same_file_system()
        except OSError as problem:
            self.__exit__()
            raise from_oserror(problem, "making the staging folder") from problem
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with deferred_interrupts():
            self._leave()

    def _leave(self) -> None:
        if not journal_names(self.state, self.token):
            shutil.rmtree(self.folder, ignore_errors=True)
        if self._alive is not None:
            self._alive.close()
        if self.state.is_dir():
            self._tidy()
        for folder in reversed(self._made):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def part(self, name: str) -> Workshop:
        """The same workshop with scratch space of its own in it, for one model of several."""
        mine = copy.copy(self)
        mine.work = self.work / name
        try:
            mine.work.mkdir()
        except OSError as problem:
            raise from_oserror(problem, "making the staging folder") from problem
        return mine

    def sweep(self) -> None:
        """Remove the folders of builds that died. Call it with the lock held and the journal settled."""
        for folder in sorted((self.state / ".staging").iterdir()):
            if folder != self.folder and _is_dead(folder):
                shutil.rmtree(folder, ignore_errors=True)

    def _settle_in(self) -> None:
        """Make the build's folder; another build that ends may remove what holds nothing, so try again."""
        for attempt in range(ATTEMPTS):
            try:
                self._make(self.state)
                with locked(self.state):
                    self._make(self.folder)
                    self._alive = (self.folder / "alive").open("wb")
                    fcntl.flock(self._alive, fcntl.LOCK_EX)
            except FileNotFoundError:
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                return

    def _tidy(self) -> None:
        """Leave no state folder behind that holds nothing."""
        with contextlib.suppress(OSError), locked(self.state):
            with contextlib.suppress(OSError):
                (self.state / ".staging").rmdir()
            if {p.name for p in self.state.iterdir()} == {".lock"}:
                (self.state / ".lock").unlink()
                self.state.rmdir()

    def _make(self, folder: Path) -> None:
        missing = [p for p in (folder, *folder.parents) if not p.exists()]
        for path in reversed(missing):
            self._made.append(path)
            path.mkdir(exist_ok=True)

    def _same_file_system(self) -> None:
        if not self.repository.is_dir():
            return
        if not os.access(self.repository, os.W_OK):
            raise OSError(errno.EROFS, "the repository cannot be written", str(self.repository))
        if _mount(self.repository) != _mount(self.state):
            raise EnvironmentLacking(
                "repository-is-mount",
                f"{self.repository} is a mount point, so nothing can be renamed into it in one step",
                (Evidence(f"{self.state} lies on another mount", file=str(self.repository)),),
                f"build into a folder inside it, such as {self.repository}/repository",
            )


@contextlib.contextmanager
def locked(state: Path) -> Iterator[None]:
    """Hold the lock of a repository's state folder; waits for another build's short step.

    Raises:
        OSError: The lock file cannot be made.
    """
    while True:
        with (state / ".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _is_current(lock, state):
                yield
                return


def _is_current(lock: IO[bytes], state: Path) -> bool:
    """Whether the locked file is still the one in the folder; :meth:`Workshop._tidy` may have removed it."""
    try:
        return (state / ".lock").stat().st_ino == os.fstat(lock.fileno()).st_ino
    except FileNotFoundError:
        return False


def journal_names(state: Path, token: str) -> bool:
    """Whether an unfinished step still needs the folder of a build."""
    try:
        return token in (state / ".journal").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


def _mount(folder: Path) -> tuple[int, str]:
    """Device and, on Linux, mount of a folder: rename works inside one mount only, bind mounts included."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        facts = Path(f"/proc/self/fdinfo/{handle}")
        lines = facts.read_text().splitlines() if facts.exists() else []
        return os.fstat(handle).st_dev, next((line for line in lines if line.startswith("mnt_id:")), "")
    finally:
        os.close(handle)


def _is_dead(folder: Path) -> bool:
    """A build that lives holds the lock on its ``alive``, which it takes before the state's lock is free."""
    try:
        with (folder / "alive").open("rb") as alive:
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
