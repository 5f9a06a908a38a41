"""``docs/settings.md`` speaks of every setting, and its tables are those of the script."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from cotenant.model.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


def test_every_setting_is_explained() -> None:
    spoken = set(re.findall(r"`([a-z_]+)(?:=[^`]*)?`", PAGE))
    assert set(Settings.__struct_fields__) - spoken == set()


def test_the_tables_have_a_row_for_each_run_of_the_script() -> None:
    spec = importlib.util.spec_from_file_location("settings_table", ROOT / "bench" / "settings_table.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for name, rows in script.tables().items():
        _, found, rest = PAGE.partition(f"<!-- {name}: begin -->\n")
        table, closed, _ = rest.partition(f"<!-- {name}: end -->")
        assert found, name
        assert closed, name
        lines = [line.split(" | ")[:2] for line in table.split("\n") if line.startswith("| ")][2:]
        assert [[cells[0].removeprefix("| "), cells[1]] for cells in lines] == [
            [row.policy, row.change] for row in rows()
        ]


def test_the_cluster_file_of_the_page_is_the_cluster_of_the_script(tmp_path: Path) -> None:
    from cotenant.model.cluster import DeviceType
    from cotenant.model.quantities import GIB
    from cotenant.traces.clusterfile import read_cluster

    block = re.search(r"```toml\n(.*?)```", PAGE, re.S)
    assert block is not None
    (tmp_path / "v100.toml").write_text(block[1])
    cluster = read_cluster(tmp_path / "v100.toml")
    assert [node.gpus for node in cluster.nodes] == [(("V100", 8),)] * 8
    found = cluster.types[0]
    # Power is not in the script's type; it changes no time.
    assert (found.name, found.memory_bytes, found.speed) == ("V100", 32 * GIB, DeviceType(name="x").speed)
