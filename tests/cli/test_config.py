"""Flag, then environment, then file, then default; and nothing in a file is ignored."""

import json

import pytest


@pytest.fixture
def settings(agentctl):
    """The settings of `agentctl recommend ARGUMENTS` as {name: (value, origin)}."""

    def show(*arguments, **environment):
        done = agentctl("recommend", *arguments, "--show-config", "--json", **environment)
        assert done.code == 0, done.err
        document = json.loads(done.out)
        assert document["schema"] == "agentctl/config/1"
        return {name: (entry["value"], entry["origin"]) for name, entry in document["settings"].items()}

    return show


def test_without_anything_the_default_holds(settings):
    assert settings()["seed"] == (0, "default")


def test_the_file_beats_the_default(settings, tmp_path):
    (tmp_path / "agentctl.toml").write_text("seed = 1")
    assert settings()["seed"] == (1, "agentctl.toml")


def test_the_environment_beats_the_file(settings, tmp_path):
    (tmp_path / "agentctl.toml").write_text("seed = 1")
    assert settings(AGENTCTL_SEED="2")["seed"] == (2, "AGENTCTL_SEED")


def test_the_flag_beats_them_all(settings, tmp_path):
    (tmp_path / "agentctl.toml").write_text("seed = 1")
    assert settings("--seed", 3, AGENTCTL_SEED="2")["seed"] == (3, "flag")


def test_the_table_of_a_command_beats_the_top_of_the_file(settings, tmp_path):
    (tmp_path / "agentctl.toml").write_text("seed = 1\n[recommend]\nseed = 4\n[simulate]\nseed = 5")
    assert settings()["seed"] == (4, "agentctl.toml")


def test_another_file_can_be_named(settings, tmp_path):
    (tmp_path / "agentctl.toml").write_text("seed = 1")
    (tmp_path / "night.toml").write_text('slo = ["ttft p95 < 2s", "tpot p95 < 50ms"]\nstrict = true')
    found = settings("--config", "night.toml")
    assert found["seed"] == (0, "default")
    assert found["slo"] == ("ttft p95 < 2s, tpot p95 < 50ms", "night.toml")
    assert found["strict"] == (True, "night.toml")


def test_keys_may_be_written_as_the_flags_are(agentctl, tmp_path):
    (tmp_path / "agentctl.toml").write_text("[ingest]\nmax-bad = 3")
    done = agentctl("ingest", "--show-config", "--json")
    assert json.loads(done.out)["settings"]["max_bad"] == {"value": 3, "origin": "agentctl.toml"}


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("sed = 1", "agentctl.toml: sed", "did you mean `seed`?"),
        (
            "[recommend]\npolicis = 'a'",
            "agentctl.toml: [recommend] policis",
            "did you mean `policies`?",
        ),
        ("[simulate]\nseeds = 1", "agentctl.toml: [simulate] seeds", "did you mean `seed`?"),
        ("[recomend]\nseed = 1", "agentctl.toml: table recomend", "did you mean `recommend`?"),
        ("force = true", "agentctl.toml: force", ""),
    ],
)
def test_a_key_that_nobody_knows_is_an_error_with_a_suggestion(agentctl, tmp_path, text, place, hint):
    (tmp_path / "agentctl.toml").write_text(text)
    done = agentctl("recommend", "x.trace")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {place}: unknown key\n")
    assert hint in done.err


def test_a_file_that_is_not_toml_is_an_error(agentctl, tmp_path):
    (tmp_path / "agentctl.toml").write_text("seed = ")
    done = agentctl("policies")
    assert done.code == 2 and done.err.startswith("error: agentctl.toml: is not TOML")


def test_a_file_that_was_named_must_exist(agentctl):
    done = agentctl("policies", "--config", "gone.toml")
    assert done.code == 2 and done.err.startswith("error: gone.toml: cannot be read")


@pytest.mark.parametrize(
    ("text", "environment", "place"),
    [("seed = 'many'", {}, "agentctl.toml: seed"), ("", {"AGENTCTL_SEED": "many"}, "AGENTCTL_SEED")],
)
def test_a_wrong_value_names_where_it_came_from(agentctl, tmp_path, text, environment, place):
    (tmp_path / "agentctl.toml").write_text(text)
    done = agentctl("recommend", "x.trace", **environment)
    assert done.code == 2
    assert done.err.startswith(f"error: {place}: is 'many'; expected a whole number\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed = [1, 2]", "agentctl.toml: seed: is a list; expected one value, as the flag takes it"),
        ("seed = 2026-01-01", "agentctl.toml: seed: holds a date; expected text, numbers"),
        ("slo = [[1]]", "agentctl.toml: slo: holds a list; expected text, numbers"),
        ("strict = 'perhaps'", "agentctl.toml: strict: is 'perhaps'; expected true or false"),
        ("[recommend]\nreplicates = 1", "agentctl.toml: replicates: is '1'; expected at least 2"),
    ],
)
def test_a_value_that_no_flag_would_take_names_its_key_and_what_is_right(agentctl, tmp_path, text, message):
    (tmp_path / "agentctl.toml").write_text(text)
    done = agentctl("recommend", "x.trace")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {message}")


def test_one_value_may_stand_for_a_list(agentctl, tmp_path):
    (tmp_path / "agentctl.toml").write_text('slo = "ttft < 2s"')
    done = agentctl("recommend", "--show-config", "--json")
    assert json.loads(done.out)["settings"]["slo"] == {"value": "ttft < 2s", "origin": "agentctl.toml"}
