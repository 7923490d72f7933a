"""Segmentation from images to labels: learn classes from images with keywords, and label a rectangle of others."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np

import dobrushin as db
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import entered, public
from dobrushin._shared.executors import (
    Within,
    cores,
    read_executor,
    receive,
    run_pieces,
    share,
)
from dobrushin._shared.running import seed_sequence
from dobrushin.typing import Seed
from dobrushin.vision.images import Image
from dobrushin.vision.patches import PATCH, STEP, TARGET, Described, Vocabulary, describe, one_thread
from dobrushin.vision.plsa import Aspects, fit_aspects
from dobrushin.vision.segmentation import (
    CHAINS,
    COUPLING,
    Posed,
    Region,
    ScanChoice,
    Segmentation,
    draw_labels,
    field,
)


class Segmenter:
    """Learns classes from images with keywords, and labels the central rectangle of other images.

    Parameters
    ----------
    classes : sequence of str
        Names; labels are positions in it.
    patch, step : int
        Side of the patches and the distance from one to the next, in pixels.
    words : (int, int, int)
        Number of texture words and of colour words, and cells a side of the grid of places.
    coupling : float
        Strength of the Potts field on the patches.
    target : (int, int)
        Rows and columns of the rectangle of patches, on an image that is wider than high; on others it is turned.
    seed : int
        For the vocabularies.

    Notes
    -----
    The Markov field aspect model of Verbeek and Triggs (2007) with the sampler of the paper's Section 5.5. Keywords are
    used for training only: those of the images to be segmented are unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from dobrushin import vision
    >>> rng = np.random.default_rng(1)
    >>> def halves(name, left, right):
    ...     colors = {"sky": (90, 140, 230), "grass": (60, 150, 40)}
    ...     pixels = np.empty((120, 160, 3))
    ...     pixels[:, :80], pixels[:, 80:] = colors[left], colors[right]
    ...     noisy = np.clip(pixels + rng.normal(0, 20, pixels.shape), 0, 255).astype(np.uint8)
    ...     return vision.Image(name, noisy, keywords=tuple({left: 0, right: 0}))
    >>> training = [halves("a", "sky", "sky"), halves("b", "grass", "grass"), halves("c", "grass", "sky")]
    >>> model = vision.Segmenter(["sky", "grass"], words=(20, 10, 4), target=(4, 6)).fit(training)
    >>> model.segment(halves("d", "sky", "grass"), seed=1)
    Segmentation('d', 4 x 6 patches: sky 50%, grass 50%; 31 steps x 200 chains, guarantee 21.3 of 24)
    >>> [one.name for one in model.segment_many(training, scan="systematic", seed=1)]
    ['a', 'b', 'c']
    """

    @public(name="vision.Segmenter")
    def __init__(
        self,
        classes: Sequence[str],
        *,
        patch: int = PATCH,
        step: int = STEP,
        words: tuple[int, int, int] = (1000, 100, 10),
        coupling: float = COUPLING,
        target: tuple[int, int] = TARGET,
        seed: int = 0,
    ) -> None:
        self.classes = tuple(classes) if check.is_several(classes) else ()
        if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes):
            raise db.ArgumentError("classes", "two or more different names", classes)
        self.patch, self.step = check.count(patch, "patch"), check.count(step, "step")
        if len(words) != 3:
            raise db.ArgumentError("words", "three numbers", words)
        self.words = tuple(check.count(number, "words") for number in words)
        self.coupling = float(check.finite(check.real_array(coupling, "coupling"), "coupling"))
        if len(target) != 2:
            raise db.ArgumentError("target", "rows and columns", target)
        self.target = (check.count(target[0], "target"), check.count(target[1], "target"))
        self.seed = check.count(seed, "seed", 0)
        self.vocabulary: Vocabulary | None = None
        self.aspects: Aspects | None = None

    @public(name="vision.Segmenter.describe")
    def describe(self, image: Image | Described) -> Described:
        """Measure the patches of an image.

        All methods take the result in place of the image, which saves measuring it again.
        """
        if isinstance(image, Described):
            if (image.grid.patch, image.grid.step) != (self.patch, self.step):
                requirement = f"described with patches of {self.patch} pixels every {self.step}"
                got = f"{image.grid.patch} every {image.grid.step}"
                raise db.ArgumentError("image", requirement, got=got)
            return image
        check.instance(image, Image, "image", "an Image, or the result of Segmenter.describe")
        return describe(image, self.patch, self.step)

    @public(name="vision.Segmenter.fit")
    def fit(self, images: Iterable[Image | Described]) -> Segmenter:
        """Learn the words of patches, and from them the classes, by probabilistic latent semantic analysis (PLSA).

        Parameters
        ----------
        images : Image or Described objects
            With keywords. Label maps are not looked at.

        Returns
        -------
        Segmenter
            This one.
        """
        known = [self.describe(image) for image in images]
        if not known:
            raise db.ArgumentError("images", "at least one image", known)
        allowed = np.zeros((len(known), len(self.classes)), dtype=bool)
        for k, image in enumerate(known):
            if not image.keywords:
                raise db.ArgumentError("images", "with keywords", got=f"{image.name!r} without any", where=f"index {k}")
            for word in image.keywords:
                if word not in self.classes:
                    requirement = f"with keywords among {', '.join(self.classes)}"
                    raise db.ArgumentError("images", requirement, word, f"index {k}")
                allowed[k, self.classes.index(word)] = True
        if not allowed.any(axis=0).all():
            missing = self.classes[int(np.argmin(allowed.any(axis=0)))]
            raise db.ArgumentError(
                "images", "images that have each class as a keyword at least once", got=f"none with {missing!r}"
            )
        with one_thread():
            vocabulary = Vocabulary(self.words[0], self.words[1], self.words[2], self.seed).fit(known)
            words = [vocabulary.encode(image) for image in known]
        self.vocabulary = vocabulary
        self.aspects = fit_aspects(words, allowed, self.vocabulary.sizes)
        return self

    @public(name="vision.Segmenter.segment")
    def segment(
        self,
        image: Image | Described,
        *,
        scan: ScanChoice = "shortest",
        tolerance: float = 0.05,
        chains: int = CHAINS,
        seed: Seed = None,
        executor: Executor | None = None,
    ) -> Segmentation:
        """Label an image; its keywords are not used.

        Parameters
        ----------
        image : Image or Described
        scan : {"shortest", "systematic", "certified"}, Scan, ScanResult, or function
            "systematic": one sweep. "shortest": the shortest scan for the rectangle with the guarantee of one sweep;
            the same for all images of a shape, and remembered. "certified": the shortest scan, for this image, after
            which each label of the rectangle is within `tolerance` of its posterior, in total variation. A function
            is given the `Region` and returns a scan.
        tolerance : float
            For scan="certified".
        chains : int
            Draws, from which the majority is taken.
        seed : int, SeedSequence, Generator or None
        executor : concurrent.futures.Executor, optional
            Runs the chains.

        Returns
        -------
        Segmentation
        """
        clock = [time.perf_counter()]
        if self.vocabulary is None or self.aspects is None:
            raise db.ArgumentError("self", "fitted: call fit first", got="a segmenter that is not")
        known = self.describe(image)
        region = Region.center(known.grid, len(self.classes), self.coupling, self.target)
        words = self.vocabulary.encode(known)
        clock.append(time.perf_counter())
        unaries = self.aspects.unaries(words).reshape(*known.grid.shape, len(self.classes))
        posterior = field(unaries, self.coupling)
        clock.append(time.perf_counter())
        spent = dict(zip(("words", "proportions"), np.diff(clock).tolist(), strict=True))
        first = frozen(unaries.argmax(axis=2))
        posed = Posed(known.name, self.classes, known.grid, region, first, posterior, spent)
        return draw_labels(posed, scan=scan, tolerance=tolerance, chains=chains, seed=seed, executor=executor)

    @public(name="vision.Segmenter.segment_many")
    def segment_many(
        self,
        images: Sequence[Image | Described],
        *,
        scan: ScanChoice = "shortest",
        tolerance: float = 0.05,
        chains: int = CHAINS,
        seed: Seed = None,
        executor: Executor | None = None,
        finished: Mapping[int, Segmentation] | None = None,
    ) -> list[Segmentation]:
        """Label many images, one after the other or over an executor.

        Each image has a seed of its own, the child of `seed` with its number: the labels are the same however the
        images are split up.

        Parameters
        ----------
        images : sequence of Image or Described
        scan, tolerance, chains
            As for `segment`.
        seed : int, SeedSequence, Generator or None
        executor : concurrent.futures.Executor, optional
            Threads, processes, Dask; default none.
        finished : dict from int to Segmentation, optional
            Images that need not be labelled again, by number: the ``result`` of the `WorkerError` or `Interrupted`
            that ended the same call, with the same seed.

        Returns
        -------
        list of Segmentation
            In the order of the images.

        Raises
        ------
        WorkerError, Interrupted
            When the executor ends early, or on Ctrl-C; ``error.result`` has the images that were labelled.
        """
        executor = read_executor(executor)
        sequence = seed_sequence(seed)
        options = {"scan": scan, "tolerance": tolerance, "chains": chains}
        labelled = dict(finished or {})
        for number, known in labelled.items():
            if not isinstance(known, Segmentation) or number not in range(len(images)):
                requirement = "a dict from numbers of images to segmentations"
                raise db.ArgumentError("finished", requirement, {number: known})
            if known.name != images[number].name:
                raise db.ArgumentError("finished", f"of the same images: {images[number].name!r}", known.name)
        # Children by their number, without counting up to it.
        left = {
            number: np.random.SeedSequence(sequence.entropy, spawn_key=(*sequence.spawn_key, number))
            for number in range(len(images))
            if number not in labelled
        }
        whole = Within(cores())
        if executor is None:
            for number, own in left.items():
                labelled[number] = _segment_one((self, options), images[number], own, whole)
            return [labelled[number] for number in range(len(images))]
        with share((self, options), executor) as shared:

            def submit(pool: Executor, number: int) -> Future[Any]:
                return pool.submit(_segment_one, shared, images[number], left[number], whole)

            trouble = run_pieces(executor, submit, left, labelled, look=lambda: None, stop=lambda: None)
        hint = "Repeat the call with finished=error.result to resume."
        if isinstance(trouble, KeyboardInterrupt):
            raise db.Interrupted(f"{len(labelled)} of {len(images)} images had finished", hint, result=labelled)
        if trouble is not None:
            raise db.WorkerError(str(trouble), len(labelled), len(images), "images", hint, result=labelled)
        return [labelled[number] for number in range(len(images))]

    def __repr__(self) -> str:
        state = "not fitted" if self.aspects is None else f"{len(self.aspects.theta)} training images"
        return f"Segmenter({len(self.classes)} classes, {state})"


def _segment_one(shared: Any, image: Any, seed: np.random.SeedSequence, whole: Within) -> Segmentation:
    """Label an image in a worker, with a single thread, because images are distributed and not chains."""
    model, options = receive(shared)
    with entered(within=whole):
        found: Segmentation = model.segment(image, seed=seed, **options)
        return found
