"""Tables of factors, cut at the states of some of their variables (theory page, "Sums inside a region")."""

from dobrushin._shared.compile import kernel


@kernel
def cut_tables(states, scope_start, scope, table_start, is_free, state, cut_start, entries):
    """Which entries of each table are left when the variables that are not free are in these states.

    Tables are in C order over their scopes; what is left of factor f begins at cut_start[f] and is in C order too.
    """
    for f in range(cut_start.size - 1):
        first = cut_start[f]
        entries[first] = table_start[f]
        size, stride = 1, 1
        for k in range(scope_start[f + 1] - 1, scope_start[f] - 1, -1):
            v = scope[k]
            if is_free[v]:
                for a in range(1, states[v]):
                    for e in range(first, first + size):
                        entries[e + a * size] = entries[e] + a * stride
                size *= states[v]
            else:
                for e in range(first, first + size):
                    entries[e] += state[v] * stride
            stride *= states[v]
