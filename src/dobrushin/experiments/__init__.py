"""The paper's experiments, and the methods that they compare. Nothing else in the package depends on them.

Each experiment is a module with three plain functions: `compute(store)` returns arrays, `findings(data)` compares
the paper's statements with the measurements, `draw(data)` makes the figures and tables. `catalog` lists them;
`dobrushin reproduce` runs them.
"""
