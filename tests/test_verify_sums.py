"""Claims about random models that are false by a few units in the last place: none holds, whatever the region is."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from counterfeit import Counterfeit

NEAR = 4e-15  # more than the rounding of the enumeration


def random_factors(rng, states):
    """Factors of one to three variables, some with forbidden states or with a large constant."""
    count, scale = len(states), rng.choice([0.1, 1.0, 5.0])
    factors = [((v,), scale * rng.normal(size=states[v])) for v in range(count)]
    for _ in range(count + 1):
        scope = tuple(rng.choice(count, int(rng.choice([2, 2, 3])), replace=False).tolist())
        table = scale * rng.normal(size=[states[v] for v in scope])
        table[rng.random(table.shape) < 0.1 * rng.integers(2)] = -np.inf
        factors.append((scope, table + rng.choice([0.0, 0.0, 0.0, 1e6])))
    return factors


def attractive_factors(rng, states):
    """Pairs that like to be equal, up to the names of states; and these names."""
    count, high = len(states), rng.integers(0, 2, len(states))
    factors = [((v,), rng.normal(size=2)) for v in range(count)]
    for _ in range(2 * count):
        i, j = rng.choice(count, 2, replace=False).tolist()
        table = rng.normal(size=(2, 1)) + rng.normal(size=2) + abs(rng.normal()) * np.array([[1.0, -1.0], [-1.0, 1.0]])
        table[0, 1] = -np.inf if rng.random() < 0.1 else table[0, 1]
        factors.append(((i, j), table[:: 1 if high[i] else -1, :: 1 if high[j] else -1]))
    return factors, high


def law_of(states, factors, variable):
    """By enumeration, with exact sums of logarithms; None where everything is forbidden."""
    logs = {}
    for x in product(*map(range, states)):
        cells = [float(table[tuple(x[v] for v in scope)]) for scope, table in factors]
        if min(cells) > -math.inf:
            logs[x] = sum(map(Fraction, cells), Fraction(0))
    if not logs:
        return None
    top = max(logs.values())
    weights = {x: math.exp(float(log - top)) for x, log in logs.items()}
    own = [math.fsum(w for x, w in weights.items() if x[variable] == a) for a in range(states[variable])]
    return [w / math.fsum(own) for w in own]


def claims(states, factors, order, border, sweeps):
    """A file that sums over a region around its first variable, and claims nothing yet."""
    rows = states[order[0]]
    part = {"method": "sums", "questions": [0], "order": "order", "border": "border", "sweep": "sweep"}
    question = {"kind": "law", "variables": [int(order[0])]}
    arrays = {"order": order, "border": border, "sweep": order if sweeps else np.empty(0, dtype=np.int64)}
    return Counterfeit(states, factors, [question], [[0.0] * rows], [[1.0] * rows], part | {"sweeps": sweeps}, **arrays)


def check(fake, law, path):
    """How far the first interval can be narrowed; no end may pass the truth."""
    if not fake.verdict(path).holds:
        return None  # nothing can be summed beside this border
    for row, chance in enumerate(law):
        for side, end, none in (("lower", chance + NEAR, 0.0), ("upper", chance - NEAR, 1.0)):
            if 0.0 < end < 1.0:
                fake.claim[side][0][row] = end
                assert fake.verdict(path).exit_code == 1, (side, row, end)
                fake.claim[side][0][row] = none
    fake.claim["lower"][0][0] = max(0.0, law[0] - 1e-9)
    return fake.verdict(path).holds


@pytest.mark.parametrize("way", ["everything", "sweeps", "extremes"])
def test_no_claim_passes_the_truth(way, tmp_path):
    rng, found = np.random.default_rng(["everything", "sweeps", "extremes"].index(way)), []
    for _ in range(40):
        count = int(rng.integers(3, 6))
        states = [2] * count if way == "extremes" else rng.integers(2, 4, count).tolist()
        factors, high = attractive_factors(rng, states) if way == "extremes" else (random_factors(rng, states), None)
        order = rng.permutation(count)[: count if way == "everything" else rng.integers(1, count)]
        members = sorted({v for scope, _ in factors if set(scope) & set(order.tolist()) for v in scope})
        border = [int(rng.integers(states[v])) if high is None else int(high[v]) for v in members]
        law = law_of(states, factors, int(order[0]))
        if law is not None:
            fake = claims(states, factors, order, np.array(border), 5 if way == "sweeps" else 0)
            found.append(check(fake, law, tmp_path / "tight.proof"))
    assert sum(holds is not None for holds in found) >= 25
    if way == "everything":  # and what is true by little holds
        assert all(found)
