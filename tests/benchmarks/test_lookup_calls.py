"""The benchmark of calls runs without a GPU, and its figures follow from its records."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("helion")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "lookup_calls.py"
CODE = f"""
import json, sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
import lookup_calls
records = lookup_calls.host_times(("softmax",), rounds=2, calls=10)
sys.stdout.write("\\n" + json.dumps([records, lookup_calls.figures(records)]))
"""


def test_every_way_of_calling_is_timed():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    records, (figure,) = json.loads(done.stdout.splitlines()[-1])
    assert [record["way"] for record in records] == [
        "bare",
        "fixed",
        "served",
        "prepared",
        "fixed-alternating",
        "served-alternating",
    ]
    for record in records:
        assert record["kernel"] == "softmax"
        assert record["device"] == "none"
        assert record["calls"] == 10
        assert len(record["blocks_us"]) == 2
        assert record["min_us"] == min(record["blocks_us"]) > 0
    blocks = {record["way"]: record["blocks_us"] for record in records}

    def more(way, other):
        return statistics.median(a - b for a, b in zip(blocks[way], blocks[other], strict=True))

    assert figure["kernel"] == "softmax"
    assert figure["repeated_more_us"] == pytest.approx(more("served", "fixed"), abs=2e-3)
    share = more("prepared", "bare") / more("fixed", "bare")
    assert figure["prepare_share"] == pytest.approx(share, abs=1e-2)
    ratio = statistics.median(
        a / b
        for a, b in zip(blocks["served-alternating"], blocks["fixed-alternating"], strict=True)
    )
    assert figure["alternating_ratio"] == pytest.approx(ratio, abs=1e-2)
