"""What must hold of look-ups over processes: L8, L14, L17, L18.

`serving.py` is what such a process does, in an installation of its own.
"""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

import lfbo_aot
from lfbo_aot.registry.devices import DeviceId

from .conftest import finish
from .conftest import start
from .conftest import tree

HERE = Path(__file__).parent
ROOT = Path(lfbo_aot.__file__).parents[1]
# Of the kernels that ship, those that are looked up here: all would take the interpreter minutes.
SERVED = ["layer_norm", "matmul", "rms_norm", "softmax", "vector_add"]
H200 = DeviceId("sm90", "NVIDIA H200")
BUCKET = "m=17..256|n=2048|dtype=bfloat16"


def installed(folder):
    """A copy of the package as a wheel lays it out, of SERVED; the folder to be put on the path."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")
    shutil.copytree(ROOT / "lfbo_aot", folder / "lfbo_aot", ignore=ignored)
    for name in ("kernels", "tuned"):
        shutil.copytree(ROOT / name, folder / "lfbo_aot" / name, ignore=ignored)
    imports = [f"from .{name} import {name}\n" for name in SERVED]
    (folder / "lfbo_aot" / "kernels" / "__init__.py").write_text("".join(imports))
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory, make_entry):
    """Two processes from two installations that serve the shipped kernels by the interpreter.

    (What each found, the installations, and all that lay around before and after.)
    """
    if find_spec("helion") is None:
        pytest.skip("Helion isn't installed")
    base = tmp_path_factory.mktemp("serving")
    sites = [installed(base / name) for name in ("one", "two/with a blank")]
    home, cwd, scratch = (base / name for name in ("home", "cwd", "scratch"))
    for folder in (home, cwd, scratch):
        folder.mkdir()
    environ = {
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CACHE_HOME": str(home / "cache"),
        # Where Helion, Triton and torch keep what they make.
        "TMPDIR": str(scratch),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "HELION_CACHE_DIR": str(scratch / "helion"),
    }
    before = tree(*sites, home, cwd)
    entry = json.dumps(make_entry(resources={}).to_json())
    found, _ = finish(start([HERE / "serving.py", scratch, entry, *sites], cwd, **environ))
    return found, sites, before, tree(*sites, home, cwd)


# L8


def test_l8_two_processes_and_two_installations_give_one_key_and_one_source(served):
    (one, two), sites, *_ = served
    assert [found["file"] for found in (one, two)] == [
        str(site / "lfbo_aot" / "__init__.py") for site in sites
    ]
    assert list(one["sources"]) == SERVED
    assert one["sources"] == two["sources"]
    keys, others = (
        {name: [key for _, key, _ in rows] for name, rows in found["answers"].items()}
        for found in (one, two)
    )
    assert keys == others
    device = "Triton interpreter"
    assert keys["softmax"] == [
        *(f"{device}|m={m}|n=128|dtype=float32" for m in ("5..8", "9..16", "9..16", "17..32")),
        f"{device}|m=33|n=128|dtype=float32",
    ]
    # And they are those that the shipped entries were made with.
    for name in ("layer_norm", "matmul", "softmax"):
        text = (ROOT / "tuned" / "kernels" / f"lfbo_aot.{name}.json").read_text()
        assert one["sources"][name] == json.loads(text)["source"]


# L14


@pytest.mark.parametrize("name", SERVED)
def test_l14_the_config_executed_is_the_config_stored(served, name):
    (found,) = (found for found in served[0] if name in found["calls"])
    calls, stored = found["calls"][name], found["stored"][name]
    # In the bucket below that of the small shape; in that below and at its tuning point; above it.
    assert [call["box"] for call in calls] == [0, 1, 1, 2, None]
    assert [call["at_point"] for call in calls] == [True, False, True, False, False]
    assert [call["generated"] for call in calls] == [call["at_point"] for call in calls]
    for call, (status, _, config) in zip(calls, found["answers"][name], strict=True):
        box = call["box"]
        assert status == ("default" if box is None else "exact")
        assert config == ({} if box is None else stored[box])
        assert call["default"] is (box is None)
        assert call["set"] == (stored[box] if box is not None else call["set"])
        launched = {name: call["set"][name] for name in ("num_warps", "num_stages")}
        assert call["launches"] == 1
        assert call["launched"] == {**launched, "grid": call["programs"]}
        assert call["right"]
    assert len({json.dumps(config) for config in stored}) == 3


# L17


def test_l17_a_serving_process_writes_nothing_and_needs_no_disk_to_write_on(served):
    both, _, before, after = served
    assert after == before
    for found in both:
        assert found["refused"] == []
        assert all(call["right"] for calls in found["calls"].values() for call in calls)


LOOK_UPS = """
import errno, os, sys
attempts = []
names = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.chmod",
         "os.truncate", "os.utime", "os.chown", "tempfile.mkstemp", "tempfile.mkdtemp")
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
def read_only(event, args):
    if event in names or event == "open" and args[2] & writing:
        attempts.append(f"{event} {args[0]}")
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(args[0]))
sys.addaudithook(read_only)
import json, lfbo_aot
found = []
for policy in ("exact", "compatible", "any"):
    for kernel, shape in (("softmax", (4096, 4096)), ("layer_norm", (3, 77)), ("matmul", (1, 2, 3))):
        for arch in ("sm90/NVIDIA H200", "sm90/NVIDIA H100", "sm121"):
            r = lfbo_aot.resolve(kernel, (*shape, "bfloat16"), arch, policy=policy)
            found.append(r.status)
print(json.dumps([attempts, found]))
"""


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "misses recorded"])
def test_l17_look_ups_work_on_a_read_only_disk(tmp_path, fresh, recorded):
    home = tmp_path / "home"
    home.mkdir()
    target = home / "sub" / "misses.jsonl"
    more = {"LFBO_AOT_RECORD_MISSES": str(target)} if recorded else {}
    before = tree(tmp_path)
    (attempts, statuses), said = fresh(LOOK_UPS, HOME=str(home), **more)
    assert tree(tmp_path) == before
    one = ["default", "default", "default"]
    assert statuses == [
        *("exact", "default", "default", *one * 2),
        *("exact", "same_arch", "default", *one * 2) * 2,
    ]
    # Nothing is tried but what was asked for, and that it can't be is said once.
    tried = {text.partition(" ")[2] for text in attempts}
    assert tried == ({str(target.parent)} if recorded else set())
    assert said.count("can't be written: Read-only file system") == int(recorded)


# L18


def test_l18_a_repeated_call_opens_nothing_and_looks_nothing_up(served):
    for found in served[0]:
        assert found["repeated"] == {"look_ups": 0, "resolved": 0, "files": []}


COUNTED = """
import json, sys, lfbo_aot
from lfbo_aot.runtime import resolve as module
count = {"look_ups": 0, "files": []}
real = module.look_up
def look_up(*args):
    count["look_ups"] += 1
    return real(*args)
module.look_up = look_up
def watch(event, args):
    if event in ("open", "os.listdir", "os.scandir", "import"):
        count["files"].append(f"{event} {args[0]}")
sys.addaudithook(watch)
shapes = [("softmax", {"m": m, "n": 4096, "dtype": "bfloat16"}) for m in (4096, 5000, 7)]
def ask():
    return [
        [lfbo_aot.get_config(*shape, arch), lfbo_aot.resolve(*shape, arch),
         lfbo_aot.resolve(shape[0], tuple(shape[1].values()), arch, policy="any")]
        for shape in shapes for arch in ("sm90/NVIDIA H200", "sm90/NVIDIA H100", "sm90", "sm121")
    ]
first = ask()
first_count = dict(count, files=len(count["files"]))
count.update(look_ups=0, files=[])
again = [ask() for _ in range(50)]
same = all(a is b for other in again for x, y in zip(first, other) for a, b in zip(x, y))
print(json.dumps([first_count, count, same]))
"""


def test_l18_a_warm_look_up_by_name_does_no_work_but_recalling(fresh):
    (first, warm, same), _ = fresh(COUNTED)
    assert first["look_ups"] == 24
    assert first["files"] > 0
    assert warm == {"look_ups": 0, "files": []}
    assert same, "one and the same object is given again"
