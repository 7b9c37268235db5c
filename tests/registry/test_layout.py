from __future__ import annotations

import dataclasses
import json

from lfbo_aot.registry.layout import describe_layout
from lfbo_aot.registry.layout import layout_text
from lfbo_aot.registry.layout import same_layout


class Tensor:
    """As much of a tensor as a layout needs."""

    dtype = "float32"

    def __init__(self, shape, stride, contiguous):
        self.shape, self._stride, self._contiguous = shape, stride, contiguous

    def dim(self):
        return len(self.shape)

    def stride(self):
        return self._stride

    def is_contiguous(self):
        return self._contiguous


ROWS = Tensor((4, 8), (8, 1), True)
COLUMNS = Tensor((4, 8), (1, 4), False)


def test_order_is_outermost_first():
    assert describe_layout([ROWS, 1.5, COLUMNS, None]) == (
        {"order": [0, 1], "contiguous": True, "dtype": "float32"},
        {"order": [1, 0], "contiguous": False, "dtype": "float32"},
    )
    assert describe_layout([Tensor((2, 3, 4), (4, 8, 1), False)])[0]["order"] == [1, 0, 2]
    assert describe_layout([Tensor((2, 3), (0, 0), False)])[0]["order"] == [0, 1]
    assert describe_layout([Tensor((), (), True)]) == (
        {"order": [], "contiguous": True, "dtype": "float32"},
    )


def test_sizes_of_one_do_not_matter_where_it_is_contiguous():
    assert describe_layout([Tensor((1, 8), (1, 1), True)]) == describe_layout([ROWS])


def test_tensors_in_lists_count():
    assert describe_layout([[ROWS, COLUMNS], 3]) == describe_layout([ROWS, COLUMNS])


def test_a_stored_layout_compares_equal():
    live = describe_layout([ROWS, COLUMNS])
    assert same_layout(json.loads(json.dumps(live)), live)
    assert not same_layout(json.loads(json.dumps(live)), describe_layout([ROWS, ROWS]))
    assert not same_layout((), live)
    assert layout_text(live) == "0,1:float32 1,0*:float32"
    assert layout_text([{"order": [0, 1], "contiguous": True}]) == "0,1"


def test_every_tensor_has_the_dtype_that_was_measured():
    import torch

    x = torch.empty(4, 8, dtype=torch.bfloat16)
    stored = json.loads(json.dumps(describe_layout([x, x[0]])))
    assert [item["dtype"] for item in stored] == ["bfloat16", "bfloat16"]
    assert same_layout(stored, describe_layout([x, x[0]]))
    assert not same_layout(stored, describe_layout([x, x[0].float()]))


def test_a_stored_layout_without_dtypes_holds_for_any():
    stored = [{"order": [0, 1], "contiguous": True}]
    assert same_layout(stored, describe_layout([ROWS]))
    assert not same_layout(stored, describe_layout([COLUMNS]))


def test_torch_tensors_have_layouts():
    import torch

    x = torch.empty(4, 8)
    assert describe_layout([x, x.t(), x[:, :3]]) == (
        {"order": [0, 1], "contiguous": True, "dtype": "float32"},
        {"order": [1, 0], "contiguous": False, "dtype": "float32"},
        {"order": [0, 1], "contiguous": False, "dtype": "float32"},
    )


@dataclasses.dataclass
class Pair:
    one: object
    other: object


def test_tensors_are_found_wherever_helion_finds_them():
    rows, columns = describe_layout([ROWS, COLUMNS])
    assert describe_layout([{"b": COLUMNS, "a": ROWS}]) == (rows, columns)
    assert describe_layout([Pair(COLUMNS, [ROWS, {"x": ROWS}])]) == (columns, rows, rows)


def test_neighbours_that_lie_apart_are_another_layout():
    padded = Tensor((4, 8), (16, 1), False)
    apart = Tensor((4, 8), (16, 2), False)
    assert describe_layout([padded]) == (
        {"order": [0, 1], "contiguous": False, "dtype": "float32"},
    )
    assert not same_layout(describe_layout([padded]), describe_layout([apart]))
    assert not same_layout(describe_layout([apart]), describe_layout([padded]))
    assert layout_text(describe_layout([padded, apart])) == "0,1*:float32 0,1*/:float32"
