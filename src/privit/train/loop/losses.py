"""The loss of the three stages: cross-entropy, and KL to the teacher."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL of the teacher's softened classes to the student's, mean over the batch.

    Times T^2, which keeps its gradient as large as the cross-entropy's whatever T is (Hinton et al. 2015,
    section 2); the paper does not say whether it does.
    """
    ours = functional.log_softmax(student / temperature, dim=-1)
    theirs = functional.log_softmax(teacher / temperature, dim=-1)
    loss = functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)
    return loss * temperature**2


def classification(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, mean over the batch; `labels` are classes, or shares of classes after mixup."""
    return functional.cross_entropy(logits, labels)


def correct(logits: Tensor, labels: Tensor) -> Tensor:
    """How many of the batch are classified rightly."""
    return (logits.argmax(dim=-1) == labels).sum()
