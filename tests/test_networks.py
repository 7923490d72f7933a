"""Files of Bayesian networks: the same network in every format, and BIF written back."""

import random
import tracemalloc

import numpy as np
import pytest
from typer.testing import CliRunner

import dobrushin as db
import fuzz_networks
from dobrushin._models.derived import find_parents
from dobrushin.cli.app import app
from models import FAMILIES, SPRINKLER, random_model

XML = """<?xml version="1.0"?>
<!-- a comment with <!ENTITY in it -->
<!DOCTYPE BIF [ <!ELEMENT BIF ( NETWORK )*> ]>
<BIF VERSION="0.3"><NETWORK><NAME>wet</NAME>
<VARIABLE TYPE="nature"><NAME>rain</NAME><OUTCOME>yes</OUTCOME><OUTCOME>no</OUTCOME><PROPERTY>x</PROPERTY></VARIABLE>
<VARIABLE><NAME>sprinkler</NAME><OUTCOME>off</OUTCOME><OUTCOME>low</OUTCOME><OUTCOME>high</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>grass</NAME><OUTCOME>wet</OUTCOME><OUTCOME>dry</OUTCOME></VARIABLE>
<DEFINITION><FOR>rain</FOR><TABLE>0.2 0.8</TABLE></DEFINITION>
<DEFINITION><FOR>sprinkler</FOR><GIVEN>rain</GIVEN><TABLE>0.9 0.05 0.05 <!-- no --> 0.5 0.3 0.2</TABLE></DEFINITION>
<DEFINITION><FOR>grass</FOR><GIVEN>rain</GIVEN><GIVEN>sprinkler</GIVEN>
<TABLE>0.8 0.2 0.9 0.1 0.99 0.01 0.0 1.0 0.6 0.4 0.9 0.1</TABLE></DEFINITION>
</NETWORK></BIF>
"""
HUGIN = """% made by hand
net { node_size = (80 40); name = "wet"; }
node rain { label = "it { rains"; position = (10 20); states = ( "yes" "no" ); }
discrete node sprinkler { states = ("off" "low" "high"); }
node grass { states = ("wet" "dry"); }
potential ( rain ) { data = ( 0.2 0.8 ); }
potential ( sprinkler | rain ) { data = (( 0.9 0.05 0.05 ) ( 0.5 0.3 0.2 )); % rows
}
potential ( grass | rain sprinkler ) {
  data = ((( 0.8 0.2 )( 0.9 0.1 )( 0.99 0.01 ))(( 0.0 1.0 )( 0.6 0.4 )( 0.9 0.1 )));
}
"""
TEXTS = {"wet.bif": SPRINKLER, "wet.xmlbif": XML, "wet.bifxml": XML, "wet.xml": XML, "wet.net": HUGIN}


def write_file(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


def command(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def random_network(rng, n=6):
    """A Bayesian network with tables in any order and scopes in any order."""
    sizes = rng.integers(2, 4, size=n)
    factors = []
    for i in range(n):
        parents = rng.choice(i, size=min(i, int(rng.integers(0, 3))), replace=False).tolist()
        table = rng.dirichlet(np.ones(sizes[i]), size=sizes[parents])
        order = rng.permutation(len(parents) + 1)
        scope = np.array([*parents, i])[order].tolist()
        with np.errstate(divide="ignore"):
            factors.append((scope, np.log(np.transpose(table, order))))
    rng.shuffle(factors)
    names = {f"x {i}": [f"state {k}, {i}" for k in range(size)] for i, size in enumerate(sizes)}
    return db.FactorGraph(sizes, factors, list(names), state_names=names)


@pytest.mark.parametrize("name", TEXTS)
def test_every_format_holds_the_same_network(name, tmp_path):
    expected = db.read(write_file(tmp_path, "wet.bif", SPRINKLER))
    assert db.read(write_file(tmp_path, name, TEXTS[name])) == expected


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("wet.net", "0.2 0.8", "0.2 0.7", "that sum to 1"),
        ("wet.net", "0.2 0.8", "0.2", "2 probabilities of 'rain'"),
        ("wet.net", "0.2 0.8", "0.2 x", "0 or more"),
        ("wet.net", "potential ( rain ) { data = ( 0.2 0.8 ); }", "", "a table of 'rain'"),
        ("wet.net", "( rain )", "( rain | grass )", "4 probabilities|cycle"),
        ("wet.net", "( rain )", "( rain | )( )", r"'\{'"),
        ("wet.net", "discrete node", "continuous node", "net, node or potential"),
        ("wet.net", "%", "}", "net, node or potential"),
        ("wet.net", '"off" "low"', '"off" "off"', "different states"),
        ("wet.net", 'grass { states = ("wet" "dry"); }', "grass { }", "different states of 'grass'"),
        ("wet.net", "data = ( 0.2", "model_nodes = ( ); data = ( 0.2", "data of 'rain'"),
        ("wet.xmlbif", "<!ELEMENT BIF ( NETWORK )*>", '<!ENTITY a "b">', "without entities"),
        ("wet.xmlbif", "</BIF>", "", "XML"),
        ("wet.xmlbif", 'TYPE="nature"><NAME>grass', 'TYPE="utility"><NAME>grass', "TYPE nature"),
        ("wet.xmlbif", "<FOR>rain</FOR>", "<FOR>snow</FOR>", "declared"),
        ("wet.xmlbif", "<FOR>rain</FOR>", "", "FOR one variable"),
        ("wet.xmlbif", "<NAME>grass</NAME>", "<NAME>rain</NAME>", "each variable once"),
    ],
)
def test_broken_networks_are_refused_in_a_sentence(name, old, new, message, tmp_path):
    assert old in TEXTS[name]
    with pytest.raises(db.FormatError, match=message):
        db.read(write_file(tmp_path, name, TEXTS[name].replace(old, new, 1)))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("before", ["", "<?x <!-- ?>", "<!-- a -->"])
@pytest.mark.parametrize(
    "declaration", ['<!ENTITY a "b">', '<!ENTITY % a "b">', '<!ENTITY a SYSTEM "file:///etc/passwd">']
)
def test_entities_are_refused_wherever_they_are_declared(encoding, before, declaration, tmp_path):
    xml = XML.replace('<?xml version="1.0"?>\n', f'<?xml version="1.0" encoding="{encoding[:6]}"?>{before}', 1)
    text = xml.replace("<!ELEMENT BIF ( NETWORK )*>", declaration + "<?x --> ?>", 1)
    mark = "\ufeff" if encoding == "utf-16-le" else ""
    (tmp_path / "wet.xmlbif").write_bytes((mark + text).encode(encoding))
    with pytest.raises(db.FormatError, match="without entities"):
        db.read(tmp_path / "wet.xmlbif")
    (tmp_path / "wet.xmlbif").write_bytes((mark + xml).encode(encoding))
    assert db.read(tmp_path / "wet.xmlbif") == db.read(write_file(tmp_path, "wet.bif", SPRINKLER))


def test_tables_are_charged_with_what_they_take_while_they_are_read(tmp_path):
    """A file of 2 KB whose one default row stands for 2^26 entries took 2.4 GB under the limit of 1 GiB."""
    lines = [f"variable v{k} {{ type discrete [ 2 ] {{ a, b }}; }}" for k in range(26)]
    lines += [f"probability ( v{k} ) {{ table 0.5 0.5; }}" for k in range(25)]
    lines.append(f"probability ( v25 | {' '.join(f'v{k}' for k in range(25))} ) {{ default 0.5 0.5; }}")
    path = write_file(tmp_path, "wide.bif", "network n { }\n" + "\n".join(lines))
    tracemalloc.start()
    try:
        with pytest.raises(db.FormatError, match="tables of at most 1073741824 bytes"):
            db.read(path)
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


def test_cycles_and_nonsense_are_refused(tmp_path):
    loop = """node a { states = ("0" "1"); } node b { states = ("0" "1"); }
    potential (a | b) { data = ((0.5 0.5)(0.5 0.5)); } potential (b | a) { data = ((0.5 0.5)(0.5 0.5)); }"""
    with pytest.raises(db.FormatError, match="without a cycle"):
        db.read(write_file(tmp_path, "loop.net", loop))
    rng = np.random.default_rng(0)
    for text, name in ((HUGIN, "x.net"), (XML, "x.xml")):
        for _ in range(150):  # cut, doubled or changed anywhere: a model or a sentence
            i, j = sorted(rng.integers(0, len(text), size=2))
            broken = (text[:i], text[:j] + text[i:], text[:i] + chr(int(rng.integers(32, 127))) + text[i + 1 :])
            for content in broken:
                try:
                    db.read(write_file(tmp_path, name, content))
                except db.FormatError as error:
                    assert "\n" not in str(error)  # noqa: PT017


# -- BIF, written ------------------------------------------------------------------------------


def test_what_was_read_is_written_and_read_again_to_the_last_bit(tmp_path):
    model = db.read(write_file(tmp_path, "wet.net", HUGIN))
    db.write(model, tmp_path / "again.bif")
    assert db.read(tmp_path / "again.bif") == model


def test_any_bayesian_network_can_be_written(tmp_path):
    for seed in range(20):
        model = random_network(np.random.default_rng(seed))
        db.write(model, tmp_path / "net.bif")
        again = db.read(tmp_path / "net.bif")
        assert again.labels == model.labels
        assert again.state_names == model.state_names
        np.testing.assert_allclose(db.exact.distribution(again), db.exact.distribution(model), rtol=1e-9)


def test_other_models_are_no_bayesian_networks(tmp_path):
    for family in FAMILIES:
        model = random_model(np.random.default_rng(1), family, n=4)
        assert find_parents(model.to_factor_graph()) is None
        with pytest.raises(db.ArgumentError, match="a Bayesian network"):
            db.write(model, tmp_path / "model.bif")
    two = np.log([[0.5, 0.5], [0.5, 0.5]])
    assert find_parents(db.FactorGraph([2, 2], [((0, 1), two)])) is None  # a table for one of two variables
    assert find_parents(db.FactorGraph([2, 2], [((0, 1), two), ((0, 1), two)])) is None  # a cycle
    named = db.FactorGraph([2], [((0,), np.log([0.5, 0.5]))], ['a "quote"'])
    with pytest.raises(db.ArgumentError, match="no quotes"):
        db.write(named, tmp_path / "model.bif")


def test_convert_writes_bif_and_says_which_names_are_lost(tmp_path):
    path = write_file(tmp_path, "wet.net", HUGIN)
    kept = command("convert", path, tmp_path / "wet.bif")
    assert kept.exit_code == 0
    assert "Warning" not in kept.stderr
    lost = command("convert", path, tmp_path / "wet.uai")
    assert lost.exit_code == 0
    assert (
        "wet.uai does not keep the labels of the variables and names of the states (.bif, .npz files do)" in lost.stderr
    )
    assert command("convert", path, tmp_path / "wet.npz").stderr == ""
    bits = write_file(tmp_path, "bits.coo", "# vartype=BINARY\n0 0 -1\n0 1 2\n")
    assert "names of the states" in command("convert", bits, tmp_path / "bits.bqm").stderr


def test_the_judges_of_made_up_networks_see_what_is_wrong(tmp_path):
    rng = random.Random(3)
    for kind, make, ending in (
        ("xmlbif", fuzz_networks.make_xmlbif, ".xmlbif"),
        ("hugin", fuzz_networks.make_hugin, ".net"),
    ):
        data = next(data for data in iter(lambda make=make: make(rng), None) if b"0.25" in data)
        path = tmp_path / f"case{ending}"
        path.write_bytes(data)
        model = db.read(path)
        assert fuzz_networks.same_numbers(kind, data, model)
        assert fuzz_networks.survives_bif(model)
        assert not fuzz_networks.same_numbers(kind, data.replace(b"0.25", b"0.5"), model)
        assert not fuzz_networks.same_numbers(kind, data.replace(b"0.25", b""), model)
