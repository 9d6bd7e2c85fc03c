"""Settings: from a file, over it the environment, over that flags; what does not fit is said, never guessed."""

from pathlib import Path

import pytest

from inkgrove.settings import all_settings, effective, load, parse_change
from tests.support.errors import raises


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_anything_the_defaults_are_in_effect() -> None:
    loaded = load()
    assert (loaded.settings.home, loaded.settings.store) == (Path("inkgrove-data"), None)
    assert (loaded.settings.spark.master, loaded.settings.pipeline.max_entries_per_batch) == ("local[*]", 10_000)
    assert loaded.sources == {}


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    write(tmp_path / "inkgrove.toml", '[spark]\nmaster = "local[1]"\nmemory = "2g"\n[pipeline]\npartitions = 3')
    environment = {"INKGROVE_HOME": str(tmp_path), "INKGROVE_SPARK_MASTER": "local[2]", "INKGROVE_SPARK_MEMORY": "3g"}
    loaded = load({"spark.memory": "4g", "store": None}, environment)
    assert loaded.settings.spark.properties() == {
        "spark.master": "local[2]",
        "spark.driver.memory": "4g",
        "spark.executor.memory": "4g",
    }
    assert loaded.sources == {
        "home": "environment INKGROVE_HOME",
        "pipeline.partitions": f"file {tmp_path / 'inkgrove.toml'}",
        "spark.master": "environment INKGROVE_SPARK_MASTER",
        "spark.memory": "flag",
    }


def test_properties_of_spark_are_texts_whether_their_names_are_quoted_or_not(tmp_path: Path) -> None:
    text = '[spark.conf]\n"spark.cores.max" = 2\nspark.ui.enabled = true\nspark.ui.port = "4050"'
    conf = {"spark.cores.max": "2", "spark.ui.enabled": "true", "spark.ui.port": "4050"}
    assert load(config=write(tmp_path / "a.toml", text)).settings.spark.conf == conf
    assert load({}, {"INKGROVE_SPARK_CONF": '{"spark.cores.max" = 2}'}).settings.spark.conf == {"spark.cores.max": "2"}


def test_named_file_is_read_instead_of_the_one_in_the_home_and_may_name_the_home(tmp_path: Path) -> None:
    write(tmp_path / "home" / "inkgrove.toml", 'store = "postgresql://a@b/c"')
    named = write(tmp_path / "etc" / "site.toml", 'home = "../home"')
    for loaded in (load(config=named), load({}, {"INKGROVE_CONFIG": str(named)})):
        assert loaded.settings.home.resolve() == tmp_path / "home"
        assert loaded.settings.store is None


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("[spark]\nmastr = 'x'", "spark.master"),
        ("stroe = 'x'", "store"),
        ("[pipelin]\npartitions = 1", "pipeline.partitions"),
        ("q = 1", None),
    ],
)
def test_unknown_setting_is_refused_with_the_nearest_name(tmp_path: Path, text: str, nearest: str | None) -> None:
    with raises("settings.unknown") as caught:
        load(config=write(tmp_path / "a.toml", text))
    assert caught.value.data["nearest"] == nearest


def test_variable_of_a_section_that_is_no_setting_is_refused_and_others_are_let_be() -> None:
    with raises("settings.unknown", match="did you mean INKGROVE_SPARK_MASTER"):
        load({}, {"INKGROVE_SPARK_MASTRE": "local"})
    assert load({}, {"INKGROVE_BENCH_ENTRIES": "7", "INKGROVE_STORE": ""}).sources == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("store = 7", "store is a text, not 7"),
        ("[pipeline]\npartitions = true", "pipeline.partitions is a whole number, not True"),
        ("[pipeline]\nmax_entries_per_batch = 0", "at least 1, not 0"),
        ("[spark]\nmemory = 'much'", "such as 512m or 2g, not 'much'"),
        ("[spark]\nconf = 'x'", "spark.conf is a table of texts"),
        ("[spark.conf]\na = [1]", "spark.conf.a is a text"),
        ("spark = 'x'", "there is no setting spark"),
        ("home = ", "not TOML"),
    ],
)
def test_value_that_does_not_fit_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with raises("settings.invalid", "settings.unknown", match=says):
        load(config=write(tmp_path / "a.toml", text))


def test_value_in_the_environment_has_the_type_of_its_setting() -> None:
    assert load({}, {"INKGROVE_PIPELINE_PARTITIONS": "12"}).settings.pipeline.partitions == 12
    with raises("settings.invalid", match=r"PARTITIONS: pipeline\.partitions is a whole number"):
        load({}, {"INKGROVE_PIPELINE_PARTITIONS": "twelve"})


def test_changes_are_names_and_values() -> None:
    assert parse_change("spark.conf={a = 'b=c'}") == ("spark.conf", {"a": "b=c"})
    assert parse_change("pipeline.partitions=4") == ("pipeline.partitions", 4)
    with raises("settings.invalid"):
        parse_change("spark.master")


def test_home_cannot_be_set_by_a_file_that_lies_in_it(tmp_path: Path) -> None:
    write(tmp_path / "inkgrove.toml", 'home = "elsewhere"')
    with raises("settings.invalid", match="lies in it"):
        load({"home": tmp_path})
    with raises("input.unreadable-file"):
        load(config=tmp_path / "missing.toml")


def test_secrets_are_not_shown() -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": "hush", "spark.cores.max": "2"}
    loaded = load({"store": "postgresql://jane:hush@host/name?password=hush", "spark.conf": conf})
    values = {item.name: value for item, value, _ in effective(loaded)}
    assert values["store"] == "postgresql://jane:***@host/name?password=***"
    assert values["spark.conf"] == {"spark.hadoop.fs.s3a.secret.key": "***", "spark.cores.max": "2"}
    with raises("settings.invalid") as caught:
        load({"spark.memory": "postgresql://jane:hush@host"})
    assert "hush" not in caught.value.message


def test_every_setting_has_a_sentence_and_a_variable_of_its_own() -> None:
    known = all_settings().values()
    assert len({item.variable for item in known}) == len(known)
    for item in known:
        assert item.about.endswith("."), item
