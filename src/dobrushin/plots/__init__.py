"""Plots of results, drawn on matplotlib Axes, which are returned. Needs the extra `plots`.

A picture of one panel takes and returns an Axes; one of several panels takes a sequence of them and returns an array.
Without Axes a new figure is made. A notebook shows it, and ``plt.show()`` does where pyplot was imported before;
``ax.figure.savefig(path)`` writes it.
"""

from dobrushin.plots.areas import choropleth
from dobrushin.plots.certificates import bounds, influence
from dobrushin.plots.estimates import against_exact, marginals
from dobrushin.plots.maps import scan_map
from dobrushin.plots.traces import trace

__all__ = ["against_exact", "bounds", "choropleth", "influence", "marginals", "scan_map", "trace"]
