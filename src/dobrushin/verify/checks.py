"""The checks of each method: what the file says is made again from the factors, and compared with the claim."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin.verify.document import Document, fields, reject, require
from dobrushin.verify.draws import KERNELS, SETS, Walk
from dobrushin.verify.factors import Factors, read_factors
from dobrushin.verify.influence import forward, steps_of
from dobrushin.verify.limits import is_above, is_below, mean_limits
from dobrushin.verify.questions import Question, read_questions, read_rows
from dobrushin.verify.sums import Sums

# Blocks are replayed by chance where all would take longer than this, at about so many updates a second.
MOST_SECONDS = 60.0
RATES = {"bits": 6e7, "set bits": 2e7, "set race": 5e5}
RATE = 8e6
# A count that is wrong by more than half of an interval's half-width is missed with at most this probability.
MISSED = 1e-6
# Shares of the error probability of the first and the second try of runs on sets.
TRIES = (0.75, 0.25)


class Proof:
    """A proof file, read; what was checked so far, and what it rests on."""

    def __init__(self, document: Document, replay: int | None) -> None:
        self.document, self.replay = document, replay
        plan, outcomes, claim = document.plan, document.outcomes, document.claim
        fields(
            plan, "plan", model=dict, names=list, spins=bool, evidence=list, questions=list, tolerance=float,
            confidence=float, parts=list, arrays=dict,
        )  # fmt: skip
        fields(plan["model"], "model", variables=int, fingerprint=str)
        fields(outcomes, "outcomes", seed=dict, parts=list, arrays=dict)
        fields(claim, "claim", lower=list, upper=list, words=list, assumptions=list)
        self.stated = read_factors(document)
        self.positions = document.array("positions", "i", len(self.stated.states))
        require(np.all(np.diff(self.positions) > 0), "The positions of the variables do not increase.")
        inside = not len(self.positions) or 0 <= self.positions[0] <= self.positions[-1] < plan["model"]["variables"]
        require(inside, "A variable of the proof is not one of the model.")
        self.questions, self.names = read_questions(document, self.stated.states)
        self.evidence = self._read_evidence(plan["evidence"])
        self.factors = self.stated.fix(self.evidence)
        self.lower, self.upper = (read_rows(document, self.questions, side) for side in ("lower", "upper"))
        self.checked: list[str] = []
        self.assumptions: list[str] = []
        self.blocks = self.replayed = 0
        self.runs: set[int] = set()
        self.used: set[str] = {"states", "arity", "scope", "tables", "positions"}

    def _read_evidence(self, pairs: list[Any]) -> dict[int, int]:
        evidence = {}
        for pair in pairs:
            fits = isinstance(pair, list) and len(pair) == 2 and all(type(part) is int for part in pair)
            fits = fits and 0 <= pair[0] < len(self.names) and 0 <= pair[1] < self.stated.states[pair[0]]
            require(fits and pair[0] not in evidence, "The evidence names no state of a variable.")
            evidence[pair[0]] = pair[1]
        asked = {v for question in self.questions for v in question.variables}
        require(not asked & set(evidence), "A question is about a variable that the evidence fixes.")
        return evidence

    def array(self, name: Any, kind: str, *shape: int) -> NDArray[Any]:
        """An array, which is now used."""
        self.used.add(name)
        return self.document.array(name, kind, *shape)

    def numbers(self, name: Any) -> list[int]:
        """An array of variables that the evidence does not fix."""
        values = self.array(name, "i", -1).tolist()
        fits = all(0 <= v < len(self.names) and v not in self.evidence for v in values)
        require(fits, f"The array {name!r} names no free variable.")
        return values

    def check(self) -> None:
        """Check all parts, and that together they answer every question with the confidence that is claimed."""
        plan, outcomes = self.document.plan, self.document.outcomes
        confidence, tolerance = plan["confidence"], plan["tolerance"]
        require(0.0 < confidence <= 1.0 and tolerance > 0.0, "The confidence is no probability.")
        require(len(plan["parts"]) == len(outcomes["parts"]), "Plan and outcomes have different parts.")
        asked: list[int] = []
        lost = 0.0
        for number, (part, outcome) in enumerate(zip(plan["parts"], outcomes["parts"], strict=True)):
            require(isinstance(part, dict) and isinstance(outcome, dict), "A part is not an object.")
            method = METHODS.get(part.get("method", ""))
            if method is None:
                reject(f"The checker does not know the method {part.get('method')!r}.")
            chosen = part.get("questions")
            fits = isinstance(chosen, list) and all(type(k) is int and 0 <= k < len(self.questions) for k in chosen)
            require(fits, "A part answers no question.")
            asked += chosen
            lost += method(self, number, part, outcome, chosen)
        require(sorted(asked) == list(range(len(self.questions))), "Some question is answered by no part, or by two.")
        require(lost <= (1.0 - confidence) * (1.0 + 1e-12) + 1e-15, "The parts err more often than the claim says.")
        require(self.used == set(self.document.arrays), "The file has arrays that nothing uses.")
        self._check_words(confidence)

    def _check_words(self, confidence: float) -> None:
        words = [
            line
            for question, low, high in zip(self.questions, self.lower, self.upper, strict=True)
            for line in question.words(low, high)
        ]
        values = [(self.names[v], 2 * d - 1 if self.document.plan["spins"] else d) for v, d in self.evidence.items()]
        words += [f"given {name} = {value}" for name, value in values]
        words.append(f"all at once with confidence {confidence!r}")
        require(self.document.claim["words"] == words, "The words of the claim do not say what its numbers say.")
        stated = self.document.claim["assumptions"]
        fits = all(isinstance(line, str) for line in stated) and sorted(stated) == sorted(self.assumptions)
        require(fits, "The file names other assumptions than it needs.")

    def assume(self, words: str) -> None:
        """Something that is not checked."""
        if words not in self.assumptions:
            self.assumptions.append(words)

    def seed(self, spawn_key: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """The seed of a part, as entropy and key."""
        seed = self.document.outcomes["seed"]
        fields(seed, "seed", origin=str, entropy=str, spawn_key=list)
        require(seed["entropy"].isdecimal() and len(seed["entropy"]) < 10_000, "The seed is no number.")
        require(all(type(k) is int and 0 <= k < 2**32 for k in seed["spawn_key"]), "The seed has a strange key.")
        entropy = int(seed["entropy"])
        if seed["origin"] == "plan":
            fits = entropy == self.document.seed_of_plan() and not seed["spawn_key"]
            require(fits, "The seed does not follow from the plan.")
        else:
            require(seed["origin"] == "given", "The seed has no origin.")
            self.assume(f"the seed {entropy} was not chosen by looking at what it gives")
        self.assume("the words of SplitMix64 under this seed are independent and uniform")
        return entropy, (*seed["spawn_key"], *spawn_key)

    def within(self, number: int, k: int, is_low: Callable[[float], bool], is_high: Callable[[float], bool]) -> None:
        """Reject unless the claimed ends of a row are limits, or say nothing."""
        question = self.questions[number]
        least, most = (question.least, question.most) if question.kind == "linear" else (0.0, 1.0)
        low, high = self.lower[number][k], self.upper[number][k]
        where = f"of {question.shown!r}, row {k},"
        require(low <= high, f"The interval {where} is empty.")
        require(low <= least or is_low(low), f"The lower end {where} does not follow.")
        require(high >= most or is_high(high), f"The upper end {where} does not follow.")


def _given_part(proof: Proof, part: dict[str, Any]) -> tuple[Factors, float]:
    """The factors that a part is about, and how far their log-density may be off."""
    dropped = proof.numbers(part["dropped"]) if part["dropped"] else []
    require(len(set(dropped)) == len(dropped), "A variable is left out twice.")
    factors, error = proof.factors.drop(dropped)
    gone = set(dropped)
    asked = {v for k in part["questions"] for v in proof.questions[k].variables}
    require(not gone & asked, "A variable that is asked for is left out.")
    if dropped:
        proof.checked.append(f"{len(dropped)} variables sum to a constant and are left out")
    return factors, error


def _scan(proof: Proof, about: Any) -> list[int]:
    fields(about, "scan", cycle=str, first=int, steps=int)
    cycle = proof.numbers(about["cycle"])
    fits = 0 <= about["first"] < max(1, len(cycle)) and 1 <= about["steps"] <= 2**40 and cycle
    require(fits, "The scan has no steps.")
    require(about["steps"] <= 10**8, "The scan is too long for the checker.")
    return steps_of(np.array(cycle), about["first"], about["steps"])


def _walk(proof: Proof, part: dict[str, Any], factors: Factors, order: list[int], key: tuple[int, ...]) -> Walk:
    pairs = proof.array(part["places"], "i", -1, 2).tolist()
    places = dict(pairs)
    require(len(places) == len(pairs) == len(set(places.values())), "Two variables start with the same words.")
    require(all(0 <= place < 2**62 for place in places.values()), "A variable starts with words of draws.")
    seen = {v for i in set(order) for v in (i, *factors.around(i).others)}
    require(seen <= set(places) <= set(range(len(proof.names))), "Chains do not hold what the scan needs.")
    start = None
    if part["start"]:
        digits = proof.array(part["start"], "i", len(pairs)).tolist()
        start = dict(zip(places, digits, strict=True))
        fits = all(0 <= d < proof.stated.states[v] for v, d in start.items())
        require(fits and not factors.forbids(order, start), "Chains start in a forbidden state.")
    looked_at = sorted({v for k in part["questions"] for v in proof.questions[k].variables})
    require(set(looked_at) <= set(places), "Chains do not hold what is asked for.")
    entropy, spawn_key = proof.seed(key)
    return Walk(factors, order, part["kernel"], entropy, spawn_key, places, start, part.get("words", 0), looked_at)


class Counts:
    """The outcomes of a part, replayed: all of them, or blocks that the checker picks."""

    def __init__(self, proof: Proof, part: dict[str, Any], outcome: dict[str, Any], walk: Walk, drawn: int) -> None:
        self.proof, self.walk, self.drawn = proof, walk, drawn
        self.questions = [(k, proof.questions[k]) for k in part["questions"]]
        self.is_sets = walk.kernel in SETS
        self.counted = [(k, question) for k, question in self.questions if question.is_counted]
        self.trials = min(part["trials"], drawn)
        block = outcome["block"]
        require(block >= 1 and block % walk.lanes == 0, "Blocks of chains do not hold whole streams.")
        self.block, self.number = block, -(-self.trials // block) if self.counted else 0
        self.means = dict(zip((k for k, q in self.questions if not q.is_counted), outcome["means"], strict=False))
        fits = len(outcome["means"]) == len(self.means) == len(self.questions) - len(self.counted)
        fits = fits and all(type(n) is int and 0 <= n <= drawn for n in outcome["means"])
        require(fits, "Means are not those of what was drawn.")
        self.totals: dict[int, NDArray[np.int64]] = {}
        self.averaged: dict[int, NDArray[Any]] = {}
        self._replay(outcome)

    def _replay(self, outcome: dict[str, Any]) -> None:
        rows = sum(question.rows for _, question in self.counted) * (2 if self.is_sets else 1)
        stated = np.zeros((self.number, 0), dtype=np.int64)
        if self.counted:
            stated = self.proof.array(outcome["counts"], "i", self.number, rows)
            require(np.all((stated >= 0) & (stated <= self.block)), "A count is not one of a block.")
        else:
            require(outcome["counts"] == "", "There is nothing to count.")
        picked = self._pick()
        for first in range(0, len(picked), max(1, 2**22 // self.block)):
            group = picked[first : first + max(1, 2**22 // self.block)]
            chains = (group[:, None] * self.block + np.arange(self.block)).ravel()
            digits = self.walk.outcomes(chains)
            digits = np.where(chains < self.trials, digits, -2) if chains[-1] >= self.trials else digits
            found = self._count(digits)
            if not np.array_equal(found, stated[group]):
                worst = group[int(np.argmax((found != stated[group]).any(axis=1)))]
                reject(f"The counts of block {worst} are not those that its chains give.")
        self.proof.blocks += self.number
        self.proof.replayed += len(picked)
        at, total = 0, stated.sum(axis=0)
        for k, question in self.counted * (2 if self.is_sets else 1):
            part = total[at : at + question.rows]
            at += question.rows
            if k in self.totals:
                self.totals[-1 - k] = part  # runs that leave it open
            else:
                self.totals[k] = part
        others = [question for _, question in self.questions if not question.is_counted]
        if others:
            self.final = self.walk.outcomes(np.arange(-(-self.drawn // self.walk.lanes) * self.walk.lanes))[:, : self.drawn]

    def _pick(self) -> NDArray[np.int64]:
        """Numbers of the blocks that are replayed."""
        rate = RATES.get(self.walk.kernel, RATE)
        seconds = len(self.walk.order) * float(self.trials) / rate
        everything = np.arange(self.number)
        if self.proof.replay is None and seconds <= MOST_SECONDS:
            return everything
        widths = [
            self.proof.upper[k][row] - self.proof.lower[k][row] for k, q in self.counted for row in range(q.rows)
        ]
        share = max(1e-9, 0.25 * min(widths, default=1.0))
        needed = math.ceil(math.log(MISSED) / math.log1p(-share)) if share < 1.0 else 1
        count = min(self.number, needed if self.proof.replay is None else self.proof.replay)
        chosen = secrets.SystemRandom().sample(range(self.number), count)
        return np.array(sorted(chosen), dtype=np.int64)

    def _count(self, digits: NDArray[Any]) -> NDArray[np.int64]:
        row = {v: k for k, v in enumerate(self.walk.looked_at)}
        parts = []
        for is_open in (False, True)[: 2 if self.is_sets else 1]:
            for _, question in self.counted:
                own = digits[[row[v] for v in question.variables]]
                if is_open:
                    left = ((own == -1).any(axis=0)).reshape(-1, self.block).sum(axis=1)
                    parts.append(np.repeat(left[:, None], question.rows, axis=1))
                else:
                    parts.append(question.count(own, self.block))
        return np.concatenate(parts, axis=1) if parts else np.zeros((digits.shape[1] // self.block, 0), dtype=np.int64)

    def values(self, k: int, fill: float) -> NDArray[np.float64]:
        """A linear statistic in all outcomes that its mean is of."""
        row, question = {v: n for n, v in enumerate(self.walk.looked_at)}, self.proof.questions[k]
        return question.values(self.final[[row[v] for v in question.variables]][:, : self.means[k]], fill)


def _drawn(part: dict[str, Any], outcome: dict[str, Any]) -> int:
    """How many outcomes there are: as many as was planned, or fewer where the run was ended early."""
    fields(outcome, "outcomes of a part", run=int, drawn=int, early=bool, block=int, counts=str, means=list)
    require(0 <= part["trials"] <= 2**52 and 1 <= part["chains"] <= 2**52, "Nothing was planned.")
    drawn = outcome["drawn"]
    require(0 <= drawn <= max(part["chains"], part["trials"]), "More was drawn than was planned.")
    require(outcome["early"] or drawn >= part["trials"], "Fewer outcomes were drawn than was planned.")
    return drawn


def _key(proof: Proof, outcome: dict[str, Any]) -> tuple[int, ...]:
    """What the words of a part are marked with; no two parts share them."""
    run = outcome["run"]
    require(run not in proof.runs and 0 <= run < 2**32, "Two parts share their random words.")
    proof.runs.add(run)
    return (1990, 4, run) if run else ()


def check_dobrushin(proof: Proof, number: int, part: dict[str, Any], outcome: dict[str, Any], chosen: list[int]) -> float:
    """Chains whose bias Dobrushin's bound limits."""
    del number
    fields(
        part, "a part", method=str, questions=list, confidence=float, dropped=str, scan=dict, kernel=str, places=str,
        start=str, chains=int, trials=int, aim=float,
    )  # fmt: skip
    require(part["kernel"] in KERNELS, "Chains are drawn as states, not as sets.")
    factors, off = _given_part(proof, part)
    order = _scan(proof, part["scan"])
    # A uniform number has 53 bits or more; the log-density that was left may be off.
    error = {v: proof.stated.states[v] * 2.0**-52 + math.expm1(2.0 * off) for v in set(order)}
    disagreement = forward(factors, order, error)
    drawn, early = _drawn(part, outcome), outcome["early"]
    counts = Counts(proof, part, outcome, _walk(proof, part, factors, order, _key(proof, outcome)), drawn)
    intervals = sum(proof.questions[k].intervals for k in chosen)
    level = (1.0 - part["confidence"]) / intervals
    for k in chosen:
        question = proof.questions[k]
        bias = question.bias(disagreement)
        _check_rows(proof, k, question, counts, bias, level, part, early)
    proof.checked.append(f"the bias of {len(order)} steps by Dobrushin's bound, from the factors")
    proof.assume("the model allows some joint state")
    return 1.0 - part["confidence"]


def _check_rows(
    proof: Proof, k: int, question: Question, counts: Counts, bias: float, level: float, part: dict[str, Any], early: bool
) -> None:
    if question.is_counted:
        n, wider = counts.trials, bias + 1e-15
        for row, count in enumerate(counts.totals[k].tolist()):
            most = count + (int(counts.totals[-1 - k][row]) if -1 - k in counts.totals else 0)
            proof.within(
                k, row,
                lambda p, count=count: is_below(p + wider, count, n, level / 2.0, early),  # type: ignore[misc]
                lambda p, most=most: is_above(p - wider, most, n, level / 2.0, early),  # type: ignore[misc]
            )  # fmt: skip
        return
    require(question.kind == "linear", "Draws do not answer this question.")
    ends = []
    for fill, end in ((0.0, 0), (1.0, 1)):
        unit = mean_limits(counts.values(k, fill), level, part["aim"] / question.span, None if early else part["chains"])
        ends.append(question.least + question.span * unit[end])
    wider = bias + 1e-12 * (1.0 + question.span)
    proof.within(k, 0, lambda p: p + wider <= ends[0], lambda p: p - wider >= ends[1])


def check_coalescence(proof: Proof, number: int, part: dict[str, Any], outcome: dict[str, Any], chosen: list[int]) -> float:
    """Runs on sets of states that hold every trajectory."""
    del number
    fields(
        part, "a part", method=str, questions=list, confidence=float, dropped=str, scan=dict, kernel=str, places=str,
        start=str, chains=int, trials=int, aim=float, words=int,
    )  # fmt: skip
    attempt = outcome.pop("attempt", None)
    require(part["kernel"] in SETS and part["start"] == "" and attempt in (0, 1), "These are no runs on sets.")
    part = {**part, "trials": part["trials"] * (1, 4)[attempt], "chains": part["chains"] * (1, 4)[attempt]}
    factors, off = _given_part(proof, part)
    order = _scan(proof, part["scan"])
    drawn, early = _drawn(part, outcome), outcome["early"]
    walk = _walk(proof, part, factors, order, (*_key(proof, outcome), 1996, 8, attempt))
    counts = Counts(proof, part, outcome, walk, drawn)
    intervals = sum(proof.questions[k].intervals for k in chosen)
    level = TRIES[attempt] * (1.0 - part["confidence"]) / intervals / 2.0
    # Uniform numbers have 53 bits or more, and the log-density that was left may be off.
    states = max(proof.stated.states)
    wrong = len(order) * (states**2 * 2.0**-46 + 2.0 * math.expm1(2.0 * off))
    for k in chosen:
        _check_rows(proof, k, proof.questions[k], counts, proof.questions[k].span * wrong, level, part, early)
    proof.checked.append(f"{len(order)} steps on sets that hold every trajectory")
    proof.assume("the scan and the number of runs were chosen without the words of this seed")
    proof.assume("the model allows some joint state")
    return 1.0 - part["confidence"]


def check_exact(proof: Proof, number: int, part: dict[str, Any], outcome: dict[str, Any], chosen: list[int]) -> float:
    """Sums over all states of what is connected with the targets."""
    del number
    fields(part, "a part", method=str, questions=list, dropped=str, orders=list)
    fields(outcome, "outcomes of a part")
    factors, off = _given_part(proof, part)
    answered: list[int] = []
    for about in part["orders"]:
        fields(about, "an order", order=str, questions=list)
        order = proof.numbers(about["order"])
        reached = set(order)
        kept = [k for k, scope in enumerate(factors.scopes) if set(scope) & reached]
        inner = Factors(factors.states, [factors.scopes[k] for k in kept], [factors.tables[k] for k in kept])
        sums = Sums(inner, order)
        for k in about["questions"]:
            require(k in chosen and k not in answered, "An order answers a question of another part.")
            answered.append(k)
            _check_sums(proof, k, sums, math.expm1(2.0 * off), [0.0])
        proof.checked.append(f"sums over {len(order)} variables, in the order of the file")
    require(sorted(answered) == sorted(chosen), "No order answers some question.")
    proof.assume("what no factor of the proof connects with the targets allows some state")
    return 0.0


def _check_sums(proof: Proof, k: int, sums: Sums, relative: float, biases: list[float]) -> None:
    """Compare the claim with a law that was summed, give or take its error and a bias."""
    question = proof.questions[k]
    law, error = sums.law(tuple(question.variables))
    low, high = _ends(question, law, error + law * relative)
    wider = biases[0] + 2.0**-50
    for row in range(question.rows):
        proof.within(
            k, row,
            lambda p, row=row: p <= low[row] - wider,  # type: ignore[misc]
            lambda p, row=row: p >= high[row] + wider,  # type: ignore[misc]
        )  # fmt: skip


def _ends(question: Question, law: NDArray[Any], error: NDArray[Any]) -> tuple[list[float], list[float]]:
    """Ends of the rows of a question under a law of its variables."""
    if question.is_counted:
        return (law - error).ravel().tolist(), (law + error).ravel().tolist()
    require(question.kind == "linear", "Sums do not answer this question.")
    grid = np.indices(law.shape).reshape(law.ndim, -1)
    values = question.offset + np.asarray(question.slopes) @ grid
    mean = float(law.ravel() @ values)
    off = float(error.ravel() @ np.abs(values)) + law.size * 2.0**-50 * float(np.abs(values).max())
    return [mean - off], [mean + off]


def check_local(proof: Proof, number: int, part: dict[str, Any], outcome: dict[str, Any], chosen: list[int]) -> float:
    """Sums over a region around each target, and a bound on what everything outside can do."""
    del number
    fields(part, "a part", method=str, questions=list, dropped=str, regions=list)
    fields(outcome, "outcomes of a part")
    factors, off = _given_part(proof, part)
    for about in part["regions"]:
        fields(about, "a region", question=int, order=str, borders=list, sweep=str, sweeps=int)
    require([about["question"] for about in part["regions"]] == chosen, "Regions and questions do not fit.")
    for about in part["regions"]:
        _check_region(proof, about, factors, math.expm1(2.0 * off))
    proof.checked.append(f"sums over {len(chosen)} regions, and what is outside of them")
    proof.assume("the model allows some joint state")
    return 0.0


def _check_region(proof: Proof, about: dict[str, Any], factors: Factors, relative: float) -> None:
    question = proof.questions[about["question"]]
    order = proof.numbers(about["order"])
    inside = set(order)
    require(set(question.variables) <= inside, "A region does not hold its target.")
    kept = [k for k, scope in enumerate(factors.scopes) if set(scope) & inside]
    touching = Factors(factors.states, [factors.scopes[k] for k in kept], [factors.tables[k] for k in kept])
    outside = sorted({v for scope in touching.scopes for v in scope} - inside)
    laws = []
    require(1 <= len(about["borders"]) <= 2, "A region has one border or two.")
    for name in about["borders"]:
        digits = proof.array(name, "i", len(outside)).tolist() if name else []
        fits = len(digits) == len(outside) and all(
            0 <= d < factors.states[v] for v, d in zip(outside, digits, strict=True)
        )
        require(fits, "The border of a region has no such state.")
        laws.append((digits, Sums(touching.fix(dict(zip(outside, digits, strict=True))), order)))
    if len(laws) == 1:
        bias = 0.0
        if outside:
            sweep = proof.numbers(about["sweep"])
            require(set(sweep) <= inside and 1 <= about["sweeps"] <= 10_000, "Sweeps leave the region.")
            disagreement = forward(touching, sweep * about["sweeps"], {})
            bias = question.bias(disagreement)
        else:
            require(about["sweep"] == "" and about["sweeps"] == 0, "A closed region needs no sweeps.")
        _check_sums(proof, about["question"], laws[0][1], relative, [bias])
        return
    require(about["sweep"] == "" and about["sweeps"] == 0, "Two borders need no sweeps.")
    _check_extremes(proof, about["question"], touching, inside, outside, laws, relative)


def _check_extremes(
    proof: Proof, k: int, factors: Factors, inside: set[int], outside: list[int],
    laws: list[tuple[list[int], Sums]], relative: float,
) -> None:  # fmt: skip
    """The two extreme borders of a model that likes equal neighbours, up to names."""
    question = proof.questions[k]
    members = [*inside, *outside]
    require(all(factors.states[v] == 2 for v in members), "Extremes are for variables of two states.")
    first, second = laws[0][0], laws[1][0]
    require(all(a == 1 - b for a, b in zip(first, second, strict=True)), "The borders are not the two extremes.")
    high = _upper_states(factors, members, dict(zip(outside, second, strict=True)))
    found = [sums.law(tuple(question.variables)) for _, sums in laws]
    total = 0.0
    for axis, (variable, weight) in enumerate(zip(question.variables, question.weights, strict=True)):
        others = tuple(a for a in range(len(question.variables)) if a != axis)
        singles = [(law.sum(axis=others), error.sum(axis=others)) for law, error in found]
        state = high[variable]
        gap = float(singles[1][0][state] - singles[0][0][state])
        slack = sum(float(error.max()) + relative for _, error in singles) + 2.0**-50 * found[0][0].size
        total += weight * min(1.0, 0.5 * (max(0.0, gap) + slack))
    # The mean of both laws is within half the gap of the model's, in each variable.
    law, error = 0.5 * (found[0][0] + found[1][0]), 0.5 * (found[0][1] + found[1][1])
    low, up = _ends(question, law, error + relative)
    wider = min(question.span, total) + 2.0**-50
    for row in range(question.rows):
        proof.within(
            k, row,
            lambda p, row=row: p <= low[row] - wider,  # type: ignore[misc]
            lambda p, row=row: p >= up[row] + wider,  # type: ignore[misc]
        )  # fmt: skip


def _upper_states(factors: Factors, members: list[int], given: dict[int, int]) -> dict[int, int]:
    """Which state of each variable is the higher one, such that all pairs like both high or both low."""
    edges: dict[int, list[tuple[int, int]]] = {v: [] for v in members}
    for scope, table in zip(factors.scopes, factors.tables, strict=True):
        require(len(scope) <= 2, "Extremes are for factors of at most two variables.")
        if len(scope) == 2:
            (a, b), (c, d) = table.tolist()
            forbidden = (-math.inf in (b, c)) - (-math.inf in (a, d))
            sign = forbidden if -math.inf in (a, b, c, d) else math.fsum((a, d, -b, -c))
            if sign:
                edges[scope[0]].append((scope[1], int(sign < 0)))
                edges[scope[1]].append((scope[0], int(sign < 0)))
    high = dict(given)
    for root in [*given, *members]:
        high.setdefault(root, 1)
        waiting = [root]
        while waiting:
            v = waiting.pop()
            for other, flip in edges[v]:
                if other not in high:
                    high[other] = high[v] ^ flip
                    waiting.append(other)
                require(high[other] == high[v] ^ flip, "Neighbours do not all like to be equal, up to names.")
    return high


def check_nothing(proof: Proof, number: int, part: dict[str, Any], outcome: dict[str, Any], chosen: list[int]) -> float:
    """Rows of which nothing is known."""
    del number
    fields(part, "a part", method=str, questions=list)
    fields(outcome, "outcomes of a part")
    for k in chosen:
        for row in range(proof.questions[k].rows):
            proof.within(k, row, lambda p: False, lambda p: False)
    return 0.0


METHODS: dict[str, Callable[[Proof, int, dict[str, Any], dict[str, Any], list[int]], float]] = {
    "dobrushin": check_dobrushin,
    "coalescence": check_coalescence,
    "exact": check_exact,
    "local": check_local,
    "nothing": check_nothing,
}
