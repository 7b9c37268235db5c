from __future__ import annotations

import dataclasses

from lfbo_aot.database.database import Database
from lfbo_aot.database.declaration import Declaration
from lfbo_aot.registry.devices import DeviceId
from lfbo_aot.tuning.devices.replay import ReplayDevice
from lfbo_aot.tuning.plan import make_plan
from lfbo_aot.tuning.run import Options
from lfbo_aot.tuning.run import declare
from lfbo_aot.tuning.run import tune

H200 = DeviceId("sm90", "NVIDIA H200")
MODULE = """
import lfbo_aot
from lfbo_aot import Exact, Range

@lfbo_aot.kernel(
    dims={"m": Range(1, 4096, edges=[64]), "dtype": Exact("float32", "bfloat16")},
    shape=lambda x: {"m": x, "dtype": "float32"},
    inputs=INPUTS,
)
def norm(x):
    return x
"""


def test_a_run_declares_what_is_held_anew_where_its_module_has_changed(tmp_path, spec, recording):
    into, ops = tmp_path / "tuned", tmp_path / "pkg" / "ops.py"
    ops.parent.mkdir()
    (ops.parent / "__init__.py").write_text("")
    ops.write_text(MODULE.replace("INPUTS", "lambda s, d: ()"))
    spec = dataclasses.replace(spec, file=str(ops))
    device = ReplayDevice(recording, device_id=H200)

    def plan():
        return make_plan([spec], H200, Database(into))

    options = Options(trials=20, rounds=3, algorithm="random")
    tune(plan(), device, into=into, state=tmp_path / "state", options=options)
    first = Database(into).declaration("pkg.norm")
    assert first == Declaration.of(spec)
    assert first.enumeration is not None
    shard = (into / "sm90" / "pkg.norm.jsonl").read_bytes()

    ops.write_text(MODULE.replace("INPUTS", "lambda s, d: (1,)"))
    assert not any(item.why for item in plan()), "its entries hold as before"
    for write in (
        lambda: tune(plan(), device, into=into, state=tmp_path / "state", options=options),
        lambda: declare(into, plan()),
    ):
        write()
        found = Database(into).declaration("pkg.norm")
        assert found == Declaration.of(spec)
        assert found.bare() == first.bare()
        assert found.enumeration.digest != first.enumeration.digest
    assert (into / "sm90" / "pkg.norm.jsonl").read_bytes() == shard
