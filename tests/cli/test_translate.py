"""`keras-transformer translate`, with a translator that writes capitals."""

import gzip
import json
import os
import pathlib
import re
import sys
import types

import pytest

from keras_transformer import cli
from keras_transformer.cli import arguments, progress, translated_lines
from keras_transformer.cli import translate as translate_command
from keras_transformer.cli.translated_lines import Notes
from keras_transformer.models.ensemble import MEANS
from keras_transformer.translation.base_translator import Translation
from keras_transformer.translation.reranking import least_risk


def test_translate_gives_a_line_for_each_line_in_order(
    calls, run_directory, type_in, capsysbinary, fake_translator
):
    type_in("ä dog\n\n  \nb\r\nno end".encode())
    assert cli.main(["translate", run_directory]) == 0
    captured = capsysbinary.readouterr()
    assert captured.out.decode() == "Ä DOG\n\n  \nB\nNO END\n"
    assert captured.err == b""
    assert fake_translator.loaded == (run_directory, None)


def test_several_runs_are_an_ensemble(calls, run_directories, type_in, capsys, fake_translator):
    flags = ["--checkpoint", "last"]
    for more, mean in (([], None), (["--ensemble", "log_probabilities"], "log_probabilities")):
        type_in(b"a dog\n")
        assert cli.main(["translate", *run_directories, *flags, *more]) == 0
        assert fake_translator.loaded == (run_directories, "last")
        assert fake_translator.ensemble == mean
        assert capsys.readouterr().out == "A DOG\n"


def test_the_means_of_an_ensemble_are_those_of_the_class():
    flags = arguments.Parser()
    arguments.add_ensemble(flags)
    assert flags._option_string_actions["--ensemble"].choices == MEANS


def test_an_ensemble_lacks_a_run(calls, run_directory, tmp_path, error_of):
    error = error_of(2, ["translate", run_directory, str(tmp_path / "none")])
    assert f"Received: {tmp_path / 'none'}: no such directory" in error
    output = str(tmp_path / "second" / "config.yaml")
    (tmp_path / "second").mkdir()
    pathlib.Path(output).touch()
    command = ["translate", run_directory, str(tmp_path / "second"), "--output", output]
    assert "config.yaml" in error_of(2, command)
    assert calls == []


def test_waiting_lines_are_translated_before_more_are_read(
    calls, run_directory, monkeypatch, capsysbinary, fake_translator
):
    """Whoever writes the lines may wait for their translations."""
    monkeypatch.setattr(arguments, "CHUNK_LINES", 2)
    written = [b"a\n", b"b\nc\nd\ne", b"\nf"]
    translated = []

    def read1(size):
        translated.append(sum(map(len, fake_translator.chunks)))
        return written.pop(0) if written else b""

    stdin = types.SimpleNamespace(read1=read1)
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=stdin))
    assert cli.main(["translate", run_directory]) == 0
    assert fake_translator.chunks == [["a"], ["b", "c"], ["d"], ["e"], ["f"]]
    assert translated == [0, 1, 4, 5]
    assert capsysbinary.readouterr().out == b"A\nB\nC\nD\nE\nF\n"


@pytest.mark.parametrize(
    "done, sizes", [(0, [2, 4, 5, 5, 1]), (6, [5, 5, 1]), (7, [4, 5, 1]), (16, [1]), (17, [])]
)
def test_chunks_grow_and_end_where_they_do_without_an_interruption(done, sizes, monkeypatch):
    for name, value in (("CHUNK_LINES", 5), ("FIRST_LINES", 2)):
        monkeypatch.setattr(arguments, name, value)
    lines = list(map(str, range(done, 17)))
    chunks = list(arguments.chunks_of(lines, done))
    assert list(map(len, chunks)) == sizes and sum(chunks, []) == lines


def test_a_file_is_read_one_chunk_ahead(
    calls, run_directory, monkeypatch, capsysbinary, fake_translator, write_files
):
    """So that the first batches of the next chunk begin before the last ones of this chunk end."""
    monkeypatch.setattr(arguments, "CHUNK_LINES", 2)
    read_before = []
    original = fake_translator.translate

    def translate(self, texts, n_best=1):
        read_before.append(len(read))
        return original(self, texts, n_best)

    monkeypatch.setattr(fake_translator, "translate", translate)
    read = []

    def reading(path):
        for number in range(7):
            read.append(number)
            yield str(number)

    monkeypatch.setattr(translate_command, "iterate_lines", reading)
    (source,) = write_files(source="there\n")
    assert cli.main(["translate", run_directory, "--input", source]) == 0
    assert read_before == [4, 6, 7, 7]
    assert capsysbinary.readouterr().out == b"".join(b"%d\n" % n for n in range(7))


def test_translate_prints_scores_and_hypotheses(calls, run_directory, type_in, capsysbinary):
    type_in(b"a\nb\n")
    assert cli.main(["translate", run_directory, "--scores"]) == 0
    assert capsysbinary.readouterr().out == b"-0.0000\tA\n-0.0000\tB\n"
    type_in(b"a\nb\n")
    assert cli.main(["translate", run_directory, "--n-best", "2"]) == 0
    expected = b"1\t-0.0000\tA\n1\t-1.0000\tA!\n2\t-0.0000\tB\n2\t-1.0000\tB!\n"
    assert capsysbinary.readouterr().out == expected


def test_prefixes_are_one_for_all_lines_or_those_of_a_file(
    calls, run_directory, type_in, write_files, fake_translator
):
    type_in(b"a\nb\n")
    assert cli.main(["translate", run_directory, "--prefix", "Der "]) == 0
    assert fake_translator.prefixes == "Der "
    (prefixes,) = write_files(prefixes="Der\n\n")
    type_in(b"a\nb\n")
    assert cli.main(["translate", run_directory, "--prefixes", prefixes]) == 0
    assert fake_translator.prefixes == ["Der", ""]


def test_samples_are_printed_as_the_n_best_are(
    calls, run_directory, type_in, capsysbinary, fake_translator
):
    type_in(b"a\n")
    flags = ["--sample", "--n-best", "2", "--temperature", "0.5", "--top-k", "9", "--seed", "3"]
    assert cli.main(["translate", run_directory, *flags]) == 0
    assert capsysbinary.readouterr().out == b"1\t-0.0000\tA\n1\t-1.0000\tA!\n"
    assert fake_translator.sampling == {"temperature": 0.5, "top_k": 9, "seed": 3}


def test_alignments_stand_behind_translations(
    calls, run_directory, type_in, capsysbinary, fake_translator
):
    type_in(b"a dog\n\nb\n")
    flags = ["--alignments", "--alignment-head", "2", "1"]
    assert cli.main(["translate", run_directory, *flags]) == 0
    assert capsysbinary.readouterr().out == b"A DOG\t0-0 0-1\n\t\nB\t0-0\n"
    assert fake_translator.alignment_head == (2, 1)
    type_in(b"a dog\n")
    assert cli.main(["translate", run_directory, "--token-alignments"]) == 0
    assert capsysbinary.readouterr().out == b"A DOG\t0-1 1-0\n"


def test_each_line_is_an_object(calls, run_directory, type_in, capsys, write_files):
    (terms,) = write_files(terms="dog\tHund\n")
    type_in("ä dog\ncut \u2603\n".encode())
    flags = ["--json", "--n-best", "2", "--terms", terms]
    assert cli.main(["translate", run_directory, *flags]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["unknown"], second["unknown"]) == ("", "\u2603")
    assert (first["line"], first["source"], first["not_met"]) == (1, ["ä", "dog"], ["dog"])
    best, other = first["translations"]
    words = [{"text": word, "score": -0.5, "source": 0} for word in ("Ä", "DOG")]
    assert best == {
        "text": "Ä DOG", "score": 0.0, "truncated": False, "words": words, "alignment": "0-0 0-1"
    }  # fmt: skip
    assert other["text"] == "Ä DOG!" and second["translations"][0]["truncated"]


def test_a_second_run_orders_the_translations(
    calls, run_directories, type_in, capsys, monkeypatch, error_of
):
    class Reranking:
        def __init__(self, translator, reverse):
            self.translate_chunks = reverse.translate_chunks
            self.checksum, self.unknown_characters = reverse.checksum, reverse.unknown_characters
            assert [translator.decoding.beam_size, reverse.decoding.beam_size] == [8, 2]

    module = types.SimpleNamespace(RerankingTranslator=Reranking)
    monkeypatch.setitem(sys.modules, "keras_transformer.translation.reranking", module)
    model, other = run_directories
    type_in(b"a dog\n")
    command = ["translate", model, "--beam-size", "8", "--rerank-with"]
    assert cli.main([*command, other]) == 0
    assert capsys.readouterr().out == "A DOG\n"
    assert f"Received: {other}/none: no such directory" in error_of(2, [*command, f"{other}/none"])
    (export := pathlib.Path(other, "export")).mkdir()
    assert f"Received: {export}: an export." in error_of(2, [*command, str(export)])
    assert "Received: samples and --rerank-with" in error_of(2, [*command, other, "--sample"])


def test_lines_that_lost_characters_are_counted(calls, run_directory, type_in, capsys):
    type_in("a\n\u2603\nb \u2603\nc\u2603\n".encode())  # the second is a copy
    assert cli.main(["translate", run_directory]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "2 of 4 lines have characters that the tokenizer does not know" in line
    assert line.endswith("the first is line 3")
    type_in("<b> &lt; \u2603\n\u2603\ndog\u2603\n".encode())
    assert cli.main(["translate", run_directory, "--copy-unknown"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("<B> &LT; \u2603\n\u2603\nDOG\u2603\n", "")
    type_in('<b title="\u2603">a</b> \u2603\n<b title="\u2603">a</b>\n'.encode())
    assert cli.main(["translate", run_directory, "--markup"]) == 0
    assert "1 of 2 lines have characters" in capsys.readouterr().err  # a tag does not replace it


def test_lines_that_lack_a_term_are_named(calls, run_directory, type_in, write_files, capsys):
    (terms,) = write_files(terms="dog\tHUND\n\t!CAT\na\tA\n")
    type_in(b"a\na dog\n\nno cat\n" + b"dog\n" * 6)
    assert cli.main(["translate", run_directory, "--terms", terms]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "keras-transformer: warning: the translations of 8 of 10 lines lack a term, or have one "
        "that is marked by !: line 2 (dog); line 4 (!CAT); line 5 (dog); line 6 (dog); "
        "line 7 (dog) and 3 more"
    )


def test_what_is_noted_of_the_lines_does_not_grow_with_them():
    output = types.SimpleNamespace(notes={})
    for number in range(1, 10_000):
        notes = Notes(output)
        notes.add(number, Translation("a", 0.0, True), "a", "b", "b", ["dog"])
    assert len(str(output.notes)) < 500


def test_markup_is_kept(calls, run_directory, type_in, write_files, capsys):
    (patterns,) = write_files(patterns="[A-Z]-[0-9]+\n")
    type_in(b"<b>a</b>  X-1\n\n<i>a</i> <b>dog</b> &lt; {0}\nX-1 <br>\n")
    flags = ["--markup-patterns", patterns, "--markup"]
    assert cli.main(["translate", run_directory, *flags]) == 0
    captured = capsys.readouterr()
    assert captured.out == "<b>A</b> X-1\n\n<i>A DOG</i> &lt;<b></b> {0}\nX-1 <br>\n"
    assert captured.err == (
        "keras-transformer: warning: the translations of 1 of 4 lines have markup at the end, as "
        "no word of them belongs to it: line 3 (<b>)\n"
    )
    (terms,) = write_files(terms="a dog\tA DOG\n")
    type_in(b"a <b>dog</b>\na x\n")
    flags = ["--markup", "--json", "--n-best", "2", "--terms", terms]
    assert cli.main(["translate", run_directory, *flags]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    texts = [(found["text"], found["unplaced"]) for found in first["translations"]]
    assert texts == [("A DOG<b></b>", ["<b>"]), ("A DOG!<b></b>", ["<b>"])]
    assert [word["text"] for word in first["translations"][0]["words"]] == ["A", "DOG"]
    assert first["source"] == ["a", "dog"] and first["not_met"] == []
    assert second["translations"][0]["unplaced"] == []


def test_of_many_samples_the_one_like_the_others_is_printed(
    calls, run_directory, type_in, capsysbinary, fake_translator
):
    type_in(b"a dog\n")
    assert cli.main(["translate", run_directory, "--mbr", "3", "--top-k", "5"]) == 0
    samples = [Translation(f"A DOG{n * '!'}", 0.0, False) for n in range(3)]
    assert capsysbinary.readouterr().out.decode() == f"{least_risk(samples).text}\n"
    assert fake_translator.sampling == {"top_k": 5}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mbr", "9", "--sample"], "--mbr alone, .* Received: sample=True, n_best=1"),
        (["--mbr", "9", "--terms", "none/there"], "Received: samples and --terms none/there"),
        (["--sample", "--terms", "none/there"], "Received: samples and --terms none/there"),
        (["--terms", "none/there"], "Received: none/there: No such file"),
        (["--top-p", "0.5"], "Expected --sample or --mbr .* Received: top_p=0.5. Add one"),
        (["--markup-patterns", "none/there"], "Received: none/there: No such file"),
        (["--prefixes", "none/there"], "Received: none/there: No such file"),
    ],
)
def test_flags_that_do_not_fit_are_refused(calls, run_directory, error_of, flags, message):
    assert re.search(message, error_of(2, ["translate", run_directory, *flags]))
    assert calls == []


def test_a_translation_stays_on_its_line(calls, run_directory, type_in, capsysbinary):
    type_in("one\u2028two\x0bthree\n".encode())
    assert cli.main(["translate", run_directory]) == 0
    assert capsysbinary.readouterr().out == b"ONE TWO THREE\n"


def test_translate_says_which_lines_were_too_long(calls, run_directory, type_in, capsysbinary):
    type_in(b"a\ncut\nb\ncut\n")
    assert cli.main(["translate", run_directory]) == 0
    error = capsysbinary.readouterr().err.decode()
    assert error.startswith("keras-transformer: warning: 2 of 4 lines")
    assert error.endswith("the first is line 2\n")


def test_translate_from_file_to_file(calls, run_directory, tmp_path, capsysbinary, write_files):
    (source,) = write_files(source="a\nb\n")
    output = tmp_path / "out.gz"
    assert cli.main(["translate", run_directory, "--input", source, "--output", str(output)]) == 0
    assert gzip.decompress(output.read_bytes()) == b"A\nB\n"
    assert capsysbinary.readouterr().out == b""


def test_without_a_terminal_a_line_says_how_far_it_is(
    calls, run_directory, capsys, write_files, monkeypatch, tmp_path
):
    monkeypatch.setattr(arguments, "CHUNK_LINES", 2)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    (source,) = write_files(source="a\nb\nc\n")
    flags = ["--input", source, "--output", str(tmp_path / "out")]
    assert cli.main(["translate", run_directory, *flags]) == 0
    first, *more = capsys.readouterr().err.splitlines()
    pattern = r"keras-transformer: 1 of 3 lines \(33%\), [\d,.]+ a second, \d+ minutes left"
    assert re.fullmatch(pattern, first)  # of a batch, before its chunk is whole
    done = [line.split(" lines")[0] for line in more]
    assert done == [f"keras-transformer: {number} of 3" for number in (2, 2, 3, 3)]
    assert more[-1].endswith(" 0 minutes left")


def test_the_bar_ends_before_an_interruption_is_said(
    calls, run_directory, capsys, write_files, monkeypatch, tmp_path
):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(translated_lines, "_row", interrupt)
    (source,) = write_files(source="a\nb\n")
    flags = ["--input", source, "--output", str(tmp_path / "out")]
    assert cli.main(["translate", run_directory, *flags]) == 130
    *bar, said = capsys.readouterr().err.splitlines()
    assert "lines/s" in bar[-1] and said.startswith("keras-transformer: interrupted")


def test_bad_bytes_leave_the_output_as_it_was(
    calls, run_directory, tmp_path, error_of, write_files
):
    source, output = write_files(source=b"a\n\xff\n", output="old\n")
    error = error_of(2, ["translate", run_directory, "--input", source, "--output", output])
    assert f"{source}, line 2" in error
    assert pathlib.Path(output).read_text() == "old\n"
    assert len(list(tmp_path.iterdir())) == 3  # the run, source and output


def test_an_interrupted_command_goes_on_where_it_was(
    calls, run_directory, tmp_path, capsys, write_files, monkeypatch, fake_translator
):
    monkeypatch.setattr(arguments, "CHUNK_LINES", 1)
    (source,) = write_files(source=b"a\ncut\nb\n\xff\n")
    command = ["translate", run_directory, "--input", source, "--output", str(tmp_path / "out.de")]
    assert cli.main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    kept = tmp_path / "out.partial.de"
    assert f"{source}, line 4" in line
    assert line.endswith(f"; what is done up to line 3 is in {kept}: the same command goes on")
    assert kept.read_text() == "A\nCUT\nB\n"
    write_files(source="a\ncut\nb\nc\n")
    assert cli.main([*command, "--scores"]) == 2
    assert "Received: another model, search, or file" in capsys.readouterr().err
    assert cli.main(command) == 0
    first, last = capsys.readouterr().err.splitlines()
    assert first == "keras-transformer: goes on after line 3"
    assert "warning: 1 of 4 lines" in last and last.endswith("the first is line 2")
    assert fake_translator.chunks == [["c"]]
    assert (tmp_path / "out.de").read_text() == "A\nCUT\nB\nC\n" and not kept.exists()
    write_files(source=b"a\n\xff\n")
    assert cli.main([*command, "--alignments"]) == 2
    capsys.readouterr()
    assert cli.main([*command, "--token-alignments"]) == 2
    assert "Received: another model, search, or file" in capsys.readouterr().err


def test_a_chunk_is_saved_before_the_next_is_waited_for(
    calls, run_directory, tmp_path, write_files, monkeypatch, fake_translator
):
    monkeypatch.setattr(arguments, "CHUNK_LINES", 2)
    state, translate, saved = tmp_path / "out.partial.json", fake_translator.translate, []

    def looking(self, texts, n_best=1):
        saved.append(json.loads(state.read_text())["lines"] if state.exists() else 0)
        return translate(self, texts, n_best)

    monkeypatch.setattr(fake_translator, "translate", looking)
    (source,) = write_files(source="a\n" * 8)
    command = ["translate", run_directory, "--input", source, "--output", str(tmp_path / "out")]
    assert cli.main(command) == 0
    assert saved == [0, 2, 4, 6]


def test_tags_that_are_not_balanced_lose_nothing_before_them(
    calls, run_directory, tmp_path, capsys, write_files, monkeypatch
):
    monkeypatch.setattr(arguments, "CHUNK_LINES", 3)
    (source,) = write_files(source="a\nb\nc\n<b>d</b>\n</b>\ne\n")
    command = ["translate", run_directory, "--input", source, "--output", str(tmp_path / "out")]
    command.append("--markup")
    assert cli.main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Received: line 5: </b> without an opening tag. " in line
    assert "what is done up to line 4 is in" in line and line.endswith("the same command goes on")
    assert (tmp_path / "out.partial").read_text() == "A\nB\nC\n<b>D</b>\n"
    write_files(source="a\nb\nc\n<b>d</b>\ne\n</i>\n")
    assert cli.main(command) == 2
    assert "Received: line 6: </i>" in capsys.readouterr().err
    assert (tmp_path / "out.partial").read_text().endswith("<b>D</b>\nE\n")


@pytest.mark.parametrize("flag", ["--input", "--output"])
def test_translate_looks_at_its_files_before_it_starts(calls, run_directory, flag, error_of):
    path = os.path.join(run_directory, "none", "file")
    assert path in error_of(2, ["translate", run_directory, flag, path])
    assert calls == []


def test_the_search_of_an_export_is_fixed(calls, export_directory, type_in, capsysbinary):
    type_in(b"a\n")
    assert cli.main(["translate", export_directory, "--beam-size", "2"]) == 0
    assert capsysbinary.readouterr().out == b"A\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--beam-size", "0"], "from 1 to 1,000. Received: decoding.beam_size=0"),
        (["--length-penalty", "-1"], "from 0 to 10. Received: decoding.length_penalty=-1.0"),
    ],
)
def test_a_bad_search_is_refused_before_keras_starts(
    calls, run_directory, arguments, message, error_of
):
    assert message in error_of(2, ["translate", run_directory, *arguments])
    assert calls == []


def test_a_model_that_is_not_there_is_refused(calls, tmp_path, error_of):
    error = error_of(2, ["translate", str(tmp_path / "none")])
    assert "Expected the directory of a run or of an export. Received:" in error
    assert calls == []
