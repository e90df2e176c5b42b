"""Each model of models.py has exactly the edges written beside it."""

from __future__ import annotations

import pytest
from levels import edges, expected
from models import CASES


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("default")  # of torch's older features, which some models are about
def test_edges_are_those_written_beside_the_model(name: str) -> None:
    model, run = CASES[name].build()

    assert edges(model, run, CASES[name].levels) == expected(CASES[name].levels)
