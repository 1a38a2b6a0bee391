"""/v1/files on a real store: uploads, pages, tenants, expiry, and forms that are no forms."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.server.openai.storing import Answerer, Clock, reach, request_line, start_batch, storing, upload


def test_a_file_goes_up_and_comes_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with storing(tmp_path) as client:
            content = bytes(range(256)) * 10_000
            answer = await upload(client, content)
            assert answer.status_code == 200
            file = answer.json()
            assert file == {
                "id": file["id"],
                "object": "file",
                "bytes": len(content),
                "created_at": 1_000_000,
                "expires_at": None,
                "filename": "in.jsonl",
                "purpose": "batch",
                "status": "processed",
                "status_details": None,
            }
            assert (await client.get(f"/v1/files/{file['id']}")).json() == file
            back = await client.get(f"/v1/files/{file['id']}/content")
            assert back.content == content
            assert back.headers["content-type"] == "application/octet-stream"
            gone = await client.delete(f"/v1/files/{file['id']}")
            assert gone.json() == {"id": file["id"], "object": "file", "deleted": True}
            for path in ("", "/content"):
                assert (await client.get(f"/v1/files/{file['id']}{path}")).status_code == 404
            assert (await client.delete(f"/v1/files/{file['id']}")).status_code == 404

    asyncio.run(body())


def test_files_outlive_the_server(tmp_path: Path) -> None:
    async def body() -> None:
        async with storing(tmp_path) as client:
            file = (await upload(client, b"kept")).json()
        async with storing(tmp_path) as client:
            assert (await client.get(f"/v1/files/{file['id']}")).json() == file
            assert (await client.get(f"/v1/files/{file['id']}/content")).content == b"kept"

    asyncio.run(body())


def test_a_list_comes_in_pages_of_either_order(tmp_path: Path) -> None:
    async def body() -> None:
        async with storing(tmp_path) as client:
            ids = [(await upload(client, b"x")).json()["id"] for _ in range(5)]
            whole = (await client.get("/v1/files")).json()
            assert [file["id"] for file in whole["data"]] == ids[::-1]
            assert (whole["object"], whole["has_more"]) == ("list", False)
            first = (await client.get("/v1/files", params={"limit": 2, "order": "asc"})).json()
            assert [file["id"] for file in first["data"]] == ids[:2]
            assert (first["first_id"], first["last_id"], first["has_more"]) == (ids[0], ids[1], True)
            rest = (await client.get("/v1/files", params={"after": ids[1], "order": "asc", "limit": 3})).json()
            assert [file["id"] for file in rest["data"]] == ids[2:]
            assert rest["has_more"] is False
            assert (await client.get("/v1/files", params={"purpose": "batch_output"})).json()["data"] == []
            assert len((await client.get("/v1/files", params={"purpose": "batch"})).json()["data"]) == 5

    asyncio.run(body())


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "10001"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"limit": "٣"}, "limit"),
        ({"order": "up"}, "order"),
        ({"purpose": "fine-tune"}, "purpose"),
        ({"after": "file-nothing"}, "after"),
        ({"after": ""}, "after"),
        ({"before": "x"}, "before"),
        ([("limit", "1"), ("limit", "2")], "limit"),
    ],
)
def test_a_query_that_would_be_ignored_is_refused(tmp_path: Path, query: Any, param: str) -> None:
    async def body() -> None:
        async with storing(tmp_path) as client:
            answer = await client.get("/v1/files", params=query)
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == param

    asyncio.run(body())


def test_tenants_do_not_see_each_other(tmp_path: Path) -> None:
    async def body() -> None:
        async with storing(tmp_path) as client:
            file = (await upload(client, b"mine", tenant="a")).json()
            other = {"x-tenant": "b"}
            for path in (f"/v1/files/{file['id']}", f"/v1/files/{file['id']}/content"):
                assert (await client.get(path, headers=other)).status_code == 404
            assert (await client.delete(f"/v1/files/{file['id']}", headers=other)).status_code == 404
            assert (await client.get("/v1/files", headers=other)).json()["data"] == []
            assert (await client.get(f"/v1/files/{file['id']}", headers={"x-tenant": "a"})).status_code == 200

    asyncio.run(body())


def test_a_file_is_gone_when_its_time_is_over(tmp_path: Path) -> None:
    async def body() -> None:
        clock = Clock()
        life = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
        async with storing(tmp_path, clock=clock) as client:
            file = (await upload(client, b"short-lived", **life)).json()
            assert file["expires_at"] == file["created_at"] + 3600
            clock.now += 3599
            assert (await client.get(f"/v1/files/{file['id']}")).status_code == 200
            clock.now += 1
            assert (await client.get(f"/v1/files/{file['id']}")).status_code == 404
            assert (await client.get("/v1/files")).json()["data"] == []
            await client.batches.files.sweep(client.batches.reader_of)  # type: ignore[attr-defined]
            clock.now -= 3600
            assert (await client.get(f"/v1/files/{file['id']}")).status_code == 404

    asyncio.run(body())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"purpose": "fine-tune"}, "purpose"),
        ({"purpose": "assistants"}, "purpose"),
        ({"expires_after[seconds]": "3600"}, "expires_after"),
        ({"expires_after[anchor]": "created_at"}, "expires_after"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "3599"}, "expires_after"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "9" * 4000}, "expires_after"),
        ({"comment": "hello"}, "comment"),
    ],
)
def test_fields_that_cannot_be_honoured_are_refused(tmp_path: Path, fields: dict[str, str], param: str) -> None:
    async def body() -> None:
        async with storing(tmp_path) as client:
            answer = await upload(client, b"x", **fields)
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == param
            assert (await client.get("/v1/files")).json()["data"] == []

    asyncio.run(body())


FORM = {"content-type": "multipart/form-data; boundary=b"}


@pytest.mark.parametrize(
    ("headers", "content", "status"),
    [
        ({"content-type": "application/json"}, b"{}", 415),
        ({}, b"", 415),
        ({"content-type": "multipart/form-data"}, b"", 400),
        (FORM, b"", 400),
        (FORM, b"garbage", 400),
        (FORM, b"--b\r\n\r\n\r\n--b--", 400),
        (FORM, b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--', 400),
        (FORM, b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nnever ends', 400),
        (FORM, b'--b\r\nContent-Disposition: form-data; name="file"; filename=""\r\n\r\nx\r\n--b--', 400),
        (
            {"content-type": "multipart/form-data; boundary=b; charset=idna"},
            b"--b\r\nx: \xff\r\n\r\n\xff\r\n--b--",
            400,
        ),
        ({"content-type": "multipart/form-data; boundary=b; charset=a\0b"}, b"--b", 400),
        (FORM, b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n' + b"x" * 10_000 + b"\r\n--b--", 400),
        (FORM, b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * 40 + b"--b--", 400),
    ],
)
def test_what_is_no_form_with_a_file_is_refused(
    tmp_path: Path, headers: dict[str, str], content: bytes, status: int
) -> None:
    async def body() -> None:
        async with storing(tmp_path) as client:
            answer = await client.post("/v1/files", content=content, headers=headers)
            assert answer.status_code == status, answer.text
            assert answer.json()["error"]["message"]
            assert (await client.get("/v1/files")).json()["data"] == []

    asyncio.run(body())


def test_an_upload_beyond_the_cap_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        async with storing(tmp_path) as client:
            client.batches.files.most_bytes = 100_000  # type: ignore[attr-defined]
            assert (await upload(client, b"x" * 100_000)).status_code == 200
            for size in (100_001, 1_000_000):  # told by the file's size, and while it is still coming
                answer = await upload(client, b"x" * size)
                assert answer.status_code == 413
                assert answer.json()["error"]["code"] == "request_too_large"
            assert len((await client.get("/v1/files")).json()["data"]) == 1

    asyncio.run(body())


def test_a_file_that_a_batch_reads_stays_until_the_batch_ends(tmp_path: Path) -> None:
    async def body() -> None:
        go_on = asyncio.Event()

        async def wait(_: dict[str, Any]) -> None:
            await go_on.wait()

        async with storing(tmp_path, Answerer(wait)) as client:
            batch = await start_batch(client, request_line("one"))
            answer = await client.delete(f"/v1/files/{batch['input_file_id']}")
            assert answer.status_code == 400
            assert batch["id"] in answer.json()["error"]["message"]
            go_on.set()
            await reach(client, batch["id"], "completed")
            assert (await client.delete(f"/v1/files/{batch['input_file_id']}")).status_code == 200

    asyncio.run(body())
