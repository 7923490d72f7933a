"""Image segmentation: patches, words, PLSA, the field and its scans, labels, folders, and all that can be wrong."""

import json
import os
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import dobrushin as db
from executors import DeadlyScan

cv2 = pytest.importorskip("cv2", reason="the extra vision is not installed")
pytest.importorskip("sklearn", reason="the extra vision is not installed")
PIL = pytest.importorskip("PIL.Image", reason="the extra vision is not installed")

from dobrushin import vision  # noqa: E402
from dobrushin.errors import ArgumentError, FormatError, WorkerError  # noqa: E402
from dobrushin.experiments import segmentation  # noqa: E402
from dobrushin.experiments.catalog import MissingData, Store  # noqa: E402
from dobrushin.vision.patches import HUES  # noqa: E402
from dobrushin.vision.plsa import fit_aspects  # noqa: E402

DATA = os.environ.get("DOBRUSHIN_DATA")
CLASSES = ("fire", "lawn", "tiles")


def paint(name, height=120, width=160, seed=0, across=True):
    """Three textures side by side, or one above the other, in an order and at borders that the seed chooses."""
    rng = np.random.default_rng(seed)
    row, col = np.mgrid[:height, :width]
    textures = {
        "fire": np.stack([np.full(row.shape, 220), 90 + 0 * row, 30 + 0 * row], axis=2),
        "lawn": np.stack([40 + 0 * row, 120 + 60 * (row // 3 % 2), 50 + 0 * row], axis=2),
        "tiles": np.stack([60 + 0 * row, 80 + 0 * row, 120 + 100 * ((row // 5 + col // 5) % 2)], axis=2),
    }
    order = rng.permutation(len(CLASSES))[: rng.integers(2, 4)]
    along, side = (col, width) if across else (row, height)
    cuts = np.linspace(0, side, len(order) + 1)[1:-1] + rng.integers(-8, 9, size=len(order) - 1)
    labels = order[np.searchsorted(cuts, along, side="right")]
    pixels = np.zeros((height, width, 3))
    for k, texture in enumerate(textures.values()):
        pixels[labels == k] = texture[labels == k]
    pixels = np.clip(pixels + rng.normal(0, 12, pixels.shape), 0, 255).astype(np.uint8)
    labels = labels.astype(np.int16)
    labels[:, :3] = -1
    return vision.Image(name, pixels, labels, tuple(CLASSES[k] for k in sorted(order)))


@pytest.fixture(scope="module")
def images():
    return [paint(f"training {k}", seed=k) for k in range(12)]


@pytest.fixture(scope="module")
def model(images):
    return vision.Segmenter(CLASSES, words=(40, 20, 5), target=(4, 6), seed=3).fit(images)


@pytest.fixture(scope="module")
def tests():
    return [paint(f"test {k}", seed=100 + k) for k in range(5)]


# -- patches and words ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "shape", "box"),
    [
        ((213, 320), (20, 31), (6, 14, 9, 21)),
        ((320, 213), (31, 20), (9, 21, 6, 14)),
        ((240, 320), (23, 31), (7, 15, 9, 21)),
    ],
)
def test_patches_and_the_rectangle_for_all_shapes_of_the_data(size, shape, box):
    grid = vision.PatchGrid(*size)
    rows, cols = grid.rectangle()
    assert (grid.shape, (rows.start, rows.stop, cols.start, cols.stop)) == (shape, box)
    assert grid.mask().sum() == 96
    region = vision.Region.center(grid, 9)
    assert np.array_equal(region.targets, np.flatnonzero(grid.mask()))
    assert (grid.centers[0] == 9.5).all()
    # Every pixel belongs to the patch whose centre is nearest.
    rng = np.random.default_rng(0)
    for y, x in zip(rng.integers(size[0], size=50), rng.integers(size[1], size=50), strict=True):
        away = np.hypot(*(grid.centers - (y, x)).T)
        assert away[grid.nearest[y, x]] == away.min()


def test_scans_of_the_paper_for_all_shapes():
    for size in ((213, 320), (320, 213), (240, 320)):
        region = vision.Region.center(vision.PatchGrid(*size), 9)
        sweep, short, dogs = region.systematic(), region.shortest(), segmentation.dogs_scan(region)
        assert len(sweep.scan) == region.shape[0] * region.shape[1]
        assert 85.4 < sweep.variation.value < 85.5
        assert len(dogs.scan) == 110
        assert len(short.scan) <= 110
        assert max(short.variation.value, dogs.variation.value) <= sweep.variation.value
        assert region.shortest() is short  # remembered for all images of this shape


def test_hues_are_those_of_the_patch_and_grey_has_none():
    pixels = np.full((40, 60, 3), 128, dtype=np.uint8)
    pixels[:, 30:] = (250, 20, 20)
    found = vision.describe(vision.Image("half", pixels))
    assert found.color.shape == (3 * 5, HUES)
    color = found.color.reshape(3, 5, HUES)
    assert (color[:, 0] == 0).all()
    assert (color[:, 3:] ** 2).sum(axis=2).min() > 0.9
    assert len(set(color[:, 3:].argmax(axis=2).ravel())) == 1
    # By hand: the squares of the entries are sums of saturation by hue, over the sum and a constant.
    red, rest = 250.0, 20.0
    first, second = (red - rest) / np.sqrt(2), (red + rest - 2 * rest) / np.sqrt(6)
    weight = 400 * np.hypot(first, second)
    place = np.arctan2(first, second) / (2 * np.pi) * HUES
    expected = weight * (1 - place % 1) / (weight + 4000)
    assert color[0, 4, int(place)] ** 2 == pytest.approx(expected, rel=1e-5)


def test_patches_need_not_be_two_steps_wide(images):
    for patch, step in ((20, 10), (18, 12), (16, 16), (15, 7)):
        found = vision.describe(images[0], patch, step)
        assert len(found.color) == len(found.texture) == found.grid.size


def test_words_are_nearest_centres_and_cells(images, model):
    known = vision.describe(images[0])
    words = model.vocabulary.encode(known)
    centers = model.vocabulary._centers
    for kind, rows in enumerate((known.texture, known.color)):
        distance = ((rows[:, None].astype(float) - centers[kind][None]) ** 2).sum(axis=2)
        assert np.allclose(distance[np.arange(len(rows)), words[:, kind]], distance.min(axis=1), rtol=1e-4, atol=1e-4)
    place = words[:, 2].reshape(known.grid.shape)
    assert (place[0, 0], place[-1, -1]) == (0, 24)
    assert (np.diff(place, axis=1) >= 0).all()


# -- PLSA ----------------------------------------------------------------------------------------------------------


def test_likelihood_never_falls_and_absent_classes_have_no_share(model, images):
    history = model.aspects.history
    assert len(history) > 3
    assert (np.diff(history) >= -1e-6).all()
    for theta, image in zip(model.aspects.theta, images, strict=True):
        assert theta.sum() == pytest.approx(1)
        for k, name in enumerate(CLASSES):
            assert (theta[k] > 0) == (name in image.keywords)


def test_an_iteration_is_that_of_the_formulas():
    """One step of EM against a literal version with dense arrays."""
    rng = np.random.default_rng(5)
    sizes, allowed = (4, 3), np.array([[True, True, False], [True, True, True], [False, True, True]])
    words = [rng.integers(0, sizes, size=(6, 2)).astype(np.int32) for _ in allowed]
    found = fit_aspects(words, allowed, sizes, iterations=1, smoothing=0.1)
    q = [np.tile(row / row.sum(), (6, 1)) for row in allowed]
    for _ in range(2):
        theta = np.array([share.mean(axis=0) for share in q])
        beta = []
        for m, size in enumerate(sizes):
            table = np.full((size, 3), 0.1)
            for rows, share in zip(words, q, strict=True):
                np.add.at(table, rows[:, m], share)
            beta.append(table / table.sum(axis=0))
        joint = [theta[k] * beta[0][rows[:, 0]] * beta[1][rows[:, 1]] for k, rows in enumerate(words)]
        q = [part / part.sum(axis=1, keepdims=True) for part in joint]
    assert found.theta == pytest.approx(theta)
    for table, expected in zip(found.log_beta, beta, strict=True):
        assert np.exp(table) == pytest.approx(expected)
    score = sum(np.log(part.sum(axis=1)).sum() for part in joint) + 0.1 * sum(np.log(table).sum() for table in beta)
    assert found.history[-1] == pytest.approx(score)


def test_fold_in_finds_the_proportions_of_a_new_image(model, tests):
    for image in tests:
        words = model.vocabulary.encode(vision.describe(image))
        theta = model.aspects.proportions(words)
        assert theta.sum() == pytest.approx(1)
        truth = np.array([(image.labels == k).mean() for k in range(3)])
        assert np.abs(theta - truth).max() < 0.15
        # A fixed point of EM for theta alone.
        shares = theta * np.exp(model.aspects.log_likelihoods(words))
        assert (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0) == pytest.approx(theta, abs=1e-4)


# -- the field and its labels --------------------------------------------------------------------------------------


def test_the_posterior_is_that_of_the_paper(model, tests):
    found = model.segment(tests[0], seed=1)
    words = model.vocabulary.encode(vision.describe(tests[0]))
    theta = model.aspects.proportions(words)
    beta = [np.exp(table) for table in model.aspects.log_beta]
    by_hand = np.log(theta * beta[0][words[:, 0]] * beta[1][words[:, 1]] * beta[2][words[:, 2]])
    by_hand -= by_hand.max(axis=1, keepdims=True)
    assert found.posterior.unaries == pytest.approx(by_hand)
    assert set(found.posterior.couplings.data) == {0.48}
    assert found.posterior.couplings.nnz == 2 * (11 * 14 + 10 * 15)
    assert np.array_equal(found.first.ravel(), by_hand.argmax(axis=1))


@pytest.mark.parametrize("scan", ["shortest", "systematic", "certified"])
def test_regions_are_recognised(model, tests, scan):
    drawn = model.segment_many(tests, scan=scan, seed=7)
    assert (
        np.mean([one.error(image.labels) for one, image in zip(drawn, tests, strict=True)]) < 0.25
    )  # by chance 0.6; patches overlap borders
    for one in drawn:
        assert np.array_equal(one.labels, one.probabilities.argmax(axis=2))
        assert one.probabilities.sum(axis=2) == pytest.approx(np.ones(one.grid.shape))
        assert one.guarantee.value < 24
        assert set(one.seconds) == {"words", "proportions", "scan", "draws"}
        if scan == "certified":
            assert one.guarantee.target_bounds.max() <= 0.05
        untouched = np.setdiff1d(np.arange(one.grid.size), np.flatnonzero(one.scan.counts()))
        assert np.array_equal(one.labels.ravel()[untouched], one.first.ravel()[untouched])


def test_labels_are_the_majority_of_chains_that_start_at_the_mode(model, tests):
    found = model.segment(tests[1], scan="systematic", chains=150, seed=11)
    run = db.sample(found.posterior, found.scan, chains=150, seed=11, initial=found.first.ravel())
    counts = np.stack([(run.states == k).sum(axis=0) for k in range(3)], axis=1)
    assert found.probabilities.reshape(-1, 3) == pytest.approx(counts / 150)
    assert np.array_equal(found.labels.ravel(), counts.argmax(axis=1))
    assert np.array_equal(found.pixels, found.labels.ravel()[found.grid.nearest])
    # A scan that updates one patch once moves nothing else, and draws from its conditional given the start.
    one = found.again(scan=db.Scan([7]), chains=20_000, seed=2)
    assert one.guarantee is None
    exact = found.posterior.conditional(7, found.first.ravel())
    assert np.abs(one.probabilities.reshape(-1, 3)[7] - exact).max() < 0.02
    assert (np.delete(one.probabilities.reshape(-1, 3), 7, axis=0).max(axis=1) == 1).all()


def test_draws_depend_on_the_seed_only(model, tests):
    again = model.segment(tests[0], seed=4)
    assert np.array_equal(model.segment(tests[0], seed=4).probabilities, again.probabilities)
    assert np.array_equal(model.segment(vision.describe(tests[0]), seed=4).probabilities, again.probabilities)
    assert np.array_equal(again.again(seed=4).probabilities, again.probabilities)
    free = model.segment(tests[0])
    assert np.array_equal(model.segment(tests[0], seed=free.seed).probabilities, free.probabilities)


def test_the_same_bits_however_images_are_split_up(model, tests):
    alone = model.segment_many(tests, chains=70, seed=5)
    children = np.random.SeedSequence(5).spawn(len(tests))
    with ThreadPoolExecutor(3) as pool:
        threads = model.segment_many(tests, chains=70, seed=5, executor=pool)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        processes = model.segment_many(tests, chains=70, seed=5, executor=pool)
    for number, (image, child) in enumerate(zip(tests, children, strict=True)):
        expected = model.segment(image, chains=70, seed=child).probabilities
        for way in (alone, threads, processes):
            assert way[number].name == image.name
            assert np.array_equal(way[number].probabilities, expected)


def test_scans_may_be_functions_of_the_region(model, tests):
    seen = []

    def choose(region):
        seen.append(region)
        return region.systematic().scan[:50]

    found = model.segment(tests[0], scan=choose, seed=1)
    assert len(found.scan) == 50
    assert seen == [found.region]
    assert found.guarantee is None


def test_upright_images_and_other_sizes(model):
    upright = paint("upright", 160, 120, seed=50, across=False)
    found = model.segment(upright, seed=1)
    assert found.grid.shape == (15, 11)
    assert (found.region.rows, found.region.cols) == ((4, 10), (3, 7))
    assert found.inside.sum() == 60 * 40
    assert found.error(upright.labels, everywhere=True) < 0.35
    higher = model.segment(paint("higher", 140, 160, seed=51), seed=1)
    assert higher.grid.shape == (13, 15)
    assert len(higher.targets) == 24


def test_errors_count_labelled_pixels_only():
    truth = np.array([[0, 1, -1], [2, -1, 1]])
    found = np.array([[0, 2, 0], [2, 1, 0]])
    assert vision.hamming_error(found, truth) == 0.5
    assert vision.hamming_error(found, truth, truth == 1) == 1.0
    assert np.isnan(vision.hamming_error(found, truth, truth == -1))
    with pytest.raises(ArgumentError, match=r"of the shape \(2, 3\)"):
        vision.hamming_error(found[:1], truth)


def test_what_is_printed_and_kept(model, tests, images):
    found = model.segment(tests[0], chains=10, seed=1)
    assert repr(found).startswith("Segmentation('test 0', 4 x 6 patches: ")
    assert repr(model) == "Segmenter(3 classes, 12 training images)"
    assert repr(model.aspects).startswith("Aspects(3 classes, 12 training images, ")
    assert "colours" in repr(model.vocabulary)
    again = pickle.loads(pickle.dumps(model)).segment(tests[0], chains=10, seed=1)
    assert np.array_equal(again.probabilities, found.probabilities)
    twin = vision.Segmenter(CLASSES, words=(40, 20, 5), target=(4, 6), seed=3).fit(images)
    assert np.array_equal(twin.segment(tests[0], chains=10, seed=1).probabilities, found.probabilities)


def test_certified_labels_of_a_posterior(model, tests):
    """What an estimate says of the field agrees with the certified draws, within both of their errors."""
    found = model.segment(tests[2], scan="certified", tolerance=0.01, chains=20_000, seed=1)
    target = int(found.targets[5])
    answer = db.estimate(found.posterior, [target], tolerance=0.02, seed=1)
    share = found.probabilities.reshape(-1, 3)[target]
    assert (answer[target].lower - 0.03 <= share).all()
    assert (share <= answer[target].upper + 0.03).all()


# -- bad input -----------------------------------------------------------------------------------------------------


def one_sentence(caught):
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_arguments_that_cannot_be_used(model, images, tests):
    cases = [
        (lambda: vision.Segmenter(["one"]), "two or more different names"),
        (lambda: vision.Segmenter("sky"), "two or more different names"),
        (lambda: vision.Segmenter(CLASSES, patch=0), "at least 1"),
        (lambda: vision.Segmenter(CLASSES, words=(1, 2)), "three numbers"),
        (lambda: vision.Segmenter(CLASSES, target=(8,)), "rows and columns"),
        (lambda: vision.Segmenter(CLASSES, coupling=np.nan), "finite"),
        (lambda: vision.Segmenter(CLASSES).segment(tests[0]), "call fit first"),
        (lambda: vision.Segmenter(CLASSES).fit([]), "at least one image"),
        (lambda: vision.Segmenter(CLASSES).fit([vision.Image("a", images[0].pixels)]), "'a' without any"),
        (lambda: vision.Segmenter(CLASSES).fit([vision.Image("a", images[0].pixels, keywords=())]), "without any"),
        (lambda: vision.Segmenter(["sea", "sky"]).fit(images), "keywords among sea, sky"),
        (lambda: vision.Segmenter([*CLASSES, "sea"]).fit(images), "none with 'sea'"),
        (lambda: model.segment("a.png"), "an Image"),
        (lambda: model.segment(tests[0], scan="best"), "'shortest', 'systematic', 'certified'"),
        (lambda: model.segment(tests[0], scan=3), "a function that returns one"),
        (lambda: model.segment(tests[0], scan=db.Scan([10_000])), "10000"),
        (lambda: model.segment(tests[0], chains=0), "at least 1"),
        (lambda: model.segment(tests[0], scan="certified", tolerance=-1), "positive"),
        (lambda: model.segment(tests[0], seed=-1), "non-negative"),
        (lambda: model.segment_many(tests, executor=2), "concurrent.futures.Executor"),
        (lambda: model.segment(vision.describe(tests[0], 16, 8)), "described with patches of 20 pixels every 10"),
        (lambda: model.segment(paint("small", 45, 160)), "rectangle of 4 x 6 patches: at least 50 x 70 pixels"),
        (lambda: model.segment(paint("tiny", 15, 160)), "at least 20 x 20 pixels"),
        (lambda: vision.Image("a", np.zeros((4, 4))), "uint8"),
        (lambda: vision.Image("a", images[0].pixels, np.zeros((2, 2), dtype=int)), "as the pixels"),
        (lambda: vision.Image("a", images[0].pixels, keywords="sky"), "a list of words"),
        (lambda: vision.field(np.zeros((4, 4))), "of shape (rows, cols, classes)"),
        (lambda: fit_aspects([np.zeros((2, 1), dtype=int)], [[False, False]], [3]), "row 0"),
    ]
    for call, words in cases:
        with pytest.raises(ArgumentError) as caught:
            call()
        assert words in one_sentence(caught)


def test_images_without_content_and_missing_libraries(monkeypatch, folder):
    plain = [vision.Image(name, np.full((120, 160, 3), level, dtype=np.uint8), keywords=(name,))
             for name, level in (("fire", 10), ("lawn", 200))]  # fmt: skip
    blank = vision.Segmenter(CLASSES[:2], target=(4, 6)).fit(plain)
    assert blank.vocabulary.sizes[0] <= 2
    assert blank.segment(plain[0], seed=1).labels.shape == (11, 15)
    for module, call in (("cv2", lambda: vision.read_folder(folder)), ("sklearn.cluster", lambda: refit(CLASSES[:2]))):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(ImportError, match=r"pip install 'dobrushin\[vision\]'"):
                call()


def refit(classes):
    rng = np.random.default_rng(0)
    noise = [
        vision.Image(name, rng.integers(0, 255, (60, 80, 3)).astype(np.uint8), keywords=(name,)) for name in classes
    ]
    return vision.Segmenter(classes, words=(5, 5, 2), target=(2, 3)).fit(noise)


def test_executors_that_end(model, tests, tmp_path):
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    scan = DeadlyScan(os.getpid(), str(tmp_path / "calls"), after=2)
    with pool, pytest.raises(WorkerError, match=r"2 of .* images had finished") as caught:
        model.segment_many(tests, scan=scan, chains=20, seed=3, executor=pool)
    kept = caught.value.result
    assert sorted(kept) == [0, 1]
    rest = model.segment_many(tests, scan=scan, chains=20, seed=3, finished=kept)
    plain = model.segment_many(tests, scan=scan, chains=20, seed=3)
    assert rest[0] is kept[0]
    assert all((a.probabilities == b.probabilities).all() for a, b in zip(rest, plain, strict=True))
    with pytest.raises(ArgumentError, match="of the same images: 'n0'".replace("n0", tests[1].name)):
        model.segment_many(tests, finished={1: kept[0]})
    with pytest.raises(ArgumentError, match="'finished' argument"):
        model.segment_many(tests, finished={99: kept[0]})


@pytest.fixture
def folder(tmp_path):
    """Two images with label maps."""
    names = {"a": paint("a", seed=1), "b": paint("b", seed=2)}
    for place in ("images", "labels9"):
        (tmp_path / place).mkdir()
    for name, image in names.items():
        cv2.imwrite(str(tmp_path / "images" / f"{name}.png"), image.pixels[:, :, ::-1])
        stored = PIL.fromarray((image.labels + 1).astype(np.uint8))
        stored.save(tmp_path / "labels9" / f"{name}.png")
    rows = [[name, 160, 120, list(image.keywords), 1.0] for name, image in names.items()]
    (tmp_path / "index.json").write_text(json.dumps({"classes": ["void", *CLASSES], "images": rows}))
    return tmp_path


def edit(folder, **changes):
    path = folder / "index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_folders_are_read_as_they_were_written(folder):
    found = vision.read_folder(folder)
    assert repr(found) == "Images(2 images of fire, lawn, tiles)"
    for image, expected in zip(found, (paint("a", seed=1), paint("b", seed=2)), strict=True):
        assert np.array_equal(image.pixels, expected.pixels)
        assert np.array_equal(image.labels, expected.labels)
        assert image.keywords == expected.keywords
    assert [image.name for image in found[1:]] == ["b"]
    assert found[1:].classes == CLASSES
    assert [image.name for image in vision.read_folder(folder, most=1)] == ["a"]
    assert vision.read_folder(folder, labels=None)[0].labels is None


def test_palettes_count_and_not_their_colours(folder):
    expected = paint("a", seed=1).labels
    stored = PIL.fromarray((expected + 1).astype(np.uint8))
    stored.putpalette([0, 0, 0, 200, 0, 0, 0, 200, 0, 0, 0, 200])
    stored.save(folder / "labels9" / "a.png")
    with PIL.open(folder / "labels9" / "a.png") as written:
        assert written.mode == "P"
    assert np.array_equal(vision.read_folder(folder)[0].labels, expected)


def test_folders_that_cannot_be_read(folder, tmp_path):
    with pytest.raises(FormatError) as caught:
        vision.read_folder(tmp_path / "none")
    assert one_sentence(caught).endswith("found no such folder.")
    with pytest.raises(FormatError) as caught:
        vision.read_folder(folder, labels="labels21")
    assert "labels21: expected a folder of label maps (or pass labels=None), found no such" in one_sentence(caught)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "index.json").unlink(), "no such file"),
        (lambda folder: (folder / "index.json").write_text("{"), "expected JSON"),
        (lambda folder: (folder / "index.json").write_text("[]"), "a list under 'classes'"),
        (lambda folder: edit(folder, classes=None), "a list under 'classes'"),
        (lambda folder: edit(folder, images=7), "a list under 'images'"),
        (lambda folder: edit(folder, images=[]), "at least one image"),
        (lambda folder: edit(folder, classes=["void"]), "names of void and of at least one class"),
        (lambda folder: edit(folder, images=[["a", 160, 120]]), "found ['a', 160, 120]"),
        (lambda folder: edit(folder, images=[["a", 160, "120", ["fire"]]]), "rows of name, width, height"),
        (lambda folder: edit(folder, images=[["a", 160, 120, ["sea"]]]), "found 'sea' of 'a'"),
        (lambda folder: edit(folder, images=[["a", 150, 120, ["fire"]]]), "150 x 120 pixels, as in the index"),
        (lambda folder: edit(folder, classes=["void", "fire", "lawn"]), "keywords that are classes"),
        (lambda folder: edit(folder, classes=["void", "fire"], images=[["a", 160, 120, []]]), "label values from 0"),
        (lambda folder: (folder / "images" / "a.png").unlink(), "a.png: expected an image, found no such file"),
        (lambda folder: (folder / "images" / "a.png").write_bytes(b"PNG"), "cannot be decoded"),
        (lambda folder: (folder / "images" / "a.png").write_bytes(b""), "cannot be decoded"),
        (lambda folder: (folder / "labels9" / "b.png").unlink(), "b.png: expected a label map, found no such file"),
        (lambda folder: (folder / "labels9" / "b.png").write_bytes(b"PNG"), "cannot be decoded"),
        (lambda folder: (folder / "images" / "a.png").replace(folder / "labels9" / "a.png"), "a.png"),
    ],
)
def test_files_that_cannot_be_read(folder, spoil, words):
    spoil(folder)
    with pytest.raises(FormatError) as caught:
        vision.read_folder(folder)
    assert words in one_sentence(caught)


def test_the_archive_of_microsoft_is_converted(tmp_path):
    source, out = tmp_path / "archive", tmp_path / "out"
    for place in ("Images", "GroundTruth"):
        (source / place).mkdir(parents=True)
    truth = np.zeros((40, 60, 3), dtype=np.uint8)
    truth[:20] = (0, 128, 0)
    truth[20:30] = (0, 0, 128)
    truth[30, :20] = (128, 128, 0)  # a tree of less than one hundredth
    truth[31:35] = (128, 0, 128)  # a horse
    rng = np.random.default_rng(0)
    pixels = {name: rng.integers(0, 255, (40, 60, 3)).astype(np.uint8) for name in ("1_2_s", "1_10_s", "9_1_s")}
    for name, values in pixels.items():
        cv2.imwrite(str(source / "Images" / f"{name}.bmp"), values[:, :, ::-1])
        cv2.imwrite(str(source / "GroundTruth" / f"{name}_GT.bmp"), truth[:, :, ::-1])
    assert vision.convert_msrc(source, out) == 2
    found = vision.read_folder(out)
    assert [image.name for image in found] == ["1_2_s", "1_10_s"]
    assert np.array_equal(found[0].pixels, pixels["1_2_s"])
    assert found[0].keywords == ("grass", "cow")
    labels = found[0].labels
    assert (labels[0, 0], labels[25, 0], labels[30, 0], labels[32, 0], labels[39, 0]) == (1, 3, 2, -1, -1)
    (source / "GroundTruth" / "1_10_s_GT.bmp").unlink()
    with pytest.raises(FormatError) as caught:
        vision.convert_msrc(source, tmp_path / "other")
    assert "1_10_s_GT.bmp" in one_sentence(caught)
    assert not (tmp_path / "other" / "index.json").exists()
    with pytest.raises(FormatError) as caught:
        vision.convert_msrc(tmp_path, out)
    assert "images 1_1_s.bmp" in one_sentence(caught)


# -- the experiment ------------------------------------------------------------------------------------------------


def test_the_experiment_says_what_is_missing(tmp_path):
    for data in (None, tmp_path):
        with pytest.raises(MissingData) as caught:
            segmentation.compute(Store(quick=True, data=data))
        assert "give --data FOLDER" in one_sentence(caught)
    assert str(tmp_path) in str(caught.value)


def write_many(folder, count=30):
    """Enough small images for two splits."""
    rows = []
    for place in ("images", "labels9"):
        (folder / place).mkdir(parents=True)
    for k in range(count):
        image = paint(str(k), 160, 200, seed=k) if k % 5 else paint(str(k), 200, 160, seed=k)
        height, width = image.labels.shape
        cv2.imwrite(str(folder / "images" / f"{k}.png"), image.pixels[:, :, ::-1])
        PIL.fromarray((image.labels + 1).astype(np.uint8)).save(folder / "labels9" / f"{k}.png")
        rows.append([str(k), width, height, list(image.keywords)])
    (folder / "index.json").write_text(json.dumps({"classes": ["void", *CLASSES], "images": rows}))


@pytest.mark.slow
def test_splits_of_the_experiment(tmp_path):
    write_many(tmp_path / "msrc")
    assert segmentation.find_images(Store(data=tmp_path)) == tmp_path / "msrc"
    pictures = segmentation.Pictures(tmp_path / "msrc", None, (30, 20, 5))
    seed = Store(quick=True).seed_of(0, 0)
    first = segmentation.measure_split(pictures, seed)
    again = segmentation.measure_split(pictures, seed)
    other = segmentation.measure_split(pictures, Store(quick=True).seed_of(0, 1))
    assert len(first["test"]) == 3
    assert np.array_equal(first["inside"], again["inside"])
    assert not np.array_equal(first["test"], other["test"])
    assert np.asarray(first["inside"]).shape == (5, 3)
    assert np.nanmax(first["inside"]) < 0.4
    sent = pickle.loads(pickle.dumps(pictures))
    assert segmentation.describe_all(sent) is segmentation.describe_all(pictures)  # a worker reads the images once
    assert np.array_equal(segmentation.measure_split(sent, seed)["inside"], first["inside"])
    found = segmentation.measure_certificates(pictures, seed, 1, 100)
    assert found["exact"][0][-1] <= found["best"][0][-1] <= found["paper"][0][-1]
    assert found["estimate, labels"][0] > 60
    example = segmentation.make_example(pictures, seed)
    assert example["truth"].shape == example["DoGS"].shape
    arrays = Store(quick=True).part
    data = {
        "runs": [[arrays("first", lambda: first), arrays("other", lambda: other)]],
        "selection": arrays("selection", segmentation.measure_selection),
        "certificates": arrays("certificates", lambda: found),
        "example": arrays("example", lambda: example),
    }
    rows = {row.what: row for row in segmentation.findings(data)}
    steady = ("steps of the DoGS scan", "guarantee of these scans, by Theorem 4", "other shapes")
    assert all(rows[what].holds for what in steady)
    assert sorted(segmentation.draw(data)) == [
        f"segmentation-{name}" for name in ("certificates", "errors", "labels", "photograph")
    ]
    # Findings can fail.
    data["selection"]["steps"][0, 1] = 128
    data["selection"]["bounds"][0, 0] = 80
    for split in data["runs"][0]:
        split["inside"][2] = 0.9
    failed = {row.what for row in segmentation.findings(data) if row.verdict == "FAILS"}
    assert failed >= {
        *steady[:2],
        "Hamming error, DoGS against systematic",
        "Hamming error in the rectangle, all methods",
    }


@pytest.mark.skipif(not DATA, reason="DOBRUSHIN_DATA, the folder of real files, is not set")
def test_real_images():
    folder = segmentation.find_images(Store(data=Path(DATA)))
    some = vision.read_folder(folder, most=24)
    assert len(some) == 24
    assert len(some.classes) == 9
    for image in some:
        present = {some.classes[k] for k in np.unique(image.labels[image.labels >= 0])}
        assert set(image.keywords) <= present
