# Sourced by the scripts beside it: sets `root` and `venv_python`, and makes the project's `.venv` ready.
# shellcheck shell=bash

root="$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"
venv_python="$venv/bin/python"

say() { printf 'quire: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Succeeds for a Python this project runs on that can also create environments (Debian ships some that cannot).
is_suitable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

describe() {
    "$1" -c 'import platform; print("Python", platform.python_version())' 2>/dev/null || echo "not a working Python"
}

real_path() { "$1" -c 'import sys; print(sys.executable)'; }

# Prints the interpreter to build the environment with. A name on PATH may be a shim with nothing behind it, so each is run.
find_python() {
    local candidate
    if [[ -n "${PYTHON:-}" ]]; then
        is_suitable "$PYTHON" ||
            die "PYTHON=$PYTHON is $(describe "$PYTHON"); quire needs Python 3.11, 3.12 or 3.13 with the venv module."
        real_path "$PYTHON"
        return
    fi
    for candidate in python3.13 python3.12 python3.11 python3; do
        if is_suitable "$candidate"; then
            real_path "$candidate"
            return
        fi
    done
    die "found no Python 3.11, 3.12 or 3.13 with the venv module (python3 is $(describe python3)); install one or set PYTHON=/path/to/it."
}

# Runs a command in the project's root, silent unless it fails.
quietly() {
    local output
    if ! output="$(cd -- "$root" && "$@" 2>&1)"; then
        printf '%s\n' "$output" >&2
        return 1
    fi
}

# Prints what the native core is built from. A compiler counts, so that one installed later brings the core.
core_sources() {
    cat -- "$root/CMakeLists.txt"
    find "$root/quire/ops/cpu/csrc" -type f -print0 | LC_ALL=C sort -z | xargs -0 cksum
    type -P "${CXX:-c++}" g++ clang++ || true
}

# An environment is current while neither the dependencies, the version, the native core's sources, the folder it lies in nor its interpreter
# have changed.
fingerprint() {
    { cat -- "$root/pyproject.toml" "$root/quire/core/version.py"; printf '%s\n' "$root"; cat -- "$venv/pyvenv.cfg"; core_sources; } | cksum
}

is_current() {
    [[ -x "$venv_python" && -f "$1" && "$(cat -- "$1")" == "$(fingerprint)" ]]
}

# ensure_venv [EXTRA]: creates `.venv` when there is none that works, and installs quire (with an extra) when that is not up to date.
ensure_venv() {
    local extra="${1:-}" base_python=""
    local stamp="$venv/.quire-${extra:-base}"
    if is_current "$stamp"; then
        return
    fi
    is_suitable "$venv_python" || base_python="$(find_python)"
    say "preparing .venv${extra:+ with the '$extra' extra}; the first time this downloads the dependencies and takes minutes"
    if [[ -n "$base_python" ]]; then
        quietly "$base_python" -m venv --clear "$venv" || die "could not create .venv with $base_python; its output is above."
    fi
    "$venv_python" -m pip --version >/dev/null 2>&1 || quietly "$venv_python" -m ensurepip ||
        die "could not put pip into .venv; its output is above."
    quietly "$venv_python" -m pip install --quiet --no-input -e ".${extra:+[$extra]}" ||
        die "could not install the dependencies; pip's output is above."
    # pip compiles what it copies; the modules of an editable install stay here, and the first start would compile them.
    quietly "$venv_python" -m compileall -q quire || die "could not compile quire's modules; the output is above."
    "$venv_python" -c 'import quire.ops.cpu._core' 2>/dev/null ||
        say "the native core could not be built, so quire runs on torch's operations; '.venv/bin/pip install -v -e .' shows why."
    fingerprint >"$stamp"
    if [[ -n "$extra" ]]; then
        fingerprint >"$venv/.quire-base"
    fi
}
