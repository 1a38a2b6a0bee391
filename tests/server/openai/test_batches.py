"""/v1/batches on a real store: every status, restarts in the middle, overload, and files that cannot run."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from quire.core.errors import InvalidRequest, Overloaded
from quire.server.batches.lines import LONGEST_LINE, MOST_LINES
from tests.server.openai.storing import (
    CHAT,
    Answerer,
    Clock,
    reach,
    request_line,
    results,
    start_batch,
    storing,
    upload,
)
from tests.server.served import PATIENCE

DAY = 86_400


def test_a_batch_runs_to_its_end(tmp_path: Path) -> None:
    async def body() -> None:
        async def refuse_bad(given: dict[str, Any]) -> None:
            if given.get("bad"):
                raise InvalidRequest("bad is true; it must be false", field="bad")

        answerer = Answerer(refuse_bad)
        async with storing(tmp_path, answerer) as client:
            lines = request_line("a") + b"\n" + request_line("b", bad=True) + request_line("c")
            batch = await start_batch(client, lines, metadata={"for": "a test"})
            assert batch["object"] == "batch"
            assert batch["status"] == "validating"
            assert batch["expires_at"] == batch["created_at"] + DAY
            batch = await reach(client, batch["id"], "completed")
            assert batch["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
            assert batch["metadata"] == {"for": "a test"}
            assert batch["errors"] is None
            for name in ("in_progress_at", "finalizing_at", "completed_at"):
                assert batch[name] is not None
            for name in ("failed_at", "expired_at", "cancelling_at", "cancelled_at"):
                assert batch[name] is None
            good, bad = await results(client, batch["output_file_id"]), await results(client, batch["error_file_id"])
            assert {line["custom_id"]: line["response"]["body"] for line in good} == {
                "a": {"echo": {"name": "a"}},
                "c": {"echo": {"name": "c"}},
            }
            assert all(line["error"] is None and line["id"].startswith("batch_req_") for line in good)
            assert [line["custom_id"] for line in bad] == ["b"]
            assert bad[0]["response"]["status_code"] == 400
            assert bad[0]["response"]["body"]["error"]["param"] == "bad"
            file = (await client.get(f"/v1/files/{batch['output_file_id']}")).json()
            assert (file["purpose"], file["filename"]) == ("batch_output", f"{batch['id']}_output.jsonl")
            assert answerer.senders[0].cache_salt == "of default"
        assert list((tmp_path / "batches").iterdir()) == []

    asyncio.run(body())


def test_files_of_results_are_there_only_where_there_are_results(tmp_path: Path) -> None:
    async def body() -> None:
        async def fail(_: dict[str, Any]) -> None:
            raise InvalidRequest("no")

        async with storing(tmp_path) as client:
            batch = await start_batch(client, request_line("a"))
            batch = await reach(client, batch["id"], "completed")
            assert batch["error_file_id"] is None
        async with storing(tmp_path, Answerer(fail)) as client:
            batch = await start_batch(client, request_line("a"))
            batch = await reach(client, batch["id"], "completed")
            assert batch["output_file_id"] is None
            assert len(await results(client, batch["error_file_id"])) == 1

    asyncio.run(body())


def test_only_so_many_requests_run_at_once_over_all_batches(tmp_path: Path) -> None:
    async def body() -> None:
        answerer = Answerer()
        async with storing(tmp_path, answerer, lines_at_once=3) as client:
            lines = b"".join(request_line(str(place)) for place in range(20))
            batches = [await start_batch(client, lines) for _ in range(2)]
            for batch in batches:
                ended = await reach(client, batch["id"], "completed")
                assert ended["request_counts"]["completed"] == 20
        assert answerer.most_running == 3
        assert len(answerer.asked) == 40

    asyncio.run(body())


def test_a_restart_goes_on_without_repeating_anything(tmp_path: Path) -> None:
    async def body() -> None:
        stuck = asyncio.Event()
        reached = asyncio.Event()

        async def stop_at_five(given: dict[str, Any]) -> None:
            if int(given["name"]) >= 5:
                reached.set()
                await stuck.wait()

        first, second = Answerer(stop_at_five), Answerer()
        lines = b"".join(request_line(str(place)) for place in range(10))
        async with storing(tmp_path, first, lines_at_once=1) as client:
            batch = await start_batch(client, lines)
            await reached.wait()
        assert first.running == 0
        async with storing(tmp_path, second) as client:
            ended = await reach(client, batch["id"], "completed")
            assert ended["request_counts"] == {"total": 10, "completed": 10, "failed": 0}
            assert sorted(given["name"] for given in second.asked) == ["5", "6", "7", "8", "9"]
            names = [line["custom_id"] for line in await results(client, ended["output_file_id"])]
            assert sorted(names) == [str(place) for place in range(10)]
            assert ended["in_progress_at"] is not None

    asyncio.run(body())


def test_a_result_that_a_crash_cut_short_is_computed_again(tmp_path: Path) -> None:
    async def body() -> None:
        stuck = asyncio.Event()
        reached = asyncio.Event()

        async def stop_at_b(given: dict[str, Any]) -> None:
            if given["name"] == "b":
                reached.set()
                await stuck.wait()

        async with storing(tmp_path, Answerer(stop_at_b), lines_at_once=1) as client:
            batch = await start_batch(client, request_line("a") + request_line("b"))
            await reached.wait()
        journal = tmp_path / "batches" / f"{batch['id']}.jsonl"
        journal.write_bytes(journal.read_bytes()[:-20])
        again = Answerer()
        async with storing(tmp_path, again) as client:
            ended = await reach(client, batch["id"], "completed")
            assert ended["request_counts"]["completed"] == 2
        assert [given["name"] for given in again.asked] == ["a", "b"]

    asyncio.run(body())


def test_a_restart_while_results_are_being_put_together(tmp_path: Path) -> None:
    """The state is what it would be after a kill in `finalizing`: one of the two files is already there."""

    async def body() -> None:
        async def fail_b(given: dict[str, Any]) -> None:
            if given["name"] == "b":
                raise InvalidRequest("no")

        async with storing(tmp_path, Answerer(fail_b)) as client:
            batch = await start_batch(client, request_line("a") + request_line("b"))
            runner = client.batches  # type: ignore[attr-defined]
            run = runner._runs[batch["id"]]
            killed = asyncio.Event()

            async def never(*_: Any) -> None:
                killed.set()
                await asyncio.Event().wait()

            run._failures = lambda journal: _stuck(never)
            await killed.wait()
        async with storing(tmp_path) as client:
            ended = await reach(client, batch["id"], "completed")
            assert [line["custom_id"] for line in await results(client, ended["output_file_id"])] == ["a"]
            assert [line["custom_id"] for line in await results(client, ended["error_file_id"])] == ["b"]

    asyncio.run(body())


async def _stuck(never: Any) -> Any:
    await never()
    yield b""


def test_an_overloaded_engine_is_waited_for(tmp_path: Path) -> None:
    async def body() -> None:
        refusals = 3

        async def refuse_at_first(_: dict[str, Any]) -> None:
            nonlocal refusals
            if refusals:
                refusals -= 1
                raise Overloaded("full", retry_after=0.001)

        answerer = Answerer(refuse_at_first)
        async with storing(tmp_path, answerer) as client:
            batch = await start_batch(client, request_line("a"))
            ended = await reach(client, batch["id"], "completed")
            assert ended["request_counts"] == {"total": 1, "completed": 1, "failed": 0}
        assert len(answerer.asked) == 4

    asyncio.run(body())


def test_a_tenant_at_its_limit_leaves_the_slots_to_others(tmp_path: Path) -> None:
    async def body() -> None:
        async def limited(given: dict[str, Any]) -> None:
            if given["name"].startswith("greedy"):
                raise Overloaded("this key may use 10 tokens a minute", retry_after=1000)

        answerer = Answerer(limited)
        async with storing(tmp_path, answerer, lines_at_once=4) as client, asyncio.timeout(PATIENCE):
            lines = b"".join(request_line(f"greedy-{place}") for place in range(40))
            for _ in range(2):
                await start_batch(client, lines)
            while len(answerer.asked) < 8:
                await asyncio.sleep(0.005)
            modest = await start_batch(client, b"".join(request_line(str(place)) for place in range(10)))
            await reach(client, modest["id"], "completed")
        assert len(answerer.asked) == 8 + 10, "of a batch that waits, only so many lines are tried"

    asyncio.run(body())


def test_a_tenant_without_a_key_has_its_batches_stopped_until_it_is_back(tmp_path: Path) -> None:
    async def body() -> None:
        tenants, hang, ended = {"default"}, True, list[str]()

        async def slow(given: dict[str, Any]) -> None:
            try:
                while hang and given["name"] != "0":
                    await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                ended.append(given["name"])
                raise

        answerer = Answerer(slow)
        settings: dict[str, Any] = {"lines_at_once": 2, "may_run": tenants.__contains__}
        lines = b"".join(request_line(str(place)) for place in range(4))
        async with storing(tmp_path, answerer, **settings) as client, asyncio.timeout(PATIENCE):
            batch = await start_batch(client, lines)
            while (await reach(client, batch["id"], "in_progress"))["request_counts"]["completed"] < 1:
                await asyncio.sleep(0.005)
            tenants.clear()
            client.batches.tenants_changed()  # type: ignore[attr-defined]
            while len(ended) < 2:
                await asyncio.sleep(0.005)
        hang = False
        async with storing(tmp_path, answerer, **settings) as client, asyncio.timeout(PATIENCE):
            asked = len(answerer.asked)
            assert (await reach(client, batch["id"], "in_progress"))["status"] == "in_progress"
            another = await start_batch(client, lines)
            assert len(answerer.asked) == asked, "nothing runs, old or new"
            tenants.add("default")
            client.batches.tenants_changed()  # type: ignore[attr-defined]
            for each in (batch, another):
                done = await reach(client, each["id"], "completed")
                assert done["request_counts"] == {"total": 4, "completed": 4, "failed": 0}
            assert [each["name"] for each in answerer.asked[:asked]].count("0") == 1

    asyncio.run(body())


def test_a_request_that_breaks_something_fails_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async def break_b(given: dict[str, Any]) -> None:
            if given["name"] == "b":
                raise RuntimeError("the secret of b")

        async with storing(tmp_path, Answerer(break_b)) as client:
            batch = await start_batch(client, request_line("a") + request_line("b") + request_line("c"))
            ended = await reach(client, batch["id"], "completed")
            assert ended["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
            (bad,) = await results(client, ended["error_file_id"])
            assert bad["response"]["status_code"] == 500
            assert "secret" not in json.dumps(bad)
            assert bad["response"]["request_id"] in caplog.text

    asyncio.run(body())


def test_cancelling_stops_what_runs_and_keeps_what_is_done(tmp_path: Path) -> None:
    async def body() -> None:
        reached = asyncio.Event()

        async def stop_at_b(given: dict[str, Any]) -> None:
            if given["name"] == "b":
                reached.set()
                await asyncio.Event().wait()

        answerer = Answerer(stop_at_b)
        async with storing(tmp_path, answerer, lines_at_once=1) as client:
            batch = await start_batch(client, request_line("a") + request_line("b") + request_line("c"))
            await reached.wait()
            answer = await client.post(f"/v1/batches/{batch['id']}/cancel")
            assert answer.status_code == 200
            assert answer.json()["status"] in ("cancelling", "finalizing", "cancelled")
            ended = await reach(client, batch["id"], "cancelled")
            assert answerer.running == 0
            assert ended["cancelling_at"] is not None
            assert ended["cancelled_at"] is not None
            assert ended["request_counts"] == {"total": 3, "completed": 1, "failed": 0}
            assert [line["custom_id"] for line in await results(client, ended["output_file_id"])] == ["a"]
            undone = await results(client, ended["error_file_id"])
            assert [(line["custom_id"], line["response"], line["error"]["code"]) for line in undone] == [
                ("b", None, "batch_cancelled"),
                ("c", None, "batch_cancelled"),
            ]
            again = await client.post(f"/v1/batches/{batch['id']}/cancel")
            assert again.json()["status"] == "cancelled"

    asyncio.run(body())


def test_a_batch_that_has_ended_cannot_be_cancelled(tmp_path: Path) -> None:
    async def body() -> None:
        async with storing(tmp_path) as client:
            batch = await start_batch(client, request_line("a"))
            await reach(client, batch["id"], "completed")
            answer = await client.post(f"/v1/batches/{batch['id']}/cancel")
            assert answer.status_code == 400
            assert "completed" in answer.json()["error"]["message"]

    asyncio.run(body())


def test_a_batch_expires_in_the_middle_of_its_work(tmp_path: Path) -> None:
    async def body() -> None:
        clock = Clock()
        answerer = Answerer()

        async def stop_at_b(given: dict[str, Any]) -> None:
            if given["name"] == "b":
                await asyncio.Event().wait()

        answerer.first = stop_at_b
        async with storing(tmp_path, answerer, clock, lines_at_once=1) as client:
            batch = await start_batch(client, request_line("a") + request_line("b"))
            clock.now += DAY - 0.2  # the window ends in a fifth of a second
            ended = await reach(client, batch["id"], "expired")
            assert answerer.running == 0
            assert ended["expired_at"] is not None
            (undone,) = await results(client, ended["error_file_id"])
            assert (undone["custom_id"], undone["error"]["code"]) == ("b", "batch_expired")

    asyncio.run(body())


def test_a_batch_whose_window_ended_while_the_server_was_down(tmp_path: Path) -> None:
    async def body() -> None:
        clock = Clock()

        async def never(_: dict[str, Any]) -> None:
            await asyncio.Event().wait()

        async with storing(tmp_path, Answerer(never), clock) as client:
            batch = await start_batch(client, request_line("a"))
            await reach(client, batch["id"], "in_progress")
        clock.now += DAY
        async with storing(tmp_path, Answerer(never), clock) as client:
            ended = await reach(client, batch["id"], "expired")
            assert ended["output_file_id"] is None

    asyncio.run(body())


def test_a_cancelled_batch_stays_cancelled_over_a_restart(tmp_path: Path) -> None:
    async def body() -> None:
        answerer = Answerer()
        async with storing(tmp_path) as client:
            batch = await start_batch(client, request_line("a"))
            await client.batches.cancel("default", batch["id"])  # type: ignore[attr-defined]
        async with storing(tmp_path, answerer) as client:
            await reach(client, batch["id"], "cancelled")

    asyncio.run(body())


BAD_LINES: list[tuple[bytes, str, str | None]] = [
    (b"not json\n", "invalid_json_line", None),
    (b"[1]\n", "invalid_json_line", None),
    (b'{"custom_id": "x", "n": ' + b"9" * 5000 + b"}\n", "invalid_json_line", None),
    (b"[" * 100_000 + b"\n", "invalid_json_line", None),
    (b'{"custom_id": "\xff"}\n', "invalid_json_line", None),
    (
        b'{"custom_id": 5, "method": "POST", "url": "/v1/chat/completions", "body": {}}\n',
        "invalid_request",
        "custom_id",
    ),
    (b'{"custom_id": "x", "method": "GET", "url": "/v1/chat/completions", "body": {}}\n', "invalid_request", "method"),
    (b'{"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": {}}\n', "invalid_request", "url"),
    (b'{"custom_id": "x", "method": "POST", "url": "/v1/chat/completions"}\n', "invalid_request", "body"),
    (
        b'{"custom_id": "x", "method": "POST", "url": "/v1/chat/completions", "body": {}, "z": 1}\n',
        "invalid_request",
        "z",
    ),
    (b'{"a": "' + b"x" * LONGEST_LINE + b'"}\n', "invalid_json_line", None),
    (request_line("first"), "duplicate_custom_id", "custom_id"),
]


@pytest.mark.parametrize(("line", "code", "param"), BAD_LINES)
def test_a_bad_line_fails_the_batch_and_says_where(tmp_path: Path, line: bytes, code: str, param: str | None) -> None:
    async def body() -> None:
        answerer = Answerer()
        async with storing(tmp_path, answerer) as client:
            batch = await start_batch(client, request_line("first") + b"\n" + line + request_line("last"))
            ended = await reach(client, batch["id"], "failed", "completed")
            assert ended["status"] == "failed"
            assert ended["failed_at"] is not None
            assert ended["errors"]["object"] == "list"
            (error,) = ended["errors"]["data"]
            assert (error["code"], error["line"], error["param"]) == (code, 3, param)
            assert error["message"].startswith("line 3")
        assert answerer.asked == []
        assert list((tmp_path / "batches").iterdir()) == []

    asyncio.run(body())


def test_an_empty_file_and_one_with_too_many_requests(tmp_path: Path) -> None:
    async def body() -> None:
        async with storing(tmp_path) as client:
            batch = await start_batch(client, b"\n \n")
            ended = await reach(client, batch["id"], "failed")
            assert [error["code"] for error in ended["errors"]["data"]] == ["empty_file"]
            many = b"".join(request_line(str(place)) for place in range(MOST_LINES + 1))
            batch = await start_batch(client, many)
            ended = await reach(client, batch["id"], "failed")
            assert [error["code"] for error in ended["errors"]["data"]] == ["too_many_requests"]

    asyncio.run(body())


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"endpoint": "/v1/images"}, "endpoint"),
        ({"endpoint": None}, "endpoint"),
        ({"endpoint": ["/v1/chat/completions"]}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"completion_window": None}, "completion_window"),
        ({"input_file_id": "file-0000000000000000"}, "input_file_id"),
        ({"input_file_id": 5}, "input_file_id"),
        ({"metadata": {str(place): "x" for place in range(17)}}, "metadata"),
        ({"metadata": {"x" * 65: "x"}}, "metadata"),
        ({"metadata": {"x": "x" * 513}}, "metadata"),
        ({"metadata": {"x": 5}}, "metadata"),
        ({"metadata": "text"}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 10}}, "output_expires_after"),
        ({"output_expires_after": {"anchor": "now", "seconds": 3600}}, "output_expires_after"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": True}}, "output_expires_after"),
        ({"priority": 1}, "priority"),
    ],
)
def test_what_cannot_be_honoured_is_refused(tmp_path: Path, changes: dict[str, Any], param: str) -> None:
    async def body() -> None:
        async with storing(tmp_path) as client:
            file = (await upload(client, request_line("a"))).json()
            asked = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"} | changes
            answer = await client.post("/v1/batches", json=asked)
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == param
            assert (await client.get("/v1/batches")).json()["data"] == []

    asyncio.run(body())


def test_output_files_expire_when_asked(tmp_path: Path) -> None:
    async def body() -> None:
        async with storing(tmp_path) as client:
            life = {"anchor": "created_at", "seconds": 7200}
            batch = await start_batch(client, request_line("a"), output_expires_after=life)
            ended = await reach(client, batch["id"], "completed")
            file = (await client.get(f"/v1/files/{ended['output_file_id']}")).json()
            assert file["expires_at"] == file["created_at"] + 7200

    asyncio.run(body())


def test_results_of_one_batch_are_no_input_of_another(tmp_path: Path) -> None:
    async def body() -> None:
        async with storing(tmp_path) as client:
            batch = await start_batch(client, request_line("a"))
            ended = await reach(client, batch["id"], "completed")
            asked = {"input_file_id": ended["output_file_id"], "endpoint": CHAT, "completion_window": "24h"}
            answer = await client.post("/v1/batches", json=asked)
            assert answer.status_code == 400
            assert "batch_output" in answer.json()["error"]["message"]

    asyncio.run(body())


def test_lists_and_tenants(tmp_path: Path) -> None:
    async def body() -> None:
        async with storing(tmp_path) as client:
            ids = [(await start_batch(client, request_line("a")))["id"] for _ in range(3)]
            for identity in ids[:2]:
                await reach(client, identity, "completed")
            page = (await client.get("/v1/batches", params={"limit": 2})).json()
            assert [batch["id"] for batch in page["data"]] == [ids[2], ids[1]]
            assert page["has_more"] is True
            rest = (await client.get("/v1/batches", params={"limit": 2, "after": ids[1]})).json()
            assert [batch["id"] for batch in rest["data"]] == [ids[0]]
            assert (await client.get("/v1/batches", params={"limit": 101})).status_code == 400
            other = {"x-tenant": "b"}
            assert (await client.get("/v1/batches", headers=other)).json()["data"] == []
            for identity in ids:
                assert (await client.get(f"/v1/batches/{identity}", headers=other)).status_code == 404
                assert (await client.post(f"/v1/batches/{identity}/cancel", headers=other)).status_code == 404

    asyncio.run(body())
