"""Readers in processes of their own while a merge rewrites what they read: no error, no mixture."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

KERNEL = "mykern.norm"
BOXES = [f"m={64 * i + 1}..{64 * i + 64}|n=2048|dtype=bfloat16" for i in range(16)]

# A process that forks readers, and merges one version after the other until the last one is done.
# A reader goes on until it has seen both, at most `MOST` look-ups.
SCRIPT = """
import json, os, sys, traceback

sys.path.insert(0, sys.argv[2])
from versions import DECLARATION, KERNEL, VERSIONS

import lfbo_aot
from lfbo_aot.database.merge import merge
from lfbo_aot.runtime import state

PATH, READERS, LEAST, MOST = sys.argv[1], 8, 300, 40_000
merge(PATH, {KERNEL: VERSIONS[0]}, [DECLARATION])
lfbo_aot.use_database(PATH)


def read(number):
    seen, count = set(), 0
    while count < LEAST or (len(seen) < 2 and count < MOST):
        if count % 8 == number % 8:
            state.refresh()
        box = (count * 7 + number) % 16
        shape = (64 * box + 1 + count % 64, 2048, "bfloat16")
        found = lfbo_aot.resolve(KERNEL, shape, "sm90/NVIDIA H200", policy="exact")
        warps = found.config["num_warps"]
        version, expected = divmod(warps, 1000)
        assert (expected, found.status) == (box, "exact"), found
        assert not any(r.startswith("damaged") for r in found.reasons), found.reasons
        seen.add(version)
        count += 1
    return [count, sorted(seen)]


children = {}
for number in range(READERS):
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.write(theirs, json.dumps(read(number)).encode())
            status = 0
        except BaseException:
            os.write(theirs, json.dumps(traceback.format_exc()[-2000:]).encode())
        finally:
            os._exit(status)
    os.close(theirs)
    children[child] = ours

merges, failed, left = 0, 0, set(children)
while left:
    merges += 1
    merge(PATH, {KERNEL: VERSIONS[merges % 2]}, [])
    for child in list(left):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            left.discard(child)
            failed += status != 0
said = [json.loads(os.read(ours, 65536)) for ours in children.values()]
print(json.dumps({"merges": merges, "failed": failed, "readers": said}))
"""

VERSIONS = """
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.entry import Entry
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.devices import DeviceId

KERNEL = {kernel!r}
KEYS = {keys!r}
DECLARATION = Declaration.from_json({declaration!r})
ENTRY = {entry!r}
DEVICES = [DeviceId("sm90", "NVIDIA H200"), DeviceId("sm90", "NVIDIA H100 PCIe")]


def version(number):
    # The versions differ in length too, so that every line of the shard moves.
    made = {{}}
    for device in DEVICES:
        for i, key in enumerate(KEYS):
            config = {{"num_warps": 1000 * number + i, "block_sizes": [1] * (1 + 5 * number)}}
            made[device, Bucket.parse(key)] = Entry.from_json({{**ENTRY, "config": config}})
    return made


VERSIONS = [version(0), version(1)]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="readers are forked")
def test_eight_readers_while_a_merge_rewrites_the_shard(
    tmp_path, isolated, make_entry, make_declaration
):
    declaration = make_declaration(KERNEL)
    versions = VERSIONS.format(
        kernel=KERNEL,
        keys=BOXES,
        declaration=declaration.to_json(),
        entry=make_entry(1).to_json(),
    )
    (tmp_path / "versions.py").write_text(versions)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "tuned"), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path / "none")},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["failed"] == 0, told["readers"]
    assert len(told["readers"]) == 8
    for count, seen in told["readers"]:
        assert count >= 300
        assert seen == [0, 1]  # each of them read while it was rewritten
    assert told["merges"] >= 2
    assert done.stderr == ""
