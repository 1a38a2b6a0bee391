"""Builds quire's sdist and wheels, and lets nothing into dist/ that an index or a bare machine would refuse.

Each wheel is built from the sdist, so the sdist is complete; and is installed where PATH has no compiler, so it is too.
"""

import argparse
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SDIST_HOLDS = frozenset(
    {"CHANGELOG.md", "CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "SECURITY.md", "pyproject.toml", "quire"}
)
VARIANTS = {
    "x86_64": {"portable", "avx2", "avxvnni", "avx512", "amx"},
    "aarch64": {"portable", "dotprod", "i8mm"},
}
"""The instruction sets that a wheel has kernels for. A compiler that is too old leaves some out without an error."""
QUESTION = "The planets of the solar system, in order, are"
CORE = "quire/ops/cpu/_core."


class Unfit(Exception):
    """Something that must not be published, and why."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel's file, and what its name promises."""

    path: Path

    @property
    def python(self) -> str:
        return self.path.stem.split("-")[-3]

    @property
    def abi(self) -> str:
        return self.path.stem.split("-")[-2]

    @property
    def platform(self) -> str:
        return self.path.stem.split("-")[-1]

    @property
    def architecture(self) -> str:
        found = [name for name in VARIANTS if self.platform.endswith(name)]
        if not found:
            raise Unfit(f"{self.path.name} is for {self.platform}; wheels are built for {' and '.join(VARIANTS)}.")
        return found[0]

    def runs_on(self, minor: int) -> bool:
        """Whether CPython 3.`minor` may install it."""
        oldest = int(self.python.removeprefix("cp3"))
        return minor == oldest or (self.abi == "abi3" and minor > oldest)


def main() -> int:
    """Build, check and try; the exit code is 1 where something is unfit."""
    options = _options()
    try:
        if options.installed:
            here = Path(sys.executable).parent
            try_installed(here, _without_python_settings(), platform.machine(), ask=not options.no_answer)
            return 0
        options.out.mkdir(parents=True, exist_ok=True)
        sdist = build_sdist(options.out)
        check_sdist(sdist)
        wheels: list[Wheel] = []
        for python in options.python:
            minor = _minor(python)
            wheel = next((known for known in wheels if known.runs_on(minor)), None)
            if wheel is None:
                wheel = build_wheel(python, sdist, options.out)
                check_wheel(wheel)
                wheels.append(wheel)
            if not options.no_install:
                try_wheel(python, wheel, ask=not options.no_answer)
        _run(sys.executable, "-m", "twine", "check", "--strict", str(sdist), *(str(wheel.path) for wheel in wheels))
    except Unfit as why:
        print(f"scripts/wheel: {why}", file=sys.stderr)
        return 1
    print("\n".join(["ready:", f"  {sdist}", *(f"  {wheel.path}" for wheel in wheels)]))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/wheel", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the files go (default: dist/)")
    parser.add_argument(
        "--python",
        action="append",
        metavar="PATH",
        help="build for this interpreter, or try an earlier wheel that fits it; may be given again (default: its own)",
    )
    parser.add_argument("--no-install", action="store_true", help="build and check, but install nothing")
    parser.add_argument("--no-answer", action="store_true", help="install, but ask the default model nothing")
    parser.add_argument("--installed", action="store_true", help="build nothing: try the quire of this interpreter")
    options = parser.parse_args()
    options.python = options.python or [sys.executable]
    options.out = options.out.resolve()  # what is installed is run elsewhere
    return options


def build_sdist(out: Path) -> Path:
    """The sdist of the tree, alone in a folder first, so that an older one is not taken for it."""
    with tempfile.TemporaryDirectory(dir=out, prefix=".sdist-") as scratch:
        _run(sys.executable, "-m", "build", "--sdist", "--outdir", scratch, str(ROOT))
        return _moved(_only(Path(scratch), "*.tar.gz"), out)


def check_sdist(path: Path) -> None:
    """Raise Unfit where the sdist lacks a part or has one that builds nothing."""
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    found = {name.partition("/")[0] for name in names} - {""}
    if found != SDIST_HOLDS:
        missing, extra = sorted(SDIST_HOLDS - found), sorted(found - SDIST_HOLDS)
        raise Unfit(
            f"{path.name} lacks {missing} and should not have {extra}; sdist.exclude in pyproject.toml decides."
        )
    compiled = [name for name in names if name.endswith((".so", ".pyc"))]
    if compiled:
        raise Unfit(f"{path.name} holds compiled files, {compiled[0]} among them; .gitignore should keep them out.")
    if "quire/ops/cpu/csrc/module.cpp" not in names:
        raise Unfit(f"{path.name} has no sources of the native core.")


def build_wheel(python: str, sdist: Path, out: Path) -> Wheel:
    """The wheel of an interpreter, with the platform tag that its symbols deserve."""
    with tempfile.TemporaryDirectory(dir=out, prefix=".wheel-") as scratch:
        raw, repaired = Path(scratch, "raw"), Path(scratch, "repaired")
        # pip's cache knows an sdist by its path, and would hand out the wheel of the last one there
        settings = ("--no-cache-dir", "--config-settings=cmake.define.QUIRE_PORTABLE=ON")
        _run(python, "-m", "pip", "wheel", "--no-deps", *settings, "--wheel-dir", str(raw), str(sdist))
        built = _only(raw, "*.whl")
        if built.stem.endswith("-any"):
            raise Unfit(
                f"{built.name} has no native core, since compiling failed; `{python} -m pip wheel -v .` shows why."
            )
        _run(sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", str(repaired), str(built))
        return Wheel(_moved(_only(repaired, "*.whl"), out))


def check_wheel(wheel: Wheel) -> None:
    """Raise Unfit where the wheel's contents and its name do not agree."""
    with zipfile.ZipFile(wheel.path) as archive:
        names = archive.namelist()
    cores = [name for name in names if name.startswith(CORE) and name.endswith(".so")]
    expected = f"{CORE}abi3.so" if wheel.abi == "abi3" else f"{CORE}cpython-{wheel.python.removeprefix('cp')}-"
    if len(cores) != 1 or not cores[0].startswith(expected):
        raise Unfit(f"{wheel.path.name} holds the cores {cores}, and one called {expected}… was expected.")
    if "manylinux" not in wheel.platform:
        raise Unfit(f"{wheel.path.name} has no manylinux tag, so an index would refuse it.")
    strange = [name for name in names if not name.startswith(("quire/", "quire-")) or "/csrc/" in name]
    if strange:
        raise Unfit(f"{wheel.path.name} holds {strange[0]}, which is no part of the package.")
    if "quire/py.typed" not in names:
        raise Unfit(f"{wheel.path.name} has no py.typed, so its types would be ignored.")


def try_wheel(python: str, wheel: Wheel, *, ask: bool) -> None:
    """Install the wheel into a new environment, whose PATH is that environment alone, and use it."""
    with tempfile.TemporaryDirectory(prefix="quire-wheel-") as folder:
        _run(python, "-m", "venv", folder)
        programs = Path(folder, "bin")
        bare = {**_without_python_settings(), "PATH": str(programs)}
        print(f"--- {wheel.path.name} in a bare environment of {python}")
        pip = (str(programs / "python"), "-m", "pip", "install", "--quiet", "--only-binary", ":all:")
        _run(*pip, str(wheel.path), env=bare, cwd=folder)
        try_installed(programs, bare, wheel.architecture, ask=ask)


def try_installed(programs: Path, env: dict[str, str], architecture: str, *, ask: bool) -> None:
    """Raise Unfit unless the quire whose programs these are is this version, has every kernel, and answers."""
    # run elsewhere, or Python would find the package of the tree
    with tempfile.TemporaryDirectory() as elsewhere:
        version = _run(str(programs / "quire"), "--version", env=env, cwd=elsewhere).strip()
        if version != tree_version():
            raise Unfit(f"the installed quire calls itself {version}, and the tree {tree_version()}.")
        core = "from quire.ops.cpu import _core; print(*_core.compiled_variants())"
        compiled = set(_run(str(programs / "python"), "-c", core, env=env, cwd=elsewhere).split())
        missing = sorted(VARIANTS[architecture] - compiled)
        if missing:
            raise Unfit(f"the native core lacks kernels for {', '.join(missing)}; build it with a newer compiler.")
        if ask:
            command = ("complete", QUESTION, "--max-tokens", "28", "--temperature", "0")
            answer = _run(str(programs / "quire"), *command, env=env, cwd=elsewhere)
            if "Venus" not in answer:
                raise Unfit(f"the default model answers {answer.strip()[-200:]!r}.")


def tree_version() -> str:
    """What quire/core/version.py says; read, since importing it would find whatever quire is installed."""
    text = (ROOT / "quire" / "core" / "version.py").read_text(encoding="utf-8")
    return text.partition('QUIRE_VERSION = "')[2].partition('"')[0]


def _without_python_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _minor(python: str) -> int:
    return int(_run(python, "-c", "import sys; print(sys.version_info[1])"))


def _run(*command: str, env: dict[str, str] | None = None, cwd: str | None = None) -> str:
    """What a command prints, shown as well; Unfit where it fails."""
    try:
        done = subprocess.run(command, env=env, cwd=cwd, stdout=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        raise Unfit(f"`{' '.join(command)}` does not start: {error.strerror}.") from None
    print(done.stdout, end="", flush=True)
    if done.returncode:
        raise Unfit(f"`{' '.join(command)}` failed with exit code {done.returncode}; its output is above.")
    return done.stdout


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise Unfit(f"{folder} holds {len(found)} files {pattern}, and one was expected.")
    return found[0]


def _moved(path: Path, folder: Path) -> Path:
    return path.replace(folder / path.name)


if __name__ == "__main__":
    sys.exit(main())
