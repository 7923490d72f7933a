"""Check answers about fields: real variables, continuous or on levels, coupled in pairs.

The density is exp(-sum_i phi_i(x_i) - sum_ij Q_ij x_i x_j) with phi_i(x) = diagonal x^2 / 2 -
linear x + exposure e^x + trials ln(1 + e^x), inside a box. In the file -Q_ij is the factor of a
pair, at state 1 of both variables. The checker computes all bounds again. It believes the outcomes
of chains, since their draws depend on the last digits of functions (docs/proofs.md and theory.md,
Fields).
"""

import math

import numpy as np

from dobrushin.verify.certificates import Bounds, forward
from dobrushin.verify.claim import ProofQuestion
from dobrushin.verify.counts import is_below
from dobrushin.verify.document import Array, items, require
from dobrushin.verify.model import UNIT
from dobrushin.verify.proof import ProofPart, Row, Steps

CHAINS = "the numbers in the file are those of {} independent chains of this scan and start"
DRIFT = (
    "such a chain stays within the drift in the file (at most {!r}) of one with exact draws, except"
    " with probability {!r}"
)
SLOPES = "the slopes (Lipschitz constants) of functions are those in the file"
# Numbers that the file stores for each kind of question.
NUMBERS = {"mean": 1, "statistic": 1, "above": 2, "between": 2, "quantile": 4}
DENSITY = 0.39894229  # of the standard normal law at 0, from above


class Field:
    """Influences between the variables of a field, and bounds on its distance from the start.

    Given all others, the variance of x_i is at most s_i: 1 / diagonal, and less in a narrow box. So
    if x_j moves by 1, the mean of x_i moves by at most s_i |Q_ij|, and its law by at most kappa_i
    |Q_ij| in total variation (theory.md, Influence in Wasserstein distance, Total variation in
    fields).
    """

    def __init__(self, part: ProofPart, order: Steps) -> None:
        self.proof, self.part, self.order = part.proof, part, order
        self.sites = self.proof.array(part.plan["sites"], "f", 9, len(part.proof.states))
        self.m, self.linear, self.exposure, self.trials = self.sites[:4]
        self.lower, self.upper, self.point, far, drift = self.sites[4:]
        is_finite = np.isfinite(self.sites[6:]).all() and (np.abs(self.sites[:4]) <= 1e100).all()
        is_inside = ((self.lower <= self.point) & (self.point <= self.upper)).all()
        is_inside &= (self.sites[[2, 3, 7, 8]] >= 0.0).all()
        why = "A field has a negative count, or a start outside of its box."
        require(is_finite and (self.m >= 1e-100).all(), "A number of a field is out of range.")
        require(is_inside, why)
        self._read_levels()
        self._read_pulls()
        # A factor larger than all rounding errors below.
        self.up = 1.0 + UNIT * (64.0 + 8.0 * max(map(len, self.pulls)))
        s = self._bound_variances()
        self.rows: dict[int, Row] = {}
        for i, width in enumerate(self.width.tolist()):
            c = [(j, float(s[i]) * abs(q) * self.up + 1e-300) for j, q in self.pulls[i]]
            self.rows[i] = c, width
        self.far = self._check_start(far)
        self.drift = dict(enumerate(drift.tolist()))
        names = self.proof.names.variables
        known = np.flatnonzero(self.width == 0.0).tolist()
        self.proof.given += [f"given {names[v]} = {float(self.point[v])!r}" for v in known]

    def _read_levels(self) -> None:
        """Read the levels of the variables that have only finitely many values."""
        plan = self.part.plan["levels"]
        self.levels = {int(v): items(values, float) for v, values in plan.items()}
        for v, values in self.levels.items():
            is_there = v >= 0 and self.point[v] in values and np.all(np.diff(values) > 0.0)
            require(is_there, "Levels do not increase, or do not contain the start.")
            reach = (self.lower[v], self.upper[v]) == (values[0], values[-1])
            require(reach, "Levels do not reach the ends of their box.")

    def _read_pulls(self) -> None:
        """Read the neighbours j of each variable i, with the negated couplings -Q_ij."""
        self.pulls: list[list[tuple[int, float]]] = [[] for _ in self.m]
        for scope, table in self.proof.factors.pairs:
            *zeros, pull = table.ravel().tolist()
            is_pair = len(scope) == 2 and zeros == [0.0] * 3 and pull > -math.inf
            require(is_pair, "A factor of a field does not couple exactly two variables.")
            for i, j in (scope, scope[::-1]):
                self.pulls[i].append((j, pull))

    def _bound_variances(self) -> Array:
        """Return bounds on the conditional variances.

        Also keep bounds on the variance proxies in `proxy`, and on the total variation per unit of
        distance in `tilt`.
        """
        is_level = np.isin(np.arange(len(self.m)), list(self.levels))
        with np.errstate(over="ignore"):
            self.width = (self.upper - self.lower) * self.up
            square = self.width**2 * self.up
            normal = np.where(is_level, np.inf, 1.0 / self.m * self.up)
            self.proxy = normal.clip(max=square / 4.0)
            s: Array = np.where(is_level, self.proxy, self.proxy.clip(max=square / 12.0))
        updated = set(self.order.cycle)
        is_still = np.isfinite(self.width) & ~np.isin(np.arange(len(self.m)), list(updated))
        require(
            ((s < math.inf) & ((s > 1e-290) | is_still)).all(),
            "The scan updates an observed variable, or a variance is too small.",
        )
        density = np.where(is_level, np.inf, DENSITY / np.sqrt(self.m))
        kappa = np.minimum(0.5 * np.sqrt(s), density) * self.up
        # Total variation over distance, after an update: at the width, nothing is known.
        self.tilt = {i: max(kappa[i] / s[i], 1.0 / self.width[i]) * self.up for i in updated}
        return s

    def _check_start(self, far: Array) -> Bounds:
        """Return bounds on the expected distance between field and start, checking the file's.

        Bounds a are valid if a >= C a + r, where r bounds the expected distance of each variable if
        all others are at the start (theory.md, The start of a field). In a box, a is the distance
        to the far end.
        """
        is_open = np.isinf(self.width)
        reach = np.maximum(self.upper - self.point, self.point - self.lower)
        far = np.where(is_open, far, reach * self.up)
        with np.errstate(over="ignore"):
            grows = self.exposure * np.exp(self.point * (self.exposure > 0.0))  # no 0 times inf
            falls = self.trials / (1.0 + np.exp(-self.point))
            own = np.stack([self.m * self.point, -self.linear, grows, falls])
        for i in np.flatnonzero(is_open).tolist():
            self.proof.closed.add(i)
            slope = [*own[:, i].tolist(), *(-q * self.point[j] for j, q in self.pulls[i])]
            rounding = 1e-14 * math.fsum(map(abs, slope))
            rest = (abs(math.fsum(slope)) + rounding) / self.m[i] + self.m[i] ** -0.5
            moved = math.fsum(c * far[j] for j, c in self.rows[i][0])
            require(
                far[i] >= (moved + rest) * self.up,
                "The field may be farther from the start than the file says.",
            )
        return dict(enumerate(far.tolist()))

    def singles(self) -> dict[int, Array]:
        """Return the parameters of the single variables that the proof rests on."""
        levels = {i: self.levels.get(i, []) for i in self.proof.closed}
        return {i: np.array([*self.sites[:6, i], *values]) for i, values in levels.items()}

    def spread(self, question: ProofQuestion, order: Steps) -> float:
        """Bound the variance proxy of a statistic of one chain.

        The share of each step is added, from the last step to the first (theory.md, Intervals for
        fields).
        """
        order.charge(self.rows)
        v, total = dict(zip(question.variables, question.weights, strict=True)), 1e-300
        for i in reversed(order):
            if weight := v.pop(i, 0.0):
                total += weight * self.proxy[i] * weight  # a squared weight could underflow
                for j, c in self.rows[i][0]:
                    v[j] = v.get(j, 0.0) + weight * c + 1e-300
        degree = max(len(pairs) for pairs, _ in self.rows.values())
        total *= 1.0 + 16.0 * (degree + 4) * len(order) * UNIT
        widest = 0.25 * self.rows[question.variables[0]][1] ** 2
        return min(total, widest) if question.kind == "mean" else total


class _Answers:
    """Checker of the intervals that follow from the stored outcomes of a field's chains."""

    def __init__(self, field: Field, far: Bounds, level: float) -> None:
        self.field, self.far, self.level, plan = field, far, level, field.part.plan
        self.n, self.slip, self.budget = plan["chains"], plan["slip"], field.proof.budget
        # Total variation; 1 for variables that are not updated.
        self.law = {v: min(1.0, far[v] * tilt * (1.0 + 1e-15)) for v, tilt in field.tilt.items()}

    def check(self, k: int, question: ProofQuestion, given: list[float]) -> None:
        """Check the claimed interval of a question; `given` has the numbers stored for it."""
        numbers, kind = items(given, float, NUMBERS.get(question.kind, 0)), question.kind
        v, field, proof = question.variables[0], self.field, self.field.proof
        is_one = kind in ("bias", "joint", "statistic") or len(question.variables) == 1
        require(is_one, "A question about one variable names several.")
        low, high = proof.lower[k][0], proof.upper[k][0]
        if kind in ("bias", "joint"):
            bound = question.bias(self.far if kind == "bias" else self.law)
            is_low, is_high = False, high >= bound
        elif kind in ("mean", "statistic"):
            is_low, is_high = self._mean(question, numbers[0], low, high)
        else:
            are_counts = all(0 <= count <= self.n and count.is_integer() for count in numbers[:2])
            require(
                are_counts and numbers[0] <= numbers[1],
                "A count is not between 0 and the number of chains.",
            )
            check = self._quantile if kind == "quantile" else self._event
            is_low, is_high = check(question, numbers, low, high)
        if kind in ("mean", "quantile"):
            is_low, is_high = is_low or low <= field.lower[v], is_high or high >= field.upper[v]
        proof.within(k, 0, is_low, is_high)

    def _mean(self, q: ProofQuestion, mean: float, low: float, high: float) -> tuple[bool, bool]:
        """Check a mean: an average, widened by random error, bias and rounding of draws."""
        rest = self.level - self.n * self.slip
        require(
            rest > 0.0, "Rounding moves chains farther than stated too often for the confidence."
        )
        reach = math.sqrt(
            2.0 * self.field.spread(q, self.field.order) * math.log(2.0 / rest) / self.n
        )
        wider = (reach + q.bias(self.far) + q.bias(self.field.drift)) * (1.0 + 1e-9)
        wider += 1e-12 * abs(mean)
        return low <= mean - wider, high >= mean + wider

    def _tail(self, p: float, count: float) -> bool:
        return is_below(p, int(count), self.n, self.level / 2.0, False, self.budget)

    def _quantile(
        self, question: ProofQuestion, numbers: list[float], low: float, high: float
    ) -> tuple[bool, bool]:
        """Check a quantile: the ranks of two stored values must enclose it."""
        first, last, least, most = numbers
        q, drift = question.about["level"], question.bias(self.field.drift)
        is_rank = 0.0 < q < 1.0 and first >= 1 and least <= most
        require(is_rank, "The level of a quantile, or a rank of a value, is out of range.")
        off = self.law.get(question.variables[0], 1.0) + self.slip
        is_low = low <= least - drift and self._tail(1.0 - q + off, self.n - max(0, first - 1))
        is_high = high >= most + drift and self._tail(q + off, last)
        return is_low, is_high

    def _event(
        self, question: ProofQuestion, numbers: list[float], low: float, high: float
    ) -> tuple[bool, bool]:
        """Check a probability: count the chains surely in the event, and those possibly in it."""
        surely, perhaps = numbers
        off = self.law.get(question.variables[0], 1.0) + self.slip + 1e-15
        return self._tail(low + off, surely), self._tail(1.0 - high + off, self.n - perhaps)


def check_field(part: ProofPart) -> float:
    """Check bounds on a scan of a field, and intervals from its chains."""
    proof, order = part.proof, part.scan()
    n, slip = part.plan["chains"], part.plan["slip"]
    more = (proof.plan["parts"][1:], proof.document.outcomes["seed"], proof.evidence, proof.dropped)
    is_right = not any(more) and 1 <= n <= 2**40 and slip >= 0.0
    require(is_right, "This part does not describe chains of a field.")
    proof.closed |= set(order.cycle)
    field = Field(part, order)
    far = forward(field.rows, order, {}, field.far, math.inf)
    answers = _Answers(field, far, part.lost / len(part.questions))
    for (k, question), given in zip(part.questions.items(), part.outcome["numbers"], strict=True):
        answers.check(k, question, given)
    if proof.reference:
        proof.reference.compare_field(field.singles(), field.lower, field.upper)
    proof.checked.append(f"influence, start and bias of {len(order)} steps on a field")
    kinds = {question.kind for question in part.questions.values()}
    if kinds & NUMBERS.keys():
        proof.believes = True
        words = [CHAINS.format(n), DRIFT.format(max(field.drift.values()), slip)]
        proof.assumptions += words
    proof.assumptions += [SLOPES] if "statistic" in kinds else []
    return part.lost
