"""Functions and data sets that read, decode and transform samples, by full name."""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


READS = _words(
    "builtins.open PIL.Image.open cv2.imread cv2.VideoCapture numpy.load numpy.fromfile numpy.loadtxt numpy.genfromtxt "
    "torch.load safetensors.torch.load_file torchaudio.load soundfile.read librosa.load wave.open scipy.io.loadmat "
    "scipy.io.wavfile.read pandas.read_csv pandas.read_parquet pandas.read_pickle pandas.read_json json.load "
    "pickle.load joblib.load gzip.open zipfile.ZipFile tarfile.open h5py.File rasterio.open nibabel.load "
    "imageio.imread imageio.v2.imread imageio.v3.imread skimage.io.imread tifffile.imread pydicom.dcmread "
    "pydicom.read_file SimpleITK.ReadImage torchvision.io.read_image torchvision.io.decode_image "
    "torchvision.io.read_video torchvision.datasets.folder.default_loader torchvision.datasets.folder.pil_loader "
    "decord.VideoReader"
)
"""Functions that open or read a file."""
DECODES = _words(
    "cv2.imdecode simplejpeg.decode_jpeg torchvision.io.decode_jpeg torchvision.io.decode_png "
    "zlib.decompress gzip.decompress lz4.frame.decompress"
)
TRANSFORMING_MODULES = (
    "torchvision.transforms.", "torchaudio.transforms.", "torchaudio.functional.", "albumentations.", "cv2.",
    "librosa.", "scipy.ndimage.", "scipy.signal.", "skimage.transform.", "PIL.ImageOps.",
)  # fmt: skip
TRANSFORM_NAME = re.compile(
    r"^_?(\w+_)?(transforms?|transform_fn|augment(s|er|ation|ations)?|preprocess(or)?|tokeni[sz]er?|(image_)?processor"
    r"|feature_extractor)$"
)
"""Attributes that transform a sample, by name; applied to data sets only."""
FROM_FILES = _words(
    "ImageFolder DatasetFolder ImageNet CocoDetection CocoCaptions VOCDetection VOCSegmentation CelebA Cityscapes "
    "Flickr8k Flickr30k Flowers102 Food101 OxfordIIITPet StanfordCars Caltech101 Caltech256 DTD EuroSAT FGVCAircraft "
    "GTSRB INaturalist Imagenette Kinetics HMDB51 UCF101 LSUN LFWPeople LFWPairs Omniglot Places365 SBDataset "
    "SBU SUN397 WIDERFace Country211 CLEVRClassification PCAM RenderedSST2"
)
"""torchvision's data sets that read a file for each sample."""
FROM_MEMORY = _words("MNIST FashionMNIST KMNIST EMNIST QMNIST USPS CIFAR10 CIFAR100 SVHN STL10 SEMEION")
"""torchvision's in-memory data sets, which make each sample a picture for their transform."""
CACHES = _words("functools.lru_cache functools.cache functools.cached_property")
