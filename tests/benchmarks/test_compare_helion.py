"""The figures of benchmarks/compare_helion.py, on records whose figures were worked out by hand."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from benchmarks.compare import records
from benchmarks.compare import table
from benchmarks.compare.cases import SWEPT
from benchmarks.compare.jobs import alone
from benchmarks.compare.ratios import geomean_ratio
from benchmarks.compare.ratios import median_ratio
from benchmarks.compare.summary import summarize
from benchmarks.compare.summary import within_s

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "compare_helion.py"
# What drifts from round to round by half and more leaves each ratio as it is.
DRIFT = (1.0, 1.5, 0.7, 1.2, 1.0, 2.0)


def record(side, kernel, run, wall_s, **more):
    made = {"side": side, "kernel": kernel, "run": run, "date": "2026-12-02T10:00:00+00:00"}
    made |= {"wall_s": wall_s, "ended": "finished", "error": "", "device": "NVIDIA H200"}
    return made | {"versions": {"helion": "1.5.0"}} | more


def tuned(side, kernel, wall_s, **more):
    return record(side, kernel, f"{side}-{kernel}", wall_s, config={"num_warps": 4}, **more)


def measured(kernel, us, sides):
    samples = {name: [value * drift for drift in DRIFT] for name, value in us.items()}
    item = {"kernel": f"compare.{kernel}", "samples_us": samples, "errors": {}, "wrong": {}}
    runs = {side: f"{side}-{kernel}" for side in sides}
    return record("measure", kernel, f"measure-{kernel}", 9.0, items=[item], runs=runs)


def profile(either_s, span_s, thinking_s):
    said = {"either_busy_s": either_s, "span_s": span_s, "thinking_s": thinking_s}
    return said | {"ready_wait_s": 0.25}


FINALS = [
    tuned("helion", "softmax", 300.0, budget_s=480.0),
    tuned(
        "ours",
        "softmax",
        30.0,
        profile=profile(18.0, 20.0, 0.6),
        curve=[[5.0, 40.0], [9.0, 33.0], [20.0, 30.0]],
    ),
    tuned("control", "softmax", 10.0),
    measured(
        "softmax",
        {"default": 15.0, "helion": 10.0, "ours": 9.0, "control": 15.0},
        ("helion", "ours", "control"),
    ),
    tuned("helion", "matmul", 500.0, budget_s=480.0, ended="budget"),
    tuned(
        "ours", "matmul", 24.0, profile=profile(15.0, 20.0, 0.48), curve=[[4.0, 99.0], [8.0, 95.0]]
    ),
    tuned("pattern", "matmul", 240.0, budget_s=480.0),
    measured(
        "matmul",
        {"default": 102.0, "helion": 100.0, "ours": 110.0, "pattern": 125.0},
        ("helion", "ours", "pattern"),
    ),
]


def test_time_ratios_are_until_the_tuner_stopped_or_its_budget_was_over():
    found = summarize(FINALS)
    rows = {row["kernel"]: row for row in found["kernels"]}
    assert rows["softmax"]["ours_over_helion_time_ratio"] == 10.0  # 300 / 30
    assert rows["matmul"]["ours_over_helion_time_ratio"] == 20.0  # 480 / 24, not 500 / 24
    assert found["time_ratio_geomean"] == round(math.sqrt(200.0), 2) == 14.14
    assert found["time_ratio_min"] == 10.0
    assert (found["pattern"]["time_ratio_geomean"], found["pattern"]["over"]) == (10.0, 1)
    assert found["control"]["time_ratio_geomean"] == 30.0


def test_latency_ratios_are_paired():
    found = summarize(FINALS)
    rows = {row["kernel"]: row for row in found["kernels"]}
    assert rows["softmax"]["ours_over_helion_latency"] == [0.9, 0.9, 0.9]
    assert rows["matmul"]["ours_over_helion_latency"] == [1.1, 1.1, 1.1]
    assert found["latency_ratio_geomean"] == round(math.sqrt(0.9 * 1.1), 4)
    # Kernels are drawn too: of two draws each may be the same kernel twice.
    assert (found["latency_ratio_lower95"], found["latency_ratio_upper95"]) == (0.9, 1.1)
    assert found["pattern"]["latency_ratio_geomean"] == 0.88  # 110 / 125
    assert found["control"]["latency_ratio_geomean"] == 1.5
    assert rows["softmax"]["ours_us"] == 9.0 * 1.1  # the median of the drift is 1.1


def test_time_to_within_one_percent_is_told_for_kernels_with_something_to_gain():
    found = summarize(FINALS)
    # softmax gains half over the default; the best that matmul gains is 2 %.
    assert found["time_to_within_1pct"] == {"softmax": 9.0}


@pytest.mark.parametrize(
    ("ratio", "seconds"),
    [
        pytest.param(0.9, 9.0, id="ahead: 33/30 of 0.9 is 0.99"),
        pytest.param(0.95, 20.0, id="33/30 of 0.95 is 1.045"),
        pytest.param(1.01, 20.0, id="just within"),
        pytest.param(1.02, None, id="never"),
    ],
)
def test_curve_is_scaled_by_the_measurement(ratio, seconds):
    assert within_s([[5.0, 40.0], [9.0, 33.0], [20.0, 30.0]], ratio) == seconds


def test_profile_is_summed_over_kernels():
    found = summarize(FINALS)
    assert found["busy"] == round(33.0 / 40.0, 4)
    assert found["thinking"] == round(1.08 / 54.0, 4)
    assert found["gpu_waited_s"] == 0.5


def test_what_is_missing_is_null_and_named():
    found = summarize(FINALS)
    for key in ("sweep_ratio", "sweep_regret", "flip_rate"):
        assert found[key] is None
    assert {"pattern layer_norm", "measure rms_norm", f"flips {SWEPT}"} <= set(found["missing"])
    assert not {"ours softmax", "measure matmul", "pattern softmax"} & set(found["missing"])
    nothing = summarize([])
    assert nothing["latency_ratio_geomean"] is nothing["busy"] is nothing["time_ratio_min"] is None
    assert nothing["pattern"]["time_to_within_1pct"] is None
    assert "profile" in nothing["missing"]


def test_samples_of_a_final_that_was_replaced_since_are_not_used():
    later = {**FINALS[1], "run": "newer", "wall_s": 20.0}
    row = summarize([*FINALS, later])["kernels"][0]
    assert row["ours_over_helion_time_ratio"] == 15.0
    assert row["ours_over_helion_latency"] is None
    assert row["control_over_helion_latency"] == [1.5, 1.5, 1.5]


def test_a_failed_run_counts_for_nothing():
    failed = {**FINALS[1], "run": "newer", "wall_s": 1.0, "ended": "failed"}
    assert summarize([*FINALS, failed])["time_ratio_geomean"] == 14.14


def swept(side, kernel, configs, seconds):
    rows = [
        {"bucket": f"m={m}", "shape": {"m": m}, "seconds": s, "config": {"num_warps": c}}
        for (m, c), s in zip(configs.items(), seconds, strict=True)
    ]
    return record(side, kernel, f"{side}-{kernel}", sum(seconds), buckets=rows)


def together(us_by_m):
    items = [
        {"shape": {"m": m}, "samples_us": {n: [v * d for d in DRIFT] for n, v in us.items()}}
        for m, us in us_by_m.items()
    ]
    return record("remeasure", SWEPT, "remeasure", 20.0, items=items, runs={})


def test_sweep_and_flips():
    first = {4: 1, 16: 2, 64: 4, 256: 4, 1024: 8, 4096: 8, 16384: 8, 65536: 16}
    second = {**first, 16: 4, 64: 8}
    del second[65536]
    held = [
        swept("sweep", SWEPT, first, [30.0, 12.0, 8.0, 10.0, 9.0, 11.0, 10.0, 10.0]),
        swept("flips", SWEPT, second, [30.0] + 6 * [10.0]),
        swept("alone", alone(64), {64: 4}, [25.0]),
        together(
            {
                4: {"sweep": 5.0, "flips": 6.0},  # the same config: its noise is no flip
                16: {"sweep": 5.0, "flips": 5.04},  # another config, as fast
                64: {"sweep": 5.3, "flips": 5.0, "alone": 5.2},
                1024: {"sweep": 7.98, "flips": 8.0, "alone": 8.0},
            }
        ),
    ]
    found = summarize(held)
    assert found["sweep_ratio"] == round(10.0 / 30.0, 3)
    assert found["sweep_regrets"] == {'{"m": 64}': round(5.3 / 5.2 - 1, 4), '{"m": 1024}': -0.0025}
    assert found["sweep_regret"] == 0.0192
    # 64 differs by 6 %, and 65536 has no second answer.
    assert found["flip_rate"] == 0.25
    assert found["flips"] == ['{"m": 64}', '{"m": 65536}']


def test_intervals_hold_the_ratio_and_narrow_with_rounds():
    few = [0.9, 1.0, 1.1, 0.95, 1.05]
    narrow, wide = median_ratio(few * 40), median_ratio(few)
    assert wide.lower95 == 0.9
    assert wide.upper95 == 1.1
    assert narrow.value == wide.value == 1.0
    assert wide.lower95 < narrow.lower95 <= 1.0 <= narrow.upper95 < wide.upper95
    assert geomean_ratio([few * 40]) == geomean_ratio([few * 40])  # seeded


def test_command_prints_the_same_figures_and_a_table(tmp_path):
    for one in FINALS:
        records.append(tmp_path, one)
    said = [
        subprocess.run(
            [sys.executable, SCRIPT, "--summary", form, "--out", tmp_path],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for form in ("--json", "--markdown")
    ]
    found = summarize(FINALS)
    assert json.loads(said[0]) == found
    assert said[1] == table.markdown(found) + "\n"
    assert "| matmul | 512 x 8192 x 8192 | 480.0 s+ | 24.0 s | 20.0x |" in said[1]
    assert "| geometric mean | | | | 14.1x | | | | 0.995 (0.900 to 1.100) | |" in said[1]


def test_a_torn_line_is_passed_over_and_cut(tmp_path):
    records.append(tmp_path, FINALS[0])
    with (tmp_path / records.NAME).open("a") as file:
        file.write('{"side": "ou')
    assert records.read(tmp_path) == [FINALS[0]]
    records.append(tmp_path, FINALS[1])
    assert records.read(tmp_path) == FINALS[:2]


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / records.NAME).write_text("{}\nnonsense\n{}\n")
    with pytest.raises(SystemExit, match=r"records\.jsonl:2: not a record"):
        records.read(tmp_path)
