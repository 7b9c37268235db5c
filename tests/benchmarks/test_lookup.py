"""The figures of benchmarks/lookup.py follow from its records, and no reader sees a torn file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "lookup.py"
CODE = f"""
import json, sys, tempfile
from pathlib import Path
sys.path.insert(0, {str(SCRIPT.parent)!r})
import lookup
lookup.REPEATS, lookup.LOOKUPS, lookup.PROCESSES = 2, 400, 4
with tempfile.TemporaryDirectory() as folder:
    records = lookup.warm_by_name()
    lookup.write_database(Path(folder) / "many", 51)
    records += lookup.first_lookups(Path(folder) / "many", repeats=2)
    records.append(lookup.beside_a_merge(Path(folder) / "merged"))
sys.stdout.write("\\n" + json.dumps([records, lookup.figures(records)]))
"""


def test_its_figures_are_those_of_its_records():
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=300, check=True
    )
    records, figures = json.loads(done.stdout.splitlines()[-1])
    by = {record["what"]: record for record in records}
    base, ours = by["prepared key in a dict"]["ns"]["min"], by["get_config by name"]["ns"]["min"]
    assert figures["by_name_over_dict"] == round(ours / base, 2)
    first = [record for record in records if record["what"].startswith("first look-up")]
    assert [record["status"] for record in first] == ["exact"] * 3
    assert figures["first_lookup_kib"] == round(first[-1]["kib"], 1) > 0
    beside = by["readers beside a merge"]
    assert (beside["lookups"], beside["errors"], beside["answers"]["other"]) == (400, 0, 0)
    assert beside["merges"] > 0
    assert figures["beside_a_merge"]["merges"] == beside["merges"]
