from __future__ import annotations

import pytest

pytest.importorskip("helion")

from benchmarks.efficiency import helion_contenders
from benchmarks.recorded import space_records


@pytest.mark.parametrize("pair", sorted(space_records()))
def test_helion_offers_the_recorded_space(pair):
    kernel, _ = helion_contenders.bound(pair)  # raises if a fragment differs
    generation = kernel.config_spec.create_config_generation()
    assert generation.default_flat() == space_records()[pair]["default"]
    assert generation.seed_flat_config_pairs() == []
