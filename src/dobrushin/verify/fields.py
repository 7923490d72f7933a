"""Fields: real numbers in boxes, or on levels, with the density exp(-sum of phi_i(x_i) - sum of Q_ij x_i x_j).

phi_i(x) = diagonal x^2 / 2 - linear x + exposure e^x + trials ln(1 + e^x). In the file -Q_ij is the factor of a pair of
ones. The bounds are made again; what chains gave is believed, since their draws depend on the last digits.
"""

import math

import numpy as np

from dobrushin.verify.checks import BOUNDS, Part, is_below
from dobrushin.verify.document import Question, items, require
from dobrushin.verify.factors import UNIT, Row, forward

CHAINS = "the numbers in the file are those of {} independent chains of this scan and start, whatever they gave"
DRIFT = "such a chain is within the drift in the file (at most {!r}) of one with exact draws, but for a chance of {!r}"
NUMBERS = {"mean": 1, "statistic": 1, "above": 2, "between": 2, "quantile": 4}  # that chains give for a question


class Field:
    """How variables of a field move each other, and how far the field is from the start of its chains.

    Given the others the variance of x_i is at most s_i: 1 / diagonal, and less in a narrow interval. So if x_j moves by
    1, the mean of x_i moves by s_i |Q_ij| at most, and its law by kappa_i |Q_ij| in total variation.
    """

    def __init__(self, part: Part, order: list[int]) -> None:
        proof, n = part.proof, len(part.proof.states)
        sites = proof.array(part.plan["sites"], "f", 9, n)
        m, linear, exposure, trials, self.lower, self.upper, point, far, drift = sites
        is_finite = np.isfinite(sites[6:]).all() and (np.abs(sites[:4]) <= 1e100).all() and (m >= 1e-100).all()
        fits = (sites[[2, 3, 7, 8]] >= 0.0) & (self.lower <= point) & (point <= self.upper)
        require(is_finite and fits.all(), "A field has a strange number, an empty box, or a start outside of it.")
        levels = {int(v): items(values, float) for v, values in part.plan["levels"].items()}
        for v, values in levels.items():
            is_one = 0 <= v < n and point[v] in values and np.all(np.diff(values) > 0.0)
            require(is_one and (self.lower[v], self.upper[v]) == (values[0], values[-1]), "Levels are not in order.")
        pairs = [(scope, table.ravel().tolist()) for scope, table in proof.factors.pairs]
        is_pair = all(len(scope) == 2 and table[:3] == [0.0] * 3 and len(table) == 4 for scope, table in pairs)
        require(is_pair and all(table[3] > -math.inf for _, table in pairs), "The factors are no couplings of pairs.")
        touching = proof.factors.touching
        pulls = [[(j, pairs[k][1][3]) for k in touching[i] for j in pairs[k][0] if j != i] for i in range(n)]  # -Q_ij
        up = 1.0 + UNIT * (64.0 + 8.0 * max(map(len, pulls)))  # more than the rounding of what follows
        with np.errstate(over="ignore"):
            width, is_level = (self.upper - self.lower) * up, np.isin(np.arange(n), list(levels))
            self.proxy = np.where(is_level, np.inf, 1.0 / m * up).clip(max=width**2 / 4.0 * up)
            s = np.where(is_level, self.proxy, self.proxy.clip(max=width**2 / 12.0 * up))  # log-concave on an interval
            grows = exposure * np.exp(point * (exposure > 0.0))  # e^x where it counts
            own = np.stack([m * point, -linear, grows, trials / (1.0 + np.exp(-point))])
        fits = (s < math.inf) & ((s > 1e-290) | np.isfinite(width) & ~np.isin(np.arange(n), order))
        require(fits.all(), "The scan updates what is given, or a variance has no digits.")
        C = [[(j, float(s[i]) * abs(q) * up + 1e-300) for j, q in pulls[i]] for i in range(n)]
        self.rows: dict[int, Row] = dict(enumerate(zip(C, width.tolist(), strict=True)))
        kappa = np.minimum(0.5 * np.sqrt(s), np.where(is_level, np.inf, 0.39894229 / np.sqrt(m))) * up
        # Total variation over distance, after an update: where a distance is cut off at the width, nothing is known.
        self.tilt = {i: max(kappa[i] / s[i], 1.0 / width[i]) * up for i in set(order)}
        # The start. Any a >= C a + r bounds the distances, where r bounds what is expected beside the start itself.
        far = np.where(np.isinf(width), far, np.maximum(self.upper - point, point - self.lower) * up)
        for i in np.flatnonzero(np.isinf(width)).tolist():
            proof.closed.add(i)
            slope = [*own[:, i].tolist(), *(-q * point[j] for j, q in pulls[i])]
            rest = (abs(math.fsum(slope)) + 1e-14 * math.fsum(map(abs, slope))) / m[i] + m[i] ** -0.5
            moved = math.fsum(c * far[j] for j, c in self.rows[i][0])
            require(far[i] >= (moved + rest) * up, "The field may be farther from the start than the file says.")
        proof.own = [((i,), np.array([*sites[:6, i], *levels.get(i, [])])) for i in proof.closed]
        self.far, self.drift = dict(enumerate(far.tolist())), dict(enumerate(drift.tolist()))
        called = zip(proof.names.variables, point.tolist(), width.tolist(), strict=True)
        proof.given += [f"given {name} = {value!r}" for name, value, size in called if size == 0.0]

    def spread(self, question: Question, order: list[int]) -> float:
        """A variance proxy of what chains give: backwards through the scan, what each step adds to it."""
        v, total = dict(zip(question.variables, question.weights, strict=True)), 1e-300
        for i in reversed(order):
            if weight := v.pop(i, 0.0):
                total += weight * self.proxy[i] * weight  # no square of a small number
                for j, c in self.rows[i][0]:
                    v[j] = v.get(j, 0.0) + weight * c + 1e-300
        total *= 1.0 + 16.0 * (max(len(pairs) for pairs, _ in self.rows.values()) + 4) * len(order) * UNIT
        return min(total, 0.25 * self.rows[question.variables[0]][1] ** 2) if question.kind == "mean" else total


def check_field(part: Part) -> float:
    """Bounds on a scan of a field, and intervals from what its chains gave."""
    proof, plan, order = part.proof, part.plan, part.scan()
    n, slip, lost = plan["chains"], plan["slip"], 1.0 - plan["confidence"]
    more = (proof.plan["parts"][1:], proof.document.outcomes["seed"], proof.evidence, proof.plan["dropped"])
    require(not any(more) and 1 <= n <= 2**40 and slip >= 0.0 and 0.0 <= lost < 1.0, "These are no chains of a field.")
    field, level = Field(part, order), lost / len(part.questions)
    far = forward(field.rows, order, {}, field.far, math.inf)
    law = {v: min(1.0, far[v] * tilt * (1.0 + 1e-15)) for v, tilt in field.tilt.items()}  # else 1: not updated
    kinds = {question.kind for question in part.questions.values()}
    for (k, question), given in zip(part.questions.items(), part.outcome["numbers"], strict=True):
        numbers, kind, v = items(given, float, NUMBERS.get(question.kind, 0)), question.kind, question.variables[0]
        fits = all(0 <= count <= n and count.is_integer() for count in numbers[:2]) and numbers[:1] <= numbers[1:2]
        fits = (len(numbers) < 2 or fits) and (len(question.variables) == 1 or kind in ("bias", "joint", "statistic"))
        require(fits, "A count is none of so many chains, or what is of one variable is asked of several.")
        low, high, drift, off = proof.lower[k][0], proof.upper[k][0], question.bias(field.drift), law.get(v, 1.0) + slip
        if kind in ("bias", "joint"):
            is_low, is_high = False, high >= question.bias(far if kind == "bias" else law)
        elif kind in ("mean", "statistic"):
            proof.spend(len(order) / BOUNDS)
            rare = math.log(2.0 / (level - n * slip))  # no logarithm where draws err too often
            reach = math.sqrt(2.0 * field.spread(question, order) * rare / n)
            wider = (reach + question.bias(far) + drift) * (1.0 + 1e-9) + 1e-12 * abs(numbers[0])
            is_low, is_high = low <= numbers[0] - wider, high >= numbers[0] + wider
        elif kind == "quantile":  # the ranks between which it is, and the values that have these ranks
            (first, last, least, most), q = numbers, question.about["level"]
            require(0.0 < q < 1.0 and first >= 1 and least <= most, "Such a quantile, or rank of a value, is none.")
            is_low = low <= least - drift and is_below(1.0 - q + off, n - max(0, int(first) - 1), n, level / 2.0, False)
            is_high = high >= most + drift and is_below(q + off, int(last), n, level / 2.0, False)
        else:  # how many are surely in the interval, farther from its ends than the drift, and how many may be
            is_low = is_below(low + off + 1e-15, int(numbers[0]), n, level / 2.0, False)
            is_high = is_below(1.0 - high + off + 1e-15, n - int(numbers[1]), n, level / 2.0, False)
        if kind in ("mean", "quantile"):
            is_low, is_high = is_low or low <= field.lower[v], is_high or high >= field.upper[v]
        proof.within(k, 0, is_low, is_high)
    proof.checked.append(f"influence, start and bias of {len(order)} steps on a field")
    proof.is_believed = bool(kinds & NUMBERS.keys())
    proof.assumptions += [CHAINS.format(n), DRIFT.format(max(field.drift.values()), slip)] if proof.is_believed else []
    proof.assumptions += ["functions have slopes as the file says"] if "statistic" in kinds else []
    return lost
