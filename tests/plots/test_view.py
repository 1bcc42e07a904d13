import base64
import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from keras_transformer import plots

STRANGE = ["</script>", "<b>\"'&amp;", "🐶", "القط", "$&`\\u003c"]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


def data_of(page):
    """What the page hands to its program."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(data)


def test_the_page_has_all_weights_of_all_kinds(attention_map):
    kinds = data_of(plots.attention_view(attention_map).html)["kinds"]
    assert [kind["id"] for kind in kinds] == ["encoder", "decoder", "cross"]
    for kind, weights in zip(kinds, attention_map.weights.values(), strict=True):
        shape = kind["num_layers"], kind["num_heads"], len(kind["queries"]), len(kind["keys"])
        found = np.frombuffer(base64.b64decode(kind["weights"]), "uint8").reshape(shape) / 255
        np.testing.assert_allclose(found, weights, atol=0.5 / 255 + 1e-6)
    cross = kinds[2]
    assert cross["queries"] == ["␣Ein", "␣Hund", "</s>"]
    assert cross["keys"] == ["␣A", "␣dog", "␣run", "s", "</s>"]


def test_the_text_of_tokens_stays_text(attention_map):
    strange = attention_map._replace(source_pieces=STRANGE)
    page = plots.attention_view(strange).html
    assert data_of(page)["kinds"][0]["queries"] == STRANGE
    plain = plots.attention_view(attention_map).html
    assert page.count("<script") == plain.count("<script") == 2
    assert page.count("</script>") == plain.count("</script>") == 2
    assert page.count("<b>") == 0


def test_a_notebook_shows_the_page_in_a_frame(attention_map):
    view = plots.attention_view(attention_map._replace(source_pieces=STRANGE))
    frame = view._repr_html_()
    (document,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert html.unescape(document) == view.html
    assert frame.count("<") == 2  # the frame's own


def test_the_page_asks_the_network_for_nothing(attention_map):
    page = plots.attention_view(attention_map).html
    assert not re.search(r"https?:|//\w+\.|@import|\burl\(|\bsrc=|fetch\(|import\(", page)
    assert "default-src 'none'" in page  # a browser would refuse it, too


def test_a_large_page_is_below_a_megabyte():
    from keras_transformer.translation.translator import AttentionMap

    tokens = ["▁token"] * 60
    weights = np.full((6, 8, 60, 60), 1 / 60, "float32")
    kinds = {"encoder": weights, "decoder": weights, "cross": weights}
    view = plots.attention_view(AttentionMap(tokens, tokens, tokens, kinds))
    assert len(view.html) < 800_000
    assert view.height == 900


def test_the_page_is_written_as_html(attention_map, tmp_path):
    path = tmp_path / "attention.html"
    view = plots.attention_view(attention_map, path)
    assert path.read_text(encoding="utf-8") == view.html
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ValueError, match=r"ends in \.html\. Received: .*attention\.png"):
        plots.attention_view(attention_map, tmp_path / "attention.png")


def test_a_cut_text_is_warned_of_once_and_no_weights_are_refused(attention_map):
    with pytest.warns(UserWarning, match="is incomplete") as caught:
        plots.attention_view(attention_map._replace(truncated=True))
    assert len(caught) == 1
    with pytest.raises(ValueError, match="Choose one of: none"):
        plots.attention_view(attention_map._replace(weights={}))


def said_after(page, programs, directory):
    """What the page says after each of some programs has run in it, and the tokens it shows."""
    steps = "".join(f"{program};\nreport.push(find('said').textContent);" for program in programs)
    tokens = "[...document.querySelectorAll('.token')].map((token) => token.firstChild.textContent)"
    program = f"const report = [];\n{steps}\nreport.push({tokens});"
    program += "document.title = JSON.stringify(report)"
    path = directory / "page.html"
    path.write_text(page.replace("</body>", f"<script>{program}</script></body>"))
    flags = "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run"
    command = [BROWSER, *flags.split(), f"--user-data-dir={directory / 'profile'}", "--dump-dom"]
    done = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=120)
    (title,) = re.findall("<title>(.*?)</title>", done.stdout)
    *said, tokens = json.loads(html.unescape(title))
    return [re.sub("[\u2068\u2069]", "", text) for text in said], tokens


@pytest.mark.skipif(BROWSER is None, reason="needs the browser Chromium, which is not installed")
def test_a_browser_shows_what_a_token_attends_to(attention_map, tmp_path):
    weights = np.zeros((2, 6, 3, 5), "float32")
    weights[1, :, 1, 2] = 0.6
    weights[1, 3, 1, 2] = 0.0
    weights[1, 3, 1, 4] = 0.9
    weights[0, :, 1, 0] = 1.0
    made = attention_map._replace(source_pieces=STRANGE, weights={"cross": weights})
    page = plots.attention_view(made).html
    down = 'new KeyboardEvent("keydown", {key: "ArrowDown", cancelable: true})'
    said, tokens = said_after(
        page,
        [
            "const [queries, keys] = SIDES.map((side) => find(side).querySelectorAll('.token'));"
            f"queries[0].focus(); queries[0].dispatchEvent({down})",
            "queries[1].blur(); hover(null); find('none').click();"
            "find('heads').querySelectorAll('input')[3].click(); keys[4].click()",
            "find('all').click(); find('layer').value = 0;"
            "find('layer').dispatchEvent(new Event('change')); queries[1].click()",
        ],
        tmp_path,
    )
    assert tokens == ["␣Ein", "␣Hund", "</s>", *STRANGE]
    assert said == [
        "“␣Hund” attends to 🐶 0.50, $&`\\u003c 0.15 (mean of 6 heads).",
        "“$&`\\u003c” is attended to by ␣Hund 0.90 (one head).",
        "“␣Hund” attends to </script> 1.00 (mean of 6 heads).",
    ]
