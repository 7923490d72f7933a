"""A format of the tests, lines ``i j strength`` of an Ising model: this file and an entry in the registry are all."""

import dobrushin as db


def read(source):
    """The model of a file."""
    edges = {}
    for number, line in enumerate(source.text().splitlines()):
        try:
            i, j, strength = line.split()
            edges[int(i), int(j)] = float(strength)
        except ValueError:
            raise db.FormatError(source.path, "a line 'i j strength'", repr(line), number + 1) from None
    return db.Ising(edges)


def write(model):
    """A model as a file."""
    pairs = ((i, int(j)) for i in range(model.n_variables) for j in model.neighbors(i) if i < j)
    return "".join(f"{i} {j} {float(model.couplings[i, j])!r}\n" for i, j in pairs).encode()
