"""What scripts/wheel refuses to publish, and which interpreters one wheel serves."""

import re
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from quire.core.version import QUIRE_VERSION
from quire.ops.cpu import native
from tests.release.conftest import SCRIPTS

ABI3 = "quire-1.0.0-cp312-abi3-manylinux_2_28_x86_64.whl"
OWN = "quire-1.0.0-cp311-cp311-manylinux_2_35_aarch64.whl"
GOOD = ("quire/__init__.py", "quire/py.typed", "quire-1.0.0.dist-info/METADATA")


def made(script: ModuleType, folder: Path, name: str, *members: str) -> Any:
    with zipfile.ZipFile(folder / name, "w") as archive:
        for member in members:
            archive.writestr(member, "")
    return script.Wheel(folder / name)


def test_one_wheel_serves_the_versions_that_its_name_promises(wheel_script: ModuleType) -> None:
    stable, own = wheel_script.Wheel(Path(ABI3)), wheel_script.Wheel(Path(OWN))
    assert [minor for minor in range(10, 15) if stable.runs_on(minor)] == [12, 13, 14]
    assert [minor for minor in range(10, 15) if own.runs_on(minor)] == [11]
    assert (stable.architecture, own.architecture) == ("x86_64", "aarch64")


def test_good_wheels_pass(tmp_path: Path, wheel_script: ModuleType) -> None:
    wheel_script.check_wheel(made(wheel_script, tmp_path, ABI3, *GOOD, "quire/ops/cpu/_core.abi3.so"))
    core = "quire/ops/cpu/_core.cpython-311-aarch64-linux-gnu.so"
    wheel_script.check_wheel(made(wheel_script, tmp_path, OWN, *GOOD, core))


@pytest.mark.parametrize(
    ("name", "members", "expected"),
    [
        (ABI3, GOOD, r"holds the cores \[\], and one called quire/ops/cpu/_core.abi3.so"),
        (ABI3, (*GOOD, "quire/ops/cpu/_core.cpython-312-x86_64-linux-gnu.so"), r"holds the cores .*cpython-312"),
        (OWN, (*GOOD, "quire/ops/cpu/_core.abi3.so"), r"one called quire/ops/cpu/_core.cpython-311-"),
        (ABI3.replace("manylinux_2_28", "linux"), (*GOOD, "quire/ops/cpu/_core.abi3.so"), "has no manylinux tag"),
        (ABI3, (*GOOD, "quire/ops/cpu/_core.abi3.so", "tests/test_x.py"), "holds tests/test_x.py, which is no part"),
        (ABI3, (*GOOD, "quire/ops/cpu/_core.abi3.so", "quire/ops/cpu/csrc/isa.cpp"), "holds quire/ops/cpu/csrc/isa"),
        (ABI3, (GOOD[0], "quire/ops/cpu/_core.abi3.so"), "has no py.typed"),
    ],
)
def test_others_are_refused(
    tmp_path: Path, wheel_script: ModuleType, name: str, members: tuple[str, ...], expected: str
) -> None:
    with pytest.raises(wheel_script.Unfit, match=expected):
        wheel_script.check_wheel(made(wheel_script, tmp_path, name, *members))


def test_wheels_of_other_machines_are_refused(wheel_script: ModuleType) -> None:
    wheel = wheel_script.Wheel(Path("quire-1.0.0-cp312-abi3-manylinux_2_28_riscv64.whl"))
    with pytest.raises(
        wheel_script.Unfit, match="is for manylinux_2_28_riscv64; wheels are built for x86_64 and aarch64"
    ):
        _ = wheel.architecture


def installed(folder: Path, version: str, variants: str, answer: str) -> Path:
    """Programs that say this when asked for their version, for the core's kernels, for planets."""
    for name, says in (
        ("quire", f'[ "$1" = --version ] && echo {version} || echo {answer}'),
        ("python", f"echo {variants}"),
    ):
        (folder / name).write_text(f"#!/bin/sh\n{says}\n")
        (folder / name).chmod(0o755)
    return folder


def test_an_installation_that_answers_is_fit(tmp_path: Path, wheel_script: ModuleType) -> None:
    programs = installed(tmp_path, QUIRE_VERSION, "portable dotprod i8mm", "Mercury, Venus")
    wheel_script.try_installed(programs, {}, "aarch64", ask=True)


@pytest.mark.parametrize(
    ("version", "variants", "answer", "expected"),
    [
        ("9.9.9", "portable dotprod i8mm", "Venus", rf"calls itself 9\.9\.9, and the tree {re.escape(QUIRE_VERSION)}"),
        (QUIRE_VERSION, "portable", "Venus", "lacks kernels for dotprod, i8mm; build it with a newer compiler"),
        (QUIRE_VERSION, "portable dotprod i8mm", "Pluto", "the default model answers 'Pluto'"),
    ],
)
def test_other_installations_are_not(
    tmp_path: Path, wheel_script: ModuleType, version: str, variants: str, answer: str, expected: str
) -> None:
    programs = installed(tmp_path, version, variants, answer)
    with pytest.raises(wheel_script.Unfit, match=expected):
        wheel_script.try_installed(programs, {}, "aarch64", ask=True)


def test_without_an_installation_there_is_nothing_to_try(tmp_path: Path, wheel_script: ModuleType) -> None:
    with pytest.raises(wheel_script.Unfit, match="--version` does not start: No such file or directory"):
        wheel_script.try_installed(tmp_path, {}, "aarch64", ask=False)


def test_the_instruction_sets_asked_for_are_those_of_the_build(wheel_script: ModuleType) -> None:
    """A new `add_variant` that scripts/wheel does not ask for could go missing from a wheel."""
    built = (SCRIPTS.parent / "quire" / "ops" / "cpu" / "csrc" / "kernels.cmake").read_text(encoding="utf-8")
    named = {
        line.strip().removeprefix("add_variant(").split(")")[0].split()[0]
        for line in built.splitlines()
        if line.strip().startswith("add_variant(")
    }
    assert named == set().union(*wheel_script.VARIANTS.values())


def test_a_core_runs_only_what_it_was_compiled_for(wheel_script: ModuleType) -> None:
    core = native.load()
    if core is None:
        pytest.skip("the native core is not built here")
    compiled = core.compiled_variants()
    assert set(core.variants()) <= set(compiled)
    assert compiled[0] == core.variants()[-1] == "portable"
    assert any(set(compiled) <= known for known in wheel_script.VARIANTS.values())
