"""Counters of /metrics: within the life of the processes that count, none may fall."""

from dataclasses import dataclass, field


@dataclass
class Counters:
    """One server's, as they were last seen, and who counted them."""

    _values: dict[str, float] = field(default_factory=dict)
    _counting: frozenset[int] = frozenset()

    def fallen(self, exposition: str, counting: frozenset[int]) -> list[str]:
        """Those that are lower than before, in words. Counts of processes that are gone may go with them."""
        values = counters_in(exposition)
        before, had = self._values, self._counting
        self._values, self._counting = values, counting
        if had != counting:
            return []
        falls = [(name, before[name], value) for name, value in values.items() if value < before.get(name, 0.0)]
        return [f"{name} fell from {old:g} to {new:g}" for name, old, new in falls]


def counters_in(exposition: str) -> dict[str, float]:
    """Every series of a counter or histogram by its name and labels, from Prometheus' text format."""
    kinds: dict[str, str] = {}
    values: dict[str, float] = {}
    for line in exposition.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            kinds[name] = kind
        elif line and not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            name = series.partition("{")[0]
            family = name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
            if kinds.get(name) == "counter" or kinds.get(family) == "histogram":
                values[series] = float(value)
    return values
