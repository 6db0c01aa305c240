"""Models by their notation: `lenet(widths=[2, 2, 4])+crop-flip(padding=2)`."""

import dataclasses
from collections import ChainMap

from evenly.data.federation import Federation
from evenly.models import MODELS, NETWORKS, Augmented, crop_and_flip
from evenly.notation import Part, parse, parse_one, unknown
from evenly.records import replace
from evenly.types import Task
from evenly.validation import check_kinds, kinds_of

ALL_MODELS = ChainMap(NETWORKS, MODELS)  # a view, not a copy
CROP_FLIP = "crop-flip"  # what can be added to a model: `resnet18+crop-flip(padding=4)`


def parse_model(text: str) -> tuple[Part, Part | None]:
    """The model that a notation names, and its random crops and flips in training, if any."""
    parts = parse(text)
    augmented = len(parts) == 2 and parts[1].name == CROP_FLIP
    model, augmentation = parts if augmented else (parse_one(text, "model"), None)
    if model.name not in ALL_MODELS:
        raise unknown("model", model.name, ALL_MODELS)
    return model, augmentation


def choose_model(name: str, federation: Federation) -> Task:
    """The model that a notation names, by default logistic regression for two classes and softmax
    regression for more.
    """
    usual = "logistic" if len(federation.labels) == 2 else "softmax"
    part, augmentation = parse_model(name or usual)
    task = ALL_MODELS[part.name](federation)
    known = [field.name for field in dataclasses.fields(task)]  # pyright: ignore[reportArgumentType]
    for setting in part.settings:
        if setting not in known:
            raise ValueError(f"{part.name}: {unknown('setting', setting, known)}")
    try:
        check_kinds(part.settings, kinds_of(type(task)))
    except ValueError as error:
        raise ValueError(f"{part.name}: {error}") from None
    task = replace(
        task, **{k: tuple(v) if isinstance(v, list) else v for k, v in part.settings.items()}
    )
    return _augmented(task, augmentation, federation) if augmentation else task


def _augmented(task: Task, part: Part, federation: Federation) -> Task:
    """The task with pictures that are cropped and mirrored at random in training."""
    if federation.x.ndim not in (3, 4):
        raise ValueError(
            f"{part.name} requires images [n, height, width] or [n, height, width, channels], got"
            f" rows of shape {list(federation.x.shape[1:])}. Leave +{part} out."
        )
    for setting in part.settings:
        if setting != "padding":
            raise ValueError(f"{part.name}: {unknown('setting', setting, ['padding'])}")
    try:
        check_kinds(part.settings, {"padding": int})
        return Augmented(task=task, augment=crop_and_flip(**part.settings))
    except ValueError as error:
        raise ValueError(f"{part.name}: {error}") from None
