"""What must hold of the store that look-ups go through: L13, L15."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import lfbo_aot
from lfbo_aot.cli.main import main
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.registry.devices import DeviceId

from .conftest import KERNEL
from .conftest import finish
from .conftest import start
from .conftest import tree

ROOT = Path(lfbo_aot.__file__).parents[1]
H200 = DeviceId("sm90", "NVIDIA H200")
BUCKET = "m=17..256|n=2048|dtype=bfloat16"

# L13

RANK = """
import hashlib, json, sys, lfbo_aot
lfbo_aot.use_database(sys.argv[1])
found = []
for m in (1, 16, 17, 100, 256, 257, 1000, 4097):
    for arch in ("sm90/NVIDIA H200", "sm90/NVIDIA H100", "sm90", "sm100"):
        r = lfbo_aot.resolve("norm", (m, 2048, "bfloat16"), arch, policy="any")
        found.append([r.status, r.fresh, r.key, dict(r.config)])
archs = ("sm90", "sm100", None)
print(json.dumps([found, [lfbo_aot.digest(arch) for arch in archs]]))
"""


def test_l13_ranks_with_equal_stores_resolve_equally_and_digest_proves_it(
    isolated, fresh, write_database, make_entry, tmp_path
):
    b200 = DeviceId("sm100", "NVIDIA B200")
    held = {BUCKET: make_entry(8), "m=1..16|n=2048|dtype=bfloat16": make_entry(2)}
    held |= {(b200, BUCKET): make_entry(4)}
    first = write_database(tmp_path / "first", {KERNEL: held})
    # Another folder, filled in another order, at another time.
    second = tmp_path / "another place" / "second"
    for key in reversed(held):
        write_database(second, {KERNEL: {key: held[key]}})
    os.utime(second / "sm90" / f"{KERNEL}.jsonl", (1, 1))
    ranks = [
        fresh(RANK, path, PYTHONHASHSEED=str(seed))[0]
        for seed, path in enumerate((first, first, second, shutil.copytree(first, tmp_path / "c")))
    ]
    assert ranks == ranks[:1] * 4
    answers, (sm90, sm100, everything) = ranks[0]
    assert len({sm90, sm100, everything}) == 3
    assert {row[0] for row in answers} == {"exact", "same_arch", "default"}
    # One entry that differs shows, in the digest of its arch and of everything.
    write_database(second, {KERNEL: {(b200, BUCKET): make_entry(4, latency_us=25.5)}})
    _, other = fresh(RANK, second)[0]
    assert other[0] == sm90
    assert (other[1] != sm100, other[2] != everything) == (True, True)
    # As does another layer under it, or over it.
    _, laid_over = fresh(RANK, second, LFBO_AOT_PATH=str(first))[0]
    assert laid_over[2] not in (everything, other[2])


# L15


def test_l15_the_user_comes_before_the_project_and_the_project_before_what_ships(
    isolated, write_database, make_entry, tmp_path
):
    """From four layers down to one; each time the topmost one answers, and `explain` says so."""
    box = "m=4097..16384|n=4096|dtype=bfloat16"
    kernel = "lfbo_aot.softmax"
    declared = Declaration.read(ROOT / "tuned" / "kernels" / f"{kernel}.json")
    user = tmp_path / "user-data" / "lfbo-aot" / "tuned"
    chosen, project = tmp_path / "chosen", tmp_path / "project"
    for path, warps in ((chosen, 1), (user, 2), (project, 4)):
        write_database(path, {kernel: {box: make_entry(warps)}}, dims=declared.dims)
    wheel = ["pack", "--database", project, "--out", tmp_path, "--name", "mykern-data"]
    assert main([*map(str, wheel), "--version", "1.0"]) == 0
    site = tmp_path / "site"
    zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(site)
    before = tree(site, ROOT / "tuned")

    def explain(**environ):
        words = ["softmax", "m=5000", "n=4096", "dtype=bfloat16", "--arch", H200, "--json"]
        told, _ = finish(start(["-m", "lfbo_aot", "explain", *words], tmp_path, **environ))
        outcomes = {row["layer"]: row["outcome"] for row in told["considered"]}
        return told["layer"], told["config"]["num_warps"], outcomes

    path, package = {"LFBO_AOT_PATH": str(chosen)}, {"PYTHONPATH": str(site)}
    below = {"user": "outranked", "package mykern-data": "outranked", "built-in": "outranked"}
    assert explain(**path, **package) == (str(chosen), 1, {str(chosen): "served", **below})
    assert explain(**package) == ("user", 2, {**below, "user": "served"})
    shutil.rmtree(user)
    below["user"] = "nothing held"
    assert explain(**package) == (
        "package mykern-data",
        4,
        {**below, "package mykern-data": "served"},
    )
    shipped = lfbo_aot.resolve(kernel, (5000, 4096, "bfloat16"), H200)
    layer, warps, outcomes = explain()
    assert (layer, warps) == ("built-in", shipped.config["num_warps"])
    assert outcomes == {"user": "nothing held", "built-in": "served"}
    assert tree(site, ROOT / "tuned") == before
