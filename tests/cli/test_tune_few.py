"""`lfbo-aot tune --max-configs` and `--regret`."""

from __future__ import annotations

import json

import pytest

from lfbo_aot.database.database import Database

FOUR, EIGHT = "m=4|dtype=float32", "m=8|dtype=float32"

pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture
def apart(device):
    """Each of the two buckets has another winner; at the other bucket it takes 20 % more."""
    device.options["best_block"] = {4: 32, 8: 8}
    return device


def blocks(folder):
    shard = Database(folder).shard("mine.norm", "cpu-interpreter")
    return {key.partition("|")[2]: shard.entry(key).config["block"] for key in shard.keys}


def lines(text):
    return text.strip().splitlines()


def test_at_most_so_many(apart, tune, tmp_path):
    status, out, err = tune("norm", "--max-configs", "1")
    assert (status, err) == (0, "")
    told = "mine.norm: 1 config for 2 buckets (2 before), at most 20.0 % over a bucket's own best"
    assert told in lines(out)
    assert "2 tuned, 0 held before, 0 missing" in out
    assert blocks(tmp_path / "db") == {FOUR: 32, EIGHT: 32}


def test_what_is_held_already(apart, tune, tmp_path):
    assert tune("norm")[0] == 0
    assert blocks(tmp_path / "db") == {FOUR: 32, EIGHT: 8}
    status, out, err = tune("norm", "--regret", "0.25")
    assert (status, err) == (0, "")
    assert lines(out)[1] == (
        "mine.norm: 1 config for 2 buckets (2 before), at most 20.0 % over a bucket's own best"
    )
    assert lines(out)[2].startswith("0 tuned, 2 held before, 0 missing")
    assert blocks(tmp_path / "db") == {FOUR: 32, EIGHT: 32}
    status, out, _ = tune("norm", "--regret", "5%")
    assert lines(out)[1] == "mine.norm: 2 configs for 2 buckets (1 before), each its own best"
    assert blocks(tmp_path / "db") == {FOUR: 32, EIGHT: 8}
    assert len(apart.started) == 3


def test_nothing_to_do_starts_no_device(apart, tune):
    tune("norm")
    status, out, _ = tune("norm", "--max-configs", "2")
    assert status == 0
    assert lines(out)[1].startswith("nothing to do: all 2 buckets are held")
    status, out, _ = tune("norm", "--max-configs", "2", "--json")
    assert (status, json.loads(out)["few"]) == (0, [])
    assert len(apart.started) == 1


def test_as_json(apart, tune):
    status, out, err = tune("norm", "--max-configs", "1", "--regret", "5%", "--json")
    assert status == 0
    found = json.loads(out)
    assert found["few"] == [
        {
            "kernel": "mine.norm",
            "buckets": 2,
            "before": 2,
            "after": 1,
            "changed": 1,
            "worst_regret": 0.2,
            "reached": False,
            "failed": {},
            "reason": "",
        }
    ]
    assert [row["config"]["block"] for row in found["results"]] == [32, 32]
    assert lines(err)[-1] == (
        "mine.norm: 1 config for 2 buckets (2 before), at most 20.0 % over a bucket's own best; "
        "not reached: at most 1 config, within 5 %"
    )
    assert "few" not in json.loads(tune("norm", "--json")[1])


def test_without_the_time_for_it(apart, tune, tmp_path):
    tune("norm")
    status, out, _ = tune("norm", "--max-configs", "1", "--budget", "0")
    assert status == 0
    assert lines(out)[1] == ("mine.norm: 2 configs for 2 buckets, as before: the budget is spent")
    assert blocks(tmp_path / "db") == {FOUR: 32, EIGHT: 8}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--max-configs", "0"], "'0' is not a whole number from 1 up"),
        (["--max-configs", "few"], "'few' is not a whole number from 1 up"),
        (["--regret", "-0.1"], "'-0.1' is not a share from 0 up to below 1, written 0.02 or 2%"),
        (["--regret", "2"], "'2' is not a share"),
        (["--regret", "100%"], "'100%' is not a share"),
        (["--regret", "nan"], "'nan' is not a share"),
        (["--regret", "2%%"], "'2%%' is not a share"),
        (["--regret", "%"], "'%' is not a share"),
        (["--regret", "some"], "'some' is not a share"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else "",
)
def test_wrong_use(device, tune, words, says):
    status, out, err = tune("norm", *words)
    assert (status, out) == (2, "")
    assert says in err
    assert device.started == []


@pytest.mark.parametrize(
    ("word", "value"), [("2%", 0.02), ("0.02", 0.02), ("0", 0.0), ("1.5%", 0.015)]
)
def test_a_share(word, value):
    from lfbo_aot.cli.few import share

    assert share(word) == pytest.approx(value)
