"""`keras-transformer quickstart`; the tour itself is tested in tests/quickstart."""

from keras_transformer import cli


def test_quickstart_takes_its_directory(calls):
    assert cli.main(["quickstart"]) == 0
    assert cli.main(["quickstart", "--output", "there"]) == 0
    expected = [("quickstart", (directory,), {}) for directory in ("quickstart", "there")]
    assert [call for call in calls if call != "keras"] == expected
