"""Declaring kernels, and what Helion runs after a look-up. On CPU tensors a kernel binds and
generates code, which is all that setting a config needs; what it computes is tested in kernels/."""

from __future__ import annotations

import logging
import threading
import types
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
helion = pytest.importorskip("helion")
hl = pytest.importorskip("helion.language")

from helion.runtime.kernel import BoundKernel  # noqa: E402

import lfbo_aot  # noqa: E402
from lfbo_aot.adapters.fragments import space_digest  # noqa: E402
from lfbo_aot.errors import DeclarationError  # noqa: E402
from lfbo_aot.errors import ShapeError  # noqa: E402
from lfbo_aot.errors import TuningError  # noqa: E402
from lfbo_aot.registry import catalog  # noqa: E402
from lfbo_aot.registry.devices import DeviceId  # noqa: E402
from lfbo_aot.registry.dims import Exact  # noqa: E402
from lfbo_aot.registry.dims import Range  # noqa: E402
from lfbo_aot.runtime import resolve as resolve_module  # noqa: E402
from lfbo_aot.runtime.resolution import Resolution  # noqa: E402
from lfbo_aot.runtime.serving import Serving  # noqa: E402
from lfbo_aot.runtime.serving import unserved  # noqa: E402
from lfbo_aot.runtime.serving import unserved_bind  # noqa: E402


def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor
    return out


def shape(x, factor):
    return {"n": x.size(0), "dtype": x.dtype}


DIMS = {"n": Range(1, 4096, factor=4), "dtype": Exact("float32")}
SCALE_LINE = scale.__code__.co_firstlineno


@pytest.fixture(autouse=True)
def own_catalog(monkeypatch):
    monkeypatch.setattr(catalog, "_specs", {})


def declare(function=scale, **more):
    given = {"dims": DIMS, "shape": shape, "package": "mine", **more}
    return lfbo_aot.kernel(**given)(function)


@pytest.fixture
def answers(monkeypatch):
    """Stands for the store: what look-ups answer, and what they were asked."""
    found = SimpleNamespace(
        config={}, alternates=(), default=False, asked=[], space="", status="exact", key="a key"
    )

    def resolve(kernel, args, arch=None, *, policy=None, environment=None):
        found.asked.append((kernel, args, environment))
        if not found.config:
            return Resolution()
        entry = SimpleNamespace(
            alternates=found.alternates, default=found.default, space=found.space
        )
        return Resolution(found.config, found.status, entry=entry, layer="a layer", key=found.key)

    monkeypatch.setattr(resolve_module, "resolve", resolve)
    return found


def config(**changed):
    """A config of `scale`, read-only all the way down, as a resolution holds it."""
    plain = {"block_sizes": (64,), "num_warps": 2, "num_stages": 3, "pid_type": "flat", **changed}
    return types.MappingProxyType(plain)


X = torch.ones(256)


def test_the_result_is_a_real_helion_kernel(answers):
    made = declare()
    assert type(made) is helion.Kernel
    spec = made.lfbo_aot_spec
    assert spec is catalog.find("mine.scale")
    assert spec.kernel is made
    assert (spec.file, spec.line) == (scale.__code__.co_filename, SCALE_LINE)
    assert spec.source.startswith("sha256:")
    assert spec.settings == {
        "static_shapes": True,
        "fast_math": False,
        "dot_precision": made.settings.dot_precision,
        "index_dtype": None,
        "backend": "triton",
    }
    assert spec.shape_of(X) == {"n": 256, "dtype": "float32"}


def test_settings_go_to_helion_and_into_the_spec(answers):
    made = declare(fast_math=True, index_dtype=torch.int64, static_shapes=False)
    assert made.settings.fast_math is True
    assert made.lfbo_aot_spec.settings["fast_math"] is True
    assert made.lfbo_aot_spec.settings["index_dtype"] == "int64"
    assert made.lfbo_aot_spec.settings["static_shapes"] is False


def test_the_stored_config_is_the_one_set(answers):
    answers.config = config()
    made = declare()
    bound = made.bind((X,))
    assert bound._config.config == {**answers.config, "block_sizes": [64]}
    assert "num_warps=2" in bound.to_triton_code(bound._config)
    assert made.bind((X,)) is bound
    assert len(answers.asked) == 1


def test_a_look_up_gets_all_arguments_and_the_environment(answers):
    made = declare()
    made.bind((X,))
    kernel, args, environment = answers.asked[0]
    assert kernel is made
    assert args[0] is X
    assert args[1] == 2.0
    assert environment.source == made.lfbo_aot_spec.source
    assert environment.settings == made.lfbo_aot_spec.settings
    assert environment.versions["torch"] == torch.__version__.partition("+")[0]
    assert {"helion", "triton"} <= set(environment.versions)


def test_each_static_shape_is_looked_up_once(answers):
    made = declare()
    for size in (256, 128, 256, 128):
        made.bind((torch.ones(size),))
    assert [args[0].size(0) for _, args, _ in answers.asked] == [256, 128]


@pytest.mark.parametrize("settings", [{}, {"autotune_effort": "none"}], ids=["effort", "no effort"])
@pytest.mark.parametrize("stored", [True, False])
def test_helions_tuner_is_not_reached(answers, monkeypatch, settings, stored):
    monkeypatch.setenv("HELION_DISALLOW_AUTOTUNING", "1")
    answers.config = config() if stored else {}
    bound = declare(**settings).bind((X,))
    wanted = dict(answers.config) or bound.config_spec.default_config().config
    assert bound._config.config == {**wanted, "block_sizes": list(wanted["block_sizes"])}
    bound.ensure_config_exists((X, 2.0))  # what a call does next: nothing is left to do


def test_forced_tuning_is_helions(answers):
    answers.config = config()
    bound = declare(force_autotune=True).bind((X,))
    assert bound._config is None
    assert answers.asked == []


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
def test_an_explicit_autotune_is_helions_and_its_result_stays(answers, static):
    answers.config = config()
    best = helion.Config(block_sizes=[16], num_warps=1)
    made = declare(
        static_shapes=static,
        autotuner_fn=lambda bound, args, **_: SimpleNamespace(autotune=lambda **_: best),
    )
    assert made.autotune((X,)) is best
    if static:
        assert answers.asked == []
    assert made.bind((X,))._config is best


def test_binding_for_the_tuner(answers):
    answers.config = config()
    made = declare()
    bound = unserved_bind(made, [X])
    assert bound._config is None
    with unserved():
        assert made.bind((X,)) is bound
    assert bound._config is None
    assert answers.asked == []
    made.bind((X,))
    assert bound._config is not None


def test_nothing_is_looked_up_while_torch_compiles(answers, monkeypatch):
    made = declare()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert made.bind((X,))._config is None
    assert answers.asked == []


def test_torchs_own_interpreter_is_left_alone(answers):
    answers.config = config()
    made = declare(ref_mode=helion.RefMode.EAGER)
    assert torch.equal(made(X, 3.0), X * 3)
    assert answers.asked == []


BAD = {
    "too long": config(block_sizes=(64, 64)),
    "too short": config(range_unroll_factors=(), load_eviction_policies=()),
    "not a list": config(block_sizes=64),
    "type": config(num_warps="two"),
    "not a power of two": config(block_sizes=(48,)),
    "unknown value": config(pid_type="sideways"),
    "unknown key": config(no_such_tunable=1),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_config_that_does_not_fit_falls_back_to_the_alternates(answers, caplog, bad):
    answers.config = bad
    answers.alternates = (config(num_warps="x"), config(num_warps=8), config(num_warps=1))
    made = declare()
    with caplog.at_level(logging.WARNING, "lfbo_aot"):
        bound = made.bind((X,))
        assert bound._config["num_warps"] == 8
        # Not tried again for another shape, and not said again.
        assert made.bind((torch.ones(64),))._config["num_warps"] == 8
    said = [r.getMessage() for r in caplog.records if r.name.startswith("lfbo_aot")]
    assert len(said) == 1
    assert "mine.scale" in said[0]
    assert "alternate number 2" in said[0]


def test_then_to_the_default(answers, caplog, monkeypatch):
    answers.config = config(block_sizes=(64, 64))
    answers.alternates = (config(),)
    made = declare()
    # The alternate is well formed, and no code can be made of it.
    to_code = type(unserved_bind(made, (X,))).to_triton_code

    def failing(bound, given, **more):
        if given["num_warps"] == 2:
            msg = "no code today"
            raise RuntimeError(msg)
        return to_code(bound, given, **more)

    monkeypatch.setattr(type(unserved_bind(made, (X,))), "to_triton_code", failing)
    with caplog.at_level(logging.WARNING, "lfbo_aot"):
        bound = made.bind((X,))
    assert bound._config == bound.config_spec.default_config()
    said = [r.getMessage() for r in caplog.records if r.name.startswith("lfbo_aot")]
    assert len(said) == 1
    assert "Helion's default" in said[0]
    assert "no code today" in said[0]


def test_many_threads_make_one_look_up(answers):
    answers.config = config()
    made = declare()
    start = threading.Barrier(6)
    found = []

    def bind():
        start.wait()
        found.append(made.bind((X,)))

    threads = [threading.Thread(target=bind) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert {id(bound) for bound in found} == {id(found[0])}
    assert found[0]._config["num_warps"] == 2
    assert len(answers.asked) == 1


def test_many_threads_and_many_shapes(answers):
    answers.config = config()
    made = declare()
    sizes = [64, 128, 256, 512] * 2
    start = threading.Barrier(len(sizes))
    found = {}

    def bind(place):
        start.wait()
        found[place] = made.bind((torch.ones(sizes[place]),))

    threads = [threading.Thread(target=bind, args=(place,)) for place in range(len(sizes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(bound) for bound in found.values()}) == 4
    assert {bound._config["num_warps"] for bound in found.values()} == {2}
    assert sorted(args[0].size(0) for _, args, _ in answers.asked) == [64, 128, 256, 512]


def test_after_a_reset_shapes_are_looked_up_again(answers):
    answers.config = config()
    made = declare()
    early = made.bind((X,))
    made.reset()
    answers.config = config(num_warps=8)
    assert made.bind((X,))._config["num_warps"] == 8
    assert early._config["num_warps"] == 2
    assert len(answers.asked) == 2


def test_a_config_is_set_before_helion_asks_what_it_depends_on(answers, monkeypatch):
    """Of a bound kernel without one Helion keys all that any config could depend on."""
    answers.config = config()
    seen = []
    real = BoundKernel._specialize_extra

    def specialize_extra(bound):
        seen.append(bound._config)
        return real(bound)

    monkeypatch.setattr(BoundKernel, "_specialize_extra", specialize_extra)
    declare().bind((X,))
    assert [found["num_warps"] for found in seen] == [2]


def test_without_helions_hooks_the_config_is_set_after_it_is_bound(answers, monkeypatch):
    answers.config = config()
    monkeypatch.setattr(Serving, "hook", lambda *_: None)
    assert declare().bind((X,))._config["num_warps"] == 2


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x, factor: {"n": x.size(0)}, "dim 'dtype'"),
        (lambda x, factor: {"n": x.size(0) / 2, "dtype": x.dtype}, "dim 'n'"),
        (lambda x, factor: {"n": 1, "dtype": x.dtype, "more": 1}, "dim 'more'"),
        (lambda x, factor: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_shape_function_that_fails_gets_the_default_and_says_so(isolated, caplog, function, says):
    made = declare(shape=function)
    bound = made.bind((X,))
    assert bound._config == bound.config_spec.default_config()
    made.bind((torch.ones(128),))
    (text,) = [r.getMessage() for r in caplog.records if r.name == "lfbo_aot.runtime.notices"]
    assert text.startswith("mine.scale: shape: kernel 'mine.scale': ")
    assert says in text
    assert text.endswith("Helion's default is served")
    with lfbo_aot.use_policy(on_miss="error"), pytest.raises(ShapeError, match=says):
        made.bind((torch.ones(64),))


def test_what_is_missing_from_a_declaration_is_said():
    with pytest.raises(DeclarationError, match=r"dims= and shape= are missing") as caught:
        lfbo_aot.kernel(scale)
    assert f":{SCALE_LINE}" in str(caught.value)
    with pytest.raises(DeclarationError, match=r"dims= and shape= are missing"):
        lfbo_aot.kernel(DIMS)
    with pytest.raises(DeclarationError, match="dims= is missing"):
        lfbo_aot.kernel(shape=shape)(scale)
    with pytest.raises(DeclarationError, match="shape= is missing"):
        lfbo_aot.kernel(dims=DIMS)(scale)
    with pytest.raises(DeclarationError, match=r"dims= is \['n'\]"):
        declare(dims=["n"])
    with pytest.raises(DeclarationError, match="dims= is missing"):
        lfbo_aot.register(helion.kernel(scale))


def test_a_kernel_whose_name_no_file_can_have():
    def größe(x: torch.Tensor) -> torch.Tensor:  # noqa: PLC2401
        return x

    with pytest.raises(DeclarationError, match=r"mine\.größe.*can't be the name of a file"):
        declare(größe, shape=lambda x: {"n": 1, "dtype": x.dtype})
    assert catalog.specs() == ()


def test_serving_alone_needs_no_inputs(answers):
    answers.config = config()
    made = declare()
    assert made.bind((X,))._config["num_warps"] == 2
    with pytest.raises(TuningError, match=r"mine\.scale.*inputs="):
        made.lfbo_aot_spec.make_inputs({"n": 4, "dtype": "float32"}, "cpu")


@pytest.mark.parametrize("word", ["config", "configs", "key"])
def test_what_would_compete_is_refused_with_the_reason(word):
    given = {"config": config(), "configs": [config()], "key": lambda x: 1}
    with pytest.raises(DeclarationError, match=f"{word}= can't be given: .{{20}}") as caught:
        declare(**{word: given[word]})
    assert f":{SCALE_LINE}" in str(caught.value)
    assert catalog.specs() == ()


def test_a_keyword_that_nobody_knows_gets_the_nearest():
    with pytest.raises(DeclarationError, match=r"bucket= .*'buckets'"):
        declare(bucket=[])
    with pytest.raises(DeclarationError, match="'static_shapes'"):
        declare(static_shape=True)


def test_what_helion_does_not_take_is_named():
    def variadic(*args): ...

    with pytest.raises(DeclarationError, match=r"mine\.variadic.*Helion doesn't take it"):
        declare(variadic, shape=lambda *args: {})
    with pytest.raises(DeclarationError, match="plain function"):
        declare(3)


def test_declaration_errors_name_the_line():
    with pytest.raises(DeclarationError) as caught:
        declare(dims={"n": Range(9, 3)})
    assert caught.value.kernel == "mine.scale"
    assert caught.value.dim == "n"
    assert caught.value.place.endswith(f"test_kernel.py:{SCALE_LINE}")


def test_the_package_is_the_modules_top_level_one(monkeypatch):
    def named(module, file="/x/pkg/ops.py", package=None):
        from lfbo_aot.runtime.kernel import _Place

        function = types.FunctionType(
            compile("def f(x): ...", file, "exec").co_consts[0], {"__name__": module}, "f"
        )
        return _Place.of(function, package).kernel_id

    assert named("pkg.ops") == "pkg.f"
    assert named("pkg", "/x/pkg/__init__.py") == "pkg.f"
    assert named("ops") == "ops.f"
    assert named("whatever") == "ops.f"
    assert named("pkg.ops", package="other") == "other.f"
    assert named("__main__", "/x/my-script.py") == "my_script.f"
    assert named("__main__", "/x/3d.py") == "_3d.f"
    with pytest.raises(DeclarationError, match="identifier"):
        named("pkg.ops", package="a/b")


def test_register_changes_a_kernel_that_exists(answers):
    answers.config = config()
    existing = helion.kernel()(scale)
    early = existing.bind((torch.ones(8),))
    returned = lfbo_aot.register(existing, dims=DIMS, shape=shape, package="theirs")
    assert returned is existing
    assert catalog.find("theirs.scale").kernel is existing
    assert existing.bind((X,))._config["num_warps"] == 2
    assert early.kernel is existing
    with pytest.raises(DeclarationError, match=r"takes a helion\.Kernel, not function"):
        lfbo_aot.register(scale, dims=DIMS, shape=shape)


def test_a_registered_kernels_own_config_is_its_default(answers):
    own = helion.Config(block_sizes=[32], num_warps=1)
    existing = helion.kernel(config=own)(scale)
    lfbo_aot.register(existing, dims=DIMS, shape=shape, package="theirs")
    bound = existing.bind((X,))
    bound.ensure_config_exists((X, 2.0))
    assert bound._config == own
    answers.config = config()
    assert existing.bind((torch.ones(128),))._config["num_warps"] == 2


def test_registering_again_replaces(answers):
    existing = helion.kernel()(scale)
    lfbo_aot.register(existing, dims=DIMS, shape=shape, package="theirs")
    dims = {**DIMS, "n": Exact(256)}
    lfbo_aot.register(existing, dims=dims, shape=shape, package="theirs")
    assert len(existing.lfbo_aot_spec.buckets) == 1
    existing.bind((X,))
    assert len(answers.asked) == 1


@pytest.mark.usefixtures("isolated")
def test_from_file_to_executed_config(tmp_path, make_entry, write_database):
    """The whole way: an entry in a database, and what Helion then runs; per bucket, to its ends."""
    dims = {"n": Range(1, 64, edges=[16]), "dtype": Exact("float32")}
    made = declare(dims=dims)
    spec = made.lfbo_aot_spec
    cpu = DeviceId("cpu", "CPU")
    layout = [{"order": [0], "contiguous": True}]
    held = {
        (cpu, bucket.key): make_entry(
            config={"block_sizes": [16], "num_warps": warps, "pid_type": "flat"},
            source=spec.source,
            settings=spec.settings,
            layout=layout,
            space=space_digest(unserved_bind(made, (torch.ones(bucket.point["n"]),))),
        )
        for bucket, warps in zip(spec.buckets, (2, 8), strict=True)
    }
    path = write_database(tmp_path / "tuned", {"mine.scale": held}, dims=dims)
    with lfbo_aot.use_database(path):
        sizes = {size: made.bind((torch.ones(size),)) for size in (1, 4, 16, 17, 32, 64, 65)}
    for size, bound in sizes.items():
        if size == 65:
            assert bound._config == bound.config_spec.default_config()
            continue
        warps = 2 if size <= 16 else 8
        assert bound._config.config == {"block_sizes": [16], "num_warps": warps, "pid_type": "flat"}
        assert f"num_warps={warps}" in bound.to_triton_code(bound._config)


@pytest.mark.usefixtures("isolated")
def test_where_the_default_won_each_shape_of_the_bucket_is_served_its_own(
    tmp_path, make_entry, write_database
):
    """What the entry holds is the default at 64, where it was tuned; the status is the same."""
    dims = {"n": Range(1, 64), "dtype": Exact("float32")}
    made = declare(dims=dims)
    spec = made.lfbo_aot_spec
    (bucket,) = spec.buckets
    tuned = unserved_bind(made, (torch.ones(64),))
    entry = make_entry(
        config=tuned.config_spec.default_config().config,
        default=True,
        source=spec.source,
        settings=spec.settings,
        layout=[{"order": [0], "contiguous": True}],
        space=space_digest(tuned),
    )
    held = {(DeviceId("cpu", "CPU"), bucket.key): entry}
    path = write_database(tmp_path / "tuned", {"mine.scale": held}, dims=dims)
    with lfbo_aot.use_database(path):
        bound = {size: made.bind((torch.ones(size),)) for size in (4, 16, 64)}
        found = {size: lfbo_aot.resolve(made, (torch.ones(size), 2.0)) for size in bound}
        named = lfbo_aot.get_config("mine.scale", {"n": 4, "dtype": "float32"}, "cpu/CPU")
    sizes = {4: [4], 16: [16], 64: [32]}
    assert {size: one._config["block_sizes"] for size, one in bound.items()} == sizes
    for one in bound.values():
        assert one._config == one.config_spec.default_config()
    assert {r.status for r in found.values()} == {"exact"}
    assert {r.key for r in found.values()} == {f"CPU|{bucket.key}"}
    assert named["block_sizes"] == [32]


def test_with_dynamic_shapes_the_stored_default_is_served_whichever_is_called_first(answers):
    answers.config = config(block_sizes=(32,), num_warps=4)
    answers.default = True
    small, large = torch.ones(4), torch.ones(4096)
    for order in ((small, large), (large, small)):
        made = declare(static_shapes=False)
        found = {made.bind((x,))._config["block_sizes"][0] for x in order}
        assert found == {32}


def test_a_default_that_fails_gives_way_to_the_alternates(answers, caplog, monkeypatch):
    answers.config = config(block_sizes=(32,))
    answers.alternates = (config(),)
    answers.default = True
    made = declare()
    bound_type = type(unserved_bind(made, (X,)))
    to_code = bound_type.to_triton_code

    def failing(bound, given, **more):
        if given["num_warps"] != 2:
            msg = "no code today"
            raise RuntimeError(msg)
        return to_code(bound, given, **more)

    monkeypatch.setattr(bound_type, "to_triton_code", failing)
    with caplog.at_level(logging.WARNING, "lfbo_aot"):
        bound = made.bind((X,))
    assert bound._config["num_warps"] == 2
    assert "alternate number 1" in caplog.text


def test_where_sizes_have_no_default_the_stored_one_is_tried(answers, monkeypatch):
    answers.config = config(num_warps=8)
    answers.default = True
    made = declare()
    spec_type = type(unserved_bind(made, (X,)).config_spec)
    real, calls = spec_type.default_config, []

    def default_config(self):
        calls.append(self)
        if len(calls) == 1:
            msg = "no default today"
            raise RuntimeError(msg)
        return real(self)

    monkeypatch.setattr(spec_type, "default_config", default_config)
    assert made.bind((X,))._config["num_warps"] == 8


@pytest.mark.usefixtures("isolated")
def test_an_entry_of_another_source_is_not_executed(tmp_path, make_entry, write_database):
    dims = {"n": Range(1, 64), "dtype": Exact("float32")}
    made = declare(dims=dims)
    spec = made.lfbo_aot_spec
    entry = make_entry(
        config={"block_sizes": [16], "num_warps": 2},
        source="sha256:0ld",
        settings=spec.settings,
        layout=[{"order": [0], "contiguous": True}],
    )
    held = {(DeviceId("cpu", "CPU"), spec.buckets[0].key): entry}
    path = write_database(tmp_path / "tuned", {"mine.scale": held}, dims=dims)
    with lfbo_aot.use_database(path):
        bound = made.bind((torch.ones(64),))
    assert bound._config == bound.config_spec.default_config()
