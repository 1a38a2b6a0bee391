"""The socket the server listens on: taken ports, odd hosts, unix sockets, certificates and open files."""

import resource
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from quire.config.server import ServerConfig
from quire.core.errors import ConfigError
from quire.server.drain import Drain
from quire.server.listen.address import allow_open_files, bind, url_of
from quire.serving.tls import tls_context
from tests.server.gate.gate_app import application
from tests.server.served import served

ROOT = Path(__file__).parents[3]


def test_the_real_port_is_told() -> None:
    config = ServerConfig(port=0)
    with bind(config) as listening:
        port = listening.getsockname()[1]
        assert port > 0
        assert url_of(listening, config) == f"http://127.0.0.1:{port}"


def test_a_taken_port_is_told_with_a_way_out() -> None:
    with bind(ServerConfig(port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1 port {port}: another program does.*--port 0"):
            bind(ServerConfig(port=port))
    bind(ServerConfig(port=port)).close()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("no.such.host.invalid", "which is no address here"),
        ("203.0.113.1", "no such address"),
        ("a" * 300, "--host is"),
    ],
)
def test_a_host_that_is_not_here_is_told(host: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        bind(ServerConfig(host=host, port=0))


def test_a_unix_socket_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "quire.sock"
    config = ServerConfig(uds=str(path))
    with bind(config) as listening:
        assert path.stat().st_mode & 0o777 == 0o600
        assert url_of(listening, config) == f"unix:{path}"
        with pytest.raises(ConfigError, match="another program does"):
            bind(config)
    bind(config).close()  # the one before is left over
    path.unlink()
    path.write_text("mine")
    with pytest.raises(ConfigError, match="there is a file of that name"):
        bind(config)
    assert path.read_text() == "mine"
    with pytest.raises(ConfigError, match="cannot listen on --uds"):
        bind(ServerConfig(uds=str(tmp_path / "none" / "x.sock")))


def test_open_files_are_raised_to_what_is_granted() -> None:
    code = (
        "import resource; hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (300, min(hard, 1024)))\n"
        "from quire.server.listen.address import allow_open_files\n"
        "print(allow_open_files(10), allow_open_files(10**6), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["10", "768", "1024"]
    assert allow_open_files(1) == 1
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 0


def test_a_unix_socket_serves(tmp_path: Path) -> None:
    drain = Drain()
    path = str(tmp_path / "quire.sock")
    with (
        served(application(drain=drain), drain, uds=path),
        httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://quire") as client,
    ):
        assert client.get("/health").text == "ok"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    try:
        subprocess.run([*command, *names, "-out", cert, "-keyout", key], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return cert, key


def test_tls(certificate: tuple[str, str]) -> None:
    cert, key = certificate
    drain = Drain()
    with served(application(drain=drain), drain, ssl_certfile=cert, ssl_keyfile=key) as server:
        assert server.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=cert)
        assert httpx.get(server.url + "/health", verify=trusting).text == "ok"
        with httpx.Client(verify=trusting) as client:
            assert client.post(server.url + "/size", content=b"x" * 200_000).text == "200000"


def test_a_certificate_that_cannot_be_used_is_told(certificate: tuple[str, str], tmp_path: Path) -> None:
    cert, key = certificate
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    locked = str(tmp_path / "locked.pem")
    command = ["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", locked]
    subprocess.run(command, check=True, capture_output=True)
    for pair in ((str(bad), key), (cert, str(tmp_path / "none.pem")), (cert, None), (cert, locked)):
        with pytest.raises(ConfigError, match="for TLS"):
            tls_context(ServerConfig(ssl_certfile=pair[0], ssl_keyfile=pair[1]))
    assert tls_context(ServerConfig()) is None
