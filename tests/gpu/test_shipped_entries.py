"""On a GPU that the shipped database holds entries for: each one is served, runs, and is right.

Run with `pytest tests/gpu`; skipped where there is no such GPU.
"""

from __future__ import annotations

from typing import Any

import pytest

from lfbo_aot.database.database import Database
from lfbo_aot.database.store import built_in_database

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from lfbo_aot.adapters import helion as seam  # noqa: E402
from lfbo_aot.registry.discovery import load_kernels  # noqa: E402
from lfbo_aot.runtime.hardware import current_device  # noqa: E402
from lfbo_aot.tuning.check import difference  # noqa: E402
from lfbo_aot.tuning.check import tensors_of  # noqa: E402

DEVICE = current_device()
DATABASE = Database(built_in_database())


def entries() -> list[Any]:
    found = []
    for spec in load_kernels():
        shard = DATABASE.shard(spec.kernel_id, DEVICE.arch) if DEVICE else None
        for bucket, key in shard.boxes(DEVICE.name) if shard is not None else ():
            found.append(pytest.param(spec, bucket, shard.entry(key), id=f"{spec.name}-{key}"))
    return found


ENTRIES = entries()
if not ENTRIES:
    pytest.skip(f"the database holds nothing for {DEVICE}", allow_module_level=True)


@pytest.mark.parametrize(("spec", "bucket", "entry"), ENTRIES)
def test_the_config_that_runs_is_the_one_stored(spec: Any, bucket: Any, entry: Any) -> None:
    lowest = {name: getattr(part, "lo", part) for name, part in bucket.parts}
    for shape in (bucket.point, lowest):
        args = spec.make_inputs(shape, "cuda")
        wrong = difference(
            tensors_of(spec.kernel(*args)), tensors_of(spec.reference(*args)), spec.tolerance
        )
        assert wrong is None
        bound = spec.kernel.bind(spec.kernel.normalize_args(*args))
        assert bound._config == bound._normalize_config(dict(entry.to_json()["config"]))


@pytest.mark.parametrize(("spec", "bucket", "entry"), ENTRIES[:1])
def test_the_digest_of_the_space_is_the_one_stored(spec: Any, bucket: Any, entry: Any) -> None:
    args = spec.kernel.normalize_args(*spec.make_inputs(bucket.point, "cuda"))
    codec = seam.SpaceCodec(seam.bind(spec.kernel, args))
    assert codec.space.digest == entry.space
