"""Imports: every package is declared, every declared one is used, and `--help` stays light."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.packaging.project import (
    COMMANDS,
    IMPORT_NAME,
    ROOT,
    clean_env,
    declared,
    imported_modules,
    normal,
    providers,
    run,
    script_folder,
    source_files,
)

CODE = (IMPORT_NAME, "convert", "cli")
OURS = {IMPORT_NAME, "tests"}
# Declared and run as programs, not imported.
TOOLS = {"build", "import-linter", "mypy", "pip", "pytest-xdist", "ruff", "setuptools"}
# Installed by hand for the tests marked `peer`, so no extra names them.
PEERS = {"mlx-lm", "mlx-vlm"}
HEAVY = ("torch", "transformers", "mlx_lm", "mlx_vlm")
HELP_SECONDS = 0.6


def third_party(*folders: str) -> dict[str, str]:
    """Map every top-level name from outside the standard library to a file that imports it."""
    seen = {}
    for path in source_files(*folders):
        for name in imported_modules(path) - set(sys.stdlib_module_names) - OURS - {"__future__"}:
            seen[name] = str(path)
    return seen


def undeclared(seen: dict[str, str], allowed: set[str]) -> list[str]:
    """List the imports that no allowed distribution brings."""
    return [
        f"{path} imports {name}"
        for name, path in seen.items()
        if not (providers().get(name, {normal(name)}) & allowed)
    ]


def test_every_import_of_the_package_is_declared() -> None:
    """An import that only works because another package brings it breaks for somebody."""
    assert undeclared(third_party(*CODE), declared()) == []


def test_every_import_of_the_tests_is_declared() -> None:
    """The tests run with the dev and reference extras, and the peers where they are installed."""
    assert undeclared(third_party("tests"), declared("dev", "reference") | PEERS) == []


def test_every_dependency_is_used() -> None:
    """What nobody imports is not asked of the user."""
    used = {dist for name in third_party(*CODE) for dist in providers().get(name, {normal(name)})}
    assert declared() - used == set()
    used_by_tests = {
        dist for name in third_party("tests") for dist in providers().get(name, {normal(name)})
    }
    assert declared("dev") - declared() - used_by_tests - TOOLS == set()


def test_help_imports_nothing_heavy() -> None:
    """Neither the commands' help nor the library's import loads another runtime, or MLX itself."""
    code = (
        f"import sys, {IMPORT_NAME}, {IMPORT_NAME}.cli.app as app\n"
        "sys.argv = ['dgemma', '--help']\n"
        "try: app.main()\n"
        "finally: print('LOADED', *sorted({name.split('.')[0] for name in sys.modules}))\n"
    )
    told = run(sys.executable, "-c", code, cwd=ROOT, env=clean_env()).stdout
    loaded = set(told.rpartition("LOADED")[2].split())
    assert IMPORT_NAME in loaded
    assert loaded & {*HEAVY, "mlx", "numpy", "tokenizers", "huggingface_hub"} == set()


def help_seconds() -> float:
    """Time one `dgemma --help` in processor seconds: other work on the machine counts less."""
    script = script_folder() / COMMANDS[1]
    process = subprocess.Popen(
        [script, "--help"], stdout=subprocess.DEVNULL, cwd=ROOT, env=clean_env()
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def test_help_is_quick() -> None:
    """Best of five: the first one may have to write bytecode."""
    assert min(help_seconds() for _ in range(5)) < HELP_SECONDS
