from __future__ import annotations

import helion
import helion.language as hl
import numpy as np
import pytest
import torch

from lfbo_aot.adapters import helion as seam
from lfbo_aot.adapters.interpreter import FIXED
from lfbo_aot.registry.discovery import load_kernels
from lfbo_aot.search import Choice
from lfbo_aot.search import Condition
from lfbo_aot.search import Integer
from lfbo_aot.search import ListOf
from lfbo_aot.search import Permutation
from lfbo_aot.search import PowerOfTwo
from lfbo_aot.search import Space

KERNELS = ("layer_norm", "matmul", "rms_norm", "softmax", "vector_add")
PERSISTENT = ("persistent_blocked", "persistent_interleaved")


@pytest.fixture(scope="module")
def bound():
    """Each shipped kernel, bound at its first small shape."""
    found = {}
    for spec in load_kernels(["lfbo_aot.kernels"]):
        found[spec.name] = seam.bind(spec.kernel, spec.make_inputs(spec.small[0], "cpu"))
    return found


@pytest.fixture(params=KERNELS)
def kernel(request, bound):
    return bound[request.param]


@pytest.fixture(params=["all", "interpreter"])
def codec(request, kernel):
    return seam.SpaceCodec(kernel, FIXED if request.param == "interpreter" else None)


def points(space, count=60, seed=7):
    rng = np.random.default_rng(seed)
    return [space.sample(rng) for _ in range(count)]


def test_every_point_gives_a_config_and_comes_back(codec):
    configs = {}
    for point in points(codec.space):
        config = codec.config(point)
        assert codec.point(config) == point
        configs.setdefault(str(config), set()).add(point)
    # Points that differ in something that counts are other configs.
    assert all(len(same) == 1 for same in configs.values())


def test_the_default_point_is_helions_default(codec, kernel):
    default = seam.default_config(kernel)
    assert codec.config(codec.space.default) == default
    assert codec.point(default) == codec.space.default


def test_what_is_inactive_changes_nothing(codec):
    rng = np.random.default_rng(3)
    for point in points(codec.space, 30):
        config = codec.config(point)
        for at, active in enumerate(codec.space.active(point)):
            if not active:
                other = codec.space.tunables[at].sample(rng)
                assert codec.config((*point[:at], other, *point[at + 1 :])) == config


def test_conditions_are_learnt(bound):
    space = seam.SpaceCodec(bound["softmax"]).space
    assert Condition("num_sm_multiplier", "pid_type", PERSISTENT) in space.conditions
    assert {c.name for c in space.conditions} == {
        "num_sm_multiplier",
        "range_flattens[0]",
        "range_multi_buffers[0]",
        "range_num_stages[0]",
        "range_unroll_factors[0]",
    }


def test_fixed_keys_and_what_they_make_idle_are_not_searched(bound):
    codec = seam.SpaceCodec(bound["softmax"], FIXED)
    assert [tunable.name for tunable in codec.space.tunables] == [
        "block_sizes[0]",
        "reduction_loops[0]",
        "num_warps",
        "num_stages",
        "indexing",
        "load_eviction_policies",
    ]
    assert {codec.config(point)["pid_type"] for point in points(codec.space)} == {"flat"}
    assert codec.space.conditions == ()


def test_the_compilers_seeds_and_configs_that_fit(bound):
    codec = seam.SpaceCodec(bound["softmax"])
    seeds = codec.space.seeds
    assert len(seeds) >= 1
    winner = codec.config(points(codec.space, 1)[0])
    wrong = {**winner, "indexing": ["pointer"]}
    found = codec.fitting([winner, wrong, {"no_such_key": 1}, winner, codec.config(seeds[0])])
    assert found == (codec.point(winner), seeds[0])
    assert codec.fitting([]) == ()


def test_what_makes_no_difference_keeps_the_defaults_value(bound):
    codec = seam.SpaceCodec(bound["softmax"])
    at = [t.name for t in codec.space.tunables].index("num_stages")
    other = next(p for p in points(codec.space) if p[at] != codec.space.default[at])
    codec.keep([("num_stages", -1)])
    assert codec.space.inert == (("num_stages", -1),)
    # A config from elsewhere may have another value: its point has this one.
    assert codec.config(other)["num_stages"] == other[at]
    assert codec.point(codec.config(other)) == codec.space.canonical(other) != other


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_warps": 3},
        {"num_warps": "four"},
        {"block_sizes": [1, 2, 3]},
        {"block_sizes": 16},
        {"indexing": ["nowhere"] * 6},
        {"pid_type": "sideways"},
    ],
    ids=str,
)
def test_configs_that_do_not_fit(bound, wrong):
    codec = seam.SpaceCodec(bound["softmax"])
    config = {**codec.config(codec.space.default), **wrong}
    with pytest.raises(seam.InvalidConfigError):
        codec.point(config)


def test_a_space_is_the_same_in_every_process_and_survives_json(codec, kernel):
    fixed = FIXED if codec._pinned else None
    again = seam.SpaceCodec(kernel, fixed).space
    assert again == codec.space
    assert Space.from_json(codec.space.to_json()) == codec.space


def test_binding_passes_stored_configs_by(bound):
    assert all(kernel._config is None for kernel in bound.values())


def test_code_is_generated_and_its_launches_are_seen(bound):
    import torch

    kernel = bound["softmax"]
    config = seam.default_config(kernel)
    function, code = seam.generate(kernel, config)
    again = seam.generate(kernel, dict(reversed(config.items())))[1]
    assert (again.digest, again.function) == (code.digest, "softmax")
    assert seam.load(code)(torch.zeros(16, 128), _launcher=lambda *_, **__: None).shape == (16, 128)
    (launch,) = seam.launches(function, (torch.zeros(16, 128),))
    assert launch.grid == (1,)
    assert launch.kwargs["num_warps"] == config["num_warps"]


def test_versions_name_all_that_matters():
    found = seam.versions()
    assert list(found) == ["helion", "triton", "torch", "runtime"]
    assert all(found.values())
    assert "+" not in found["torch"]


def test_every_kind_of_fragment_has_a_tunable():
    from helion.autotuner import config_fragment as f

    choices = ("a", "b", "c")
    cases = [
        (f.PowerOfTwoFragment(1, 8, 2), 2, PowerOfTwo("t", 1, 8, 2)),
        (f.BlockSizeFragment(1, 8, 2), 2, PowerOfTwo("t", 1, 8, 2, "block")),
        (f.NumWarpsFragment(1, 8, 2), 2, PowerOfTwo("t", 1, 8, 2, "warps")),
        (f.PowerOfTwoFragment(4, 4, 4), 4, None),
        # Where the grid would grow large Helion searches larger blocks than it defaults to.
        (f.BlockSizeFragment(32, 256, 64), 1, PowerOfTwo("t", 1, 256, 64, "block")),
        (f.PowerOfTwoFragment(4, 4, 4), 2, PowerOfTwo("t", 2, 4, 4)),
        (f.IntegerFragment(2, 3, 2), 5, Integer("t", 2, 5, 2)),
        (f.IntegerFragment(0, 3, 1), 1, Integer("t", 0, 3, 1)),
        (f.IntegerFragment(3, 3, 3), 3, None),
        (f.BooleanFragment(), False, Choice("t", (False, True), False)),
        (f.EnumFragment(choices), "a", Choice("t", choices, "a")),
        # What the default config has is a choice even where Helion doesn't search it.
        (f.EnumFragment(choices, search_choices=("b",)), "c", Choice("t", ("b", "a", "c"), "a")),
        (f.EnumFragment(("a",)), "a", None),
        (f.PermutationFragment(3), [0, 1, 2], Permutation("t", 3)),
        (f.PermutationFragment(1), [0], None),
        (f.ListOf(f.EnumFragment(choices), 2), [], ListOf("t", Choice("t", choices, "a"), 2)),
        (f.ListOf(f.EnumFragment(("a",)), 2), [], None),
        (f.ListOf(f.EnumFragment(choices), 0), [], None),
    ]
    for fragment, default, tunable in cases:
        assert seam._tunable("t", fragment, default) == tunable, fragment
    with pytest.raises(NotImplementedError, match="no counterpart for Helion's object"):
        seam._tunable("t", object(), None)


def scale(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 2
    return out


def test_a_default_that_helion_does_not_search_is_a_point(monkeypatch):
    bound = seam.bind(
        helion.kernel(static_shapes=True)(scale), (torch.empty(4096, 11008, dtype=torch.bfloat16),)
    )
    config = {**seam.default_config(bound), "block_sizes": [1, 1024]}
    # On a GPU that is the promoted seed of the compiler, at this very shape.
    monkeypatch.setattr(bound.config_spec, "default_config", lambda: helion.Config(**config))
    assert bound.config_spec.create_config_generation().flat_spec[0].low > 1
    codec = seam.SpaceCodec(bound)
    assert codec.space.tunables[0].low == 1
    assert codec.config(codec.space.default) == config
