"""The documentation keeps its word: links lead somewhere, commands exist, examples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cotenant import registry

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def _section(text: str, title: str) -> str:
    _, found, rest = text.partition(f"\n## {title}\n")
    assert found, f"no section {title!r}"
    return rest.partition("\n## ")[0]


def _commands() -> dict[str, Any]:
    from typer.main import get_command

    from cotenant.app.main import app

    found: dict[str, Any] = {}
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found |= {f"{name} {word}": one for word, one in inner.items()} if inner else {name: command}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_to_files(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    inside = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    assert [target for target in inside if not (page.parent / target).exists()] == []


def test_every_command_and_every_option_is_described() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    # Described once for all commands, or with the command that has them first.
    shared = {"--help", "--json", "--quiet", "--force", "--output", "--workers"}
    shared |= {"--format", "--strict", "--cpu-jobs", "--state", "--key"}
    missing = []
    for name, command in _commands().items():
        section = _section(text, f"cotenant {name}")
        for parameter in command.params:
            options = {option for option in parameter.opts if option.startswith("--")} - shared
            missing += [f"{name} {option}" for option in sorted(options) if option not in section]
    assert missing == []
    assert all(option in text for option in shared - {"--help"})


def test_no_page_shows_a_command_that_does_not_exist() -> None:
    known = set(_commands())
    wrong = []
    for page in PAGES:
        for block in re.findall(r"```(?:sh|console|bash)?\n(.*?)```", page.read_text(), flags=re.S):
            for line in block.splitlines():
                found = re.match(r"(?:\$ )?cotenant ([a-z]+)\b(?!:)(?: ([a-z]+))?\b", line)
                if found and not {found.group(1), f"{found.group(1)} {found.group(2)}"} & known:
                    wrong.append(f"{page.name}: {line}")
    assert wrong == []


def test_every_exit_code_is_in_the_table() -> None:
    from cotenant.app import main

    codes = re.findall(r"^(\d+) ", main.__doc__ or "", flags=re.M)
    table = (ROOT / "docs" / "cli.md").read_text()
    assert codes == ["0", "1", "2", "3", "4", "130"]
    assert all(f"| {code} |" in table for code in codes)


@pytest.mark.parametrize("name", registry.names("policy"))
def test_every_policy_has_a_card(name: str) -> None:
    assert (ROOT / "docs" / "policies" / f"{name}.md").is_file()


def test_every_trace_format_is_described() -> None:
    text = (ROOT / "docs" / "traces.md").read_text()
    assert [name for name in registry.names("trace format") if f"`{name}`" not in text] == []


def _two_tests_pass(folder: Path, names: tuple[str, ...], blocks: list[str]) -> None:
    """A policy and its tests, as a guide shows them, written to files and run."""
    for name, block in zip(names, blocks, strict=True):
        (folder / name).write_text(block)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names[1:]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_the_policy_of_the_guide_keeps_its_contract(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "write-a-policy.md").read_text(), re.S)
    assert len(blocks) == 3
    _two_tests_pass(tmp_path, ("mine.py", "test_one.py", "test_two.py"), blocks)


def test_the_sharing_policy_of_the_guide_keeps_its_contract(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "write-a-sharing-policy.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) == 2
    _two_tests_pass(tmp_path, ("pairs.py", "test_pairs.py"), blocks)


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    block = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python-api.md").read_text(), re.S)[0]
    exec(compile(block, "python-api.md", "exec"), {"__name__": "example"})
    first, second = map(float, capsys.readouterr().out.split("\n")[0].split())
    # Sharing is there to shorten the queue; on this workload it must.
    assert second < first
    assert (tmp_path / "out" / "colocate" / "manifest.json").is_file()


def test_the_run_file_of_the_guide_is_valid(tmp_path: Path) -> None:
    from cotenant.runs.runfile import read_run_file

    text = (ROOT / "docs" / "cli.md").read_text()
    block = re.findall(r"### A run file\n\n```toml\n(.*?)```", text, re.S)[0]
    (tmp_path / "run.toml").write_text(block)
    config = read_run_file(tmp_path / "run.toml")
    assert (config.policies, config.seeds) == (("fifo", "las", "colocate"), 5)
    assert config.effective_settings().max_sharers == 2


def test_the_example_of_the_readme_is_what_comes_out(tmp_path: Path) -> None:
    """Where results changed for a good reason, ``COTENANT_UPDATE_README=1`` writes the new ones."""
    readme = ROOT / "README.md"
    text = readme.read_text()
    # What follows needs torch, or takes eight minutes and another machine's numbers.
    example = _section(text, "An example")
    blocks = re.findall(r"```\n(\$ cotenant .*?)```", example, re.S)
    assert len(blocks) == 2
    fresh = text
    for block in blocks:
        shown = ""
        for command in [line for line in block.splitlines() if line.startswith("$ cotenant ")]:
            words = command.removeprefix("$ cotenant ").split()
            quiet = [] if words[0] == "explain" else ["--quiet"] if words[0] == "simulate" else ["--json"]
            done = subprocess.run(
                [sys.executable, "-m", "cotenant", *words, *quiet],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=900,
                check=True,
            )
            output = "" if words[0] == "generate" else done.stdout.rstrip() + "\n"
            shown += f"{command}\n" + "\n".join(line.rstrip() for line in output.split("\n"))
        fresh = fresh.replace(block, shown)
    if os.environ.get("COTENANT_UPDATE_README"):
        readme.write_text(fresh)
    assert fresh == text, "README.md shows other results; see COTENANT_UPDATE_README above"
