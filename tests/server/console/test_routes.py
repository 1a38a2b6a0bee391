"""The console's files: their types, their caching, their policy, and nothing else by any path."""

import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from quire.server.console import routes
from quire.server.console.routes import console_routes, read_files

FOLDER = Path(routes.__file__).parent


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(Starlette(routes=console_routes()))


@pytest.mark.parametrize(
    ("path", "content_type"),
    {
        "/": "text/html; charset=utf-8",
        "/docs": "text/html; charset=utf-8",
        "/console/style.css": "text/css; charset=utf-8",
        "/console/main.js": "text/javascript; charset=utf-8",
        "/console/favicon.svg": "image/svg+xml; charset=utf-8",
    }.items(),
)
def test_files_have_their_types(client: TestClient, path: str, content_type: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == content_type
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_every_file_is_sent_as_it_is(client: TestClient) -> None:
    for path, file in read_files().items():
        assert client.get(path).content == file.body
    names = {path.name for path in FOLDER.iterdir() if path.suffix in routes.CONTENT_TYPES} | {"theme.css"}
    assert len(read_files()) == len(names)


@pytest.mark.parametrize("path", sorted(read_files()))
def test_policy_admits_nothing_from_elsewhere_and_nothing_inline(client: TestClient, path: str) -> None:
    policy = client.get(path).headers["content-security-policy"]
    directives = dict(part.strip().partition(" ")[::2] for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["frame-ancestors"] == "'none'"
    sources = {source for name, value in directives.items() if name.endswith("-src") for source in value.split()}
    assert sources == {"'none'", "'self'", "data:"}
    assert {name for name, value in directives.items() if "data:" in value} == {"img-src", "media-src"}


@pytest.mark.parametrize(
    "path",
    [
        "/console/",
        "/console/routes.py",
        "/console/__init__.py",
        "/console/index.html",
        "/console/none.js",
        "/console/../routes.py",
        "/console/..%2froutes.py",
        "/console/%2e%2e/%2e%2e/caller.py",
        "/console//etc/passwd",
        "/console/main.js%00.css",
    ],
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_unchanged_file_is_not_sent_again(client: TestClient) -> None:
    first = client.get("/console/main.js")
    assert first.headers["cache-control"] == "no-cache"
    for header in (first.headers["etag"], f"W/{first.headers['etag']}", f'"other", {first.headers["etag"]}', "*"):
        second = client.get("/console/main.js", headers={"If-None-Match": header})
        assert (second.status_code, second.content) == (304, b"")
        assert second.headers["etag"] == first.headers["etag"]


def test_changed_file_is_sent_again(client: TestClient) -> None:
    other = client.get("/console/chat.js").headers["etag"]
    assert client.get("/console/main.js", headers={"If-None-Match": other}).status_code == 200


def test_head_has_the_headers_alone(client: TestClient) -> None:
    answer = client.head("/")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["etag"] == client.get("/").headers["etag"]


def test_other_methods_are_refused(client: TestClient) -> None:
    assert client.post("/").status_code == 405


def test_files_named_like_pages_are_pages_only(tmp_path: Path) -> None:
    for name in ("index.html", "extra.html", "notes.txt"):
        (tmp_path / name).write_text(name)
    assert set(read_files(tmp_path)) == {"/", "/console/extra.html", "/console/theme.css"}


def test_pages_refer_only_to_files_that_are_served() -> None:
    for page in FOLDER.glob("*.html"):
        references = re.findall(r'(?:src|href)="([^"#]+)"', page.read_text(encoding="utf-8"))
        assert {f"/{reference.removeprefix('./')}" for reference in references} <= set(read_files()), page.name


def test_modules_import_only_files_that_are_served() -> None:
    for module in FOLDER.glob("*.js"):
        for name in re.findall(r'^import .*? from "\./(.*?)";$', module.read_text(encoding="utf-8"), re.MULTILINE):
            assert f"/console/{name}" in set(read_files()), f"{module.name} imports {name}"


@pytest.mark.parametrize("pattern", [r"https?://(?!www\.w3\.org)", r"\binnerHTML\b", r"\bon\w+=\"", r"\bstyle=\""])
def test_no_file_asks_for_what_the_policy_forbids(pattern: str) -> None:
    files = [path for path in FOLDER.iterdir() if path.suffix in routes.CONTENT_TYPES]
    assert [path.name for path in files if re.search(pattern, path.read_text(encoding="utf-8"))] == []


def test_scripts_stay_small() -> None:
    lines = {path.name: path.read_text(encoding="utf-8").count("\n") for path in FOLDER.glob("*.js")}
    assert {name: number for name, number in lines.items() if number >= 300} == {}
