"""Put the parts of a proof together, and check that they prove the claim."""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np

from dobrushin.verify.claim import Names, ProofQuestion
from dobrushin.verify.compare import Reference
from dobrushin.verify.document import Budget, Document, entries, items, require, require_all
from dobrushin.verify.model import read_factors

PER_STEP, PER_TERM = 1e-7, 1.5e-7  # seconds to look at a step of a scan, and at a neighbour in it
SOME_STATE = "the model allows some joint state, given the evidence"
WORDS = "the random words of SplitMix64 with this seed are independent and uniform"
PLAN = {"variables": int, "fingerprint": str, "confidence": float, "states": dict}
PLAN |= dict.fromkeys(("names", "evidence", "dropped", "questions", "parts"), list)
Row = tuple[list[tuple[int, float]], float]  # the influence of each neighbour, and of all together


class ProofMethod(NamedTuple):
    """A way to prove answers. To add one, write a module with a `check`, and a line in METHODS."""

    check: Callable[["ProofPart"], float]  # returns the probability that its answers are wrong
    kinds: set[str]  # of questions that it answers
    plan: dict[str, Any]  # entries of a part in the plan, and in the outcomes
    outcome: dict[str, Any]


class Proof:
    """A proof under check: its file, the checks made so far, and the assumptions of the claim."""

    def __init__(self, document: Document, replay: int | None = None) -> None:
        self.document, self.replay, self.budget = document, replay, document.budget
        self.plan, self.claim, self.array = document.plan, document.claim, document.array
        entries(self.plan, "plan", **PLAN)
        entries(document.outcomes, "outcomes", seed=list, parts=list)
        entries(self.claim, "claim", lower=list, upper=list)
        self.stated = read_factors(document, self.budget)
        self.states = self.stated.states
        self.positions = self.array("positions", "i", len(self.states))
        steps = np.diff(self.positions, prepend=-1, append=self.plan["variables"])
        require(
            self.states and np.all(steps > 0),
            "The variables of the proof are not at increasing positions of the model.",
        )
        self.names = Names(self.plan, self.positions, self.states)
        abouts = self.plan["questions"]
        self.questions = [ProofQuestion(about, self.states, self.names) for about in abouts]
        self.lower, self.upper = self._ends("lower"), self._ends("upper")
        self._read_evidence_and_dropped()
        self.reference: Reference | None = None
        self.closed = set[int]()  # variables of which the file must hold all factors
        self.blocks = self.replayed = 0  # of chains: all, and those that were drawn again
        self.runs = set[int]()  # numbers of the parts with draws: each has its own random words
        self.believes = False  # whether the claim rests on numbers that the file supplies

    def _ends(self, side: str) -> list[list[float]]:
        rows = zip(self.claim[side], self.questions, strict=True)
        return [items(row, float, question.rows) for row, question in rows]

    def _read_evidence_and_dropped(self) -> None:
        self.evidence: dict[int, int] = dict(items(pair, int, 2) for pair in self.plan["evidence"])
        pairs = self.evidence.items()
        fits = all(0 <= v < len(self.states) and 0 <= d < self.states[v] for v, d in pairs)
        fits &= len(self.evidence) == len(self.plan["evidence"])
        require(fits, "The evidence names an unknown variable or state.")
        self.given = [f"given {self.names.event([v], [digit])}" for v, digit in pairs]
        dropped = self.free(items(self.plan["dropped"], int))
        self.dropped = set(dropped)
        asked = {v for question in self.questions for v in question.variables}
        is_free = asked.isdisjoint(self.evidence) and asked.isdisjoint(dropped)
        require(
            asked and is_free, "The target of a question is an observed variable, or one left out."
        )
        self.factors, error = self.stated.fix(self.evidence).drop(dropped)
        # Relative error of probabilities after leaving out factors that sum to a constant.
        self.off = math.expm1(2.0 * error)
        what = f"{len(dropped)} variables sum to a constant and are left out"
        self.checked, self.assumptions = [what] if dropped else [], list[str]()

    def free(self, variables: list[int]) -> list[int]:
        """Return some variables after checking that all exist and none is observed."""
        is_free = all(0 <= v < len(self.states) and v not in self.evidence for v in variables)
        require(is_free, "The proof refers to unknown or observed variables.")
        return variables

    def close(self, variables: Iterable[int]) -> float:
        """Record that the claim rests on all factors at some variables, and at those left out.

        Returns the largest relative difference of probabilities between model file and proof (0
        without a model file).
        """
        inside = self.dropped.union(variables)
        self.closed |= inside
        return math.expm1(self.reference.drift(inside)) if self.reference else 0.0

    def check(self, methods: dict[str, ProofMethod]) -> None:
        """Check all parts, and that together they prove the claim with its confidence."""
        lost, asked, plans = 0.0, list[int](), self.plan["parts"]
        for plan, outcome in zip(plans, self.document.outcomes["parts"], strict=True):
            is_known = isinstance(plan, dict) and plan.get("method") in methods
            require(is_known, "A part uses a method that the checker does not know.")
            part = ProofPart(self, plan, outcome, methods[plan["method"]])
            lost += methods[plan["method"]].check(part)
            asked += part.questions
        # A question that no part answers may only claim vacuous intervals.
        for k in set(range(len(self.questions))) - set(asked):
            for row in range(self.questions[k].rows):
                self.within(k, row, False, False)
        confidence = self.plan["confidence"]
        is_sure = lost <= (1.0 - confidence) * (1.0 + 1e-9)
        is_used = self.document.used == set(self.document.arrays)
        require_all(
            {
                "The confidence is not between 0 and 1.": 0.0 < confidence <= 1.0,
                "Two parts answer the same question.": len(set(asked)) == len(asked),
                "The error probabilities of all parts exceed what the confidence allows.": is_sure,
                "The file has arrays that the proof does not use.": is_used,
            }
        )
        if self.blocks:
            is_all = self.replayed == self.blocks
            how = "all" if is_all else f"{self.replayed}, picked at random,"
            drawn_again = f"draws and counts of {how} of {self.blocks} blocks of chains"
            self.checked.append(f"{drawn_again}, from the seed")

    def sentences(self) -> list[str]:
        """Return the claim in sentences: the answers, the model and the confidence."""
        rows = zip(self.questions, self.lower, self.upper, strict=True)
        words = [line for q, low, high in rows for line in q.sentences(low, high, self.budget)]
        confidence = f"all at once with confidence {self.plan['confidence']!r}"
        return [*words, *self.given, confidence]

    def seed(self) -> tuple[int, list[int]]:
        """Return the seed's entropy and key: from the file, or computed from the plan."""
        seed = items(self.document.outcomes["seed"], int)
        fits = all(0 <= k < 2**32 for k in seed[1:]) and all(0 <= k < 2**9999 for k in seed[:1])
        require(fits, "The seed is negative or too large.")
        assumed = "the plan was not chosen by looking at what it gives"
        if seed:
            what = f"the seed {', '.join(map(str, seed))} and the plan were"
            assumed = f"{what} not chosen by looking at what they give"
        self.assumptions += [assumed, WORDS]
        return seed[0] if seed else self.document.seed_of_plan(), seed[1:]

    def within(self, number: int, row: int, is_low: bool, is_high: bool) -> None:
        """Reject the proof unless each end of a claimed interval was proved, or is vacuous."""
        question = self.questions[number]
        low, high = self.lower[number][row], self.upper[number][row]
        where = f"of interval {row} of question {number}"
        require(low <= high, f"The lower end {where} is above the upper end.")
        require(low <= question.least or is_low, f"The lower end {where} does not follow.")
        require(high >= question.most or is_high, f"The upper end {where} does not follow.")


class Steps:
    """The variables that a scan updates, in order: a cycle that is repeated for `count` steps."""

    def __init__(self, order: list[int], count: int, budget: Budget) -> None:
        self.cycle, self.count, self.budget = order[:count], count, budget

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return islice(cycle(self.cycle), self.count)

    def __reversed__(self) -> Iterator[int]:
        size = len(self.cycle)
        return (self.cycle[t % size] for t in range(self.count - 1, -1, -1))

    def charge(self, rows: dict[int, Row]) -> None:
        """Charge the budget for a bound on all steps with these rows of influence."""
        terms = sum(len(rows[v][0]) + 3 for v in self.cycle) / len(self.cycle) * self.count
        self.budget.charge(f"a bound on {self.count} steps", PER_TERM * terms)


class ProofPart:
    """A part of a proof: some questions that one method answers together."""

    def __init__(
        self, proof: Proof, plan: dict[str, Any], outcome: Any, method: ProofMethod
    ) -> None:
        self.proof, self.plan, self.outcome = proof, plan, outcome
        entries(plan, "a part", method=str, questions=list, **method.plan)
        entries(outcome, "outcomes of a part", **method.outcome)
        own = items(plan["questions"], int)
        is_asked = own and all(0 <= k < len(proof.questions) for k in own)
        require(is_asked, "A part answers no question, or one that the plan does not ask.")
        self.questions = {k: proof.questions[k] for k in own}
        fits = len(self.questions) == len(own)
        fits &= all(question.kind in method.kinds for question in self.questions.values())
        require(fits, "A part answers a question twice, or one of a kind that it cannot answer.")
        # The probability that an interval is wrong, where all parts are allowed the same.
        self.lost = 1.0 - plan.get("confidence", 1.0)
        self.level = self.lost / sum(question.intervals for question in self.questions.values())
        require(0.0 <= self.lost < 1.0, "The confidence of a part is not between 0 and 1.")

    def scan(self) -> Steps:
        order = self.proof.free(self.proof.array(self.plan["scan"], "i", -1).tolist())
        count, budget = self.plan["steps"], self.proof.budget
        require(order and 1 <= count <= 10**12, "The scan has no steps, or too many.")
        budget.charge(f"a scan of {count} steps", PER_STEP * count)
        return Steps(order, count, budget)
