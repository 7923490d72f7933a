"""The paper's experiments and the recipes that they compare with. Nothing else in the package depends on them."""
