"""AdapterRoom: which LoRA adapters are on the device, in which pages, and whose turn it is when there is no room.

Pure bookkeeping. A request uses its adapter from when it is granted until it ends, so a running sequence never waits
for one. Requests of adapters that are there pass those that wait for room, which saves loads; but no more than
`MOST_PASSES` pass the same one, so everybody's turn comes.
"""

from dataclasses import dataclass, field

MOST_PASSES = 64
"""Requests that may pass one that waits for room. About as many as a busy device takes in within a second or two."""


@dataclass(slots=True)
class Resident:
    """An adapter that has a slot, and pages that hold it or soon will."""

    slot: int
    pages: list[int]
    is_loaded: bool = False
    users: set[str] = field(default_factory=set)
    """Requests."""


@dataclass(frozen=True, slots=True)
class Load:
    """An adapter is to be copied to these pages."""

    key: str
    slot: int
    pages: list[int]


@dataclass(frozen=True, slots=True)
class AdapterUse:
    """An adapter that is on the device or waits for room, and how many requests use it or wait for it."""

    key: str
    is_resident: bool
    running: int
    waiting: int


@dataclass(slots=True)
class _Waiting:
    num_pages: int
    requests: list[str]
    passes: int = 0


@dataclass(slots=True)
class AdapterRoomStats:
    """Counts since the start."""

    hits: int = 0
    """Requests whose adapter was there."""
    loads: int = 0
    evictions: int = 0


class AdapterRoom:
    """Of one engine."""

    def __init__(self, num_pages: int, most_at_once: int) -> None:
        """`most_at_once` adapters may be in use at the same time, and so in one step."""
        self.stats = AdapterRoomStats()
        self._most_at_once = most_at_once
        self._free_pages = list(range(num_pages - 1, -1, -1))
        self._free_slots = list(range(num_pages - 1, -1, -1))
        self._residents: dict[str, Resident] = {}
        """Those not used for longest come first."""
        self._waiting: dict[str, _Waiting] = {}
        """In the order in which they are to be granted."""
        self._of_request: dict[str, str] = {}

    @property
    def num_resident(self) -> int:
        return len(self._residents)

    @property
    def num_waiting(self) -> int:
        """Adapters that wait for room."""
        return len(self._waiting)

    def uses(self) -> list[AdapterUse]:
        """Those on the device, the last used first; then those that wait for room, in the order of their turns."""
        waiting = {key: len(each.requests) for key, each in self._waiting.items()}
        residents = reversed(self._residents.items())
        return [
            *(AdapterUse(key, True, len(each.users), waiting.pop(key, 0)) for key, each in residents),
            *(AdapterUse(key, False, 0, requests) for key, requests in waiting.items()),
        ]

    def find(self, key: str) -> Resident | None:
        return self._residents.get(key)

    def slot_of(self, key: str) -> int:
        """Of an adapter that a request was granted."""
        return self._residents[key].slot

    def ask(self, request_id: str, key: str, num_pages: int) -> None:
        """A request wants an adapter of so many pages; `grant` says when it may have it."""
        self._of_request[request_id] = key
        resident = self._residents.get(key)
        if resident is not None and key not in self._waiting and self._may_pass(resident):
            self._use(key, resident, [request_id])
            self.stats.hits += 1
            for first in list(self._waiting.values())[:1]:
                first.passes += 1
            return
        self._waiting.setdefault(key, _Waiting(num_pages, [])).requests.append(request_id)

    def grant(self) -> list[Load]:
        """Give room to those that wait, in order, as far as there is any; what is returned is to be loaded."""
        loads: list[Load] = []
        while self._waiting:
            key, waiting = next(iter(self._waiting.items()))
            resident = self._residents.get(key)
            if (resident is None or not resident.users) and self._num_used >= self._most_at_once:
                break
            if resident is None:
                resident = self._settle(key, waiting.num_pages)
                if resident is None:
                    break
                loads.append(Load(key, resident.slot, resident.pages))
            del self._waiting[key]
            self._use(key, resident, waiting.requests)
        return loads

    def has_asked(self, request_id: str) -> bool:
        return request_id in self._of_request

    def is_granted(self, request_id: str) -> bool:
        """Whether a request may run: its adapter has room, and is in it."""
        resident = self._residents.get(self._of_request.get(request_id, ""))
        return resident is not None and resident.is_loaded and request_id in resident.users

    def loaded(self, key: str) -> None:
        """All of an adapter is in its pages."""
        self._residents[key].is_loaded = True
        self.stats.loads += 1

    def leave(self, request_id: str) -> None:
        """A request has ended, or will not come; its adapter stays until someone needs the room."""
        key = self._of_request.pop(request_id, None)
        if key is None:
            return
        resident, waiting = self._residents.get(key), self._waiting.get(key)
        if resident is not None:
            resident.users.discard(request_id)
        if waiting is not None and request_id in waiting.requests:
            waiting.requests.remove(request_id)
            if not waiting.requests:
                del self._waiting[key]

    def forget(self, key: str) -> bool:
        """Free the room of an adapter that nobody uses; False where it is in use or on its way."""
        resident = self._residents.get(key)
        if resident is None or resident.users or not resident.is_loaded:
            return resident is None
        self._evict(key)
        return True

    def forget_all(self) -> None:
        """The device holds none any more, and no request uses one."""
        for key in list(self._residents):
            self._evict(key)

    def failed(self, key: str) -> None:
        """An adapter could not be loaded; those that wait for it are told by whoever knows why."""
        self._residents[key].users.clear()
        self._evict(key)

    @property
    def _num_used(self) -> int:
        return sum(1 for resident in self._residents.values() if resident.users)

    def _may_pass(self, resident: Resident) -> bool:
        first = next(iter(self._waiting.values()), None)
        if first is not None and first.passes >= MOST_PASSES:
            return False
        return bool(resident.users) or self._num_used < self._most_at_once

    def _use(self, key: str, resident: Resident, requests: list[str]) -> None:
        resident.users.update(requests)
        self._residents[key] = self._residents.pop(key)  # the last used come last

    def _settle(self, key: str, num_pages: int) -> Resident | None:
        """A slot and pages for an adapter, those of unused ones if need be."""
        unused = [other for other, resident in self._residents.items() if not resident.users and resident.is_loaded]
        available = len(self._free_pages) + sum(len(self._residents[other].pages) for other in unused)
        if available < num_pages:
            return None
        for other in unused:
            if len(self._free_pages) >= num_pages:
                break
            self._evict(other)
            self.stats.evictions += 1
        resident = Resident(self._free_slots.pop(), [self._free_pages.pop() for _ in range(num_pages)])
        self._residents[key] = resident
        return resident

    def _evict(self, key: str) -> None:
        resident = self._residents.pop(key)
        self._free_pages.extend(resident.pages)
        self._free_slots.append(resident.slot)
