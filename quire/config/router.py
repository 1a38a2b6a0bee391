"""Which instances a router stands in front of, how it chooses between them, and where it listens."""

from dataclasses import dataclass, field

from quire.config.bounds import check, check_key, check_path, check_seconds
from quire.config.listening import ListenConfig
from quire.config.server import RoutingStrategy


@dataclass(frozen=True, slots=True)
class RouterConfig(ListenConfig):
    """Which instances a router stands in front of, how it chooses between them, and where it listens."""

    members: str | None = None
    """Addresses of instances, with commas between them, as in http://10.0.0.5:8000,http://10.0.0.6:8000."""
    members_file: str | None = None
    """File with an address of an instance a line; it is read again when it changes."""
    members_dns: str | None = None
    """Host name and port, as in quire.example.org:8000; every address of the name is an instance."""
    members_kubernetes: str | None = None
    """Kubernetes Service, as NAMESPACE/SERVICE or NAMESPACE/SERVICE:PORT, whose ready pods are instances."""
    member_key: str | None = field(default=None, repr=False, metadata={"secret": True})
    """Key that instances want; set as QUIRE_MEMBER_KEY it stays out of the list of processes. Unset: clients' own keys
    are passed on where the router has none."""
    member_ca_file: str | None = None
    """Certificates that instances at https:// addresses must be signed by. Unset: those the system trusts."""
    shared_devices: str | None = None
    """Addresses of instances that share a device, with + between them and commas between devices, as in
    http://10.0.0.5:8001+http://10.0.0.5:8002: of each device one is awake, the others sleep until they are asked."""
    shared_sleep_level: int = 1
    """How deeply those sleep: 1 keeps weights in host memory, 2 reads them again."""
    routing: RoutingStrategy = "prefix"
    """Which instance gets a request: the one with most of its prefix cached unless another has far less to do, the one
    with the fewest tokens to do, or each in turn."""
    health_interval: float = 1.0
    """Seconds between looks at whether an instance takes work."""
    health_timeout: float = 5.0
    """Seconds an instance may take to answer that; after two silences it counts as lost, and its requests go on
    elsewhere."""
    connect_timeout: float = 2.0
    """Seconds a connection to an instance may take."""
    outage_timeout: float = 60.0
    """Seconds that requests wait while no instance takes work; after that they end with 503."""
    port: int = 8080
    """TCP port to listen on; 0 picks a free one."""
    slow_reader_timeout: float = 60.0
    """Seconds that the end of an answer may wait for its client while the router shuts down."""

    def __post_init__(self) -> None:
        ListenConfig.__post_init__(self)  # super() finds no class that slots=True has made anew
        for name in ("health_interval", "health_timeout", "connect_timeout", "outage_timeout"):
            check_seconds(name, getattr(self, name))
        for name in ("members_file", "member_ca_file"):
            check_path(name, getattr(self, name))
        check_key("member_key", self.member_key)
        self._check_dns()
        self._check_kubernetes()
        self._check_devices()

    def listed(self) -> tuple[str, ...]:
        """The addresses of --members."""
        return () if self.members is None else tuple(each.strip() for each in self.members.split(",") if each.strip())

    def devices(self) -> tuple[tuple[str, ...], ...]:
        """The addresses of the instances of each of --shared-devices."""
        groups = () if self.shared_devices is None else self.shared_devices.split(",")
        return tuple(tuple(each.strip() for each in group.split("+")) for group in groups)

    def _check_dns(self) -> None:
        if self.members_dns is not None:
            host, _, port = self.members_dns.rpartition(":")
            ok = bool(host) and "/" not in host and port.isdecimal() and 0 < int(port[:6]) <= 65535
            fix = "write it as in quire.example.org:8000"
            check(ok, "members_dns", self.members_dns, "a host name and a port", fix)

    def _check_devices(self) -> None:
        named = [url for group in self.devices() for url in group]
        ok = all(len(group) > 1 and all(group) for group in self.devices()) and len(set(named)) == len(named)
        fix = "write them as in http://10.0.0.5:8001+http://10.0.0.5:8002, each address once"
        check(ok, "shared_devices", self.shared_devices, "two or more addresses for each device", fix)
        allowed, level = "1 or 2", self.shared_sleep_level
        check(level in (1, 2), "shared_sleep_level", level, allowed, "1 wakes up faster")

    def _check_kubernetes(self) -> None:
        if self.members_kubernetes is not None:
            space, _, service = self.members_kubernetes.partition("/")
            name, _, port = service.partition(":")
            names = all(part and all(letter.isalnum() or letter in "-." for letter in part) for part in (space, name))
            ok = names and (not port or port.replace("-", "").isalnum()) and service.count("/") == 0
            fix = "write it as in default/quire or default/quire:8000"
            check(ok, "members_kubernetes", self.members_kubernetes, "NAMESPACE/SERVICE, with or without :PORT", fix)
