"""What a scene has on stage: servers, where clients go, and what faults may touch."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.asks import Ask
from tests.soak.cut_proxy import CutProxy
from tests.soak.launch import Launched
from tests.soak.processes import Seen, tree
from tests.soak.small_disk import SmallDisk


@dataclass(frozen=True, slots=True)
class Target:
    """An address and what is asked there."""

    url: str
    model: str
    asks: list[Ask]
    loose: bool = False
    """Numbers may differ in their last digits: torch's sums depend on the batch, those of the native core do not."""


@dataclass
class Stage:
    """Servers under fire."""

    servers: list[Launched]
    targets: list[Target]
    faults: tuple[str, ...]
    folder: Path
    router: Launched | None = None
    proxies: list[CutProxy] = field(default_factory=list)
    disk: SmallDisk | None = None
    clock: Path | None = None
    expected_tracebacks: tuple[str, ...] = ()
    """Words of those that the faults cause, and that belong in a log."""
    disturbed: dict[str, float] = field(default_factory=dict)
    """Until when (monotonic) each kind of trouble excuses what it causes: `front`, `network`, `disk`."""

    @property
    def all(self) -> list[Launched]:
        return [*self.servers, *([self.router] if self.router is not None else [])]

    def scratch(self, server: Launched) -> Path:
        """Where a server's temporary files lie: what is left there in the end was leaked."""
        return self.folder / f"tmp-{server.name}"

    def processes(self) -> list[Seen]:
        found = []
        for each in self.all:
            if each.is_running():
                found += tree(each.pid, "router" if each is self.router else "server")
        return found

    def is_well(self) -> bool:
        return all(each.is_well() for each in self.all)

    def excuse(self, trouble: str, seconds: float) -> None:
        self.disturbed[trouble] = max(self.disturbed.get(trouble, 0.0), time.monotonic() + seconds)

    def is_excused(self, trouble: str, began: float) -> bool:
        """Whether that trouble was there at some moment since `began`."""
        return self.disturbed.get(trouble, 0.0) >= began
