"""The page in a browser: what a visitor sees, with a model in this process that needs no graph.

It needs Debian's `chromium`, or another that stands in the search path, and the packages of
`pip install '.[browser]'`. Without them these tests are skipped. With `BROWSER=firefox-esr`, they
run in Debian's Firefox, by WebDriver BiDi: Playwright must not ask for more of it than that Firefox
has (Playwright 1.61 for Firefox 153).
"""

import contextlib
import importlib.util
import os
import pathlib
import shutil
import time

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.files.model_card import write_card
from keras_transformer.serving import versions as versions_module
from keras_transformer.serving.loaded_ctranslate2 import FunctionSignature
from keras_transformer.serving.server import Server

playwright = pytest.importorskip(
    "playwright.sync_api", reason="it drives the browser: pip install '.[browser]'"
)
BROWSER = os.environ.get("BROWSER", "")
FIREFOX = shutil.which(BROWSER) if "firefox" in BROWSER else None
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    not (FIREFOX or CHROMIUM), reason="there is no Chromium: apt-get install chromium"
)

EVIL = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>&lt;b&gt;"
RTL_OVERRIDE = "\u202eevil\u202e \u2066 \u200f"
TEXT, NUMBER, FLAG = (tf.string, (None,)), (tf.float32, (None,)), (tf.bool, (None,))
WORDS = tf.string, (None, None)


class Model:
    """Writes each word backwards, with the version's number behind it.

    A text that has "evil" is answered with markup, one that has "slow" after a second.
    """

    def __init__(self, path):
        self.number = path.name
        three = (tf.string, (None, 3)), (tf.float32, (None, 3)), (tf.bool, (None, 3))
        best = dict(zip(("translation", "score", "truncated"), (TEXT, NUMBER, FLAG), strict=True))
        n_best = dict(zip(("translations", "scores", "truncated"), three, strict=True))
        explained = {
            **{"source_words": WORDS, "words": WORDS, "word_scores": (tf.float32, (None, None))},
            **{"attention": (tf.float32, (None,) * 3), "truncated": FLAG},
            "num_unknown": (tf.int32, (None,)),
        }
        attention = {
            **{"source_pieces": WORDS, "target_pieces": WORDS},
            "weights": (tf.float32, (None, 1, 2, None, None)),
        }
        met = {"terms_met": (tf.bool, (None, None))}
        text = {"text": TEXT}
        signatures = {
            "serving_default": (text, best, self.translate),
            "n_best": (text, n_best, self.n_best),
            "explain": ({**text, "target": TEXT}, explained, self.explain),
            "forced_attention": ({**text, "target": TEXT}, attention, self.attend),
            "constrained": ({**text, "prefix": TEXT, "terms": WORDS}, best | met, self.constrain),
        }
        self.signatures = {
            name: FunctionSignature(name, *signature) for name, signature in signatures.items()
        }
        self.signature_defs = {name: s.signature_def for name, s in self.signatures.items()}

    def write(self, text):
        text = text.decode()
        if "slow" in text:
            time.sleep(1)
        if "evil" in text:
            return EVIL + RTL_OVERRIDE
        return " ".join([*(word[::-1] for word in text.split()), self.number])

    def translate(self, text):
        texts = np.array([self.write(one).encode() for one in text], object)
        return {
            "translation": texts,
            "score": np.full(len(text), -0.5, np.float32),
            "truncated": np.array([len(one) > 200 for one in text]),
        }

    def n_best(self, text):
        found = self.translate(text)
        second = [one + b"!" for one in found["translation"]]
        columns = found["translation"], second, [b""] * len(text)
        scores = np.tile(np.float32([-0.5, -1.25, -1e9]), (len(text), 1))
        return {
            "translations": np.array(columns, object).T.reshape(len(text), 3),
            "scores": scores,
            "truncated": np.tile(found["truncated"][:, None], 3),
        }

    def explain(self, text, target):
        (source, target) = ([*map(str, one.decode().split())] for (one,) in (text, target))
        weights = np.full((1, len(target), len(source)), 0.1, np.float32)
        for i in range(min(weights.shape[1:])):
            weights[0, i, i] = 0.9
        scores = np.log(np.linspace(0.9, 0.2, len(target), dtype=np.float32))
        return {
            "source_words": np.array([[word.encode() for word in source]], object),
            "words": np.array([[word.encode() for word in target]], object),
            "word_scores": scores[None],
            "attention": weights,
            "truncated": np.array([False]),
            "num_unknown": np.array([1 if "?" in source else 0], np.int32),
        }

    def attend(self, text, target):
        pieces = np.array([[b"\xe2\x96\x81to", *target[0].split()[-1:]]], object)
        weights = np.zeros((1, 1, 2, 2, 2), np.float32)
        weights[0, 0, 0] = np.eye(2)
        weights[0, 0, 1] = np.eye(2)[::-1]
        sources = np.array([[b"\xe2\x96\x81to", b"ken"]], object)
        return {"source_pieces": sources, "target_pieces": pieces, "weights": weights}

    def constrain(self, text, prefix, terms):
        found = self.translate(text)
        given = [b" ".join([p, *row]) for p, row in zip(prefix, terms, strict=True)]
        rows = zip(given, found["translation"], strict=True)
        found["translation"] = np.array([b"%s|%s" % row for row in rows], object)
        found["terms_met"] = np.array([[one != b"unmet" for one in row] for row in terms])
        return found

    def warm_up_others(self):
        pass

    def close(self):
        pass


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The address of a server with two versions."""
    directory = tmp_path_factory.mktemp("browser") / "<b>model"
    for number in ("1", "2"):
        (directory / number).mkdir(parents=True)
        (directory / number / "saved_model.pb").touch()
        card = {"languages": {"source": "en", "target": "de"}, "data": {"<b>": EVIL + number}}
        write_card(directory / number, card)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions_module, "LoadedModel", Model)
        patch.setattr(versions_module, "_tidy_memory", lambda: None)
        options = {"versions": "all", "labels": {"stable": 1}, "port": 0, "grpc_port": 0}
        with Server(directory, **options) as server:
            yield f"http://{server.host}:{server.port}/"


@pytest.fixture(scope="module")
def browser():
    playwright.expect.set_options(timeout=20_000)
    with playwright.sync_playwright() as driver:
        if FIREFOX:
            browser = driver.firefox.launch(executable_path=FIREFOX, channel="moz-firefox")
        else:
            flags = ["--no-sandbox", "--disable-gpu"]  # a container's root has no sandbox
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


class Visit:
    """A page in the browser, in a context of its own.

    Attributes:
        page: Playwright's page.
        wrong: errors of its script, violations of its policy, dialogs and requests to others.
    """

    def __init__(self, page, url):
        self.page, self.wrong = page, []
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: self.note(str(error)))
        page.on("dialog", lambda dialog: self.wrong.append(dialog.message))
        page.on("request", lambda r: r.url.startswith((url, "blob:")) or self.wrong.append(r.url))
        page.on("console", lambda message: self.note(message.text))
        page.goto(url)
        self.wait_for("h1", "<b>model")

    def note(self, message):
        """Notes what the browser says, but for answers with an error, which the page shows.

        Firefox also says that the policy forbids the icon, for which it asks by itself.
        """
        if not message.startswith("Failed to load resource") and "favicon.ico" not in message:
            self.wrong.append(message)

    def wait_for(self, selector, text):
        """Waits until a place has a text."""
        playwright.expect(self.page.locator(selector)).to_have_text(text)


@pytest.fixture
def visit(browser, url):
    """A function that opens the page, with options of the browser's context."""
    with contextlib.ExitStack() as contexts:
        visits = []

        def visit(**options):
            context = contexts.enter_context(browser.new_context(**options))
            visits.append(Visit(context.new_page(), url))
            return visits[-1]

        yield visit
        assert [one.wrong for one in visits] == [[]] * len(visits)


def write(page, text):
    """Enters a long text at once: Playwright would type it, for minutes."""
    enter = "text => { const box = find('#text'); box.value = text; "
    page.evaluate(enter + "box.dispatchEvent(new Event('input')) }", text)


def test_a_text_is_translated_as_it_is_typed(visit):
    page = visit().page
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.type("#text", "one two", delay=10)
    playwright.expect(page.locator(".best")).to_have_text("eno owt 2")
    playwright.expect(page.locator(".alternatives li")).to_have_count(2)  # the third is missing
    assert page.locator(".alternatives .score").all_inner_texts() == ["-0.50", "-1.25"]
    assert sum(one.endswith(":predict") for one in asked) < 6  # n_best and explain, seldom twice
    page.click(".alternatives li:nth-child(2) button")
    playwright.expect(page.locator(".target-side span")).to_have_text(["eno", "owt", "2!"])


def test_an_overtaken_request_is_cancelled(visit):
    page = visit().page
    failed = []
    page.on("requestfailed", lambda request: failed.append(request.failure))
    page.fill("#text", "slow")
    page.wait_for_timeout(500)
    page.fill("#text", "quick")
    playwright.expect(page.locator(".best")).to_have_text("kciuq 2")
    assert failed in (["net::ERR_ABORTED"], ["NS_BINDING_ABORTED"])


def test_words_have_their_confidence_and_light_their_counterparts(visit):
    page = visit().page
    page.fill("#text", "one two ?")
    words = page.locator(".target-side button")
    playwright.expect(words).to_have_text(["eno90%", "owt67%", "?43%", "220%"])
    playwright.expect(page.locator(".unsure span")).to_have_text(["?", "2"])
    playwright.expect(page.locator(".remarks")).to_contain_text("1 of its tokens")
    words.nth(1).hover()
    playwright.expect(page.locator(".source-side .is-lit")).to_have_text("two")
    page.mouse.move(0, 0)
    playwright.expect(page.locator(".is-lit")).to_have_count(0)
    words.nth(0).focus()
    for key, lit in [
        ("ArrowRight", "two"),
        ("ArrowUp", "owt67%"),
        ("End", "?43%"),
        ("Home", "eno90%"),
    ]:
        page.keyboard.press(key)
        playwright.expect(page.locator(".is-lit")).to_have_text(lit)
    assert "attended to by" in page.locator(":focus").get_attribute("aria-description")


def test_a_layer_and_a_head_can_be_chosen_for_each_translation(visit):
    page = visit().page
    page.fill("#text", "one")
    page.select_option(".head select", label="layer 1, head 2")
    pieces = page.locator(".target-side span")
    playwright.expect(pieces).to_have_text(["\u2581to", "2"])
    pieces.nth(0).hover()
    playwright.expect(page.locator(".source-side .is-lit")).to_have_text("ken")
    page.click(".alternatives li:nth-child(2) button")
    playwright.expect(pieces).to_have_text(["\u2581to", "2!"])


def test_a_translation_gets_a_beginning_and_terms(visit):
    page = visit().page
    page.fill("#text", "The dog sleeps. A US dog. Us.")
    page.click("summary")
    page.fill("#prefix", "Der ")
    page.fill("#terms", "dog = Hund | Köter\nUS\tUSA\n!Katze\nnone = kein\nsleeps = unmet")
    expected = ["Der  Hund\tKöter !Katze unmet|", " Hund\tKöter USA !Katze|", " !Katze|"]
    for number, begin in enumerate(expected):
        line = page.locator(".sentences button").nth(number)
        playwright.expect(line).to_contain_text(begin, use_inner_text=False)
    page.click(".sentences li:first-child button")
    playwright.expect(page.locator(".remarks")).to_have_text("Without the term unmet.")


def test_many_sentences_are_lines_with_progress_and_details_of_one(visit):
    page = visit().page
    page.fill("#text", "Dr. One is here. Two.\n\nslow three\n" + "four\n" * 40 + "five")
    playwright.expect(page.locator(".progress")).to_be_visible()
    playwright.expect(page.locator(".state").first).to_contain_text("44 sentences")
    playwright.expect(page.locator(".progress")).to_be_hidden()
    lines = page.locator(".sentences button")
    assert lines.nth(0).inner_text() == ".rD enO si .ereh 2"
    assert page.evaluate("state.panes[0].text").split("\n")[:2] == [
        ".rD enO si .ereh 2 .owT 2",
        "wols eerht 2",
    ]
    lines.nth(1).click()
    playwright.expect(page.locator(".source-side")).to_have_text("Two.")


def test_a_file_goes_up_and_its_translation_comes_down(visit, tmp_path):
    page = visit().page
    lines = ["\ufeffone two", "", *map(str, range(50)), "  three "]
    (tmp_path / "a.txt").write_text("\r\n".join(lines) + "\n", "utf-8")
    page.set_input_files("#file", tmp_path / "a.txt")
    if FIREFOX:
        playwright.expect(page.locator("#job-state")).to_have_text("is translated")
        return  # by BiDi, Playwright hears nothing of the download
    with page.expect_download() as download:
        page.click("#job-result")
    assert download.value.suggested_filename == "a.translated.txt"
    found = pathlib.Path(download.value.path()).read_text("utf-8").split("\n")
    assert found == ["eno owt 2", "", *(f"{str(i)[::-1]} 2" for i in range(50)), "eerht 2", ""]


def test_two_versions_stand_side_by_side(visit):
    page = visit(viewport={"width": 1280, "height": 800}).page
    page.fill("#text", "one")
    page.click("#compare")
    playwright.expect(page.locator(".best")).to_have_text(["eno 2", "eno 1"])
    options = page.locator(".version select").first.locator("option").all_inner_texts()
    assert options == ["latest (2)", "stable (1)", "2", "1"]
    page.locator(".version select").first.select_option("stable (1)")
    playwright.expect(page.locator(".best")).to_have_text(["eno 1", "eno 1"])
    first, second = (page.locator(".pane").nth(i).bounding_box() for i in range(2))
    assert first["y"] == second["y"] and first["x"] + first["width"] < second["x"]
    page.click("#compare")
    playwright.expect(page.locator(".pane")).to_have_count(1)


def test_the_model_card_is_shown_and_names_the_languages(visit):
    page = visit().page
    playwright.expect(page.locator("#about")).to_have_text("English to German")
    page.click(".card summary")
    playwright.expect(page.locator(".card dd").last).to_have_text(f"{EVIL}2")
    page.select_option(".version select", label="1")
    playwright.expect(page.locator(".card dd").last).to_have_text(f"{EVIL}1")
    languages = [page.locator(one).get_attribute("lang") for one in ("#text", ".best")]
    assert languages == ["en", "de"]


def test_nothing_of_a_hostile_text_or_answer_runs(visit):
    page = visit().page
    page.fill("#text", f"evil {EVIL}\n{RTL_OVERRIDE} evil\nmild")
    lines = page.locator(".sentences button")
    playwright.expect(lines).to_have_text([EVIL + RTL_OVERRIDE] * 2 + ["dlim 2"])
    playwright.expect(page.locator(".target-side span").first).to_have_text("mild"[::-1])
    lines.nth(0).click()
    playwright.expect(page.locator(".target-side span").first).to_have_text("<img")
    page.click("summary")
    page.fill("#terms", EVIL)
    page.fill("#prefix", EVIL)
    page.fill("#text", f"evil {EVIL}")
    playwright.expect(page.locator(".best")).to_contain_text("|<img")
    assert page.locator("img, body script, iframe").count() == 0
    assert page.evaluate("window.hacked") is None


def test_texts_of_any_size_are_answered_or_refused(visit):
    page = visit().page
    write(page, "a" * 100_001)
    playwright.expect(page.locator(".best.failed")).to_contain_text("100000")
    write(page, "ok\n" + "b" * 100_001 + "\n" + "\ud800 half")
    playwright.expect(page.locator(".sentences .failed")).to_have_count(1)
    playwright.expect(page.locator(".sentences button").nth(2)).to_contain_text("flah 2")


@pytest.mark.slow
def test_thousands_of_lines_are_translated_until_the_text_changes(visit):
    page = visit().page

    def wait_until(expression):  # Playwright's own way looks at all lines, for minutes
        end = time.monotonic() + 120
        while not page.evaluate(expression):
            assert time.monotonic() < end, expression
            page.wait_for_timeout(100)

    write(page, "\n".join(map(str, range(5000))))
    wait_until("find('.sentences').children[300]?.textContent === '003 2'")
    assert page.evaluate("find('.sentences').childElementCount") == 5000
    write(page, "one")  # which does not wait for the others
    wait_until("find('.best').textContent === 'eno 2'")


def test_nothing_is_stored(visit):
    page = visit().page
    page.fill("#text", "one")
    playwright.expect(page.locator(".words")).to_be_visible()
    assert page.context.cookies() == []
    stored = "[localStorage.length, sessionStorage.length, (await indexedDB.databases()).length]"
    assert page.evaluate(f"(async () => {stored})()") == [0, 0, 0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_accessible_and_fits(visit, scheme, width):
    axe = importlib.util.find_spec("axe_core_python")
    if axe is None:
        pytest.skip("it checks the page: pip install '.[browser]'")
    (script,) = pathlib.Path(axe.submodule_search_locations[0]).rglob("axe.min.js")
    page = visit(viewport={"width": width, "height": 800}, color_scheme=scheme).page
    page.evaluate(script.read_text("utf-8"))

    def check():
        page.wait_for_timeout(200)  # for the transitions of colours
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width

    check()
    page.fill(
        "#text", "one ? two\n\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd\n" + "long" * 60
    )
    page.click("#compare")
    page.click("summary")
    playwright.expect(page.locator(".state").nth(1)).to_contain_text("4 sentences")
    page.click(".sentences li:first-child button")
    page.locator(".target-side button").first.hover()
    check()


def test_a_text_from_right_to_left_is_read_so(visit):
    page = visit().page
    page.fill("#text", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd")
    words = page.locator(".source-side button")
    playwright.expect(words).to_have_count(2)
    for selector in ("#text", ".best", ".source-side", ".target-side"):
        direction = "(element) => getComputedStyle(element).direction"
        assert page.locator(selector).first.evaluate(direction) == "rtl"
    first, second = (words.nth(i).bounding_box()["x"] for i in range(2))
    assert first > second
    words.nth(0).focus()
    page.keyboard.press("ArrowLeft")
    playwright.expect(words.nth(1)).to_be_focused()


def test_a_server_that_cannot_be_reached_is_said(visit):
    page = visit().page
    page.context.set_offline(True)
    page.fill("#text", "one")
    playwright.expect(page.locator(".failure")).to_have_text("The server cannot be reached.")
    page.context.set_offline(False)
    page.fill("#text", "two")
    playwright.expect(page.locator(".best")).to_have_text("owt 2")
    playwright.expect(page.locator(".failure")).to_be_hidden()
