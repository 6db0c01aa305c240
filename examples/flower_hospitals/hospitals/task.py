"""What the server and all hospitals share: the model, and how labels and groups are numbered."""

from torch import nn

FEATURES = 11
LABELS = ("refused", "granted")
GROUPS = ("unprivileged", "privileged")


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, len(LABELS)))
