"""Who the members are: from a file that changes, from DNS, and from a cluster's API."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from quire.config.router import RouterConfig
from quire.core.errors import ConfigError
from quire.router.members import Members
from quire.router.sources.dns import DnsSource
from quire.router.sources.file import FileSource
from quire.router.sources.kubernetes import KubernetesSource
from quire.router.sources.source import Named, SourceFailed, apply
from tests.router.fake_member import FakeMember, Got, Writing, fake_members


def written(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1_000_000))


def test_a_file_is_read_when_it_changes(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "members"
        written(path, "# ours\nhttp://a:1\n\nhttp://b:2 role=decode  # the new one\nhttp://c:3 drain\n")
        source = FileSource(path)
        found = [Named("http://a:1"), Named("http://b:2", "decode"), Named("http://c:3", "both", True)]
        assert await source.look() == found
        assert await source.look() is None
        written(path, "http://a:1\n")
        assert await source.look() == [Named("http://a:1")]
        for wrong, words in (
            ("a:1", "is no member"),
            ("http://a:1 role=x", "neither drain"),
            ("\xff" * 9, "is no member"),
        ):
            written(path, wrong)
            with pytest.raises(SourceFailed, match=words):
                await source.look()
        path.unlink()
        with pytest.raises(SourceFailed, match="cannot be read"):
            await source.look()

    asyncio.run(main())


def test_who_is_named_no_more_drains_and_leaves() -> None:
    async def main() -> None:
        members = Members(RouterConfig())
        given = members.add("http://given:1", "given")
        apply([Named("http://a:1"), Named("http://b:1"), Named("http://given:1")], "file", members)
        first, second = members.get("http://a:1"), members.get("http://b:1")
        assert first is not None
        assert second is not None
        with first.working(5):
            apply([], "file", members)
            assert first.is_draining
            assert {each.address.host for each in members} == {"given", "a"}
            assert not given.is_draining
            apply([Named("http://a:1")], "file", members)
            assert not first.is_draining
        apply([], "file", members)
        assert [each.address.host for each in members] == ["given"]

    asyncio.run(main())


def test_an_admins_word_outlives_a_sources() -> None:
    async def main() -> None:
        members = Members(RouterConfig())
        apply([Named("http://a:1")], "dns", members)
        [member] = members
        members.hold_out(member, held_out=True)
        apply([Named("http://a:1")], "dns", members)
        member.become("ready")
        assert not member.takes_work

    asyncio.run(main())


def test_dns() -> None:
    async def main() -> None:
        found = await DnsSource("localhost:8000").look()
        assert found is not None
        assert Named("http://127.0.0.1:8000") in found or Named("http://[::1]:8000") in found
        with pytest.raises(SourceFailed, match="cannot be resolved"):
            await DnsSource("no-such-host.invalid:80").look()

    asyncio.run(main())


def a_slice(*endpoints: dict[str, Any], kind: str = "IPv4", ports: Any = None) -> dict[str, Any]:
    return {
        "addressType": kind,
        "endpoints": list(endpoints),
        "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}] if ports is None else ports,
        "metadata": {"name": "x"},
    }


def endpoint(host: str, **conditions: bool) -> dict[str, Any]:
    return {"addresses": [host], "conditions": conditions, "nodeName": "n"}


SLICES = {
    "kind": "EndpointSliceList",
    "metadata": {"resourceVersion": "1"},
    "items": [
        a_slice(
            endpoint("10.0.0.1", ready=True, serving=True, terminating=False),
            endpoint("10.0.0.2", ready=False, serving=False, terminating=False),
            endpoint("10.0.0.3", ready=False, serving=True, terminating=True),
            endpoint("10.0.0.4"),
        ),
        a_slice(endpoint("fd00::1", ready=True), kind="IPv6"),
        a_slice(endpoint("some.name", ready=True), kind="FQDN"),
    ],
}


def test_kubernetes(tmp_path: Path) -> None:
    asked: list[Got] = []
    answers: list[tuple[int, Any]] = []

    async def api(got: Got, writing: Writing) -> None:
        asked.append(got)
        status, told = answers.pop(0)
        await writing.whole(status, told)

    async def main() -> None:
        server = FakeMember(handler=api)
        async with fake_members(server):
            host, port = server.url.removeprefix("http://").split(":")
            environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

            def source(place: str) -> KubernetesSource:
                return KubernetesSource(place, environment, tmp_path, "http")

            with pytest.raises(SourceFailed, match="no token"):
                await source("space/quire").look()
            (tmp_path / "token").write_text("secret\n")
            answers.append((200, SLICES))
            assert await source("space/quire").look() == [
                Named("http://10.0.0.1:8000"),
                Named("http://10.0.0.3:8000", is_draining=True),
                Named("http://10.0.0.4:8000"),
                Named("http://[fd00::1]:8000"),
            ]
            assert asked[0].headers["authorization"] == "Bearer secret"
            assert asked[0].target == (
                "/apis/discovery.k8s.io/v1/namespaces/space/endpointslices"
                "?labelSelector=kubernetes.io%2Fservice-name%3Dquire"
            )
            answers.append((200, SLICES))
            found = await source("space/quire:9000").look()
            assert found is not None
            assert found[0] == Named("http://10.0.0.1:9000")
            answers.append((200, SLICES))
            assert await source("space/quire:other").look() == []
            answers.append((403, {"message": "may not list"}))
            with pytest.raises(SourceFailed, match=r"403.*may not list"):
                await source("space/quire").look()
            answers.append((200, {"items": 5}))
            with pytest.raises(SourceFailed, match="no list of EndpointSlices"):
                await source("space/quire").look()
        with pytest.raises(SourceFailed, match="does not answer"):
            await source("space/quire").look()

    asyncio.run(main())


def test_kubernetes_is_in_a_cluster() -> None:
    with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST"):
        KubernetesSource("space/quire", {})


def test_a_source_that_fails_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from quire.router.sources.source import follow

    async def main() -> None:
        members = Members(RouterConfig())
        path = tmp_path / "members"
        written(path, "http://a:1")
        source = FileSource(path)
        source.every = 0.01
        following = asyncio.create_task(follow(source, members))
        await asyncio.sleep(0.1)
        assert len(members) == 1
        written(path, "nonsense")
        await asyncio.sleep(0.2)
        assert len(members) == 1
        written(path, json.dumps("x"))
        following.cancel()

    asyncio.run(main())
    assert sum("stay as they are" in record.message for record in caplog.records) == 1
