"""ACS Income: predict whether a person in the US earns above a threshold; every state is
a client.
"""

import bz2
import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evenly.data import Rows, natural
from evenly.data.federation import Federation
from evenly.data.sensitive import Groups, Sensitive, cross
from evenly.datasets.files import (
    Content,
    DataError,
    DataFile,
    DatasetCard,
    Layout,
    MissingData,
    Sizes,
    checked_files,
    missing_sentence,
    path_of,
    read_once,
)
from evenly.datasets.partitioning import standardise
from evenly.notation import unknown
from evenly.randomness import Draws
from evenly.records import replace, require

# The files of ACSIncome: one table per US state, from a public repository or, for those who have
# it, from the Census Bureau.
#
# FeDa4Fair (Heilmann et al. 2025) publishes the rows that folktables makes of the 2018 census
# sample, one CSV file a state. Only the states that it left as they were are taken here; it
# thin_targets 12 others on purpose, and CA, FL, NY and TX are too large for the place where these
# were found.

FOLDER = "acs_income_2018"
URL = "https://raw.githubusercontent.com/xheilmann/FeDa4Fair/4fb955679ed0949fcf5001106340e29441638886/src/FeDa4Fair/data/cross_silo_value_final/"

# State, sha256 of the file packed with bzip2, sha256 of the published file.
SUMS = """
AL 29dedaece1ed5da33628f784d2ac0f5be03eef7bcf442c0f78800657ee80710f e5be9bb11034859e0b0fe331d0a3ba6e8e1851f13655dc70d64d0009a357e597
CO f00390be4181fe2e101118dbf454a0e035e38c76c0aa031308b71c95c91ea406 bea7245d8c98b973beb21ff74c1d7a8ef9891597b8e42120f7a425e0a34b2a28
CT c80967658122c65c6283eda896b4e4a578b6e709b5401c339b6adcaab1e000bb baa4cd18c36bac402ccf705fe0b4b9b97d2ff9fa6ea8d1dcdbb7f1ba9affcaa3
GA 6a5386027741a71ef2326660780a96c0a646b29d5f3661181551b41467228ba0 d17706303d6563bf14712fefa24b63fc55d111ef745994e95d339aa1cdbde2a7
HI bcb57ec0790995833ce8620376a4eb8b5d617b65535181e979ae775aa80cb96f 50d4c6b40999bbc36656f4a1d5f34284661acf322e61112e9b809710ceb85143
IA 958529b91e83cd6e29078b8ab49cc79da79e49ae48e51e6b2c51b0aff632b2f0 284b5204669fff5afb433f967e94364e9e7f1ac409cc9ebb7c5112cf2e39ee8f
ID 7eb2a434ff06dfdd2c47288697c31eadd44a7cb7b2e8cd7d81863e4e45d32260 92e9cf6867f4f74a0a90bcc9ee92b71d8100b2ecc4560bdf602e62c842cc60fe
IL bdfa0ae3385c5899463ee48088d978a96716983d5887e0852727095dd2cb6d66 31418d802aae5b3e94225035bda1d4493085a0daaca52a2cf8989b9a19533aff
IN f5fc244061f0f2209920eb2f36c7d20674078671e567c0192ddba6c855ac2154 22d6378b2bfd73d59ec6f87c1e969a94acf0e69e29301a20f8badc630e40d6c7
KS 31802781b201f208d2faf1bf922beea17b0063ac2352357b9ba8a58ffce85a4d a0c7f3a74a12370e746970f83fb8ec61293a39368c7785da049798c179a06d82
KY 922c772975fe60917ad965fe7f0f413e7ec42177df8cad5cfb8cbe183a505d39 111f7d9511c09c5e28978e00b6cdbda05566307ab156b411d6d37a37ccc56d36
MA 7ad00bbee3194c0cae2778bcd965e8d231001927d8e9538453337405fe7f3850 e72f1f056011bfa062391e803510d6575a2bbc8117ab801e7aa2096ffaeb085f
MD be27b23c67f67331ea1fd2ca927658c404898ce04a152fe27d08994516dc89e6 b1f7b683ff1aa6b87a15a5bf665b419a8f7fadafbe20467362d4f4f71b0ce783
ME 7e3da95116f68f3d96da02004c3f06eb248ac8cb05a85881ab4b77cfab4f2fc9 007c84661c12f89d3289d2d38b91d177d43168d0d05682b7b7063e055ae48330
MI 161d00d45575561dcc1cff59058411165dab3e800c80c257bdea445bd22167c6 08a1cdf8e84c8818814013a6896963b4410b06373da5241efdf2e01763a7cfa9
MO 9f25e3e2783f2a1a9ed7e77d060b4ab6e096a38bb0187b1c52a961fb87ae1941 22e8935f722dff2ec289e05a75206858f392e70ddc77390fb8c6a8095e294f9a
MT 011079b8a3398370bbe40e5e5dcbc95f545be8d855b149a06b4614e2bddd799b 54bb2305a98c55889f2c90c59dc40a5dfbecd10547c60e0a2a3051cdd934063a
NC b863e423421588fa59bff22d27e7d6ab99b56bf17d1fe92d5fe044dd5cac9a49 bf7c2b295742ddd5db6620dc5c59712d28ac029380784c7ddf4230c9758a017f
ND d2658f10503d166f275828ae57128af68783482933e35aa44bfc61da3bc2d154 648067caa2a4e08f6ab83e09ee367e9bd46cbe14b53e159315d896470737d92e
NH 209e9cc6200fd7c8c7d927f653f34a68291695fb40bf20bfde3a051d149eb223 765bb1d3179fd3441f7e2ea1fd98e48c2c053551a1bae4ac610cd7f1fbc4cfae
NJ 06fd36fe5546c72009f3897248e9b8888503454d732fe1ca004568c8028ba84c 53a01cbc61b134ffa67bafe0670a02bc5335853b5bba94727b0ff6e2cbc9ec9a
NM ea3f8be9eec383db159bd7ea243ef9c0fba65c027f164ff454a164bf019a3128 e7d8f86cb86e64a22d1b3bd774f79f369f937f2cc2e8d0d7fe116018510b0d6c
NV 51f1c267b64a81bc3c801bf2c071038e3ff12cd477bfabad9f1fc127fb70ca9c baf1f926d2bcf9a6a02642188aca651b448090361d4dc3527503f6b82eeb0ec7
OK 6d14560352076b6ec2a556534dcd2ccd55b635dbd8550d27e703cc7e6f9d5a54 6c8277305fc105c137bc9969f27da9331ae0bd07ad5f1777a68d92dbd7caeba5
PA 5b458e636ea1af51cb4a20eaa7e22fbe5f98def623a6f7796fe77c47a6d1ab56 3147fe2be64273faf1eade2aee542a7165d290c097c5c2ff2631fbf2d4571388
RI df44e4caf873b4f0e5653992bd7aa18c4d6ecdefe3bddc6638dd1acdd40c03b7 99e562ea752e26091b3be2cedbe38193433c478d27d9bc2be90d7bf148dca926
SC 6fd6564ab1310ee8bc657c7a2596623a5d6dc72c938db9a03832266ae8ba0922 5da5efa82cb9c5d6a41aef79b003e454c1a139f8ee28b3fb4ae9289dc5e11439
SD 8db599ad9e628ccca3af6294adcbf3788757f686a1cc24de4fe14c14530d2b85 48f03157d648bd6db270f2c24374fa047c8d83b8991eaa900cfcaaedde8f38c2
TN 837f4322408589128a66de7ca9cc8411ba1acfc7b3bcc7a41330d9cc5a0b6aad e7f859b0e1065c4e9c061f99cfc5f0b4819773ad7f949ad80f56fcc518746aad
UT 89d7a43bbbb8574566d30219d091dd60cda092a5e0598540e1eb0f5e560eb1e6 9c7bbc1da3be3537b8338bcb19f8d83e6b342ae46a03064249ce9276ef2586de
VA b7d48621d5d9d29331c0b95b1648d661d9c37ec84d7b98032f857e1ad63988c4 030094d305647d0d433d8a07c06d3842fdd867b5382204698d8af7dd394be9d9
VT 01d934cd67ba4f3c1649ee17a3aadcffeeba93e8b7ff2982ca6abe7b6e5ee43d 99a2ce26592dd8414a3c1f078899fed42fffb9bdf9e5d6d65c82720534f143ee
WA 365200dc388c9f40281fa38dcb8a31dbff6b39041a3a18297efeba0e6a209cde d8cef5de8976c90a6cb905cba52c1f24f8e4a7111f4e91ed58e8ce10db4cb5fc
WI dae338366d6a8d17010d7ca237ed504374f153496665cf40bf0aa2c10a19c23f c4c54ed6a7d7e184e1723c91f5721ddbcf55a78cfaad760425ac3cc809aa9381
WY 627ce3153c68f23092d77291516eb6d0e1250985cd7868af928282817efe9fff 8174eb37127a5ba2a9b0270595a957fd0b0aaa17d1756b95b4344654a8d5c0ac
"""  # noqa: E501

# Two digits of the Census Bureau for each state, which its file names carry.
CODES = {
    "AL": 1, "AK": 2, "AZ": 4, "AR": 5, "CA": 6, "CO": 8, "CT": 9, "DE": 10, "FL": 12, "GA": 13,
    "HI": 15, "ID": 16, "IL": 17, "IN": 18, "IA": 19, "KS": 20, "KY": 21, "LA": 22, "ME": 23,
    "MD": 24, "MA": 25, "MI": 26, "MN": 27, "MS": 28, "MO": 29, "MT": 30, "NE": 31, "NV": 32,
    "NH": 33, "NJ": 34, "NM": 35, "NY": 36, "NC": 37, "ND": 38, "OH": 39, "OK": 40, "OR": 41,
    "PA": 42, "RI": 44, "SC": 45, "SD": 46, "TN": 47, "TX": 48, "UT": 49, "VT": 50, "VA": 51,
    "WA": 53, "WV": 54, "WI": 55, "WY": 56, "PR": 72,
}  # fmt: skip


def _file(state: str, ending: str, digest: str, urls: tuple[str, ...] = ()) -> DataFile:
    content = Content(f"sha256:{digest}")
    what = f"ACSIncome 2018, {state}"
    return DataFile(
        path=f"{FOLDER}/{state}.{ending}",
        what=what,
        contents=(content,),
        urls=urls,
        dataset="acs-income",
    )


def _published() -> tuple[dict[str, DataFile], dict[str, DataFile]]:
    plain, packed = {}, {}
    for line in SUMS.split("\n")[1:-1]:
        state, packed_digest, digest = line.split()
        plain[state] = _file(state, "csv", digest, (f"{URL}{state}_0.csv",))
        packed[state] = _file(state, "csv.bz2", packed_digest)
    return plain, packed


PLAIN, PACKED = _published()
LAYOUTS: tuple[Layout, ...] = (tuple(PLAIN.values()), tuple(PACKED.values()))


def census_file(state: str) -> DataFile:
    """Return the Census Bureau's file of a state's people, which is in csv_p<state>.zip."""
    name = f"psam_p{CODES[state]:02d}.csv"
    page = "https://www2.census.gov/programs-surveys/acs/data/pums/2018/1-Year/"
    by_hand = f"unpack {name} from {page}csv_p{state.lower()}.zip (2018, 1-year, people)."
    return DataFile(
        path=f"{FOLDER}/{name}",
        what=f"census sample 2018, people of {state}",
        by_hand=by_hand,
        dataset="acs-income",
    )


# Rows of ACSIncome from a state's file: FeDa4Fair's, or the Census Bureau's own with folktables'
# filters.

COLUMNS: tuple[str, ...] = (
    "AGEP",
    "COW",
    "SCHL",
    "MAR",
    "OCCP",
    "POBP",
    "RELP",
    "WKHP",
    "SEX",
    "RAC1P",
    "PINCP",
)
# The census's nine races as FeDa4Fair's five: White, Black, Asian, American Indian or Alaska
# Native, other or several.
RACE_CODES = np.array([0, 1, 2, 4, 4, 4, 3, 5, 5, 5], np.float32)
EMPTY = -1  # stands for a cell without a number, as in folktables


@read_once
def read_published(path: Path) -> np.ndarray:
    """Return the columns of FeDa4Fair's CSV file, packed or not, float32 [columns, rows]. Income is
    0 or 1.
    """
    content = path.read_bytes()
    header, _, body = (bz2.decompress(content) if path.suffix == ".bz2" else content).partition(
        b"\n"
    )
    if header.strip().decode("utf-8", "replace").split(",") != list(COLUMNS):
        raise DataError(
            f"{path}: the header must be {','.join(COLUMNS)}, got"
            f" {header[:100].decode('utf-8', 'replace')!r}."
        )
    cells = (
        body.replace(b"True", b"1")
        .replace(b"False", b"0")
        .replace(b"\r", b"")
        .strip()
        .replace(b"\n", b",")
        .split(b",")
    )
    try:
        return np.array(cells, np.float32).reshape(-1, len(COLUMNS)).T
    except ValueError as error:
        raise DataError(f"{path}: every row must hold {len(COLUMNS)} numbers ({error}).") from None


@read_once
def read_census(path: Path) -> np.ndarray:
    """Return the same columns of the Census Bureau's file of a state's people, float32 [columns,
    rows].

    The filters are those of folktables: people older than 16 with an income above 100 dollars,
    working hours and a sampling weight of at least 1.
    """
    used = (*COLUMNS, "PWGTP")
    with open(path, newline="", encoding="utf-8-sig") as stream:
        lines = csv.reader(stream)
        header = next(lines, [])
        absent = [name for name in used if name not in header]
        if absent:
            raise DataError(
                f"{path}: the header must name {', '.join(absent)}, but it does not. Use a 2018"
                " file of people."
            )
        places = [header.index(name) for name in used]
        people = [[float(line[place] or EMPTY) for place in places] for line in lines if line]
    table: dict[str, np.ndarray] = dict(
        zip(used, np.array(people, np.float32).reshape(-1, len(used)).T, strict=True)
    )
    adults = (
        (table["AGEP"] > 16) & (table["PINCP"] > 100) & (table["WKHP"] > 0) & (table["PWGTP"] >= 1)
    )
    table["PINCP"] = table["PINCP"] > 50_000
    table["MAR"] = np.where(table["MAR"] == 1, 1, 2)
    table["RAC1P"] = RACE_CODES[table["RAC1P"].astype(int)]
    return np.stack([table[name][adults] for name in COLUMNS]).astype(np.float32)


# ACSIncome 2018: income above 50,000 dollars from the US census sample; every state is a client.
#
# Ding, Hardt, Miller, Schmidt, "Retiring Adult: New Datasets for Fair Machine Learning" (NeurIPS
# 2021) define the task: people older than 16 with an income above 100 dollars, at least one usual
# working hour a week and a sampling weight, and ten columns about them. Here the rows come from
# FeDa4Fair's files (35 states), or from the Census Bureau's own files.
#
# Columns become 57 features: age, schooling (its 24 levels in order) and weekly hours are
# standardised with the training rows of all clients together; the class of work (8), marriage, the
# relation to the householder (6), sex, race (5), the major group of the occupation (25) and the
# part of the world of birth (8) are 0/1 features. The hundreds of codes of occupation and
# birthplace would otherwise be as many columns.

NUMBERS = ("AGEP", "SCHL", "WKHP")
# The first code of each class; codes below it belong to the class before.
FIRST = {
    "COW": (1, 2, 3, 4, 5, 6, 7, 8),
    # householder, spouse, child, other relative, no relative, group quarters
    "RELP": (0, 1, 2, 5, 11, 16),
    "RAC1P": (1, 2, 3, 4, 5),
    "OCCP": (
        0,
        500,
        800,
        1005,
        1305,
        1600,
        2001,
        2100,
        2205,
        2600,
        3000,
        3600,
        3700,
        4000,
        4200,
        4330,
        4700,
        5000,
        6005,
        6200,
        6800,
        7000,
        7700,
        9005,
        9800,
    ),
    # US, its islands, Europe, Asia, Northern and Latin America, Africa, Oceania
    "POBP": (1, 60, 100, 200, 300, 303, 400, 500),
}
RACES = ("White", "Black", "Asian", "American Indian or Alaska Native", "other or several")
SENSITIVE = ("sex", "race", "sex,race")
SOURCES = ("feda4fair", "census")


def acs_income(
    source: str = "feda4fair",
    *,
    states: str | Sequence[str] = "",
    rows_per_state: int = 0,
    sensitive: str = "sex",
    races: int = 2,
    drop_sensitive: bool = False,
    train: float = 0.8,
    valid: float = 0.1,
    seed: int = 0,
    split_seed: int = 0,
) -> Federation:
    """Return one client per state ("AL,CO" or a list; "": all), with 80/10/10 training, validation
    and test rows.

    `rows_per_state` rows of each state are drawn by `seed` (0: all). `sensitive` is "sex", "race"
    or "sex,race" (intersections, with women as the unprivileged group). `races` is 2, White people
    and all others, or the 5 of the files; all but White people are unprivileged. `source` "census"
    reads the Census Bureau's files. `drop_sensitive` removes the sensitive columns from the
    features.
    """
    if sensitive not in SENSITIVE:
        raise unknown("sensitive column", sensitive, SENSITIVE)
    require(races in (2, len(RACES)), f"acs-income: races must be 2 or {len(RACES)}, got {races}.")
    require(
        rows_per_state >= 0,
        f"acs-income: rows_per_state must be at least 0 (0: all rows), got {rows_per_state}.",
    )
    names = select_states(states, source)
    draws = Draws(seed, "rows")
    tables = [
        sample(read_state(name, source), rows_per_state, draws.at(CODES[name])) for name in names
    ]
    table = dict(zip(COLUMNS, np.concatenate(tables, axis=1), strict=True))
    owner = np.repeat(np.arange(len(names)), [t.shape[1] for t in tables])
    blank = np.zeros((len(owner), 1), np.float32)
    rows = Rows(blank, table["PINCP"].astype(np.int32), ("<=50K", ">50K"), "acs-income").grouped(
        _groups(table, sensitive, races)
    )
    federation = natural(rows, owner, names=names, shares=(train, valid), split_seed=split_seed)
    return replace(
        federation, x=features(table, sensitive if drop_sensitive else "", federation.train.rows)
    )


def select_states(states: str | Sequence[str], source: str) -> list[str]:
    """Return the given states in order. Without any, return all states of the source (for the
    Census Bureau: those with a file).
    """
    if source not in SOURCES:
        raise unknown("source", source, SOURCES)
    every = PLAIN if source == "feda4fair" else CODES
    names = (
        [word.strip() for word in states.split(",") if word.strip()]
        if isinstance(states, str)
        else list(states)
    )
    for name in names:
        if name not in every:
            raise unknown("state", str(name), every)
    if names or source == "feda4fair":
        return sorted(set(names)) or list(every)
    present = [name for name in every if path_of(census_file(name)).is_file()]
    if not present:
        raise MissingData(missing_sentence(census_file("AL")))
    return sorted(present)


def read_state(name: str, source: str) -> np.ndarray:
    """Return a state's rows as numbers, [columns, rows]."""
    if source == "census":
        _, (path,) = checked_files(((census_file(name),),))
        return read_census(path)
    _, (path,) = checked_files(((PLAIN[name],), (PACKED[name],)))
    return read_published(path)


def features(table: dict[str, np.ndarray], dropped: str, training: np.ndarray) -> np.ndarray:
    """Return the features, float32 [rows, 57] or fewer. A code below the first class of its column
    belongs to no class.
    """
    columns: list[np.ndarray] = [
        standardise(np.stack([table[name] for name in NUMBERS], axis=1), training),
        (table["MAR"] == 1)[:, None],
    ]
    columns += [] if "sex" in dropped else [(table["SEX"] == 2)[:, None]]
    for name, first in FIRST.items():
        if not (name == "RAC1P" and "race" in dropped):
            columns.append(
                (np.searchsorted(first, table[name], side="right") - 1)[:, None]
                == np.arange(len(first))
            )
    return np.concatenate(columns, axis=1, dtype=np.float32, casting="unsafe")


def _groups(table: dict[str, np.ndarray], sensitive: str, races: int) -> Groups:
    white = table["RAC1P"] == 1
    race = (
        Sensitive("race", ("not White", "White"), white.astype(np.int32))
        if races == 2
        else Sensitive("race", RACES, table["RAC1P"].astype(np.int32) - 1, RACES.index("Black"))
    )
    parts = {
        "sex": Sensitive("sex", ("Female", "Male"), (table["SEX"] == 1).astype(np.int32)),
        "race": race,
    }
    groups = cross([parts[name] for name in sensitive.split(",")], sensitive.split(",")[0])
    others = tuple(g for g, name in enumerate(groups.names) if name != "White")
    return groups._replace(unprivileged=others) if sensitive == "race" else groups


def sample(table: np.ndarray, most: int, draw: np.random.Generator) -> np.ndarray:
    rows = table.shape[1]
    return table[:, np.sort(draw.permutation(rows)[:most])] if 0 < most < rows else table


CARD = DatasetCard(
    name="acs-income",
    title="Census income 2018; every US state is a client, sex and race are the groups",
    load=acs_income,
    layouts=LAYOUTS,
    licence=(
        "Census microdata are in the US public domain; the repository that holds these files is"
        " GPL-3."
    ),
    provenance=(
        "US Census Bureau, American Community Survey 2018 (1-year sample), through folktables and"
        " FeDa4Fair."
    ),
    citation=(
        "Ding, Hardt, Miller, Schmidt: Retiring Adult: new datasets for fair machine learning."
        " NeurIPS 2021."
    ),
    notes=(
        (
            "35 of 51 states: those that FeDa4Fair left as they were and whose files are small"
            " enough. CA, FL, NY and TX are missing."
        ),
        "898,610 rows are 205 MB of features; rows_per_state=2000 is enough for a first look.",
        (
            "FeDa4Fair merges marital status into married or not and race into five; the Census"
            " Bureau's files are merged alike here. Of these, Native Hawaiian and Pacific Islander"
            " people count as other."
        ),
        (
            "With races=5 every group but White is unprivileged, while the attribute's one"
            " unprivileged value is Black."
        ),
        (
            "Occupations and birthplaces are merged into 25 and 8 classes, so accuracies are not"
            " those of folktables' papers."
        ),
        "Sampling weights are not used: rates are of the sample, not of the population.",
    ),
    expected=Sizes(clients=35, train=718873, valid=89859, test=89878),
)
