"""What is added from outside the package works everywhere: each part is defined in a test file and registered once."""

import numpy as np
import pytest
from typer.testing import CliRunner

import dobrushin as db
from dobrushin.cli.app import app
from dobrushin.io.formats import FORMATS, Format, extensions


@pytest.fixture
def edge_list(monkeypatch):
    entry = Format((".edges",), "edge_list_format", "lines i j strength", "`Ising`", "positions", "`Ising`")
    monkeypatch.setitem(FORMATS, "edges", entry)


@pytest.mark.usefixtures("edge_list")
def test_a_format_defined_here_is_read_and_written(tmp_path):
    model = db.Ising.grid(3, 3, couplings=0.3)
    for name in ("grid.edges", "grid.edges.gz"):
        db.write(model, tmp_path / name)
        np.testing.assert_array_equal(db.read(tmp_path / name).couplings.toarray(), model.couplings.toarray())
    db.write(model, tmp_path / "grid.xyz", format="edges")
    assert db.read(tmp_path / "grid.xyz", format="edges").n_variables == 9
    result = CliRunner().invoke(app, ["convert", str(tmp_path / "grid.edges"), str(tmp_path / "grid.npz")])
    assert result.exit_code == 0
    assert db.read(tmp_path / "grid.npz").n_variables == 9


@pytest.mark.usefixtures("edge_list")
def test_a_format_defined_here_is_named_in_messages_and_refuses_a_temperature(tmp_path):
    assert ".edges" in extensions(written=True)
    assert ".edges" not in extensions(energies=True)
    with pytest.raises(db.FormatError, match=r"\.npz, \.edges"):
        db.read(tmp_path / "model.xyz")
    (tmp_path / "bad.edges").write_text("0 1 0.5\n0 2\n")
    with pytest.raises(db.FormatError, match="line 2: expected a line 'i j strength', found '0 2'"):
        db.read(tmp_path / "bad.edges")
    with pytest.raises(db.ArgumentError, match=r"1\.0 for \.edges files"):
        db.read(tmp_path / "bad.edges", beta=2.0)


def test_a_format_defined_here_is_gone_without_its_entry(tmp_path):
    with pytest.raises(db.ArgumentError, match="one of the extensions"):
        db.write(db.Ising.grid(3, 3, couplings=0.3), tmp_path / "grid.edges")
