"""Put the parts of a proof together, and check that they prove the claim."""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice
from typing import Any

import numpy as np

from dobrushin.verify.claim import Names, Question
from dobrushin.verify.document import Array, Budget, Document, entries, items, require
from dobrushin.verify.model import Factor, read_factors
from dobrushin.verify.modelfile import Reference

PER_STEP, PER_TERM = 1e-7, 1.5e-7  # seconds to look at a step of a scan, and at a neighbour in it
SOME_STATE = "the model allows some joint state, given the evidence"
WORDS = "the words of SplitMix64 under this seed are independent and uniform"
PLAN = {"variables": int, "fingerprint": str, "confidence": float, "states": dict}
PLAN |= dict.fromkeys(("names", "evidence", "dropped", "questions", "parts"), list)
Row = tuple[list[tuple[int, float]], float]  # the influence of each neighbour, and of all together
# How a part is checked, the kinds of its questions, the entries of its plan and of its outcome.
Method = tuple[Callable[["Part"], float], set[str], dict[str, Any], dict[str, Any]]


class Proof:
    """A proof file, the checks that were made so far, and the assumptions of the claim."""

    def __init__(self, document: Document, replay: int | None = None) -> None:
        self.document, self.replay, self.budget = document, replay, document.budget
        self.plan, self.claim, self.array = document.plan, document.claim, document.array
        entries(self.plan, "plan", **PLAN)
        entries(document.outcomes, "outcomes", seed=list, parts=list)
        entries(self.claim, "claim", lower=list, upper=list)
        self.stated = read_factors(document, self.budget)
        self.states = self.stated.states
        self.positions = self._read_positions()
        self.names = Names(self.plan, self.positions, self.states)
        abouts = self.plan["questions"]
        self.questions = [Question(about, self.states, self.names) for about in abouts]
        self.lower, self.upper = self._ends("lower"), self._ends("upper")
        self.evidence: dict[int, int] = dict(items(pair, int, 2) for pair in self.plan["evidence"])
        dropped = self._read_evidence_and_dropped()
        self.factors, error = self.stated.fix(self.evidence).drop(dropped)
        # Without what sums to a constant, probabilities may be off by this share.
        self.off, self.dropped = math.expm1(2.0 * error), set(dropped)
        self.reference: Reference | None = None
        self.closed = set[int]()  # variables all of whose factors must be in the file
        self.checked, self.assumptions = list[str](), list[str]()
        if dropped:
            self.checked.append(f"{len(dropped)} variables sum to a constant and are left out")
        pairs = self.evidence.items()
        self.given = [f"given {self.names.event([v], [digit])}" for v, digit in pairs]
        self.blocks = self.replayed = 0  # of chains: all, and those that were drawn again
        self.runs = set[int]()  # numbers of the parts that draw: each has its own random words
        self.believes = False  # whether the claim rests on numbers that the file supplies
        self.own = list[Factor]()  # of a field: the numbers of single variables

    def _read_positions(self) -> Array:
        positions, last = self.array("positions", "i", len(self.states)), self.plan["variables"]
        steps = np.diff(positions, prepend=-1, append=last)
        require(
            self.states and np.all(steps > 0),
            "The variables of the proof are not at increasing positions of the model.",
        )
        return positions

    def _ends(self, side: str) -> list[list[float]]:
        rows = zip(self.claim[side], self.questions, strict=True)
        return [items(row, float, question.rows) for row, question in rows]

    def _read_evidence_and_dropped(self) -> list[int]:
        pairs = self.evidence.items()
        fits = all(0 <= v < len(self.states) and 0 <= d < self.states[v] for v, d in pairs)
        fits &= len(self.evidence) == len(self.plan["evidence"])
        require(fits, "The evidence names an unknown variable or state.")
        dropped = self.free(items(self.plan["dropped"], int))
        asked = {v for question in self.questions for v in question.variables}
        require(
            (asked.isdisjoint(self.evidence) and asked.isdisjoint(dropped)) and asked,
            "The target of a question is observed or left out.",
        )
        return dropped

    def free(self, variables: list[int]) -> list[int]:
        """Return some variables after checking that all are known and none is observed."""
        require(
            all(0 <= v < len(self.states) and v not in self.evidence for v in variables),
            "The proof refers to unknown or observed variables.",
        )
        return variables

    def close(self, variables: Iterable[int]) -> float:
        """Rest the claim on all factors that touch some variables, and on those left out.

        Beside a model file, returns by which share probabilities may differ between proof and file.
        """
        inside = self.dropped.union(variables)
        self.closed |= inside
        return math.expm1(self.reference.drift(inside)) if self.reference else 0.0

    def check(self, methods: dict[str, Method]) -> None:
        """Check all parts, and that together they prove the claim with its confidence."""
        confidence, lost, asked = self.plan["confidence"], 0.0, list[int]()
        require(0.0 < confidence <= 1.0, "The confidence is not between 0 and 1.")
        outcomes = self.document.outcomes["parts"]
        for plan, outcome in zip(self.plan["parts"], outcomes, strict=True):
            require(
                isinstance(plan, dict) and plan.get("method") in methods,
                "The checker does not know a method.",
            )
            check, kinds, planned, drawn = methods[plan["method"]]
            entries(plan, "a part", method=str, questions=list, **planned)
            entries(outcome, "outcomes of a part", **drawn)
            asked += (own := items(plan["questions"], int))
            require(
                own and all(0 <= k < len(self.questions) for k in own),
                "A part answers no question, or one that is not asked.",
            )
            require(
                all(self.questions[k].kind in kinds for k in own),
                "A part answers a question of a kind that it cannot answer.",
            )
            lost += check(Part(self, plan, outcome))
        require(len(set(asked)) == len(asked), "Two parts answer the same question.")
        for k in set(range(len(self.questions))) - set(asked):  # only vacuous ends are true
            for row in range(self.questions[k].rows):
                self.within(k, row, False, False)
        require(
            lost <= (1.0 - confidence) * (1.0 + 1e-9),
            "The parts err more often than the confidence allows.",
        )
        require(
            self.document.used == set(self.document.arrays),
            "The file has arrays that nothing uses.",
        )
        if self.blocks:
            is_all = self.replayed == self.blocks
            how = "all" if is_all else f"{self.replayed}, picked at random,"
            drawn_again = f"draws and counts of {how} of {self.blocks} blocks of chains"
            self.checked.append(f"{drawn_again}, from the seed")

    def sentences(self) -> list[str]:
        """Say what is claimed, of what, and how surely."""
        rows = zip(self.questions, self.lower, self.upper, strict=True)
        words = [line for q, low, high in rows for line in q.sentences(low, high, self.budget)]
        confidence = f"all at once with confidence {self.plan['confidence']!r}"
        return [*words, *self.given, confidence]

    def seed(self) -> tuple[int, list[int]]:
        """Return entropy and key of the seed: those of the file, or what follows from the plan."""
        seed = items(self.document.outcomes["seed"], int)
        require(
            all(0 <= k < 2**32 for k in seed[1:]) and all(0 <= k < 2**9999 for k in seed[:1]),
            "The seed is negative or too large.",
        )
        if seed:
            what = f"the seed {', '.join(map(str, seed))} and the plan were"
            self.assumptions.append(f"{what} not chosen by looking at what they give")
        else:
            self.assumptions.append("the plan was not chosen by looking at what it gives")
        self.assumptions.append(WORDS)
        return seed[0] if seed else self.document.seed_of_plan(), seed[1:]

    def within(self, number: int, row: int, is_low: bool, is_high: bool) -> None:
        """Reject the proof unless each claimed end of a row was proved, or is vacuous."""
        question = self.questions[number]
        low, high = self.lower[number][row], self.upper[number][row]
        where = f"of row {row} of question {number}"
        require(low <= high, f"The interval {where} is empty.")
        require(low <= question.least or is_low, f"The lower end {where} does not follow.")
        require(high >= question.most or is_high, f"The upper end {where} does not follow.")


class Steps:
    """The variables that a scan updates in turn: a cycle, repeated up to a number of steps."""

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
        """Count the work of one pass over the rows of influence."""
        terms = sum(len(rows[v][0]) + 3 for v in self.cycle) / len(self.cycle) * self.count
        self.budget.spend(PER_TERM * terms, f"a bound on {self.count} steps")


class Part:
    """Some questions of a proof that are answered together."""

    def __init__(self, proof: Proof, plan: dict[str, Any], outcome: dict[str, Any]) -> None:
        self.proof, self.plan, self.outcome = proof, plan, outcome
        self.questions = {k: proof.questions[k] for k in plan["questions"]}

    def scan(self) -> Steps:
        """Read the steps: a cycle that is repeated."""
        order = self.proof.free(self.proof.array(self.plan["scan"], "i", -1).tolist())
        count = self.plan["steps"]
        require(order and 1 <= count <= 10**12, "The scan has no steps, or too many.")
        self.proof.budget.spend(PER_STEP * count, f"a scan of {count} steps")
        return Steps(order, count, self.proof.budget)
