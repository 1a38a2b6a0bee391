"""A disk that can be full: a small tmpfs of this process's own mount namespace.

Nothing is left of it when the process ends, however it ends. `enter_namespace` starts the program anew inside one,
which takes no rights where the system lets users have namespaces.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

_INSIDE = "SOAK_NAMESPACE"
_UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")


def enter_namespace(module: str) -> None:
    """Does not return where it starts the program anew; returns where that is impossible, or done already."""
    if _INSIDE in os.environ or shutil.which("unshare") is None:
        return
    if subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode == 0:
        command = [*_UNSHARE, sys.executable, "-m", module, *sys.argv[1:]]
        os.execvpe("unshare", command, os.environ | {_INSIDE: "1"})


class SmallDisk:
    """A folder with room for so many MiB; without rights to mount one it is an ordinary folder, and never full."""

    def __init__(self, folder: Path, mib: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._ballast = folder / ".ballast"
        mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0700", "tmpfs", str(folder)]
        self.can_be_full = (
            _INSIDE in os.environ and subprocess.run(mount, capture_output=True, check=False).returncode == 0
        )

    def fill(self) -> None:
        """To the last byte."""
        with self._ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 4096):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def relieve(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        if self.can_be_full:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=False, capture_output=True)
