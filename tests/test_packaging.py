"""The package as others meet it: quick to start, typed, and complete."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"polars", "numpy", "scipy", "sklearn", "altair", "pandas", "yaml"}


def imported_by(code: str) -> set[str]:
    """Top-level modules loaded in a fresh interpreter that runs this code."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint('\\n'.join(sys.modules), file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return {name.partition(".")[0] for name in done.stderr.split()}


def test_help_imports_nothing_heavy() -> None:
    code = "from cotenant.app.main import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    found = imported_by(code)
    assert "typer" in found
    assert found & HEAVY == set()


def test_help_of_each_command_imports_nothing_heavy() -> None:
    names = ["simulate", "compare", "report", "explain", "generate", "policies"]
    calls = "\n".join(f"try:\n    main(['{name}', '--help'])\nexcept SystemExit:\n    pass" for name in names)
    assert imported_by(f"from cotenant.app.main import main\n{calls}") & HEAVY == set()


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert imported_by("import cotenant") & (HEAVY | {"typer", "rich", "msgspec"}) == set()


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / "src" / "cotenant" / "py.typed").is_file()


def test_the_licence_is_the_one_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "LICENSE").read_text()
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_data_files_of_the_package_are_where_the_wheel_takes_them_from() -> None:
    from importlib.resources import files

    assert (files("cotenant") / "data" / "synthetic_presets.toml").is_file()


def test_the_command_is_declared_and_callable() -> None:
    from importlib.metadata import entry_points

    (point,) = [p for p in entry_points(group="console_scripts") if p.name == "cotenant"]
    assert callable(point.load())


def test_the_version_has_one_source() -> None:
    from importlib.metadata import version

    import cotenant

    assert version("cotenant") == cotenant.__version__


def test_installing_is_quiet_but_not_silent(tmp_path: Path) -> None:
    """The environment's Python is a stand-in that tells how it was called; nothing is installed."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "venv.sh", tmp_path / "scripts")
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("python", "cotenant"):
        stub = tmp_path / ".venv" / "bin" / name
        stub.write_text(f'#!/bin/sh\necho "{name} $* version-check-off=$PIP_DISABLE_PIP_VERSION_CHECK"\n')
        stub.chmod(0o755)
    done = subprocess.run(
        ["make", "--no-print-directory", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (
        "python -m pip install -q -c constraints.txt -e .[torch] version-check-off=1"
        in done.stdout.splitlines()
    )
    assert done.stdout.splitlines()[-1].startswith("cotenant demo -o demo --force")
    said = done.stderr.splitlines()
    assert said[0].startswith("installing cotenant with extra torch into .venv")
    assert said[1].startswith("running five policies")
