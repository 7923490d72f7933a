"""JSON of the command line is what its page says: these fields, of these types, and no others."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import dobrushin as db
from dobrushin.cli.app import app

DOCS = Path(__file__).parent.parent / "docs"
TYPES = {"string": str, "number": (int, float), "boolean": bool, "list": list, "object": dict, "null": type(None)}
VERBS = {
    "inspect": ["inspect", "{model}"],
    "influence": ["influence", "{model}"],
    "certify": ["certify", "{model}"],
    "certify by simulation": ["certify", "{model}", "--coalescence", "--runs", "64"],
    "optimize": ["optimize", "{model}", "--target", "rain"],
    "sample": ["sample", "{model}", "--chains", "5"],
    "fit": ["fit", "{model}", "{data}", "--method", "exact", "--iterations", "2"],
    "plan": ["estimate", "{model}", "--plan"],
    "plan of chains": ["estimate", "{model}", "--plan", "--method", "dobrushin", "--tolerance", "0.1"],
    "estimate": ["estimate", "{model}", "--target", "rain", "--evidence", "wet=yes"],
    "verify": ["verify", "{proof}"],
    "convert": ["convert", "{model}", "{folder}/converted.uai"],
    "experiments": ["reproduce"],
}


def documented():
    """Of each format, the types of its fields by their names."""
    found = {}
    for page in ("cli.md", "estimates.md"):
        for table in re.findall(r"\| field \| type \|.*?(?=\n\n|\Z)", (DOCS / page).read_text(), re.DOTALL):
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
            fields = {name: kind for names, kind, _ in rows for name in re.findall(r"`(\w+)`", names)}
            found[re.search(r"dobrushin (\w+) \d", table).group(1)] = fields
    return found


def allows(kind, value):
    """Whether a value has one of the types that are named."""
    for name in re.findall(r"string|number|boolean|list|object|null", kind.split(" of ")[0]):
        if isinstance(value, TYPES[name]) and not (name == "number" and isinstance(value, bool)):
            return True
    return False


def strict(text):
    """JSON without the words that other readers do not know."""

    def refuse(word):
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("json")
    model = db.Ising({("rain", "wet"): 0.5}, state_names=("no", "yes"))
    db.write(model, folder / "model.npz")
    db.estimate(model, ["rain"]).write_proof(folder / "answer.proof")
    np.save(folder / "data.npy", np.array([[1, 1], [-1, -1], [1, 1], [1, -1]]))
    return {
        "model": folder / "model.npz",
        "data": folder / "data.npy",
        "proof": folder / "answer.proof",
        "folder": folder,
    }


@pytest.mark.parametrize("name", VERBS)
def test_json_has_the_fields_of_its_page(name, files):
    result = CliRunner().invoke(app, [part.format(**files) for part in VERBS[name]] + ["--json"])
    assert result.exit_code == 0, result.stderr
    found = strict(result.stdout)
    kind = re.fullmatch(r"dobrushin (\w+) \d", found["format"]).group(1)
    fields = documented()[kind]
    assert set(found) == set(fields)
    for field, value in found.items():
        assert allows(fields[field], value), (field, value, fields[field])


def test_labels_states_and_numbers_keep_their_types(files):
    sample = strict(CliRunner().invoke(app, ["sample", str(files["model"]), "--seed", "3", "--json"]).stdout)
    assert sample["seed"] == 3
    assert [(row["variable"], row["state"]) for row in sample["rows"][:2]] == [("rain", "no"), ("rain", "yes")]
    influence = strict(CliRunner().invoke(app, ["influence", str(files["model"]), "--json"]).stdout)
    assert influence["strongest"][0]["variable"] == "rain"


def test_the_check_sees_types():
    assert allows("number or null", None)
    assert not allows("number", True)
    assert not allows("boolean", 1)
    assert not allows("string", None)
    assert set(documented()) >= {"estimate", "inspect", "verify", "reproduce", "warmup"}


def test_every_verb_has_the_option():
    for name, command in typer.main.get_command(app).commands.items():
        assert "--json" in {word for parameter in command.params for word in parameter.opts}, name
