"""The search: spaces, surrogate, optimizers. Pure: numpy and scikit-learn, no files, no torch."""

from __future__ import annotations

from lfbo_aot.search.lfbo import LFBOPatternSearch
from lfbo_aot.search.optimizer import Optimizer
from lfbo_aot.search.options import LFBOOptions
from lfbo_aot.search.pattern_search import PatternSearch
from lfbo_aot.search.peers import Peer
from lfbo_aot.search.random_search import RandomSearch
from lfbo_aot.search.scalars import Choice
from lfbo_aot.search.scalars import Integer
from lfbo_aot.search.scalars import PowerOfTwo
from lfbo_aot.search.sequences import ListOf
from lfbo_aot.search.sequences import Permutation
from lfbo_aot.search.space import Condition
from lfbo_aot.search.space import Point
from lfbo_aot.search.space import Space
from lfbo_aot.search.surrogate import FailureModel
from lfbo_aot.search.trial import FAILURES
from lfbo_aot.search.trial import STATUSES
from lfbo_aot.search.trial import Trial
from lfbo_aot.search.values import Tunable
from lfbo_aot.search.values import Value
from lfbo_aot.search.values import freeze
from lfbo_aot.search.values import thaw

__all__ = [
    "FAILURES",
    "STATUSES",
    "Choice",
    "Condition",
    "FailureModel",
    "Integer",
    "LFBOOptions",
    "LFBOPatternSearch",
    "ListOf",
    "Optimizer",
    "PatternSearch",
    "Peer",
    "Permutation",
    "Point",
    "PowerOfTwo",
    "RandomSearch",
    "Space",
    "Trial",
    "Tunable",
    "Value",
    "freeze",
    "thaw",
]
