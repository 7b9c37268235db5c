"""The search space that an entry is from, held against that of the kernel that is bound."""

from __future__ import annotations

import logging

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("helion")
hl = pytest.importorskip("helion.language")

import lfbo_aot  # noqa: E402
from lfbo_aot.adapters.fragments import space_digest  # noqa: E402
from lfbo_aot.registry.devices import INTERPRETER  # noqa: E402
from lfbo_aot.registry.devices import DeviceId  # noqa: E402
from lfbo_aot.registry.dims import Exact  # noqa: E402
from lfbo_aot.registry.dims import Range  # noqa: E402
from lfbo_aot.runtime import hardware  # noqa: E402
from lfbo_aot.runtime.serving import unserved_bind  # noqa: E402

pytestmark = pytest.mark.usefixtures("isolated", "own_catalog")

CPU = DeviceId("cpu", "CPU")
OTHER = "sha256:07he5"


def twice(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 2
    return out


DIMS = {"m": Range(1, 64, edges=[16]), "n": Exact(32), "dtype": Exact("float32")}


@pytest.fixture
def made():
    return lfbo_aot.kernel(
        dims=DIMS,
        shape=lambda x: {"m": x.size(0), "n": x.size(1), "dtype": x.dtype},
        package="mine",
    )(twice)


@pytest.fixture
def held(made, make_entry, write_database, tmp_path):
    """A database in which each bucket of `made` has an entry with this digest of the space."""

    def write(space, device=CPU, **fields):
        spec = made.lfbo_aot_spec
        entries = {
            (device, bucket.key): make_entry(
                config={"block_sizes": [4, 32], "num_warps": 2},
                alternates=[{"block_sizes": [8, 32], "num_warps": 1}],
                source=spec.source,
                settings=spec.settings,
                layout=[{"order": [0, 1], "contiguous": True}],
                space=space,
                **fields,
            )
            for bucket in spec.buckets
        }
        return write_database(tmp_path / "tuned", {"mine.twice": entries}, dims=DIMS)

    return write


def digest(made, m):
    return space_digest(unserved_bind(made, (torch.ones(m, 32),)))


def test_spaces_differ_within_a_bucket(made):
    """Why they can't be compared everywhere: a dim of size 1 has no block size."""
    assert digest(made, 16) != digest(made, 1)


def test_no_entry_is_refused_at_another_shape_of_its_own_bucket(made, held, caplog):
    path = held(digest(made, 16))
    with lfbo_aot.use_database(path), caplog.at_level(logging.WARNING, "lfbo_aot.runtime.serving"):
        served = {m: made.bind((torch.ones(m, 32),))._config for m in (1, 2, 3, 7, 8, 15, 16)}
    assert {config["num_warps"] for config in served.values()} == {2}
    assert not [r for r in caplog.records if "space" in r.getMessage()]


def test_an_entry_from_another_space_is_refused_where_it_was_tuned(made, held, caplog):
    path = held(OTHER)
    with lfbo_aot.use_database(path), caplog.at_level(logging.WARNING, "lfbo_aot"):
        bound = made.bind((torch.ones(16, 32),))
    assert bound._config == bound.config_spec.default_config()
    (text,) = [r.getMessage() for r in caplog.records if "space" in r.getMessage()]
    assert text.startswith(f"mine.twice: space: entry={OTHER} here=sha256:")
    assert text.endswith("CPU|m=1..16|n=32|dtype=float32 isn't used, Helion's default is served")


def test_entries_without_a_digest_and_of_the_interpreter_are_not_compared(made, held, monkeypatch):
    monkeypatch.setattr(hardware, "interpreted", lambda: True)
    monkeypatch.setattr("lfbo_aot.runtime.trial._runs_here", lambda args: False)
    with lfbo_aot.use_database(held(OTHER, INTERPRETER)):
        assert made.bind((torch.ones(16, 32),))._config["num_warps"] == 2


def test_one_of_another_device_of_the_arch_is_not_compared(made, held):
    """Its default config, which counts, may differ."""
    with lfbo_aot.use_database(held(OTHER, DeviceId("cpu", "Another CPU"))):
        assert made.bind((torch.ones(16, 32),))._config["num_warps"] == 2


def test_what_cannot_be_compared_is_no_difference(made, held, monkeypatch):
    def fail(bound):
        raise NotImplementedError

    path = held(OTHER)
    monkeypatch.setattr("lfbo_aot.adapters.fragments.space_digest", fail)
    with lfbo_aot.use_database(path):
        assert made.bind((torch.ones(16, 32),))._config["num_warps"] == 2


@pytest.mark.parametrize("name", ["autotune_force_persistent", "disable_autotuner_heuristics"])
def test_settings_that_narrow_the_space_are_no_difference(held, monkeypatch, name):
    made = lfbo_aot.kernel(
        dims=DIMS,
        shape=lambda x: {"m": x.size(0), "n": x.size(1), "dtype": x.dtype},
        package="mine",
        **{name: True},
    )(twice)
    with lfbo_aot.use_database(held(OTHER)):
        assert made.bind((torch.ones(16, 32),))._config["num_warps"] == 2
