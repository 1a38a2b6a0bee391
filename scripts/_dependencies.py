"""What an installation of quire consists of: the packages that its metadata leads to, without tools of tests."""

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def dependencies(extras: Iterable[str] = (), package: str = "quire") -> dict[str, str]:
    """Version of every package that `package` needs here with these extras, itself included, by normalized name."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(package, extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        installed = distribution(name)
        found[str(canonicalize_name(name))] = installed.version
        for line in installed.requires or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                waiting += [(str(canonicalize_name(needed.name)), each) for each in ("", *needed.extras)]
    return dict(sorted(found.items()))


def check_extras(extras: Iterable[str], package: str = "quire") -> str | None:
    """What is wrong with these extras, in one line; None where they exist and their packages are installed."""
    known = distribution(package).metadata.get_all("Provides-Extra") or []
    unknown = sorted(set(extras) - set(known))
    if unknown:
        return f"{package} has no extra {unknown[0]!r}; it has {', '.join(known)}."
    try:
        dependencies(extras, package)
    except PackageNotFoundError as missing:
        return f"{missing.name} is not installed here; run `pip install -e '.[{','.join(extras)}]'` first."
    return None
