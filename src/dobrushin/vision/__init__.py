"""Targeted image segmentation, as in Section 5.5 of the paper. Needs the extra `vision`.

Patches of an image get words for texture, colour and place; classes are learnt from images of which only keywords are
known; a Potts field ties neighbouring patches together; and a short Gibbs scan labels the rectangle that matters.
"""

from dobrushin.vision.images import Image, Images, convert_msrc, hamming_error, read_folder
from dobrushin.vision.patches import Described, PatchGrid, Vocabulary, describe
from dobrushin.vision.plsa import Aspects, fit_aspects
from dobrushin.vision.segmentation import Region, Segmentation, field
from dobrushin.vision.segmenter import Segmenter

__all__ = [
    "Aspects",
    "Described",
    "Image",
    "Images",
    "PatchGrid",
    "Region",
    "Segmentation",
    "Segmenter",
    "Vocabulary",
    "convert_msrc",
    "describe",
    "field",
    "fit_aspects",
    "hamming_error",
    "read_folder",
]
