"""A proof as a whole, and the checks of answers that were drawn."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin.verify.document import Document, fields, require
from dobrushin.verify.draws import KERNELS, RACES, SETS, Walk
from dobrushin.verify.factors import Factors, read_factors
from dobrushin.verify.influence import Row, forward
from dobrushin.verify.limits import is_above, is_below, mean_limits
from dobrushin.verify.questions import read_names, read_questions, read_rows

# Blocks are picked by chance where all would take longer than this, at about so many updates a second.
MOST_SECONDS = 60.0
RATES = dict.fromkeys(RACES, 3e5)
RATE = 1e7
# In a second: steps of a scan, steps of a bound on its bias, rows of influence, and draws that need 60 digits.
STEPS, BOUNDS, ROWS, DECISIONS = 3e4, 5e5, 1e3, 1e4
# Chains that are counted together.
AT_ONCE = 2**22
# A count that is wrong by more than half of an interval's half-width is missed with at most this probability.
MISSED = 1e-6
# Runs on sets: shares of the error probability of the first and the second try, and how many more runs that has.
TRIES, MORE = (0.75, 0.25), (1, 4)
SOME_STATE = "the model allows some joint state"
# What plans of draws have in common.
DRAWN: dict[str, Any] = {
    "method": str, "questions": list, "confidence": float, "dropped": str, "scan": dict, "kernel": str, "places": str,
    "start": str, "chains": int, "trials": int, "aim": float,
}  # fmt: skip
OUTCOME: dict[str, Any] = {"run": int, "drawn": int, "early": bool, "block": int, "counts": str, "means": list}
Check = Callable[["Part"], float]  # returns the probability with which the part may err


class Proof:
    """A proof file, read; what was checked so far, and what it rests on."""

    def __init__(self, document: Document, replay: int | None) -> None:
        self.document, self.replay = document, replay
        self.plan, claim = document.plan, document.claim
        fields(
            self.plan, "plan", model=dict, names=list, spins=bool, evidence=list, questions=list, tolerance=float,
            confidence=float, parts=list, arrays=dict,
        )  # fmt: skip
        fields(self.plan["model"], "model", variables=int, fingerprint=str)
        fields(document.outcomes, "outcomes", seed=dict, parts=list, arrays=dict)
        fields(claim, "claim", lower=list, upper=list, words=list, assumptions=list)
        self.used: set[str] = {"states", "arity", "scope", "tables", "positions"}
        self.stated = read_factors(document)
        self.positions = document.array("positions", "i", len(self.stated.states))
        most = self.plan["model"]["variables"]
        fits = len(self.positions) and self.positions[0] >= 0 and self.positions[-1] < most
        require(fits and np.all(np.diff(self.positions) > 0), "A variable of the proof is not one of the model.")
        self.names = read_names(self.plan["names"], self.positions.tolist())
        self.questions = read_questions(self.plan, self.stated.states, self.names)
        self.evidence = self._read_evidence()
        self.factors = self.stated.fix(self.evidence)
        self.lower, self.upper = (read_rows(document, self.questions, side) for side in ("lower", "upper"))
        self.checked: list[str] = []
        self.assumptions: list[str] = []
        self.blocks = self.replayed = 0
        self.seconds = 0.0
        self.runs: set[int] = set()
        self.closed: set[int] = set()  # variables of which all factors must be in the file

    def _read_evidence(self) -> dict[int, int]:
        evidence = {}
        for pair in self.plan["evidence"]:
            fits = isinstance(pair, list) and len(pair) == 2 and all(type(part) is int for part in pair)
            fits = fits and 0 <= pair[0] < len(self.names) and 0 <= pair[1] < self.stated.states[pair[0]]
            require(fits and pair[0] not in evidence, "The evidence names no state of a variable.")
            evidence[pair[0]] = pair[1]
        asked = {v for question in self.questions for v in question.variables}
        require(not asked & set(evidence), "A question is about a variable that the evidence fixes.")
        return evidence

    def spend(self, seconds: float) -> None:
        """Reject what would take far too long, unless the caller has said how much to replay."""
        self.seconds += seconds
        require(self.replay or self.seconds <= 20.0 * MOST_SECONDS, "The file is too large for the checker.")

    def array(self, name: Any, kind: str, *shape: int, drawn: bool = False) -> NDArray[Any]:
        """An array, which is now used."""
        self.used.add(name)
        return self.document.array(name, kind, *shape, drawn=drawn)

    def numbers(self, name: Any) -> list[int]:
        """An array of variables that the evidence does not fix."""
        values = self.array(name, "i", -1).tolist()
        fits = all(0 <= v < len(self.names) and v not in self.evidence for v in values)
        require(fits, f"The array {name!r} names no free variable.")
        return values

    def check(self, methods: dict[str, Check]) -> None:
        """Check all parts, and that together they answer every question with the confidence that is claimed."""
        outcomes, confidence = self.document.outcomes["parts"], self.plan["confidence"]
        require(0.0 < confidence <= 1.0 and self.plan["tolerance"] > 0.0, "The confidence is no probability.")
        require(len(self.plan["parts"]) == len(outcomes), "Plan and outcomes have different parts.")
        pairs = zip(self.plan["parts"], outcomes, strict=True)
        parts = [Part(self, number, plan, outcome) for number, (plan, outcome) in enumerate(pairs)]
        asked = sorted(k for part in parts for k in part.chosen)
        require(asked == list(range(len(self.questions))), "Some question is answered by no part, or by two.")
        lost = 0.0
        for part in parts:
            method = part.plan.get("method")
            require(method in methods, f"The checker does not know the method {method!r}.")
            lost += methods[method](part)
        require(lost <= (1.0 - confidence) * (1.0 + 1e-9), "The parts err more often than the claim says.")
        require(self.used == set(self.document.arrays), "The file has arrays that nothing uses.")
        claim = self.document.claim
        require(claim["words"] == self.claim_in_words(), "The words of the claim do not say what its numbers say.")
        fits = sorted(claim["assumptions"]) == sorted(self.assumptions)
        require(fits, "The file names other assumptions than it needs.")

    def claim_in_words(self) -> list[str]:
        """What the numbers of the claim say."""
        rows = zip(self.questions, self.lower, self.upper, strict=True)
        words = [line for question, low, high in rows for line in question.words(low, high)]
        words += [f"given {self.names[v]} = {2 * d - 1 if self.plan['spins'] else d}" for v, d in self.evidence.items()]
        return [*words, f"all at once with confidence {self.plan['confidence']!r}"]

    def assume(self, words: str) -> None:
        """Something that is not checked."""
        if words not in self.assumptions:
            self.assumptions.append(words)

    def seed(self) -> tuple[int, list[int]]:
        """Entropy and key of the seed."""
        seed = self.document.outcomes["seed"]
        fields(seed, "seed", origin=str, entropy=str, spawn_key=list)
        require(seed["entropy"].isdecimal() and len(seed["entropy"]) < 4000, "The seed is no number.")
        require(all(type(k) is int and 0 <= k < 2**32 for k in seed["spawn_key"]), "The seed has a strange key.")
        entropy = int(seed["entropy"])
        if seed["origin"] == "plan":
            require(entropy == self.document.seed_of_plan() and not seed["spawn_key"], "The seed is not the plan's.")
            self.assume("the plan was not chosen by looking at what it gives")
        else:
            require(seed["origin"] == "given", "The seed has no origin.")
            key = f" with the key {seed['spawn_key']}" if seed["spawn_key"] else ""
            self.assume(f"the seed {entropy}{key} was not chosen by looking at what it gives")
        self.assume("the words of SplitMix64 under this seed are independent and uniform")
        return entropy, seed["spawn_key"]

    def within(self, number: int, row: int, is_low: bool, is_high: bool) -> None:
        """Reject unless the claimed ends of a row are limits, or say nothing."""
        question, low, high = self.questions[number], self.lower[number][row], self.upper[number][row]
        where = f"of {question.shown!r}, row {row},"
        require(low <= high, f"The interval {where} is empty.")
        require(low <= question.least or is_low, f"The lower end {where} does not follow.")
        require(high >= question.most or is_high, f"The upper end {where} does not follow.")


class Part:
    """Some questions of a proof that are answered together."""

    def __init__(self, proof: Proof, number: int, plan: Any, outcome: Any) -> None:
        require(isinstance(plan, dict) and isinstance(outcome, dict), "A part is not an object.")
        self.proof, self.number, self.plan, self.outcome = proof, number, plan, outcome
        self.chosen = plan.get("questions")
        fits = isinstance(self.chosen, list) and len(self.chosen) > 0
        fits = fits and all(type(k) is int and 0 <= k < len(proof.questions) for k in self.chosen)
        require(fits, "A part answers no question.")
        self.questions = {k: proof.questions[k] for k in self.chosen}

    def leave_out(self) -> tuple[Factors, float]:
        """The factors without what sums to a constant, and how far the log-density may then be off."""
        dropped = self.proof.numbers(self.plan["dropped"]) if self.plan["dropped"] else []
        require(len(set(dropped)) == len(dropped), "A variable is left out twice.")
        asked = {v for question in self.questions.values() for v in question.variables}
        require(not asked & set(dropped), "A variable that is asked for is left out.")
        if dropped:
            self.proof.checked.append(f"{len(dropped)} variables sum to a constant and are left out")
        self.proof.closed |= set(dropped)
        return self.proof.factors.drop(dropped)

    def scan(self) -> list[int]:
        """The steps: a cycle that is gone through again and again."""
        about = self.plan["scan"]
        fields(about, "scan", cycle=str, first=int, steps=int)
        cycle, first, steps = self.proof.numbers(about["cycle"]), about["first"], about["steps"]
        require(cycle and 0 <= first < len(cycle) and 1 <= steps <= 10**8, "The scan has no steps, or too many.")
        self.proof.closed |= set(cycle)
        self.proof.spend(steps / BOUNDS + len(set(cycle)) / ROWS)
        return np.resize(np.roll(cycle, -first), steps).tolist()

    def walk(self, factors: Factors, order: list[int], mark: tuple[int, ...]) -> Walk:
        """What the chains depend on; `mark` is that of the words of runs on sets."""
        proof, plan, run = self.proof, self.plan, self.outcome["run"]
        pairs = proof.array(plan["places"], "i", -1, 2).tolist()
        places = dict(pairs)
        fits = len(places) == len(pairs) == len(set(places.values())) and all(0 <= p < 2**62 for p in places.values())
        require(fits, "Two variables start with the same words.")
        seen = {v for i in set(order) for v in (i, *factors.around(i).others)}
        looked_at = sorted({v for question in self.questions.values() for v in question.variables})
        fits = seen | set(looked_at) <= set(places) <= set(range(len(proof.names)))
        require(fits, "Chains do not hold what the scan needs, or variables that are none.")
        start = None
        if plan["start"]:
            start = dict(zip(places, proof.array(plan["start"], "i", len(pairs)).tolist(), strict=True))
            fits = all(0 <= digit < factors.states[v] for v, digit in start.items())
            require(fits and not factors.forbids(set(order), start), "Chains start in a forbidden state.")
        elif plan["kernel"] not in SETS:
            touching = (factors.tables[k] for v in set(order) for k in factors.touching[v])
            require(not any(np.isneginf(table).any() for table in touching), "Chains may start in a forbidden state.")
        require(all(factors.states[v] < 2**15 for v in places), "A variable has too many states to be drawn.")
        require(run not in proof.runs and 0 <= run <= self.number, "Two parts share their random words.")
        proof.runs.add(run)
        entropy, key = proof.seed()
        spawn_key = (*key, *((1990, 4, run) if run else ()), *mark)
        return Walk(factors, order, plan["kernel"], entropy, spawn_key, places, start, plan.get("words", 0), looked_at)

    def planned(self) -> int:
        """How many outcomes were drawn: as many as was planned, or fewer where the run was ended early."""
        trials, chains, drawn = self.plan["trials"], self.plan["chains"], self.outcome["drawn"]
        require(0 <= trials <= 2**40 and 1 <= chains <= 2**40 and self.plan["aim"] > 0.0, "Nothing was planned.")
        require(0.0 < self.plan["confidence"] < 1.0, "The confidence of a part is no probability.")
        require(0 <= drawn <= max(chains, trials), "More was drawn than was planned.")
        require(self.outcome["early"] or drawn >= trials, "Fewer outcomes were drawn than was planned.")
        return drawn


class Counts:
    """The outcomes of a part, drawn again: all of them, or blocks that the checker picks."""

    def __init__(self, part: Part, walk: Walk) -> None:
        self.part, self.walk, self.proof = part, walk, part.proof
        self.is_sets = walk.kernel in SETS
        self.row = {v: k for k, v in enumerate(walk.looked_at)}
        self.counted = {k: q for k, q in part.questions.items() if q.kind != "linear"}
        others = [k for k in part.questions if k not in self.counted]
        drawn, means, self.block = part.planned(), part.outcome["means"], part.outcome["block"]
        fits = len(means) == len(others) and all(type(n) is int and 0 <= n <= drawn for n in means)
        require(fits, "Means are not those of what was drawn.")
        require(self.block >= 1 and self.block % walk.lanes == 0, "Blocks of chains do not hold whole streams.")
        self.means = dict(zip(others, means, strict=True))
        self.trials = min(part.plan["trials"], drawn)
        self.totals: dict[int, list[int]] = {}
        if self.counted:
            self._replay()
        if others:
            require(max(means) * (8 + len(self.row)) <= 2**30, "Means of so many chains are too large for the checker.")
            self.proof.spend(self._seconds(max(means)))
            self.final = walk.outcomes(np.arange(-(-max(means) // walk.lanes) * walk.lanes))
            self.proof.checked.append(f"draws and means of all of {max(means)} chains, from the seed")

    def _replay(self) -> None:
        number = -(-self.trials // self.block)
        stated = self.proof.array(self.part.outcome["counts"], "i", number, -1, drawn=True)
        require(np.all((stated >= 0) & (stated <= self.block)), "A count is not one of a block.")
        picked = self._pick(number)
        self.proof.spend(self._seconds(min(self.trials, len(picked) * self.block)))
        at_once, size = max(1, AT_ONCE // self.block), min(AT_ONCE, self.block)
        for first in range(0, len(picked), at_once):
            group = picked[first : first + at_once]
            starts = range(0, self.block, size)
            found = sum(self._count(group * self.block + start, min(size, self.block - start)) for start in starts)
            require(np.array_equal(found, stated[group]), "The counts of a block are not those that its chains give.")
        self.proof.blocks += number
        self.proof.replayed += len(picked)
        at, total = 0, stated.sum(axis=0).tolist()
        for k, question in self.counted.items():
            width = (question.rows if question.is_counted else 0) + self.is_sets
            self.totals[k] = total[at : at + width]
            at += width
        require(at == len(total), "The counts do not fit the questions.")

    def _count(self, firsts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """The counts of so many chains from each of these on."""
        chains = (firsts[:, None] + np.arange(size)).ravel()
        digits = np.where(chains < self.trials, self.walk.outcomes(chains), np.int16(-2))
        rows = ((question, [self.row[v] for v in question.variables]) for question in self.counted.values())
        return np.concatenate([question.count(digits[own], size, self.is_sets) for question, own in rows], axis=1)

    def _seconds(self, chains: int) -> float:
        """About how long it takes to draw so many chains again."""
        near = max(8.0 * self.walk.factors.around(v).margin for v in set(self.walk.order))
        draw = 1.0 / RATES.get(self.walk.kernel, RATE) + min(1.0, near) / DECISIONS
        return len(self.walk.order) * (chains * draw + (1 + chains / 2**16) / STEPS)

    def _pick(self, number: int) -> NDArray[np.int64]:
        """Numbers of the blocks that are drawn again."""
        replay, proof = self.proof.replay, self.proof
        if replay is None and self._seconds(self.trials) <= MOST_SECONDS:
            return np.arange(number)
        widths = [proof.upper[k][row] - proof.lower[k][row] for k, q in self.counted.items() for row in range(q.rows)]
        needed = math.ceil(math.log(MISSED) / math.log1p(-min(0.5, max(1e-9, 0.25 * min(widths)))))
        count = min(number, needed if replay is None else replay)
        return np.array(sorted(secrets.SystemRandom().sample(range(number), count)), dtype=np.int64)

    def check(self, k: int, bias: float, level: float) -> None:
        """Check the rows of a question: each end may err with half of the level, and is widened by a bias."""
        proof, question, early = self.proof, self.part.questions[k], self.part.outcome["early"]
        if question.kind == "linear":
            largest, aim = None if early else self.part.plan["chains"], self.part.plan["aim"] / question.span
            digits = self.final[[self.row[v] for v in question.variables], : self.means[k]]
            ends = [mean_limits(question.values(digits, fill), level, aim, largest) for fill in (0.0, 1.0)]
            low, high = question.least + question.span * ends[0][0], question.least + question.span * ends[1][1]
            wider = bias + 1e-12 * (1.0 + question.span) + 2.0**-50 * (abs(question.least) + abs(question.most))
            proof.within(k, 0, proof.lower[k][0] + wider <= low, proof.upper[k][0] - wider >= high)
            return
        wider, n, total = bias + 1e-15, self.trials, self.totals[k]
        left_open = total[-1] if self.is_sets else 0
        for row, (low, high) in enumerate(zip(proof.lower[k], proof.upper[k], strict=True)):
            is_low = is_below(low + wider, total[row], n, level / 2.0, early)
            proof.within(k, row, is_low, is_above(high - wider, total[row] + left_open, n, level / 2.0, early))


def check_dobrushin(part: Part) -> float:
    """Chains whose bias Dobrushin's bound limits."""
    fields(part.plan, "a part", **DRAWN)
    fields(part.outcome, "outcomes of a part", **OUTCOME)
    require(part.plan["kernel"] in KERNELS, "Chains are drawn in no known way.")
    factors, off = part.leave_out()
    order = part.scan()
    # A uniform number has 53 bits or more; the log-density that was left may be off.
    error = {v: factors.states[v] * 2.0**-52 + math.expm1(2.0 * off) for v in set(order)}
    disagreement = forward({v: Row(factors, v) for v in set(order)}, order, error)
    counts = Counts(part, part.walk(factors, order, ()))
    lost = 1.0 - part.plan["confidence"]
    level = lost / sum(question.intervals for question in part.questions.values())
    for k, question in part.questions.items():
        require(question.kind != "distance", "Chains do not tell a distance.")
        counts.check(k, question.bias(disagreement), level)
    part.proof.checked.append(f"the bias of {len(order)} steps by Dobrushin's bound, from the factors")
    part.proof.assume(SOME_STATE)
    return lost


def check_coalescence(part: Part) -> float:
    """Runs on sets of states that hold every trajectory: of an answer, or of a bound on a distance."""
    plan = part.plan
    fields(plan, "a part", **DRAWN, words=int)
    fields(part.outcome, "outcomes of a part", **OUTCOME, attempt=int)
    attempt = part.outcome["attempt"]
    is_bound = any(question.kind == "distance" for question in part.questions.values())
    fits = plan["kernel"] in SETS and plan["start"] == "" and attempt in (-1, 0, 1) and is_bound == (attempt < 0)
    require(fits and (not is_bound or len(part.questions) == 1), "These are no runs on sets.")
    more, share = (1, 1.0) if is_bound else (MORE[attempt], TRIES[attempt] / 2.0)
    part.plan = {**plan, "trials": plan["trials"] * more, "chains": plan["chains"] * more}
    factors, off = part.leave_out()
    order = part.scan()
    counts = Counts(part, part.walk(factors, order, () if is_bound else (1996, 8, attempt)))
    lost = 1.0 - plan["confidence"]
    # Uniform numbers have 53 bits or more, and the log-density that was left may be off.
    wrong = len(order) * (max(factors.states) ** 2 * 2.0**-46 + 2.0 * math.expm1(2.0 * off)) + 1e-15
    for k, question in part.questions.items():
        if is_bound:
            require(set(question.weights) == {1.0}, "Runs on sets tell the distance of a joint law.")
            high, left_open = part.proof.upper[k][0], counts.totals[k][0]
            is_high = is_above(high - wrong, left_open, counts.trials, lost, part.outcome["early"])
            part.proof.within(k, 0, False, is_high)
        else:
            level = share * lost / sum(question.intervals for question in part.questions.values())
            counts.check(k, question.span * wrong, level)
    part.proof.checked.append(f"{len(order)} steps on sets that hold every trajectory")
    part.proof.assume("the scan and the number of runs were chosen without the words of this seed")
    part.proof.assume(SOME_STATE)
    return lost
