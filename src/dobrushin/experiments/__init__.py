"""The paper's experiments and the recipes that they compare with. Nothing else in the package depends on them.

Each experiment is a module with three plain functions: `compute(store)` returns arrays, `findings(data)` says what the
paper reports and what was measured, `draw(data)` makes the figures and tables. `catalog` lists them;
`dobrushin reproduce` runs them.
"""
