"""Clusters from files: counts, mixed cards, quantities, node lists of traces."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.errors import ConfigError, CotenantError, UnknownNameError
from cotenant.model.cluster import Cluster, DeviceType, Node, Tenant
from cotenant.model.quantities import GIB, MIB
from cotenant.profiles.catalogue import device_type
from cotenant.traces.clusterfile import cluster_from_options, read_cluster, to_toml

LAB = """
name = "lab"

[[types]]
name = "big"
memory = "80GiB"
speed = 2.0
power_w = 400
idle_w = 50

[[types]]
name = "small"
memory_mib = 15360

[[nodes]]
name = "a"
count = 3
gpus = 8
type = "big"
cpus = 64
memory = "512GiB"
rack = "r1"

[[nodes]]
name = "mixed"
gpus = { big = 1, small = 2 }
cpus = 1.5

[[nodes]]
name = "cpu-{}"
count = 2
first = 5

[[tenants]]
name = "lab"
quota_gpus = 10

[[tenants]]
name = "team"
weight = 2.5
quota_gpus = 4
limit_gpus = 8
parent = "lab"
"""


def _file(tmp_path: Path, text: str, name: str = "c.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_example_reads_as_written(tmp_path: Path) -> None:
    cluster = read_cluster(_file(tmp_path, LAB))
    assert cluster.name == "lab"
    assert cluster.types == (
        DeviceType(name="big", memory_bytes=80 * GIB, speed=2.0, power_w=400, idle_w=50),
        DeviceType(name="small", memory_bytes=15360 * MIB),
    )
    assert [node.name for node in cluster.nodes] == ["a0", "a1", "a2", "mixed", "cpu-5", "cpu-6"]
    assert cluster.nodes[0] == Node(
        name="a0", gpus=(("big", 8),), cpu_milli=64_000, host_memory_bytes=512 * GIB, rack="r1"
    )
    assert cluster.nodes[3] == Node(name="mixed", gpus=(("big", 1), ("small", 2)), cpu_milli=1500)
    assert cluster.nodes[4].gpus == ()
    assert cluster.gpu_count == 27
    assert cluster.tenants[1] == Tenant(name="team", weight=2.5, quota_gpus=4, limit_gpus=8, parent="lab")


def test_yaml_says_the_same(tmp_path: Path) -> None:
    yaml = """
types:
  - {name: big, memory: 80GiB}
nodes:
  - name: n
    count: 2
    gpus: 4
"""
    toml = '[[types]]\nname = "big"\nmemory = "80GiB"\n[[nodes]]\nname = "n"\ncount = 2\ngpus = 4\n'
    assert read_cluster(_file(tmp_path, yaml, "c.yaml")) == read_cluster(_file(tmp_path, toml))


def test_two_different_cards_in_one_node_keep_their_own_memory(tmp_path: Path) -> None:
    # Case C19: 46,068 and 15,360 MiB in one node, by slot.
    text = """
types:
  - {name: A, memory_mib: 46068}
  - {name: B, memory_mib: 15360}
nodes:
  - {name: n1, gpus: [A, B]}
"""
    cluster = read_cluster(_file(tmp_path, text, "c19.yaml"))
    assert cluster.nodes[0].gpus == (("A", 1), ("B", 1))
    assert {kind.name: kind.memory_bytes // MIB for kind in cluster.types} == {"A": 46068, "B": 15360}


def test_slots_with_counts_keep_their_order(tmp_path: Path) -> None:
    text = '[[types]]\nname="A"\n[[types]]\nname="B"\n[[nodes]]\ngpus = [{type="A",count=2}, "B", "A"]\n'
    assert read_cluster(_file(tmp_path, text)).nodes[0].gpus == (("A", 2), ("B", 1), ("A", 1))


def test_known_types_need_no_declaration_and_take_overrides(tmp_path: Path) -> None:
    cluster = read_cluster(_file(tmp_path, '[[nodes]]\ngpus = 2\ntype = "V100"\n'))
    assert cluster.types[0].memory_bytes == device_type("V100").memory_bytes > 0
    text = '[[types]]\nname = "V100"\nspeed = 9.0\n[[nodes]]\ngpus = 2\n'
    changed = read_cluster(_file(tmp_path, text)).types[0]
    assert (changed.speed, changed.memory_bytes) == (9.0, device_type("V100").memory_bytes)


def test_80_gb_is_not_80_gib(tmp_path: Path) -> None:
    # Case C16, the device side: what is written is what is read, in whole MiB rounded up or exact bytes.
    def size(value: str) -> int:
        text = f'[[types]]\nname = "x"\n{value}\n[[nodes]]\ngpus = 1\n'
        return read_cluster(_file(tmp_path, text)).types[0].memory_bytes

    assert size('memory = "80GiB"') == 81_920 * MIB
    assert size('memory = "80GB"') == 80 * 10**9
    assert size('memory = "80g"') == 81_920 * MIB
    assert size("memory_mib = 81559") == 81_559 * MIB
    assert size("memory_bytes = 5") == 5
    with pytest.raises(ConfigError, match=r"\[types\[0\]\.memory\]: size 81559 has no unit"):
        size("memory = 81559")
    with pytest.raises(ConfigError, match="say the same thing"):
        size('memory = "1GiB"\nmemory_mib = 1024')
    with pytest.raises(ConfigError, match="exbibyte"):
        size('memory = "1e30GiB"')
    with pytest.raises(ConfigError, match="negative"):
        size("memory_mib = -1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodes = 3\n", ["nodes", "Expected `array`"]),
        ('[[node]]\nname = "a"\n', ["'node'", "'nodes'"]),
        ("[[nodes]]\ngpu = 8\n", ["'gpu'", "'gpus'"]),
        ('[[nodes]]\ngpus = 8\ntype = "Vv100x"\n', ["Vv100x", "not declared"]),
        ("[[nodes]]\ngpus = -1\n", ["count must be 1 or more"]),
        ("[[nodes]]\ngpus = true\n", ["gpus"]),
        ("[[nodes]]\ngpus = 8.5\n", ["gpus"]),
        ("[[nodes]]\ngpus = 1\ncount = 0\n", ["count"]),
        ("[[nodes]]\ngpus = 1\ncount = 10000001\n", ["count", "1,000,000"]),
        ("[[nodes]]\ngpus = 10000\ncount = 100000\n", ["10,000,000 devices"]),
        ("[[nodes]]\ncpus = -4\n", ["cpus"]),
        ("[[nodes]]\ncpus = inf\n", ["cpus"]),
        ("[[nodes]]\n[[nodes]]\n", ["appears twice"]),
        ('[[types]]\nname="a"\n[[types]]\nname="a"\n[[nodes]]\n', ["appears twice"]),
        ('[[types]]\nname="a"\nspeed=0\n[[nodes]]\n', ["speed", "positive"]),
        ('[[types]]\nname="a"\n[[types]]\nname="b"\n[[nodes]]\ngpus = 1\n', ["which type", "a, b"]),
        ('[[nodes]]\n[[tenants]]\nname="t"\nquota = 3\n', ["'quota'", "'quota_gpus'"]),
        ('[[nodes]]\n[[tenants]]\nname="t"\nquota_gpus = 3\nlimit_gpus = 2\n', ["quota_gpus 3"]),
        ('[[nodes]]\n[[tenants]]\nname="t"\nweight = 0\n', ["positive weight"]),
        ('[[nodes]]\n[[tenants]]\nname="t"\nparent = "u"\n', ["unknown parent"]),
        (
            '[[nodes]]\n[[tenants]]\nname="t"\nparent = "u"\n[[tenants]]\nname="u"\nparent = "t"\n',
            ["its own ancestor"],
        ),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read_cluster(_file(tmp_path, text))
    for word in ["c.toml", *words]:
        assert word in str(caught.value)


def test_a_cluster_without_nodes_or_devices_is_one(tmp_path: Path) -> None:
    assert read_cluster(_file(tmp_path, "nodes = []\n")).gpu_count == 0
    assert read_cluster(_file(tmp_path, "[[nodes]]\ncpus = 4\n")).gpu_count == 0


def test_options_make_equal_nodes() -> None:
    cluster = cluster_from_options(20, 8, "V100")
    assert [dict(node.gpus) for node in cluster.nodes] == [{"V100": 8}, {"V100": 8}, {"V100": 4}]
    assert cluster.types[0].memory_bytes > 0
    assert cluster_from_options(4, 4).types == (DeviceType(name="gpu"),)
    assert cluster_from_options(20, 8, "tesla-v100").types == cluster.types
    with pytest.raises(UnknownNameError, match=r'no device type "made-up"; known: A10, .*in a cluster file'):
        cluster_from_options(4, 4, "made-up")
    for gpus, each in ((0, 8), (8, 0), (10**9, 8)):
        with pytest.raises(ConfigError):
            cluster_from_options(gpus, each)


_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@st.composite
def _clusters(draw: st.DrawFn) -> Cluster:
    types = draw(st.lists(_NAMES, min_size=1, max_size=3, unique=True))
    kinds = tuple(
        DeviceType(
            name=name,
            memory_bytes=draw(st.integers(0, 2**40)),
            speed=draw(st.floats(0.01, 100)),
            power_w=draw(st.floats(0, 1000)),
            idle_w=draw(st.floats(0, 100)),
        )
        for name in types
    )
    shape = st.builds(
        dict,
        gpus=st.lists(st.tuples(st.sampled_from(types), st.integers(1, 9)), max_size=3).map(tuple),
        cpu_milli=st.integers(0, 10**6),
        host_memory_bytes=st.integers(0, 2**42),
        rack=st.sampled_from(["", "r1", 'r"2\\']),
    )
    shapes = draw(st.lists(st.tuples(shape, st.integers(1, 4)), max_size=3))
    names = draw(st.lists(_NAMES, min_size=3, max_size=3, unique=True))
    nodes: list[Node] = []
    for (fields, count), name in zip(shapes, names, strict=False):
        nodes += [Node(name=f"{name}{i}" if count > 1 else name, **fields) for i in range(count)]
    tenants = (Tenant(name="t", quota_gpus=1, limit_gpus=draw(st.sampled_from([None, 1, 5])), weight=0.1),)
    unique = {node.name: node for node in nodes}
    return Cluster(
        nodes=tuple(unique.values()), types=kinds, tenants=tenants, name=draw(st.sampled_from(["", "c"]))
    )


@settings(max_examples=100, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(_clusters())
def test_what_is_written_reads_back_equal(tmp_path: Path, cluster: Cluster) -> None:
    path = tmp_path / "round.toml"
    path.write_text(to_toml(cluster), encoding="utf-8", newline="")
    assert read_cluster(path) == cluster


def test_equal_nodes_are_written_once() -> None:
    text = to_toml(cluster_from_options(8000, 8))
    assert text.count("[[nodes]]") == 1
    assert "count = 1000" in text


def test_the_speed_of_a_known_type_survives_being_written(tmp_path: Path) -> None:
    cluster = cluster_from_options(4, 4, "A100")
    path = _file(tmp_path, to_toml(cluster))
    assert read_cluster(path) == cluster


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "nodes", "gpus"),
    [
        ("openb2023/openb_node_list_all_node.csv", 1523, 6212),
        ("openb2023/openb_node_list_gpu_node.csv", 1213, 6212),
        ("spot2026/node_info_df.csv", 4278, 10_412),
        ("tiresias/cluster_spec.csv", 16, 64),
        ("tiresias/n1g4.csv", 1, 4),
        ("tiresias/n32g4.csv", 32, 128),
        ("muri/n8g8.csv", 8, 64),
        ("philly/cluster_machine_list.example.csv", 1, 8),
    ],
)
def test_node_lists_of_traces(data_dir: Path, tmp_path: Path, name: str, nodes: int, gpus: int) -> None:
    cluster = read_cluster(data_dir / "traces" / name)
    assert (len(cluster.nodes), cluster.gpu_count) == (nodes, gpus)
    assert read_cluster(_file(tmp_path, to_toml(cluster))) == cluster


@pytest.mark.data
def test_what_a_node_list_says_of_a_node(data_dir: Path) -> None:
    openb = read_cluster(data_dir / "traces/openb2023/openb_node_list_gpu_node.csv").nodes[0]
    assert openb.gpus == (("P100", 2),)
    assert (openb.cpu_milli, openb.host_memory_bytes) == (64_000, 256 * GIB)
    spec = read_cluster(data_dir / "traces/tiresias/n32g4.csv").nodes[31]
    assert spec == Node(
        name="n31", gpus=(("gpu", 4),), cpu_milli=40_000, host_memory_bytes=256 * GIB, rack="switch0"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "not a node list"),
        ("sn,cpu_milli,memory_mib,gpu,model\nx,1,1\n", ":2: 3 cells"),
        ("sn,cpu_milli,memory_mib,gpu,model\nx,1,1,two,P100\n", r":2 \[gpu\]: expected a number"),
        ("sn,cpu_milli,memory_mib,gpu,model\nx,1,1,2,\n", "no model"),
        (
            "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n9999,9999,8,1,1\n",
            "1,000,000",
        ),
        ("machineId,number of GPUs,single GPU mem\nm,8,24\n", "no unit"),
        ('sn,cpu_milli,memory_mib,gpu,model\n"x,1,1,0,\n', "not valid CSV"),
    ],
)
def test_faults_of_node_lists_are_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_cluster(_file(tmp_path, text, "n.csv"))


def test_a_node_list_with_a_header_only_has_no_nodes(tmp_path: Path) -> None:
    assert read_cluster(_file(tmp_path, "sn,cpu_milli,memory_mib,gpu,model\n\n", "n.csv")).nodes == ()


@settings(max_examples=100, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.sampled_from(["1", "", "-1", "x", "1e400", "999999999999", '"', "0.5", "P100", "\x00"]),
        max_size=12,
    ),
    st.booleans(),
)
def test_any_node_list_gives_a_cluster_or_our_error(tmp_path: Path, cells: list[str], packed: bool) -> None:
    path = tmp_path / ("n.csv.gz" if packed else "n.csv")
    path.write_bytes(("sn,cpu_milli,memory_mib,gpu,model\n" + ",".join(cells)).encode())
    try:
        read_cluster(path)
    except CotenantError:
        return
    assert not packed
