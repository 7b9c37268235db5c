"""`lfbo_aot.digest()`: equal where look-ups are equal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

import lfbo_aot
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import UnknownNameError

pytestmark = pytest.mark.usefixtures("isolated")

KERNEL = "mykern.norm"
BUCKET = "m=17..256|n=2048|dtype=bfloat16"


@pytest.fixture
def one(tmp_path, write_database, make_entry):
    return write_database(tmp_path / "one", {KERNEL: {BUCKET: make_entry(1)}})


def of(*paths, arch=None):
    for path in reversed(paths):
        lfbo_aot.use_database(path)
    with lfbo_aot.use_policy(None):
        return lfbo_aot.digest(arch)


def test_it_is_of_what_is_held_and_not_of_where(one, tmp_path):
    shutil.copytree(one, tmp_path / "elsewhere" / "two")
    here = of(one)
    with lfbo_aot.use_database(tmp_path / "elsewhere" / "two"):
        again = lfbo_aot.digest()
    assert here.startswith("sha256:")
    assert again != here  # two layers, of which the second one never answers
    code = f"import lfbo_aot; lfbo_aot.use_database({str(tmp_path / 'elsewhere' / 'two')!r}); print(lfbo_aot.digest())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == here


def test_whatever_changes_an_answer_changes_it(one, tmp_path, write_database, make_entry):
    seen = {of(one)}
    other = write_database(tmp_path / "other", {KERNEL: {BUCKET: make_entry(2)}})
    seen.add(of(other))
    seen.add(of(one))  # over `other` now
    with lfbo_aot.use_policy("exact"):
        seen.add(lfbo_aot.digest())
    shard = other / "sm90" / f"{KERNEL}.jsonl"
    shard.write_bytes(shard.read_bytes().replace(b"25.6", b"25.7"))
    seen.add(lfbo_aot.digest())
    (other / "kernels" / f"{KERNEL}.json").unlink()
    seen.add(lfbo_aot.digest())
    assert len(seen) == 6


def test_an_empty_layer_does_not_count(one, tmp_path):
    here = of(one)
    (tmp_path / "empty").mkdir()
    assert of(tmp_path / "empty", one) == here


def test_of_one_arch(one, write_database, make_entry):
    from lfbo_aot.registry.devices import DeviceId

    before, whole = of(one, arch="sm90"), of(one)
    b200 = DeviceId("sm100", "NVIDIA B200")
    write_database(one, {KERNEL: {(b200, BUCKET): make_entry(4)}})
    assert of(one, arch="sm_90a") == before
    assert of(one) != whole
    assert of(one, arch="sm100") != before
    with pytest.raises(UnknownNameError, match="sm9000"):
        lfbo_aot.digest("sm9000")


def test_what_cannot_be_read_is_an_error(one, closed):
    closed(one / "sm90")
    with pytest.raises(DatabaseError, match="sm90: can't be read"):
        of(one)


def test_a_pipe_is_not_waited_for(one):
    declared = one / "kernels" / f"{KERNEL}.json"
    declared.unlink()
    os.mkfifo(declared)
    with pytest.raises(DatabaseError, match="json: can't be read: not a file"):
        of(one)
