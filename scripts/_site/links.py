"""Whether every link of a built site leads somewhere, and whether its pages load anything from another machine."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}
_LOADING_RELATIONS = {"stylesheet", "preconnect", "preload", "icon", "modulepreload"}
_STYLE_URL = re.compile(r"url\(\s*['\"]?(https?:|//)")
NOT_FOUND = "404.html"
"""It is shown under any address, so its links begin at the root of the server."""


class _Page(HTMLParser):
    """What a page links to, what it loads, and what can be linked to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in _LOADED and _LOADED[tag] in given:
            self.loads.append(given[_LOADED[tag]])
        elif tag == "link" and set(given.get("rel", "").split()) & _LOADING_RELATIONS:
            self.loads.append(given["href"])


def faults(site: Path) -> list[str]:
    """A line for every link that leads nowhere and for everything that comes from another machine."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        found += [f"{name} loads {each} from another machine" for each in page.loads if urlsplit(each).netloc]
        if name == NOT_FOUND:
            continue
        for address in dict.fromkeys(page.links + page.loads):
            fault = _fault(path, address, pages)
            if fault:
                found.append(f"{name} links to {address}, {fault}")
    for path in sorted(site.rglob("*.css")):
        if _STYLE_URL.search(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(site)} loads something from another machine")
    return found


def _fault(path: Path, address: str, pages: dict[Path, _Page]) -> str:
    """What is wrong with a link; empty where it is good or leads to another machine."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return ""
    target = path if not parts.path else Path(unquote(str((path.parent / parts.path).resolve())))
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "which is not there"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return "which has no such anchor"
    return ""
