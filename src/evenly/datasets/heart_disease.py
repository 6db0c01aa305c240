"""Heart disease in four hospitals (UCI): every hospital is a client, men and women are the groups.

The four hospitals recorded the same 13 measurements of patients who were sent for a coronary
angiography: Cleveland (303 patients), Budapest (294), Zurich and Basel in one file (123), and Long
Beach (200). The label is whether a major vessel was narrowed by more than half (`num` above 0).

FLamby (Ogier du Terrail et al., NeurIPS 2022) made this a federation. Three measurements (slope, ca
and thal) are missing for most patients outside Cleveland and are left out; patients with another
missing value are left out as well, which leaves 740 of 920. `missing="fill"` keeps all patients.
"""

from pathlib import Path

import numpy as np

from evenly.data import Rows, natural
from evenly.data.federation import Federation
from evenly.data.sensitive import Sensitive, cross
from evenly.datasets.files import (
    Content,
    DataError,
    DataFile,
    DatasetCard,
    checked_files,
    read_once,
)
from evenly.datasets.partitioning import standardise
from evenly.notation import unknown
from evenly.records import replace

COLUMNS = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
    "slope", "ca", "thal", "num",
)  # fmt: skip
NUMBERS = ("age", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak")
CATEGORIES = {"cp": (1, 2, 3, 4), "restecg": (0, 1, 2)}
MEASURED = ("age", "sex", *CATEGORIES, *NUMBERS[1:])  # all but slope, ca, thal and the label
# A resting blood pressure or a cholesterol of 0 was not measured.
ZERO_IS_MISSING = ("trestbps", "chol")
MISSING = ("drop", "fill")
LABELS = ("no disease", "disease")

URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/"
# Client, the word in the file's name, sha256 of the file, and its size.
HOSPITALS = (
    (
        "Cleveland",
        "cleveland",
        "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
        18461,
    ),
    (
        "Budapest",
        "hungarian",
        "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
        10263,
    ),
    (
        "Zurich and Basel",
        "switzerland",
        "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
        4109,
    ),
    (
        "Long Beach",
        "va",
        "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
        6737,
    ),
)
LAYOUT = tuple(
    DataFile(
        path=f"heart_disease/processed.{word}.data",
        what=f"heart disease, patients of {name}",
        contents=(Content(f"sha256:{digest}", size),),
        urls=(f"{URL}processed.{word}.data",),
        dataset="heart-disease",
    )
    for name, word, digest, size in HOSPITALS
)


def heart_disease(
    missing: str = "drop",
    *,
    drop_sensitive: bool = False,
    train: float = 0.6,
    valid: float = 0.1,
    split_seed: int = 0,
) -> Federation:
    """Return four hospitals with 60/10/30 training, validation and test rows.

    `missing` is "drop", as in FLamby, or "fill": numbers become the mean of the training rows and
    get a 0/1 feature that marks them, and an unknown category is all zeros. `drop_sensitive`
    removes sex from the features. Women are the unprivileged group, and a diagnosis is the
    favourable label.
    """
    if missing not in MISSING:
        raise unknown("treatment of missing values", missing, MISSING)
    _, paths = checked_files((LAYOUT,))
    tables = [_kept(read_hospital(path), missing) for path in paths]
    table: dict[str, np.ndarray] = dict(zip(COLUMNS, np.concatenate(tables, axis=1), strict=True))
    sex = Sensitive("sex", ("Female", "Male"), table["sex"].astype(np.int32))
    blank = np.zeros((len(sex.codes), 1), np.float32)
    rows = Rows(blank, (table["num"] > 0).astype(np.int32), LABELS, "heart-disease")
    federation = natural(
        rows.grouped(cross([sex], "sex")),
        np.repeat(np.arange(len(tables)), [each.shape[1] for each in tables]),
        names=[name for name, *_ in HOSPITALS],
        shares=(train, valid),
        split_seed=split_seed,
    )
    x = features(table, federation.train.rows, drop_sensitive=drop_sensitive)
    return replace(federation, x=x)


@read_once
def read_hospital(path: Path) -> np.ndarray:
    """Return the columns of a hospital's file, float32 [columns, patients]. A question mark is a
    missing value, NaN.
    """
    lines = path.read_text(encoding="ascii").splitlines()
    patients = [line.split(",") for line in lines if line.strip()]
    for number, cells in enumerate(patients, 1):
        if len(cells) != len(COLUMNS):
            raise DataError(
                f"{path}: row {number} must have {len(COLUMNS)} values, got {len(cells)}. Get the"
                " file from UCI again."
            )
    try:
        table = np.array(
            [[np.nan if cell == "?" else float(cell) for cell in cells] for cells in patients],
            np.float32,
        ).reshape(-1, len(COLUMNS))
    except ValueError as error:
        raise DataError(
            f"{path}: every value must be a number or '?' ({error}). Get the file from UCI again."
        ) from None
    sex, label = table[:, COLUMNS.index("sex")], table[:, COLUMNS.index("num")]
    if not (np.isin(sex, (0, 1)).all() and np.isin(label, range(5)).all()):
        raise DataError(
            f"{path}: sex must be 0 or 1 and num 0 to 4 in every row. Get the file from UCI again."
        )
    return table.T


def _kept(table: np.ndarray, missing: str) -> np.ndarray:
    """Return the patients whose measurements are complete; or all patients, in which case values
    that were not measured are NaN.
    """
    if missing == "fill":
        never_zero = np.array([[name in ZERO_IS_MISSING] for name in COLUMNS])
        return np.where(never_zero & (table == 0), np.float32(np.nan), table)
    measured = table[[COLUMNS.index(name) for name in MEASURED]]
    return table[:, ~np.isnan(measured).any(0)]


def features(
    table: dict[str, np.ndarray], training: np.ndarray, *, drop_sensitive: bool
) -> np.ndarray:
    """Return the features, float32 [patients, 15]: seven numbers, standardised with the training
    rows, sex, four kinds of chest pain and three of electrocardiograms; then a 0/1 feature for each
    number that some training rows lack.
    """
    numbers = np.stack([table[name] for name in NUMBERS], axis=1).astype(np.float64)
    absent = np.isnan(numbers)
    means = np.nanmean(numbers[training], axis=0)
    columns: list[np.ndarray] = [
        standardise(np.where(absent, means, numbers), training),
        *([] if drop_sensitive else [(table["sex"] == 0)[:, None]]),
        *(table[name][:, None] == np.array(values) for name, values in CATEGORIES.items()),
        absent[:, absent[training].any(0)],
    ]
    return np.concatenate(columns, axis=1, dtype=np.float32, casting="unsafe")


CARD = DatasetCard(
    name="heart-disease",
    title="Heart disease in four hospitals; every hospital is a client, sex is the group",
    load=heart_disease,
    layouts=(LAYOUT,),
    licence="CC BY 4.0 (as UCI gives it; not checked here)",
    provenance=(
        "Janosi (Budapest), Steinbrunn (Zurich), Pfisterer (Basel) and Detrano (Long Beach and"
        " Cleveland), 1988, through the UCI repository."
    ),
    citation=(
        "Detrano, Janosi, Steinbrunn and others: International application of a new probability"
        " algorithm for the diagnosis of coronary artery disease. American Journal of Cardiology"
        " 64, 1989."
    ),
    notes=(
        (
            "The hospitals are small: Zurich and Basel have 46 complete patients, of whom 14 are"
            " tested. One patient more or less is seven points of accuracy."
        ),
        (
            "Women are rare: 10 of 123 patients in Zurich and Basel and 6 of 200 in Long Beach. Do"
            " not compare women and men within these two."
        ),
        (
            "Cholesterol is 0 for all patients of Zurich and Basel and many of Long Beach: it was"
            ' not measured. FLamby uses 0 as a number, and so does missing="drop";'
            ' missing="fill" treats it as missing.'
        ),
        (
            "Patients were sent for an angiography, so the rates of disease (36 to 94 % by"
            " hospital) are not those of a population."
        ),
        (
            "FLamby splits 66/34 and scales nothing; here rows are split anew by seed, and numbers"
            " are standardised with the training rows of all hospitals together."
        ),
        (
            "The file of Zurich and Basel was read and its checksum verified. The other three"
            " checksums are those that public projects state; their files were not at hand."
        ),
    ),
)
