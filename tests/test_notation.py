import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenly.notation import Part, expand, parse, parse_list, parse_one, show, unknown

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,8}", fullmatch=True)
words = st.one_of(names, st.text(max_size=8), st.text(alphabet="a1,()[]=+ '\"", max_size=8))
scalars = st.one_of(
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    words,
)
values = st.one_of(scalars, st.lists(scalars, min_size=1, max_size=3))
parts = st.builds(Part, names, st.dictionaries(names, values, max_size=3))
compositions = st.lists(parts, min_size=1, max_size=3).map(tuple)


def test_parts_and_settings():
    assert parse("q-fedavg(q=1, learning_rate=0.1)+uniform(clients=10)") == (
        Part("q-fedavg", {"q": 1, "learning_rate": 0.1}),
        Part("uniform", {"clients": 10}),
    )


def test_white_space_does_not_matter():
    assert parse(" fedavg ( mu = 0.5 ,epochs=2 ) + full ( ) ") == parse(
        "fedavg(mu=0.5,epochs=2)+full"
    )


@pytest.mark.parametrize(
    "text, value",
    [
        ("1", 1),
        ("-2", -2),
        ("0.5", 0.5),
        ("1e-3", 1e-3),
        ("1e+3", 1e3),
        (".5", 0.5),
        ("true", True),
        ("False", False),
        ("size", "size"),
        ("'size'", "size"),
        ('"size"', "size"),
        ("[1, 2.5, x]", [1, 2.5, "x"]),
        ("[0]", [0]),
        ("[]", []),
        ("'sex,race'", "sex,race"),
        ('"a)[, b"', "a)[, b"),
        ("'1'", "1"),
        ("'true'", "true"),
        ("''", ""),
        ("' x '", " x "),
        ("['a,b', c]", ["a,b", "c"]),
        ("'it''s'", "it's"),
        ('"it\'s"', "it's"),
    ],
)
def test_values_have_kinds(text: str, value: object):
    ((_, settings),) = parse(f"m(a={text})")
    assert settings == {"a": value}
    assert type(settings["a"]) is type(value)


def test_several_methods_are_separated_by_commas_outside_brackets():
    found = parse_list("fedavg, q-fedavg(q=[0, 1], epochs=2)+full, fedprox")
    assert [show(c) for c in found] == ["fedavg", "q-fedavg(q=[0, 1], epochs=2)+full", "fedprox"]
    assert parse_list(" , fedavg,") == [parse("fedavg")]


@given(compositions)
def test_what_is_shown_is_read_back(composition: tuple[Part, ...]):
    assert parse(show(composition)) == composition


@given(st.lists(compositions, min_size=1, max_size=3))
def test_a_list_that_is_shown_is_read_back(several: list):
    assert parse_list(", ".join(map(show, several))) == several


def test_only_text_that_needs_quotes_is_shown_with_them():
    settings = {
        "a": "local",
        "b": "sex,race",
        "c": "1",
        "d": "it's",
        "e": "/data/x.csv",
        "f": ["a b", "true"],
        "g": "",
    }
    assert (
        show((Part("m", settings),))
        == "m(a=local, b='sex,race', c='1', d=\"it's\", e=/data/x.csv, f=[a b, 'true'], g='')"
    )


def test_quotes_protect_commas_and_plus_signs_between_methods():
    assert parse_list("m(a='x,y')+n(b='+'), m") == [
        (Part("m", {"a": "x,y"}), Part("n", {"b": "+"})),
        (Part("m", {}),),
    ]


def test_nearby_numbers_have_different_labels():
    assert show(parse("m(a=0.1234567)")) != show(parse("m(a=0.1234568)"))
    assert show(parse("m(a=0.10)+n(b=1e-3)")) == "m(a=0.1)+n(b=0.001)"


def refusal(text: str) -> str | None:
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return None


@given(st.text(alphabet="ab1()[]=+,.- '\"e", max_size=20))
def test_any_text_is_read_or_refused_with_a_sentence(text: str):
    assert refusal(text) is None or refusal(text).endswith(".")  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("", r"A method is written like q-fedavg\(q=1\)\+uniform\(clients=10\), got ''\."),
        ("fedavg+", r"A method is written like .*, got 'fedavg\+'\."),
        ("1fedavg", r"A method is written like .*, got '1fedavg'\."),
        ("fedavg(q=1", r"Brackets do not match in 'fedavg\(q=1'\."),
        ("fedavg)q=1(", r"Brackets do not match in 'fedavg\)q=1\('\."),
        ("fedavg(1)", r"Settings are written name=value, got '1' in 'fedavg\(1\)'\."),
        ("fedavg(q=)", r"Settings are written name=value, got 'q=' in 'fedavg\(q=\)'\."),
        ("fedavg(=1)", r"Settings are written name=value, got '=1' in 'fedavg\(=1\)'\."),
        ("fedavg(q=1, q=2)", r"Setting 'q' is given twice in 'fedavg\(q=1, q=2\)'\."),
        (
            "fedavg(q='1)",
            (
                r"A quote is not closed in \"fedavg\(q='1\)\"\. Text that holds one kind of quote"
                r" is put in the other: \"it's\"\."
            ),
        ),
        (
            "fedavg(q='1'2)",
            (
                r"Text in quotes must end with the quote it begins with, got '1'2 in"
                r" \"fedavg\(q='1'2\)\"\. A quote inside .*\."
            ),
        ),
        (
            "fedavg(q=[1](2))",
            r"A list must end with '\]', got '\[1\]\(2\)' in 'fedavg\(q=\[1\]\(2\)\)'\.",
        ),
    ],
)
def test_mistakes_are_answered_with_a_sentence(text: str, sentence: str):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        parse(text)


def test_a_sweep_is_every_combination_in_order():
    found = [show(c) for c in expand(parse("m(a=[1, 2], b=3)+n(c=[x, y])"))]
    assert found == [
        "m(a=1, b=3)+n(c=x)",
        "m(a=1, b=3)+n(c=y)",
        "m(a=2, b=3)+n(c=x)",
        "m(a=2, b=3)+n(c=y)",
    ]


@given(compositions)
def test_a_sweep_has_as_many_members_as_its_lists_have_products(composition: tuple[Part, ...]):
    expected = 1
    for part in composition:
        for value in part.settings.values():
            expected *= len(value) if isinstance(value, list) else 1
    found = list(expand(composition))
    assert len(found) == expected
    assert all(not isinstance(v, list) for c in found for part in c for v in part.settings.values())
    assert all([part.name for part in c] == [part.name for part in composition] for c in found)


def test_an_empty_sweep_is_refused():
    with pytest.raises(
        ValueError,
        match=r"^m: the sweep over 'a' must have at least one value, got an empty list\.$",
    ):
        list(expand(parse("m(a=[])")))


def test_an_unknown_name_gets_the_nearest_known_one():
    assert (
        str(unknown("model", "sofmax", ["svm", "softmax"]))
        == "There is no model 'sofmax'. Did you mean 'softmax'? Known: softmax, svm."
    )
    assert str(unknown("model", "zzz", ["svm"])) == "There is no model 'zzz'. Known: svm."


def test_one_part_alone_is_asked_for_in_words():
    assert parse_one("adult-sex(alpha=0.1)", "data set") == Part("adult-sex", {"alpha": 0.1})
    message = (
        r"A data set is written like name\(setting=value\), a single one, got 'adult\+x\(y=1\)'\."
        r" Leave '\+x\(y=1\)' out\."
    )
    with pytest.raises(ValueError, match=message):
        parse_one("adult+x(y=1)", "data set")
