"""Probabilistic latent semantic analysis with several words a patch and image-level keywords.

P(words of a patch of image k) = sum_a theta[k, a] prod_m beta_m[a, word_m]: each image mixes the classes in proportions
theta, and each class has its own frequencies beta of textures, colours and places. Weak supervision: theta[k, a] = 0
for classes that are not among the keywords of a training image (Verbeek and Triggs, 2007).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import dobrushin as db
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import public

ITERATIONS = 100
# Added to the count of each word in each class, so that a word that training never showed there is not impossible.
SMOOTHING = 0.1
_LEAST_PROBABILITY = 1e-300
# EM ends when an iteration adds less than this, for each patch.
_ENOUGH = 1e-5
# Fold-in ends when no proportion moves by more.
_STILL = 1e-5


@dataclass(frozen=True, eq=False, repr=False)
class Aspects:
    """A fitted model of probabilistic latent semantic analysis.

    Attributes
    ----------
    log_beta : tuple of arrays
        For each kind of word the logarithms of its frequencies, shape (words, classes).
    theta : array
        Proportions of the classes in each training image, shape (images, classes).
    history : array
        Log-likelihood plus the logarithm of the prior of the frequencies, before each iteration and after the last: it
        never falls.

    Examples
    --------
    >>> import numpy as np
    >>> from dobrushin import vision
    >>> words = [np.array([[0], [0], [1]]), np.array([[1], [1], [1]])]
    >>> found = vision.fit_aspects(words, np.array([[True, False], [False, True]]), [2])
    >>> found
    Aspects(2 classes, 2 training images, 1 iterations)
    >>> found.proportions(np.array([[1], [1]])).round(2)  # a new image
    array([0., 1.])
    """

    log_beta: tuple[NDArray[np.float64], ...]
    theta: NDArray[np.float64]
    history: NDArray[np.float64]

    def __repr__(self) -> str:
        images, classes = self.theta.shape
        return f"Aspects({classes} classes, {images} training images, {len(self.history) - 1} iterations)"

    def log_likelihoods(self, words: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the logarithm of the probability of each patch's words in each class, shape (patches, classes)."""
        return sum((table[words[:, m]] for m, table in enumerate(self.log_beta)), np.zeros((1, 1)))

    def proportions(self, words: NDArray[np.int32], iterations: int = ITERATIONS) -> NDArray[np.float64]:
        """Estimate an image's proportions of the classes without keywords: EM for theta alone ("fold-in")."""
        log_likelihoods = self.log_likelihoods(words)
        likelihoods = np.exp(log_likelihoods - log_likelihoods.max(axis=1, keepdims=True))
        theta = np.full(likelihoods.shape[1], 1 / likelihoods.shape[1])
        for _ in range(iterations):
            shares = likelihoods * theta
            new = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
            moved = np.abs(new - theta).max()
            theta = new
            if moved < _STILL:
                break
        return theta

    def unaries(self, words: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return log theta[k, a] + sum_m log beta_m[a, word_m] for a new image, shape (patches, classes)."""
        return np.log(np.maximum(self.proportions(words), _LEAST_PROBABILITY)) + self.log_likelihoods(words)


@public(name="vision.fit_aspects")
def fit_aspects(
    words: Sequence[NDArray[np.int32]],
    allowed: NDArray[np.bool_],
    sizes: Sequence[int],
    iterations: int = ITERATIONS,
    smoothing: float = SMOOTHING,
) -> Aspects:
    """Fit the model by EM; at the start, patches are shared equally among the keywords of their image.

    Parameters
    ----------
    words : list of arrays of shape (patches, kinds)
        One for each image.
    allowed : array of bool, shape (images, classes)
        Which classes are among the keywords.
    sizes : sequence of int
        Number of words of each kind.
    iterations : int
        At most.
    smoothing : float
        Added to the count of each word in each class.

    Returns
    -------
    Aspects

    Examples
    --------
    >>> import numpy as np
    >>> from dobrushin.vision.plsa import fit_aspects
    >>> words = [np.array([[0], [0], [1]]), np.array([[1], [1], [1]]), np.array([[0], [0], [0]])]
    >>> found = fit_aspects(words, np.array([[True, True], [False, True], [True, False]]), [2])
    >>> found.theta.round(2)
    array([[0.68, 0.32],
           [0.  , 1.  ],
           [1.  , 0.  ]])
    """
    allowed = np.asarray(allowed, dtype=bool)
    if (bad := ~allowed.any(axis=1)).any():
        raise db.ArgumentError("allowed", "true somewhere in each row", False, f"row {bad.argmax()}")
    lengths = [len(rows) for rows in words]
    everything = np.concatenate(list(words)).astype(np.int64)
    images, classes = allowed.shape
    # A row for each patch and class that its image may have: most images have few.
    kept = np.repeat(allowed, lengths, axis=0)
    patch, label = np.nonzero(kept)
    begin = np.concatenate([[0], np.cumsum(kept.sum(axis=1))[:-1]])
    in_theta = np.repeat(np.arange(images), lengths)[patch] * classes + label
    in_beta = [column[patch] * classes + label for column in everything.T]
    share = 1.0 / kept.sum(axis=1)[patch]
    history: list[float] = []
    while True:
        # M-step
        sums = np.bincount(in_theta, share, images * classes).reshape(images, classes)
        theta = sums / sums.sum(axis=1, keepdims=True)
        beta = [
            np.bincount(cells, share, size * classes).reshape(size, classes) + smoothing
            for cells, size in zip(in_beta, sizes, strict=True)
        ]
        log_beta = tuple(np.log(table / table.sum(axis=0)) for table in beta)
        # E-step, with the largest exponent of each patch taken out
        joint = np.log(np.maximum(theta, _LEAST_PROBABILITY)).ravel()[in_theta]
        for table, cells in zip(log_beta, in_beta, strict=True):
            joint += table.ravel()[cells]
        top = np.maximum.reduceat(joint, begin)
        share = np.exp(joint - top[patch])
        total = np.add.reduceat(share, begin)
        share /= total[patch]
        prior = smoothing * sum(float(table.sum()) for table in log_beta)
        history.append(float((np.log(total) + top).sum()) + prior)
        gain = np.inf if len(history) < 2 else history[-1] - history[-2]
        if len(history) > iterations or gain < _ENOUGH * len(everything):
            break
    return Aspects(tuple(frozen(table) for table in log_beta), frozen(theta), frozen(np.array(history)))
