"""A check of a script's text finds what stops a grade, at its place, and nothing in scripts that are clean."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cotenant.app.main import app
from cotenant.elastic.checks import Report, check_script
from cotenant.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
HEAD = """\
import glob, os, random, time
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Sampler, WeightedRandomSampler
torch.manual_seed(0)
device = "cuda"
"""
MOVED = """\
import torch
from torch import nn
from cotenant import elastic
"""
LOOP = """\
run = elastic.Run(workers=4)
net = nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net, loader = run.prepare(net, data, 4)
run.keep(optimizer=opt)
for step in run.steps(loader, epochs=1):
    for x, y in step:
        loss = net(x).sum()
        loss.backward()
{}
    opt.step()
    opt.zero_grad()
"""


def _check(folder: Path, text: str) -> Report:
    path = folder / "script.py"
    path.write_text(text)
    return check_script(path)


PAIRS: list[tuple[str, str, str, str]] = [
    # rule, what is lost, a line with it, the same without
    ("nondeterministic-allowed", "D0 statistical", "torch.use_deterministic_algorithms(False)", "torch.use_deterministic_algorithms(True)"),
    ("nondeterministic-allowed", "D0 statistical", "torch.use_deterministic_algorithms(True, warn_only=True)", ""),
    ("nondeterministic-allowed", "D0 statistical", "torch.set_deterministic_debug_mode('warn')", "torch.set_deterministic_debug_mode('error')"),
    ("nondeterministic-allowed", "D0 statistical", "torch.backends.cudnn.deterministic = False", "torch.backends.cudnn.deterministic = True"),
    ("cudnn-benchmark", "D0 statistical", "torch.backends.cudnn.benchmark = True", "torch.backends.cudnn.benchmark = False"),
    ("tf32", "D2 statistical", "torch.backends.cuda.matmul.allow_tf32 = True", "torch.backends.cuda.matmul.allow_tf32 = False"),
    ("threads", "D1 statistical", "torch.set_num_threads(os.cpu_count() // 2)", "torch.set_num_threads(2)"),
    ("threads", "D1 statistical", "n = int(os.environ['WORLD_SIZE'])\ntorch.set_num_threads(8 // n)", "torch.set_num_threads(int('8'))"),
    ("threads", "D1 statistical", "os.environ['OMP_NUM_THREADS'] = str(os.cpu_count())", "os.environ['OMP_NUM_THREADS'] = '2'"),
    ("compile-autotune", "D0 statistical", "net = torch.compile(net, mode='max-autotune')", ""),
    ("compile", "remark", "net = torch.compile(net)", ""),
    ("precision", "D2 statistical", "with torch.autocast(device):\n    pass", "with torch.autocast(device, dtype=torch.bfloat16):\n    pass"),
    (
        "precision",
        "D2 statistical",
        "half = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16\nwith torch.autocast(device, dtype=half): pass",
        "with torch.autocast('cuda'): pass",
    ),
    ("operator", "D0 statistical", "y = F.interpolate(x, scale_factor=2, mode='bilinear')", "y = F.interpolate(x, scale_factor=2)"),
    ("operator", "D0 statistical", "y = nn.Upsample(None, 2, 'bilinear')", "y = nn.Upsample(None, 2, 'nearest')"),
    ("operator", "D0 statistical", "pool = nn.AdaptiveAvgPool2d((7, 7))", "pool = nn.AdaptiveAvgPool2d((1, 1))"),
    ("operator", "D0 statistical", "loss = F.ctc_loss(a, b, c, d)", "with torch.no_grad():\n    loss = F.ctc_loss(a, b, c, d)"),
    ("operator", "D0 statistical", "loss = nn.CTCLoss()", "loss = nn.CrossEntropyLoss()"),
    ("operator", "D0 statistical", "bag = nn.EmbeddingBag(10, 3, mode='max')", "bag = nn.EmbeddingBag(10, 3, mode='sum')"),
    ("operator", "D0 statistical", "x.put_(i, y)", "x.index_put_((i,), y)"),
    ("operator", "D0 statistical", "c = torch.bincount(i, weights=w)", "c = torch.bincount(i)"),
    ("operator", "D0 statistical", "c = np.histogram(x)\nc = torch.histc(x)", "c = np.bincount(i, weights=w)"),
    ("operator", "D0 statistical", "x.scatter_reduce_(0, i, y, reduce='prod')", "x.scatter_reduce_(0, i, y, reduce='sum')"),
    ("operator", "D0 statistical", "p = p.cumsum(-1)", "p = mask.long().cumsum(-1)"),
    ("operator", "D0 statistical", "torch.use_deterministic_algorithms(False)\nx.scatter_add_(0, i, y)", "x.scatter_add_(0, i, y)"),
    ("operator", "D0 statistical", "torch.use_deterministic_algorithms(False)\nx.index_add_(0, i, y)", "x.index_add_(0, i, y)"),
    ("process-group", "D1 changed", "dist.init_process_group('nccl')", ""),
    ("process-group", "D1 changed", "torch.multiprocessing.spawn(main, nprocs=2)", ""),
    ("wrapper", "D1 changed", "net = DDP(net)", ""),
    ("wrapper", "D1 changed", "net = nn.DataParallel(net)", ""),
    ("sync-batchnorm", "D1 changed", "net = nn.SyncBatchNorm.convert_sync_batchnorm(net)", "net = nn.BatchNorm2d(3)"),
    ("collective", "D1 changed", "dist.all_reduce(hits)", "hits.sum()"),
    ("collective", "D1 changed", "dist.barrier()", ""),
    ("process-group", "D1 changed", "from lightning.fabric import Fabric\nf = Fabric(devices=2)", "f = run.fabric()"),
    ("trainer", "D1 changed", "import lightning as L\nt = L.Trainer()", "import lightning as L"),
    ("trainer", "D1 changed", "from transformers import AutoModel, Trainer", "from transformers import AutoModel"),
    ("trainer", "D1 changed", "import accelerate", ""),
    ("depends-on-processes", "D1 changed", "w = dist.get_world_size()\nlr = 0.1 * w", "lr = 0.1 * 4"),
    ("depends-on-processes", "D1 changed", "opt = torch.optim.SGD(p, lr=0.1 * dist.get_world_size())", "opt = torch.optim.SGD(p, lr=0.1)"),
    ("depends-on-processes", "D1 changed", "opt = torch.optim.SGD(p, 0.1 * dist.get_world_size())", "opt = torch.optim.SGD(p, 0.1)"),
    ("depends-on-processes", "D1 changed", "n = torch.cuda.device_count()\nargs.batch_size = 256 // max(1, n)", "args.batch_size = 256 // 4"),
    ("depends-on-processes", "D1 changed", "loader = DataLoader(data, batch_size=64 // int(os.environ['WORLD_SIZE']))", "loader = DataLoader(data, batch_size=64)"),
    ("depends-on-processes", "D1 changed", "accumulation_steps = 8 // int(os.getenv('WORLD_SIZE', 1))", "accumulation_steps = 8"),
    ("depends-on-processes", "D1 changed", "if dist.get_world_size() > 1:\n    lr = lr * 2", "if verbose:\n    lr = lr * 2"),
    ("depends-on-machine", "D2 changed", "batch_size = torch.cuda.get_device_properties(0).total_memory // 100", "batch_size = 8"),
    ("depends-on-machine", "D0 changed", "batch_size = torch.cuda.mem_get_info()[0] // 100", "batch_size = 8"),
    ("own-sharding", "D1 changed", "mine = data[dist.get_rank()::dist.get_world_size()]", "mine = data[0::2]"),
    ("own-sharding", "D1 changed", "def part(rank, world_size):\n    return range(rank, 100, world_size)", "def part(first, every):\n    return range(first, 100, every)"),
    ("seed", "D1 changed", "torch.manual_seed(7 + dist.get_rank())", "torch.manual_seed(7)"),
    ("seed", "D0 changed", "random.seed(int(time.time()))", "random.seed(7)"),
    ("seed", "D0 changed", "torch.manual_seed(os.getpid())", "torch.manual_seed(len(words))"),
    ("distributed-sampler", "D1 changed", "s = DistributedSampler(data)\ns.set_epoch(0)", "s = DistributedSampler(data, 4, 0)\ns.set_epoch(0)"),
    ("set-epoch", "remark", "s = DistributedSampler(data, 4, 0)", "s = DistributedSampler(data, 4, 0, shuffle=False)"),
    ("own-sampler", "D1 changed", "s = WeightedRandomSampler(w, 10)", "s = torch.utils.data.RandomSampler(data)"),
    ("own-sampler", "D1 changed", "class Mine(Sampler):\n    pass", "class Mine(Dataset):\n    pass"),
    ("own-sampler", "D1 changed", "l = DataLoader(data, batch_sampler=s)", "l = DataLoader(data, 8, True)"),
    ("persistent-workers", "remark", "l = DataLoader(data, 8, num_workers=2, persistent_workers=True)", "l = DataLoader(data, 8, num_workers=2)"),
    ("loader-workers", "D1 changed", "info = torch.utils.data.get_worker_info()", ""),
    ("stream", "D1 changed", "class Mine(IterableDataset):\n    pass", ""),
    ("file-order", "remark", "names = os.listdir('data')", "names = sorted(os.listdir('data'))"),
    ("file-order", "remark", "names = glob.glob('*.png')", "names = glob.glob('*.png')\nnames.sort()"),
    (
        "file-order",
        "D1 changed",
        "class A(Dataset):\n    def __init__(self):\n        self.files = os.listdir('data')\n"
        "    def __getitem__(self, i):\n        return self.files[i]",
        "class A(Dataset):\n    def __init__(self):\n        self.has = 'labels' in os.listdir('data')\n"
        "    def __getitem__(self, i):\n        return i",
    ),
    ("set-order", "D0 changed", "chars = list(set(text))", "chars = sorted(list(set(text)))"),
    ("set-order", "D0 changed", "ids = {c: i for i, c in enumerate(set(text))}", "ids = {c: i for i, c in enumerate(sorted(set(text)))}"),
    ("hash", "D0 changed", "bucket = hash(word) % 100", "class A:\n    def __hash__(self):\n        return hash(self.a)"),
    ("no-seed", "D0 changed", "rng = np.random.default_rng()", "rng = np.random.default_rng(3)"),
    ("no-seed", "D0 changed", "np.random.seed()", "np.random.seed(1)"),
    (
        "own-generator",
        "D1 changed",
        "rng = random.Random(0)\nclass A(Dataset):\n    def __getitem__(self, i):\n        return rng.random()",
        "class A(Dataset):\n    def __getitem__(self, i):\n        rng = random.Random(i)\n        return rng.random()",
    ),
    (
        "own-generator",
        "D1 changed",
        "class A(nn.Module):\n    def __init__(self):\n        self.g = torch.Generator().manual_seed(0)\n"
        "    def forward(self, x):\n        return torch.rand(3, generator=self.g)",
        "class A(nn.Module):\n    def forward(self, x):\n        return torch.rand(3)",
    ),
    (
        "wall-clock",
        "D0 changed",
        "start = time.time()\nfor x in l:\n    f(x).backward()\n    if time.time() - start > 60:\n        break",
        "start = time.time()\nfor x in l:\n    f(x).backward()\n    print(time.time() - start)",
    ),
    (
        "wall-clock",
        "D0 changed",
        "end = time.monotonic() + 60\nwhile time.monotonic() < end:\n    f().backward()",
        "end = time.monotonic() + 60\nwhile time.monotonic() < end:\n    server.poll()",
    ),
    (
        "accumulation",
        "remark",
        "for i, x in enumerate(l):\n    if (i + 1) % accum_steps == 0:\n        opt.step()",
        "for i, x in enumerate(l):\n    opt.step()",
    ),
    (
        "own-checkpoint",
        "remark",
        "rank = int(os.environ['RANK'])\nif rank == 0:\n    torch.save(state, 'a.pt')",
        "torch.save(state, 'a.pt')",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "loses", "bad", "good"), PAIRS, ids=lambda text: str(text)[:40])
def test_a_finding_has_its_grade_and_place_and_goes_away_with_its_cause(
    tmp_path: Path, rule: str, loses: str, bad: str, good: str
) -> None:
    found = [one for one in _check(tmp_path, HEAD + bad + "\n").findings if one.rule == rule]
    assert [f"{one.stops} {one.left}".strip() or "remark" for one in found] == [loses]
    lines = bad.split("\n")
    row = found[0].line - HEAD.count("\n") - 1
    # The place is where the text quoted begins (or a value that it is given).
    rest = lines[row][found[0].column - 1 :]
    quoted = re.sub(r"^\w+=(?!=)", "", found[0].what)
    assert rest[:3].replace(")", "") == quoted[:3].replace(")", "")
    assert found[0].why and found[0].instead
    left = [one for one in _check(tmp_path, HEAD + good + "\n").findings if one.rule == rule]
    assert left == []


FUNCTIONS = """\
import os
import torch.distributed
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler as DS
def setup(verbose=False):
    if verbose:
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ.get("WORLD_SIZE", 1))
def scaled(base, n):
    more = base * n
    return more
def again(n):
    return again(n - 1)
class Trainer:
    def share(self, whole, by=1):
        return whole // by
    def loader(self, n):
        return DataLoader(d, batch_size=self.share(64, by=setup()[1]))
rank, n = setup()
"""


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ld = DataLoader(d, batch_size=64 // n)", [("depends-on-processes", 19)]),
        ("lr = scaled(0.1, n)", [("depends-on-processes", 19)]),
        ("lr = scaled(*[0.1, n])", [("depends-on-processes", 19)]),
        ("lr = scaled(n=n, base=2)", [("depends-on-processes", 19)]),
        ("s = DS(d, n, rank, shuffle=False)", [("distributed-sampler", 19)]),
        (
            "def loader(k):\n    return DataLoader(d, batch_size=64 // k)\nloader(n)",
            [("depends-on-processes", 20)],
        ),
        # Neither what has nothing of it, nor another part of what is given back, nor recursion.
        ("lr = scaled(0.1, 2)", []),
        ("s = DS(d, rank, 0, shuffle=False)", []),
        ("lr = again(3)", []),
        ("lr = Other().share(64, n)", []),
    ],
)
def test_the_number_of_processes_is_followed_through_what_functions_give_back(
    tmp_path: Path, line: str, found: list[tuple[str, int]]
) -> None:
    report = _check(tmp_path, FUNCTIONS + line + "\n")
    assert [(one.rule, one.line - 1) for one in report.findings] == [("depends-on-processes", 17), *found]


IN_TURN = [
    ("        opt.step()", "in-turn", 10),
    ("        nn.utils.clip_grad_norm_(net.parameters(), 1.0)", "in-turn", 10),
    ("        net.weight.grad.mul_(2)", "in-turn", 10),
    ("        if loss > 9: break", "in-turn", 10),
    ("        opt.zero_grad()", "in-turn", 10),
    ("        seen += len(x)", "counted-in-turn", 10),
]


@pytest.mark.parametrize(("line", "rule", "at"), IN_TURN)
def test_what_belongs_behind_the_inner_loop_is_found_in_it(
    tmp_path: Path, line: str, rule: str, at: int
) -> None:
    report = _check(tmp_path, MOVED + LOOP.format(line))
    assert [(one.rule, one.line) for one in report.findings] == [(rule, at + 3)]
    # The same line behind the loop is right.
    if "break" not in line:
        behind = _check(tmp_path, MOVED + LOOP.format(line[4:]))
        assert behind.findings == [] and behind.moved and behind.left == "bitwise"


def test_a_schedule_in_the_inner_loop_or_not_kept_changes_the_training(tmp_path: Path) -> None:
    text = MOVED + LOOP.replace("run.keep", "sched = torch.optim.lr_scheduler.StepLR(opt, 9)\nrun.keep")
    report = _check(tmp_path, text.format("        sched.step()"))
    assert [(one.rule, one.line, one.left) for one in report.findings] == [
        ("not-kept", 8, "changed"),
        ("in-turn", 14, "changed"),
    ]
    assert "run.keep(..., scheduler=sched)" in report.findings[0].instead
    kept = text.replace("keep(optimizer=opt", "keep(optimizer=opt, scheduler=sched")
    assert _check(tmp_path, kept.format("    sched.step()")).findings == []


FABRIC = """\
import torch
from torch import nn
from cotenant import elastic
run = elastic.Run(workers=4)
fabric = run.fabric(accelerator="cpu")
model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * fabric.world_size)
model, optimizer = fabric.setup(model, optimizer)
for step in fabric.steps(loader, epochs=1):
    optimizer.zero_grad()
    for x, y in step:
        fabric.backward(model(x).sum())
        mean = fabric.all_reduce(x)
    optimizer.step()
"""


def test_fabric_moved_over_counts_workers_and_has_no_barriers(tmp_path: Path) -> None:
    report = _check(tmp_path, FABRIC)
    assert list(report.findings) == [] and report.trains
    found = _check(tmp_path, FABRIC + "    fabric.barrier()\n").findings
    assert [(one.rule, one.line) for one in found] == [("collective", 15)]
    scaler = "scaler = torch.amp.GradScaler('cpu')\nplugin = MixedPrecision('16-mixed', 'cpu', scaler)\n"
    assert list(_check(tmp_path, FABRIC.replace("run = ", scaler + "run = ")).findings) == []
    alone = _check(tmp_path, FABRIC.replace("setup(model, optimizer)", "setup(model)")).findings
    assert [(one.rule, one.line) for one in alone] == [("not-kept", 7)]


TURNS = """\
for step in run.steps(loader, epochs=1):
    for real, noise in step.turn(opt_d):
        net(real).sum().backward()
    opt_d.step()
    for real, noise in step.turn(opt):
        net(noise).sum().backward()
    opt.step()
"""


def test_several_inner_loops_of_a_step_are_right_with_each_update_behind_its_loop(tmp_path: Path) -> None:
    text = MOVED + LOOP.partition("for step")[0].replace("run.keep(optimizer=opt)", "opt_d = torch.optim.SGD(p, 0.1)\nrun.keep([opt, opt_d])")  # fmt: skip
    assert list(_check(tmp_path, text + TURNS).findings) == []
    early = TURNS.replace("    opt_d.step()", "        opt_d.step()")
    assert [one.rule for one in _check(tmp_path, text + early).findings] == ["in-turn"]


def test_a_model_made_before_the_run_and_a_loop_of_its_own_are_found(tmp_path: Path) -> None:
    early = MOVED + LOOP.format("").replace("run = elastic.Run(workers=4)\nnet = nn.Linear(2, 2)", "net = nn.Linear(2, 2)\nrun = elastic.Run(workers=4)")  # fmt: skip
    assert [(one.rule, one.line, one.stops) for one in _check(tmp_path, early).findings] == [
        ("before-run", 4, "D0")
    ]
    seeded = early.replace("net = nn", "torch.manual_seed(0)\nnet = nn", 1)
    assert _check(tmp_path, seeded).findings == []
    other = MOVED + LOOP.format("") + "for x, y in loader:\n    net(x).sum().backward()\n"
    assert [(one.rule, one.line) for one in _check(tmp_path, other).findings] == [("other-loop", 16)]


def test_streams_and_samplers_are_the_runs_own_in_a_script_that_was_moved(tmp_path: Path) -> None:
    kinds = "from torch.utils.data import IterableDataset, Sampler, WeightedRandomSampler\n"
    own = "class Mine(IterableDataset):\n    pass\nclass Order(Sampler):\n    pass\norder = WeightedRandomSampler(w, 10)\n"
    assert [one.rule for one in _check(tmp_path, HEAD + own).findings] == [
        "stream",
        "own-sampler",
        "own-sampler",
    ]
    # Of a script with one process these are remarks: nothing is lost until it has several.
    alone = "from torch.utils.data import IterableDataset, Sampler, WeightedRandomSampler\n" + own
    assert [one.stops for one in _check(tmp_path, alone).findings] == ["", "", ""]
    assert _check(tmp_path, MOVED + kinds + own + LOOP.format("")).findings == []


def test_a_script_without_a_seed_is_told_once(tmp_path: Path) -> None:
    text = "import torch\nfrom torch.utils.data import DataLoader\nl = DataLoader(d, 8, shuffle=True)\nfor x in l:\n    f(x).backward()\n"
    found = _check(tmp_path, text).findings
    assert [(one.rule, one.line, one.stops, one.left) for one in found] == [("no-seed", 3, "D0", "changed")]
    assert _check(tmp_path, text.replace("l =", "torch.manual_seed(0)\nl =", 1)).findings == []


def test_what_only_cuda_lacks_is_a_remark_in_a_script_for_cpus(tmp_path: Path) -> None:
    text = HEAD.replace('"cuda"', '"cpu"') + "loss = nn.CTCLoss()\n"
    (one,) = _check(tmp_path, text).findings
    assert (one.rule, one.stops) == ("operator", "")


CLEAN = [
    ROOT / "examples" / "train.py",
    ROOT / "examples" / "evaluate.py",
    ROOT / "src" / "cotenant" / "elastic" / "example.py",
    ROOT / "tests" / "elastic" / "training.py",
    ROOT / "tests" / "elastic" / "models.py",
    *sorted((ROOT / "src" / "cotenant" / "profiles" / "zoo").glob("*.py")),
    *sorted((ROOT / "src" / "cotenant" / "profiles" / "jobs").glob("*.py")),
]


@pytest.mark.parametrize("path", CLEAN, ids=lambda path: path.name)
def test_clean_scripts_raise_no_alarm(path: Path) -> None:
    assert check_script(path).stopping == []


def test_the_guides_script_has_nothing_to_remark(tmp_path: Path) -> None:
    text = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "elastic.md").read_text(), re.S)[0]
    report = _check(tmp_path, text)
    assert report.findings == [] and report.moved and report.trains


def test_modules_beside_the_script_are_read_too_and_lines_can_be_accepted(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "vocabulary.py").write_text("def read(text):\n    return list(set(text))\n")
    (tmp_path / "other.py").write_text("x = hash('a')\n")
    report = _check(tmp_path, "from parts import vocabulary\n")
    assert [(one.file.name, one.line, one.column) for one in report.findings] == [("vocabulary.py", 2, 17)]
    (tmp_path / "parts" / "vocabulary.py").write_text(
        "def read(text):\n    return list(set(text))  # elastic: ok, of numbers\n"
    )
    again = _check(tmp_path, "from parts import vocabulary\n")
    assert (list(again.findings), again.accepted) == ([], 1)


def test_a_script_is_never_run_or_imported(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(f"open({str(tmp_path / 'b')!r}, 'w')\n")
    _check(tmp_path, f"import beside\nopen({str(tmp_path / 'a')!r}, 'w')\nraise SystemExit(9)\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beside.py", "script.py"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, r"script\.py: no such file"),
        (b"x = (1,\n\ny = 2\n", r"script\.py:1:5: not Python that can be parsed: '\(' was never closed"),
        (b"a = 1\nb = '\xe9'\n", r"script\.py:2: not UTF-8 \(byte 0xe9\)"),
        (b"a = 1\0\n", r"script\.py.*: not Python that can be parsed"),
        (b"(" * 5000 + b")" * 5000, r"script\.py.*: not Python that can be parsed"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path: Path, data: bytes | None, words: str) -> None:
    path = tmp_path / "script.py"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InputError, match=words):
        check_script(path)
    with pytest.raises(InputError, match="is a folder"):
        check_script(tmp_path)


def _command(*words: Any) -> Any:
    return CliRunner().invoke(app, ["elastic", "check", *map(str, words)])


def test_the_command_has_one_exit_code_for_each_answer(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(HEAD + "dist.barrier()\nnames = os.listdir()\n")
    done = _command(path)
    assert done.exit_code == 1
    assert f"{path}:11:1: stops D1, changed is left: dist.barrier()  [collective]\n" in done.stdout
    assert "1 thing stops D1; with another number of processes it is changed, 1 more to know" in done.stdout
    values = json.loads(_command(path, "--json").stdout)
    assert (values["left"], values["moved"], len(values["findings"])) == ("changed", False, 2)
    assert {"file", "line", "column", "rule", "stops", "left", "what", "why", "instead"} == set(
        values["findings"][0]
    )
    path.write_text(MOVED + LOOP.format(""))
    done = _command(path)
    assert (done.exit_code, "nothing found that stops D1" in done.stdout) == (0, True)
    path.write_text("x = 1\n")
    assert "is this the training script?" in _command(path).stdout
    path.write_text("x = (")
    assert _command(path).exit_code == 2
    path.write_text(HEAD)
    done = _command(path, "--run", 2)
    assert (done.exit_code, "move it over first" in done.stderr) == (2, True)


def test_the_guide_names_every_rule() -> None:
    guide = (ROOT / "docs" / "elastic-check.md").read_text()
    texts = [path.read_text() for path in (ROOT / "src" / "cotenant" / "elastic" / "checks").glob("*.py")]
    rules = {
        name for text in texts for name in re.findall(r'"([a-z0-9-]+)",\s*(?:D[012]_|REMARK|loses)', text)
    }
    assert len(rules) > 25 and {rule for rule, *_ in PAIRS} - {"depends-on-processes"} <= rules | {
        "depends-on-machine"
    }
    assert [rule for rule in sorted(rules) if f"`{rule}`" not in guide] == []


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        ("with torch.no_grad(): net.weight.data[1].add_(0.1)", ["changed-on-one-process"]),
        ("nn.init.zeros_(net.bias)", ["changed-on-one-process"]),
        ("total.add_(1)", []),
        ("net.weight.requires_grad_(False)", []),
    ],
)
def test_parameters_that_one_process_alone_changes(tmp_path: Path, line: str, rules: list[str]) -> None:
    text = MOVED + LOOP.format(f"    if run.first:\n        {line}")
    found = [one for one in _check(tmp_path, text).findings if one.rule == "changed-on-one-process"]
    assert [one.rule for one in found] == rules
    assert all(one.line == 14 and one.stops == "D1" for one in found)
    free = MOVED + LOOP.format(f"    if step.last:\n        {line}")
    assert not [one for one in _check(tmp_path, free).findings if one.rule == "changed-on-one-process"]
