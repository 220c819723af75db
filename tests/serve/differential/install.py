"""Puts the real ``tritonserver`` and the NumPy of its Python stub into a folder.

Run as ``python install.py FOLDER``. Where that cannot be done (another platform, no network), the reason
goes to ``FOLDER/unavailable.txt``, the tests that need the server are skipped with it, and the next run tries
again.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

HERE = Path(__file__).parent
OLDEST_GLIBC = (2, 35)


def main(folder: Path) -> None:
    """Install, or write down why not."""
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "unavailable.txt"
    note.unlink(missing_ok=True)
    reason = obstacle() or install(folder)
    if reason is None:
        (folder / ".installed").touch()
    else:
        note.write_text(reason, encoding="utf-8")
        print(f"the differential tests will be skipped: {reason}")


def obstacle() -> str | None:
    """What on this machine rules the real server out."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return f"tritonserver is built for x86-64 Linux, not {sys.platform} {platform.machine()}"
    if sys.version_info[:2] not in {(3, 11), (3, 12)}:
        return f"NumPy 1.26 of the Python stub needs Python 3.11 or 3.12, not {platform.python_version()}"
    version = tuple(int(part) for part in re.findall(r"\d+", platform.libc_ver()[1]))
    if version < OLDEST_GLIBC:
        return f"tritonserver needs glibc 2.35, not {platform.libc_ver()[1]}"
    name = sysconfig.get_config_var("INSTSONAME")
    if not (Path(sysconfig.get_config_var("LIBDIR")) / name).exists():
        return f"the Python stub needs {name}, which this Python does not have"
    return None


def install(folder: Path) -> str | None:
    """The wheel, and an environment with NumPy for its stub; the reason of a failure."""
    wheel, numpy = (
        line for line in (HERE / "requirements.txt").read_text().splitlines() if not line.startswith("#")
    )
    # The stub takes its packages from the first python3 of PATH, and nothing from PYTHONPATH;
    # with NumPy 2 it reads wrong inputs and sends empty outputs.
    shutil.rmtree(folder / "stub", ignore_errors=True)
    venv.create(folder / "stub", with_pip=False)
    packages = (
        folder / "stub" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    )
    for package, target in ((wheel, folder / "wheel"), (numpy, packages)):
        shutil.rmtree(target, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
        done = subprocess.run(
            [*command, "--disable-pip-version-check", "--target", str(target), package],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            return f"pip could not install {package}: {done.stderr.strip().splitlines()[-1:]}"
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
