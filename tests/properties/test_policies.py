"""What a laxer policy, or more entries, may change of an answer: for databases of any content."""

from __future__ import annotations

import itertools
import tempfile

import pytest
from hypothesis import HealthCheck
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import lfbo_aot
from lfbo_aot import Environment
from lfbo_aot import Range
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.database.merge import merge
from lfbo_aot.registry.buckets import Bucket
from lfbo_aot.registry.buckets import enumerate_buckets
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.runtime.state import refresh

pytestmark = pytest.mark.usefixtures("isolated")

PROPERTY = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
KERNEL, OTHER = "mykern.norm", "mykern.scale"
POLICIES = ("exact", "compatible", "any")
STATUSES = ("exact", "same_arch", "imported", "transferred", "default")
DIMS = {"m": Range(1, 64)}
BOXES = ("m=1..8", "m=1..64", "m=5..32", "m=6")
H200 = DeviceId("sm90", "NVIDIA H200")
ON_SM90 = (H200, DeviceId("sm90", "NVIDIA H100 PCIe"), DeviceId("sm90", "NVIDIA New (9 SMs)"))
ELSEWHERE = (DeviceId("sm80", "NVIDIA A30"), DeviceId("gfx942", "AMD Instinct MI300X"))
HERE = Environment(source="sha256:50ce", versions={"torch": "2.11.0", "helion": "1.5.0"})
ENVIRONMENTS = st.sampled_from([None, HERE])
SIZES = st.sampled_from([1, 6, 7, 20, 64])


@st.composite
def entry_fields(draw, pins=True):
    """How an entry differs from a measured one that fits; its warps tell it apart."""
    return {
        "warps": draw(st.integers(1, 10**9)),
        "status": draw(st.sampled_from(["measured", "measured", "imported", "transferred"])),
        "source": draw(st.sampled_from(["sha256:50ce"] * 4 + ["sha256:01d"])),
        "versions": {
            "torch": draw(st.sampled_from(["2.11.0", "2.11.0", "2.10.0"])),
            "helion": "1.5",
        },
        "latency_us": draw(st.sampled_from([10.0, 20.0])),
        "resources": {"shared": draw(st.sampled_from([1024, 1024, 1 << 20])), "threads": 128},
        "pinned": pins and draw(st.integers(0, 5)) == 0,
    }


def layer(devices=ON_SM90, pins=True):
    places = st.tuples(st.sampled_from(devices), st.sampled_from(BOXES))
    return st.dictionaries(places, entry_fields(pins), max_size=6)


LAYERS = st.lists(layer(), min_size=1, max_size=3)


class Stack:
    """Databases in a temporary folder, laid one over the other; the first one on top."""

    def __init__(self, write_database, make_entry, layers):
        self._make_entry = make_entry
        self._folder = tempfile.TemporaryDirectory()
        self.paths = [
            write_database(f"{self._folder.name}/{i}", {KERNEL: self.entries(held)}, dims=DIMS)
            for i, held in enumerate(layers)
        ]

    def __enter__(self):
        self._uses = [lfbo_aot.use_database(path) for path in reversed(self.paths)]
        return self

    def __exit__(self, *error):
        for use in reversed(self._uses):
            use.__exit__(*error)
        self._folder.cleanup()

    def entries(self, held):
        return {place: self._make_entry(**fields) for place, fields in held.items()}


def declaration(kernel_id):
    keys = tuple(bucket.key for bucket in enumerate_buckets(DIMS))
    return Declaration(kernel_id, DIMS, keys, {}, "sha256:50ce")


@pytest.fixture
def stack(write_database, make_entry):
    return lambda layers: Stack(write_database, make_entry, layers)


def ask(size, policy, environment, target=str(H200)):
    return lfbo_aot.resolve(KERNEL, (size,), target, policy=policy, environment=environment)


def rank(found, target):
    """The least is served: pinned for what is asked about, then status, then freshness."""
    own = target == "sm90" or found.key.startswith(f"{H200.name}|")
    pinned = found.entry is not None and found.entry.pinned and own
    freshness = {True: 0, None: 1, False: 2}[found.fresh]
    return not pinned, STATUSES.index(found.status), freshness if found.entry else 3


def fields(warps, **more):
    fit = {"versions": {"torch": "2.11.0", "helion": "1.5.0"}, "pinned": False}
    return {"warps": warps, "status": "measured", **fit, **more}


# A smaller box that only the laxer policy serves, in a larger one that the stricter serves too.
IMPORTED = [{(H200, "m=6"): fields(1, status="imported"), (H200, "m=1..64"): fields(2)}]
TRANSFERRED = [{(H200, "m=6"): fields(1, status="transferred"), (H200, "m=1..64"): fields(2)}]
STALE = [
    {
        (H200, "m=6"): fields(1, versions={"torch": "2.10.0", "helion": "1.5.0"}),
        (H200, "m=1..64"): fields(2),
    }
]
# A pin counts for its own device only.
PINNED = [
    {
        (H200, "m=1..8"): fields(1, status="transferred", pinned=True),
        (ON_SM90[1], "m=1..8"): fields(2, pinned=True),
    }
]


@PROPERTY
@example(PINNED, 6, None, str(H200))
@example(IMPORTED, 6, HERE, str(H200))
@example(TRANSFERRED, 6, None, str(H200))
@example(STALE, 6, HERE, str(H200))
@given(LAYERS, SIZES, ENVIRONMENTS, st.sampled_from([str(H200), "sm90"]))
def test_a_laxer_policy_serves_the_same_or_what_comes_before_it(
    stack, layers, size, environment, target
):
    with stack(layers):
        answers = [ask(size, policy, environment, target) for policy in POLICIES]
    for strict, lax in itertools.pairwise(answers):
        assert rank(lax, target) <= rank(strict, target)
        if strict.status != "default":
            assert lax.status != "default"
            if rank(lax, target) == rank(strict, target):
                assert (lax.config, lax.layer, lax.key) == (strict.config, strict.layer, strict.key)


@PROPERTY
@given(LAYERS, SIZES, ENVIRONMENTS, st.sampled_from(POLICIES))
def test_a_policy_serves_what_it_allows_and_that_is_held(stack, layers, size, environment, policy):
    with stack(layers) as stacked:
        found = ask(size, policy, environment)
        if found.status == "default":
            assert (dict(found.config), found.entry, found.layer) == ({}, None, None)
            return
        allowed = {"exact": 1, "compatible": 3, "any": 4}[policy]
        assert found.status in STATUSES[:allowed]
        assert not (policy == "exact" and found.fresh is False)
        assert found.entry.resources["shared"] <= 227 * 1024
        assert environment is None or found.entry.source == environment.source
        name, _, key = found.key.partition("|")
        assert Bucket.parse(key).contains({"m": size})
        held = layers[list(map(str, stacked.paths)).index(found.layer)]
        fields = held[DeviceId("sm90", name), key]
        assert found.config["num_warps"] == fields["warps"]
        assert (found.status == "same_arch") == (
            name != H200.name and fields["status"] == "measured"
        )


@PROPERTY
@given(
    LAYERS,
    layer((*ON_SM90[1:], *ELSEWHERE), pins=False),
    st.integers(0, 2),
    st.tuples(SIZES, st.sampled_from(POLICIES), ENVIRONMENTS),
)
def test_entries_of_other_devices_archs_and_kernels_leave_an_exact_answer_as_it_is(
    stack, layers, added, into, question
):
    with stack(layers) as stacked:
        before = ask(*question)
        path = stacked.paths[into % len(stacked.paths)]
        new = stacked.entries(added)
        mine = {(d, Bucket.parse(key)): entry for (d, key), entry in new.items()}
        elsewhere = {(H200, bucket): entry for (_, bucket), entry in mine.items()}
        merge(path, {KERNEL: mine, OTHER: elsewhere}, [declaration(OTHER)])
        refresh()
        after = ask(*question)
    if question[1] == "exact" or before.status == "exact":
        same = ("config", "status", "fresh", "entry", "layer", "key")
        assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
