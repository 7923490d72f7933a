"""Estimates of every kind, with names that try to break out of a page."""

import networkx as nx

import dobrushin as db

HOSTILE = [
    "</script><img src=x onerror=window.pwned=1>",
    "<script>window.pwned=1</script>",
    "<!--<script>",
    "</noscript></main><svg onload=window.pwned=1>",
    "'\"><b onmouseover=window.pwned=1>",
    "&lt;b&gt; &amp; ${window.pwned=1} $title `${1}`",
    "line\u2028and\u2029paragraph\nnew\ttab\0nul",
    "\u202eright to left",
    "half \ud800 of a character",
    "__proto__",
    "]]>",
    "unbroken" * 24,
    "",
]


def hostile_model():
    pairs = {(HOSTILE[k], HOSTILE[k + 1]): 0.3 for k in range(len(HOSTILE) - 1)}
    return db.Ising(pairs)


def random_potts():
    links = nx.random_regular_graph(3, 60, seed=1).edges
    return db.Potts({(f"v{a}", f"v{b}"): 0.4 for a, b in links}, states=3)


def cases():
    million = db.Ising.grid(300, 300, couplings=0.2)
    torus = db.Ising.grid(12, 12, couplings=0.35, periodic=True)
    names, potts = hostile_model(), random_potts()
    statistic = db.Statistic.magnetisation(torus, [0, 1])
    seen = {45000: 1, 3: -1}
    return {
        "dobrushin": (
            db.estimate(million, [45150, 0], evidence=seen, method="dobrushin", seed=1),
            {"model": million, "evidence": seen},
        ),
        "coalescence": (
            db.estimate(torus, [0, db.Joint(3, 4)], method="coalescence", tolerance=0.05, seed=1), {"model": torus}
        ),
        "statistic": (db.estimate(torus, statistic, method="coalescence", tolerance=0.1, seed=1), {}),
        "local": (db.estimate(million, [45150], method="local", tolerance=0.001), {"model": million}),
        "exact": (
            db.estimate(names, [*HOSTILE, db.Joint(*HOSTILE[:2])], method="exact"),
            {"model": names, "title": HOSTILE[0], "command": HOSTILE[3]},
        ),
        "uncertified": (db.estimate(potts, ["v0"], method="uncertified", tolerance=0.1, seed=1), {"model": potts}),
        "observed": (
            db.estimate(names, HOSTILE[2:4], evidence={HOSTILE[0]: 1}, method="dobrushin", tolerance=0.1, seed=1),
            {"model": names, "evidence": {HOSTILE[0]: 1}},
        ),
    }  # fmt: skip


CASES = ["dobrushin", "coalescence", "statistic", "local", "exact", "uncertified", "observed"]
