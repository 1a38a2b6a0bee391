"""Examples whose packages the tests have anyway, run as they are against a real server with the default model."""

import ast
import gc
import re
import runpy
import sys
import warnings
from collections.abc import Callable, Iterator

import pytest
import yaml

from tests.examples.ecosystem.folder import ECOSYSTEM, refused, requirements
from tests.server.live import LiveServer, running_server

# packages warn about their own changes; nothing of ours does
pytestmark = pytest.mark.filterwarnings("ignore")

SHARED = ("endpoint", "workspace")
"""Modules of the examples' folder that several of them import."""
NEEDS: dict[str, str] = {
    "langchain_chat.py": "langchain_openai",
    "llamaindex_chat.py": "llama_index.llms.openai_like",
    "llamaindex_rag.py": "llama_index.embeddings.openai_like",
    "instructor_records.py": "instructor",
    "responses_agent.py": "openai",
    "messages_agent.py": "anthropic",
}
Run = Callable[[str], str]
covered_by_clients = pytest.mark.slow
"""Of packages that tests/server/clients uses in the normal suite, which has no time for both."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with running_server(tmp_path_factory.mktemp("ecosystem")) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUIRE_BASE_URL", f"{server.url}/v1")
        patch.delenv("QUIRE_MODEL", raising=False)
        patch.delenv("QUIRE_API_KEY", raising=False)
        patch.syspath_prepend(str(ECOSYSTEM))
        yield server
        for name in SHARED:
            sys.modules.pop(name, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # what the packages left open


@pytest.fixture
def run(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs an example as a program, checks that the server refused nothing of it, and gives what it printed."""

    def run(example: str) -> str:
        pytest.importorskip(NEEDS[example], reason="needs the test extra")
        before = len(refused(server))
        runpy.run_path(str(ECOSYSTEM / example), run_name="__main__")
        assert refused(server)[before:] == []
        return capsys.readouterr().out

    return run


def line(said: str, name: str) -> str:
    """What stands after a name on its line."""
    [found] = re.findall(rf"^{name}: ?(.*)$", said, re.MULTILINE)
    return str(found)


@covered_by_clients
def test_langchain(run: Run) -> None:
    said = run("langchain_chat.py")
    assert "Paris" in line(said, "chat")
    assert line(said, "stream").count("|") > 3
    assert line(said, "stream").replace("|", "") == line(said, "chat")
    assert line(said, "tool") in {f"temperature_of({c}) → {t}" for c, t in (("Paris", 21), ("Oslo", 8), ("Cairo", 34))}
    assert line(said, "answer")
    assert re.fullmatch(r"Review\(verdict='(good|bad)', stars=[1-5]\)", line(said, "structured"))


@covered_by_clients
def test_llamaindex(run: Run) -> None:
    said = run("llamaindex_chat.py")
    assert "Paris" in line(said, "chat")
    assert line(said, "stream").replace("|", "") == line(said, "chat")
    prices = {"apple": "2.50", "banana": "1.80", "cherry": "9.00"}
    assert line(said, "tool") in {f"price_of({fruit}) → {price}" for fruit, price in prices.items()}
    assert line(said, "answer")
    assert re.fullmatch(r"Order\(fruit='(apple|banana|cherry)', is_urgent=(True|False)\)", line(said, "structured"))


def test_llamaindex_retrieval(run: Run) -> None:
    """Which texts are best is left to a model that is made for it, behind `slow`."""
    said = run("llamaindex_rag.py")
    found = re.findall(r"^found (\S+): (.*)$", said, re.MULTILINE)
    ranked = re.findall(r"^ranked (\S+): (.*)$", said, re.MULTILINE)
    assert (len(found), len(ranked)) == (4, 2)
    assert {text for _, text in ranked} < {text for _, text in found}
    for scored in (found, ranked):
        scores = [float(score) for score, _ in scored]
        assert scores == sorted(scores, reverse=True)
    assert line(said, "answer")


@covered_by_clients
def test_instructor(run: Run) -> None:
    said = run("instructor_records.py")
    whole = r"Ticket\(topic='(billing|delivery|damage)', is_angry=(True|False), priority=[1-3]\)"
    for name in ("schema", "call", "message"):
        assert re.fullmatch(whole, line(said, name)), said
    parts = [ast.literal_eval(part) for part in re.findall(r"^part: (.*)$", said, re.MULTILINE)]
    assert len(parts) > 1
    assert set(parts[-1]) == {"topic", "is_angry", "priority"}


@pytest.mark.parametrize("example", ["responses_agent.py", "messages_agent.py"])
def test_agents_work_on_files(run: Run, example: str) -> None:
    said = run(example)
    turns = re.findall(r"^turn (\d): (read|append)", said, re.MULTILINE)
    assert turns[:2] == [("0", "read"), ("1", "append")]
    assert len(turns) <= 3, "the last turn may not call"
    assert re.search(r"has \d lines now", said)
    files = ast.literal_eval(line(said, "files"))
    assert set(files) == {"report.txt", "todo.txt"}
    appended = [files["report.txt"].count("\n") - 1, files["todo.txt"].count("\n") - 1]
    assert sum(appended) >= 1, files


def test_agents_stay_in_their_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    workspace = runpy.run_path(str(ECOSYSTEM / "workspace.py"))["filled_workspace"](tmp_path_factory.mktemp("agent"))
    assert workspace.do("read", {"name": "../../etc/passwd"}) == "error: '../../etc/passwd' is not in the workspace"
    assert "No such file" in workspace.do("read", {"name": "absent.txt"})
    assert "chairs" in workspace.do("read", {"name": "report.txt"})


def test_every_example_says_what_it_needs_and_is_run() -> None:
    """The page's table has a line for each, and the tests one."""
    page = (ECOSYSTEM.parents[1] / "docs" / "ecosystem.md").read_text(encoding="utf-8")
    tests = "".join(
        path.read_text(encoding="utf-8") for path in ECOSYSTEM.parents[1].glob("tests/examples/ecosystem/*.py")
    )
    examples = {path.name for path in ECOSYSTEM.iterdir() if path.stem not in (*SHARED, "__pycache__")}
    for name in examples:
        assert f"examples/ecosystem/{name}" in page, name
        assert f'"{name}' in tests, name
        assert requirements(f"{name}/README.md" if (ECOSYSTEM / name).is_dir() else name), name


def test_open_webui_joins_the_compose_file_of_the_server() -> None:
    """What it does with these variables is shown behind `slow`; here, that they lead to a service there is."""
    root = ECOSYSTEM.parents[1]
    server = yaml.safe_load((root / "deploy" / "docker" / "compose.yml").read_text(encoding="utf-8"))
    added = yaml.safe_load((ECOSYSTEM / "open_webui.compose.yml").read_text(encoding="utf-8"))
    [service] = added["services"].values()
    assert not added["services"].keys() & server["services"].keys()
    assert service["depends_on"] == [server["services"]["quire"]["hostname"]]
    urls = [value for value in service["environment"].values() if value.startswith("http")]
    assert urls
    assert all(url.startswith("http://quire:8000/v1") for url in urls)
    taken = {port for one in server["services"].values() for port in one["ports"]}
    assert {port.rpartition(":")[0] for port in service["ports"]}.isdisjoint(port.rpartition(":")[0] for port in taken)
