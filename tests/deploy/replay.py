"""Dockerfiles replayed without Docker: a stage is a folder that starts as Debian, and RUN steps run in it by chroot.

It knows what quire's Dockerfiles use of the format, and refuses anything else. It needs root and debootstrap.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
_RELEASE = re.compile(r"debian:(\w+)-slim")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_MOUNTS = "mount --bind /dev {root}/dev && mount --bind /sys {root}/sys && mount -t proc proc {root}/proc"
_READ_ONLY = "mount --bind {root} {root} && mount -o remount,ro,bind {root}"


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a Dockerfile, its lines joined."""

    word: str
    rest: str


@dataclass(slots=True)
class Image:
    """A stage as far as it has come: a folder, and what is said about processes in it."""

    root: Path
    environment: dict[str, str] = field(
        default_factory=lambda: {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    )
    shell: list[str] = field(default_factory=lambda: ["/bin/sh", "-c"])
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)

    def invocation(self, command: list[str], volumes: dict[Path, str] | None = None) -> list[str]:
        """A command as a container would run it: its user, a read-only root, /tmp in memory, and volumes."""
        mounts = [_READ_ONLY, _MOUNTS, "mount -t tmpfs tmpfs {root}/tmp"]
        mounts += [f"mount --bind {source} {{root}}{target}" for source, target in (volumes or {}).items()]
        chroot = ["chroot", f"--userspec={self.user}", str(self.root), "env", "-i", *_pairs(self.environment), *command]
        script = " && ".join(mounts).format(root=self.root) + f" && exec {shlex.join(chroot)}"
        return ["unshare", "--mount", "sh", "-c", script]

    def run(self, script: str, arguments: dict[str, str]) -> None:
        """One RUN step."""
        environment = self.environment | arguments | _for_packages(self.root)
        chroot = ["chroot", str(self.root), "env", "-i", *_pairs(environment), *self.shell, script]
        outside = _MOUNTS.format(root=self.root) + f" && exec {shlex.join(chroot)}"
        done = subprocess.run(["unshare", "--mount", "sh", "-c", outside], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"RUN {script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def steps(dockerfile: Path) -> list[Step]:
    """In order, without comments."""
    lines = [line for line in dockerfile.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found = []
    for line in joined.splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            found.append(Step(word, rest.strip()))
    return found


def debian(dockerfile: Path, folder: Path) -> Path:
    """What the base image is made of: Debian's smallest set of packages, by debootstrap."""
    (release,) = _RELEASE.findall(next(step.rest for step in steps(dockerfile) if step.rest.startswith("BASE=")))
    command = ["debootstrap", "--variant=minbase", str(release), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


def replay(dockerfile: Path, base: Path, folder: Path, given: dict[str, str]) -> Image:
    """The last stage of a Dockerfile. `given` are build arguments that differ from the file's own."""
    stages: dict[str, Image] = {}
    arguments: dict[str, str] = {}
    image: Image | None = None
    for step in steps(dockerfile):
        if step.word == "ARG":
            name, _, value = step.rest.partition("=")
            arguments[name] = given.get(name, value.strip('"'))
            continue
        if step.word == "FROM":
            assert step.rest.startswith("${BASE}"), step
            name = step.rest.partition(" AS ")[2] or "last"
            subprocess.run(["cp", "-a", str(base), str(folder / name)], check=True)
            image = stages[name] = Image(folder / name)
            shutil.copyfile("/etc/resolv.conf", image.root / "etc" / "resolv.conf")
            continue
        assert image is not None, step
        _apply(step, image, stages, arguments)
    assert image is not None
    return image


def _apply(step: Step, image: Image, stages: dict[str, Image], arguments: dict[str, str]) -> None:
    match step.word:
        case "RUN":
            image.run(step.rest, arguments)
        case "SHELL":
            image.shell = json.loads(step.rest)
        case "COPY":
            _copy(step.rest, image.root, stages)
        case "ENV":
            for pair in step.rest.split():
                name, _, value = pair.partition("=")
                image.environment[name] = value.replace("$PATH", image.environment["PATH"])
        case "USER":
            image.user = step.rest
        case "VOLUME":
            image.volumes = json.loads(step.rest)
        case "HEALTHCHECK":
            image.health = json.loads(step.rest.partition("CMD ")[2])
        case "ENTRYPOINT":
            image.entrypoint = json.loads(step.rest)
        case "CMD":
            image.command = json.loads(step.rest)
        case "EXPOSE":
            pass
        case _:
            raise AssertionError(f"{step.word} is not replayed; add it, or leave it out of the Dockerfile")


def _copy(rest: str, root: Path, stages: dict[str, Image]) -> None:
    *sources, target = rest.split()
    origin = ROOT
    if sources[0].startswith("--from="):
        origin = stages[sources.pop(0).removeprefix("--from=")].root
    is_folder = target.endswith("/")
    place = root / target.strip("/")
    (place if is_folder else place.parent).mkdir(parents=True, exist_ok=True)
    for source in sources:
        found = origin / source.strip("/")
        if found.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "_core*.so*") if origin == ROOT else None
            shutil.copytree(found, place, symlinks=True, ignore=ignored)
        else:
            shutil.copy(found, place / found.name if is_folder else place)


def _pairs(environment: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in environment.items()]


def _for_packages(root: Path) -> dict[str, str]:
    """Whom this machine trusts, and its proxies: package indexes may be reached through one."""
    if not _CERTIFICATES.exists():
        return {}
    shutil.copyfile(_CERTIFICATES, root / "tmp" / "certificates")
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    return proxies | {"PIP_CERT": "/tmp/certificates", "DEBIAN_FRONTEND": "noninteractive"}
