from .checks import check_finite
from .meters import AverageMeter, accuracy

__all__ = ["AverageMeter", "accuracy", "check_finite"]
