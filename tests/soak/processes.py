"""The processes of a server as /proc shows them: what each is for, and what it takes."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_KINDS = (
    ("quire.serving.child", "engine"),
    ("rank_child", "rank"),
    ("fronts.child", "front"),
    ("template_child", "template child"),
    ("grammar/child", "grammar child"),
    ("media_child", "media child"),
    ("audio_child", "media child"),
)
"""A part of the command line, and the word for such a process."""
HELPERS = ("template child", "grammar child", "media child")
_PAGE = os.sysconf("SC_PAGESIZE")


@dataclass(frozen=True, slots=True)
class Seen:
    """One process at one moment."""

    pid: int
    started: int
    """Ticks since the boot: with the pid, the name of a process that no later one has."""
    kind: str
    state: str
    memory: int
    """Resident bytes."""
    descriptors: int
    threads: int

    @property
    def is_zombie(self) -> bool:
        return self.state == "Z"


def tree(root: int, root_kind: str = "server") -> list[Seen]:
    """A process and all its descendants; those that end meanwhile are left out."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _fields(int(entry.name))) is not None:
            parents[int(entry.name)] = int(fields[1])
    members = {root}
    while new := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= new
    found = (_seen(pid, root_kind if pid == root else None) for pid in sorted(members))
    return [each for each in found if each is not None]


def of_kind(seen: Iterable[Seen], kind: str) -> list[int]:
    return [each.pid for each in seen if each.kind == kind and not each.is_zombie]


def is_running(pid: int) -> bool:
    """Neither gone, nor a zombie, nor stopped."""
    fields = _fields(pid)
    return fields is not None and fields[0] not in "ZXTt"


def is_alive(process: Seen) -> bool:
    """The same process, not a later one with its number, nor what is left of it until its parent looks."""
    fields = _fields(process.pid)
    return fields is not None and int(fields[19]) == process.started and fields[0] != "Z"


def shared_segments(pid: int) -> set[str]:
    """Files of /dev/shm that it has mapped: what must be gone when it is."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return {line[line.index("/dev/shm/") :].removesuffix(" (deleted)") for line in lines if "/dev/shm/" in line}


def _fields(pid: int) -> list[str] | None:
    """Of /proc/PID/stat, from the state on: names of programs may hold anything, blanks and brackets too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _seen(pid: int, kind: str | None) -> Seen | None:
    fields = _fields(pid)
    if fields is None:
        return None
    try:
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        descriptors, command = 0, ""
    named = kind or next((word for part, word in _KINDS if part in command), "other")
    return Seen(pid, int(fields[19]), named, fields[0], int(fields[21]) * _PAGE, descriptors, int(fields[17]))
