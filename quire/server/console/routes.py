"""The console's pages and files: read once, served from memory by exact name, so that no path reaches the disk."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quire.observe.theme import theme_css

FOLDER = "/console/"
"""Where the files below the pages are; the pages name them relative to their own address, so a prefix is no matter."""

PAGES = {"/": "index.html", "/docs": "docs.html"}

CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
}

SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",  # what is put to a message is shown from the page's own memory
        "media-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # the browser itself refuses innerHTML
    )
)

HEADERS = {
    "Cache-Control": "no-cache",  # kept, but asked for again each time: names stay the same over versions
    "Content-Security-Policy": SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    """One file as it is sent."""

    body: bytes
    content_type: str
    etag: str

    def answer(self, if_none_match: str) -> Response:
        headers = {**HEADERS, "ETag": self.etag}
        if _names(if_none_match, self.etag):
            return Response(status_code=304, headers=headers)
        return Response(self.body, headers={**headers, "Content-Type": self.content_type})


def _names(if_none_match: str, etag: str) -> bool:
    """Whether an If-None-Match header names the tag; a proxy that compresses marks tags as weak."""
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return etag in tags or "*" in tags


def read_files(folder: Path = Path(__file__).parent) -> dict[str, ConsoleFile]:
    """Every file of the folder that a browser may have, by the path it is served at, and the colours."""
    files = {FOLDER + "theme.css": _file(theme_css().encode(), ".css")}
    pages = {name: path for path, name in PAGES.items()}
    for source in sorted(folder.iterdir()):
        if source.suffix in CONTENT_TYPES:
            files[pages.get(source.name, FOLDER + source.name)] = _file(source.read_bytes(), source.suffix)
    return files


def _file(body: bytes, suffix: str) -> ConsoleFile:
    return ConsoleFile(body, CONTENT_TYPES[suffix], f'"{sha256(body).hexdigest()[:32]}"')


def console_routes() -> list[Route]:
    """A route for each file; anything else below /console/ is the app's own 404."""
    return [Route(path, _handler(file), methods=["GET"]) for path, file in read_files().items()]


def _handler(file: ConsoleFile) -> Callable[[Request], Awaitable[Response]]:
    async def send(request: Request) -> Response:
        return file.answer(request.headers.get("if-none-match", ""))

    return send
