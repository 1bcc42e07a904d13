// The page of the embedded server. It asks the server's REST interface alone, keeps everything in
// memory, and writes every text with `textContent`, so that no text becomes part of the page.
"use strict";

const MIN_ROWS = 8, MAX_ROWS = 64; // sentences in a request: few at first, so that they are soon there
const MAX_CONSTRAINED = 16; // the same with a beginning or terms, which a server does not batch
const MAX_BATCH_LENGTH = 50_000; // characters in a request of several sentences
const MAX_RESULTS = 20_000; // translations that a pane remembers
const MAX_FILE_BYTES = 50_000_000;
const TYPING_MS = 150; // pause in typing after which a text is translated
const SAYING_MS = 800; // the same before a screen reader is told
const ATTEMPTS = 5; // of a request that is answered "busy"
const NO_SCORE = -1e8; // an alternative below this does not exist

const find = (selector, within = document) => within.querySelector(selector);
const make = (parent, name, properties = {}) =>
  parent.appendChild(Object.assign(document.createElement(name), properties));
const on = (element, events, handler) =>
  events.split(" ").forEach((event) => element.addEventListener(event, handler));
const write = (element, text) => {
  element.textContent = text;
  element.hidden = !text;
};
const percent = (share) => `${Math.round(100 * share)}%`;
const wellFormed = (text) => text.trim().toWellFormed(); // the server refuses half a character

const state = {
  model: "",
  versions: [], // {version, labels, card}, the highest first
  sentences: [], // see `sentencesOf`
  chosen: 0, // the number of the sentence whose details are shown
  panes: [],
};

// === the server ===

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    setTimeout(resolve, milliseconds);
    on(signal, "abort", () => reject(signal.reason));
  });
}

// Returns the parsed answer. A busy server is asked again, each time after a longer pause. The error
// of an answer has its status.
async function ask(path, signal, body) {
  const options = body ? { method: "POST", body: JSON.stringify(body), signal } : { signal };
  for (let attempt = 1; ; attempt++) {
    const response = await fetch(path, options).catch((error) => {
      throw signal.aborted ? error : new Error("The server cannot be reached.");
    });
    if (response.ok) return response.json();
    if (![429, 503].includes(response.status) || attempt === ATTEMPTS) {
      const found = await response.json().catch(() => ({}));
      const message = String(found.error ?? `Status ${response.status}`);
      throw Object.assign(new Error(message), { status: response.status });
    }
    await pause(250 * 2 ** attempt, signal);
  }
}

// === the text ===

const LINE = /[^\r\n\u2028\u2029]+/g;
const NO_END = /(?:^|[\s(])(?:\p{Lu}|\d{1,2}|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|vs|etc|e\.g|i\.e|z\. ?B)\.\s*$/u;
const segmenter = new Intl.Segmenter(undefined, { granularity: "sentence" });

// Returns the sentences of a text as {text, end, beginsLine, prefix, terms, key}.
function sentencesOf(text) {
  const found = [];
  for (const line of text.matchAll(LINE)) {
    const parts = [];
    for (const { segment } of segmenter.segment(line[0])) {
      if (parts.length && NO_END.test(parts.at(-1).slice(-20))) parts.push(parts.pop() + segment);
      else parts.push(segment);
    }
    let end = line.index;
    const ofLine = parts.map((part) => ({ text: wellFormed(part), end: (end += part.length) }))
      .filter(({ text }) => text);
    found.push(...ofLine.map((sentence, i) => ({ ...sentence, beginsLine: !i })));
  }
  return found;
}

// Returns the lines of the terms as {isIn, forms}: whether a text has the term, and its forms.
function termsOf(lines) {
  return lines.split("\n").filter((line) => line.trim()).map((line) => {
    const parts = line.split(/[\t=|]/).map((part) => wellFormed(part));
    const word = parts.length > 1 ? parts.shift() : "";
    const quoted = word.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
    const flags = word === word.toLowerCase() ? "iu" : "u"; // a capital stands for itself
    const pattern = new RegExp(`(?<![\\p{L}\\p{N}])${quoted}(?![\\p{L}\\p{N}])`, flags);
    return { isIn: (text) => !word || pattern.test(text), forms: parts.filter(Boolean).join("\t") };
  }).filter(({ forms }) => forms);
}

// Gives sentences what their translations must begin with and have, and a key of all that.
function constrain(sentences) {
  const terms = termsOf(find("#terms").value);
  sentences.forEach((sentence, index) => {
    sentence.prefix = index ? "" : find("#prefix").value.toWellFormed();
    sentence.terms = terms.filter(({ isIn }) => isIn(sentence.text)).map(({ forms }) => forms);
    sentence.key = JSON.stringify([sentence.text, sentence.prefix, ...sentence.terms]);
  });
  return sentences;
}

const isConstrained = ({ prefix, terms }) => Boolean(prefix.trim() || terms.length);

// Yields the sentences in groups, each for one request.
function* batchesOf(sentences) {
  let batch = [], length = 0, most = MIN_ROWS;
  for (const sentence of sentences) {
    length += sentence.text.length;
    if (batch.length >= most || (batch.length && length > MAX_BATCH_LENGTH)) {
      yield batch;
      [batch, length, most] = [[], sentence.text.length, Math.min(2 * most, MAX_ROWS)];
    }
    if (isConstrained(sentence)) most = Math.min(most, MAX_CONSTRAINED);
    batch.push(sentence);
  }
  if (batch.length) yield batch;
}

// === a version of the model, and its translations ===

class Pane {
  constructor() {
    this.root = find("#panes").appendChild(find("#pane").content.firstElementChild.cloneNode(true));
    this.find = (selector) => find(selector, this.root);
    this.words = new Words(this.find(".words"));
    this.controller = new AbortController();
    this.alternative = 0;
    this.numAsked = 0;
    this.select = this.find(".version select");
    on(this.select, "change", () => this.forget() || this.update());
    on(this.words.head, "change", () => this.update(this.alternative));
    on(this.find(".copy"), "click", () => this.copy());
    this.find(".copy").hidden = !navigator.clipboard;
    this.forget();
    this.showVersions();
  }

  // The version that answers, {version, labels, card}, as of when the page last asked.
  get version() {
    return this.select.selectedOptions[0]?.version;
  }

  // The values are the part of the path behind the model.
  showVersions() {
    const { select } = this, { versions } = state, before = select.value;
    select.replaceChildren();
    const add = (version, value, textContent) => make(select, "option", { version, value, textContent });
    if (versions.length) add(versions[0], "", `latest (${versions[0].version})`);
    for (const each of versions) each.labels.forEach((label) =>
      add(each, `/labels/${encodeURIComponent(label)}`, `${label} (${each.version})`));
    for (const each of versions) add(each, `/versions/${each.version}`, each.version);
    select.value = before;
    if (select.selectedIndex < 0) select.selectedIndex = 0;
    if (this.version?.version !== this.known) this.forget();
  }

  // Forgets all that another version has said.
  forget() {
    this.known = this.version?.version;
    this.signatures = null;
    this.results = new Map(); // key of a sentence to what `search` returns, or {error}
    this.showCard();
  }

  ask(what, signal, body) {
    return ask(`v1/models/${encodeURIComponent(state.model)}${this.select.value}${what}`, signal, body);
  }

  predict(signature_name, inputs, signal) {
    this.numAsked++;
    return this.ask(":predict", signal, { signature_name, inputs }).then(({ outputs }) => outputs);
  }

  // Reads which signatures the version has.
  async learn(signal) {
    if (this.signatures) return;
    const found = (await this.ask("/metadata", signal)).metadata.signature_def.signature_def;
    const size = (signature, output, axis) =>
      Number(found[signature]?.outputs[output]?.tensor_shape.dim[axis]?.size ?? 0);
    if (!found.serving_default?.inputs.text || !found.serving_default.outputs.translation) {
      throw new Error("This model does not translate text. Its signatures answer REST requests.");
    }
    this.signatures = found;
    this.numBest = size("n_best", "translations", 1);
    this.words.setHeads(...[1, 2].map((axis) => size("forced_attention", "weights", axis)));
    find("#constraints").hidden = !state.panes.some((pane) => pane.signatures?.constrained);
  }

  // Returns for each sentence {texts, scores, truncated, met, explained}: the best first.
  async search(sentences, signal, numBest = this.numBest) {
    const inputs = { text: sentences.map(({ text }) => text) };
    let name = numBest > 1 ? "n_best" : "serving_default";
    if (sentences.some(isConstrained) && this.signatures.constrained) {
      name = "constrained";
      const most = Math.max(1, ...sentences.map(({ terms }) => terms.length));
      inputs.prefix = sentences.map(({ prefix }) => prefix);
      inputs.terms = sentences.map(({ terms }) => [...terms, ...Array(most - terms.length).fill("")]);
    }
    const found = await this.predict(name, inputs, signal);
    const columns = [found.translations ?? found.translation, found.scores ?? found.score, found.truncated];
    return sentences.map((_, i) => {
      const [texts, scores, truncated] = columns.map((column) => [column[i]].flat());
      return { texts, scores, truncated, met: found.terms_met?.[i], explained: {} };
    });
  }

  // Does what `search` does; a sentence that the server refuses is {error}, the others are not.
  async searchEach(sentences, signal, numBest) {
    try {
      return await this.search(sentences, signal, numBest);
    } catch (error) {
      if (!error.status || [404, 429, 503].includes(error.status)) throw error;
      if (sentences.length === 1) return [{ error: error.message, canPass: error.status >= 500 }];
      const rows = [];
      for (const one of sentences) rows.push(...(await this.searchEach([one], signal, numBest)));
      return rows;
    }
  }

  // === translating the text ===

  get result() {
    return this.results.get(state.sentences[state.chosen]?.key);
  }

  // What the server has said of the words, or the tokens, of a translation of the chosen sentence.
  explained(name) {
    return this.result?.explained?.[`${name} ${this.alternative}`];
  }

  // Translates what has not been translated, the chosen sentence first. Cancels what still runs.
  async update(alternative = 0) {
    this.controller.abort();
    this.controller = new AbortController();
    const { signal } = this.controller, { numAsked } = this, start = performance.now();
    this.alternative = alternative;
    try {
      write(this.find(".failure"), "");
      for (const [key, { canPass }] of this.results) if (canPass) this.results.delete(key);
      this.show();
      await this.learn(signal);
      const chosen = state.sentences[state.chosen];
      if (chosen && !this.result) await this.translate([chosen], signal);
      await this.explain(signal);
      const others = new Map(state.sentences.map((sentence) => [sentence.key, sentence]));
      for (const key of this.results.keys()) others.delete(key);
      for (const batch of batchesOf(others.values())) await this.translate(batch, signal);
      this.showState(this.numAsked > numAsked && (performance.now() - start) / 1000);
    } catch (error) {
      if (!signal.aborted) this.fail(error);
    }
  }

  async translate(sentences, signal) {
    const rows = await this.searchEach(sentences, signal);
    sentences.forEach(({ key }, i) => this.results.set(key, rows[i]));
    for (const key of this.results.keys()) {
      if (this.results.size <= Math.max(MAX_RESULTS, 2 * state.sentences.length)) break;
      this.results.delete(key); // the oldest
    }
    this.show();
  }

  // Asks what is known of the words of the chosen translation, and of its tokens for a head.
  async explain(signal) {
    const { result, alternative } = this, target = result?.texts?.[alternative];
    const inputs = { text: [state.sentences[state.chosen]?.text], target: [target] };
    for (const name of this.words.head.value ? ["explain", "forced_attention"] : ["explain"]) {
      if (!target || !this.signatures[name] || this.explained(name)) continue;
      const found = Object.entries(await this.predict(name, inputs, signal));
      result.explained[`${name} ${alternative}`] = Object.fromEntries(found.map(([k, [row]]) => [k, row]));
    }
    this.showDetails();
  }

  fail(error) {
    write(this.find(".failure"), error.message);
    this.find(".progress").hidden = true;
    this.find(".state").textContent = "";
    if (error.status === 404) loadVersions(); // the version has gone
  }

  // === what is shown ===

  show() {
    const { sentences } = state, isOne = sentences.length < 2, { result } = this;
    const best = this.find(".best"), list = this.find(".sentences"), progress = this.find(".progress");
    best.hidden = !isOne;
    list.hidden = isOne;
    if (isOne) {
      if (result || !sentences.length) best.textContent = result?.error ?? result?.texts[0] ?? "";
      best.classList.toggle("waiting", Boolean(sentences.length && !result));
      best.classList.toggle("failed", Boolean(result?.error));
    }
    this.showSentences(list, isOne ? [] : sentences);
    const done = sentences.filter(({ key }) => this.results.has(key)).length;
    progress.hidden = isOne || done === sentences.length;
    progress.value = done / sentences.length || 0;
    this.find(".state").textContent = progress.hidden ? "" : `${done} of ${sentences.length}`;
    this.showDetails();
  }

  showSentences(list, sentences) {
    while (list.childElementCount > sentences.length) list.lastElementChild.remove();
    sentences.forEach((sentence, i) => {
      const item = list.children[i] ?? make(list, "li");
      const button = item.firstElementChild ?? make(item, "button", {
        type: "button", dir: "auto", onclick: () => choose(i),
      });
      const result = this.results.get(sentence.key);
      const text = result?.error ?? result?.texts[0] ?? sentence.text;
      const name = result?.error ? "failed" : result ? "" : "waiting";
      const shown = `${name} ${i === state.chosen} ${sentence.beginsLine} ${text}`;
      if (button.shown === shown) return; // there may be thousands
      Object.assign(button, { shown, textContent: text, className: name, ariaPressed: i === state.chosen });
      item.className = sentence.beginsLine ? "begins-line" : "";
    });
  }

  // seconds: how long the server took; false if everything was known.
  showState(seconds) {
    const { length } = state.sentences, { result } = this;
    if (!length) return;
    const number = length > 1 && `${length} sentences`, time = seconds && `${seconds.toFixed(2)} s`;
    this.find(".state").textContent = [number, time].filter(Boolean).join(", ");
    const which = state.panes.length > 1 ? `Version ${this.version?.version}: ` : "";
    say(this, which + (number ? `${number} translated.` : result?.error ?? result?.texts[0] ?? ""));
  }

  // Shows the alternatives, remarks and words of the chosen sentence. What is there stays, dimmed,
  // until there is something newer: nothing moves while someone types.
  showDetails() {
    const { result, alternative } = this, name = this.words.head.value ? "forced_attention" : "explain";
    const explained = this.explained(name), waits = state.sentences.length > 0 && !result;
    const isAsked = Boolean(result?.texts?.[alternative] && this.signatures?.[name]);
    const waitsForWords = waits || (isAsked && !explained);
    this.find(".alternatives").classList.toggle("waiting", waits);
    this.words.root.classList.toggle("waiting", waitsForWords);
    if (waits) return;
    this.showAlternatives(this.find(".alternatives ol"));
    this.showRemarks();
    if (!waitsForWords) this.words.show(explained);
  }

  showAlternatives(list) {
    const { result, alternative } = this, hadFocus = list.contains(document.activeElement);
    const texts = (result?.texts ?? []).filter((_, i) => result.scores[i] > NO_SCORE);
    this.find(".alternatives").hidden = texts.length < 2;
    if (list.result === result && list.alternative === alternative) return; // a click could be lost
    list.replaceChildren();
    Object.assign(list, { result, alternative });
    texts.forEach((text, i) => {
      const button = make(make(list, "li"), "button", {
        type: "button", ariaPressed: i === alternative, onclick: () => this.update(i),
      });
      make(button, "span", { dir: "auto", textContent: text });
      make(button, "span", { className: "score", textContent: result.scores[i].toFixed(2) });
      if (hadFocus && i === alternative) button.focus();
    });
  }

  showRemarks() {
    const { result, signatures } = this, sentence = state.sentences[state.chosen];
    const numUnknown = this.explained("explain")?.num_unknown;
    const missing = sentence?.terms.filter((_, i) => result?.met && !result.met[i]) ?? [];
    const isIgnored = result && signatures && !signatures.constrained && isConstrained(sentence);
    write(this.find(".remarks"), [
      result?.truncated?.[this.alternative] && "The text or its translation was cut.",
      numUnknown && `${numUnknown} of its tokens are unknown to the tokenizer.`,
      ...missing.map((forms) => `Without the term ${forms.replaceAll("\t", " | ")}.`),
      isIgnored && "This version takes no beginning and no terms.",
    ].filter(Boolean).join(" "));
  }

  // Shows the model card, and names its languages to a screen reader.
  showCard() {
    const card = this.version?.card ?? {}, place = this.find(".card"), box = find("div", place);
    place.hidden = !Object.keys(card).length;
    box.replaceChildren();
    for (const [title, facts] of Object.entries(card)) {
      make(box, "h3", { textContent: title });
      const list = make(box, "dl");
      for (const [label, value] of Object.entries(facts)) {
        make(list, "dt", { textContent: label });
        make(list, "dd", { textContent: value });
      }
    }
    const [source, target] = ["source", "target"].map((side) => languageCode(card.languages?.[side]));
    this.find(".source-side").lang = source;
    for (const name of [".best", ".sentences", ".alternatives ol", ".target-side"]) {
      this.find(name).lang = target;
    }
    if ((state.panes[0] ?? this) !== this) return;
    find("#text").lang = source;
    const names = [source, target].map((code) => code && languages.of(code));
    find("#about").textContent = names.every(Boolean) ? names.join(" to ") : "";
  }

  // The translation of the text, with the lines of the text.
  get text() {
    let text = "";
    for (const { key, beginsLine } of state.sentences) {
      const isJoined = !text || /[\u3000-\u303f\uff00-\uffef]$/.test(text);
      text += beginsLine ? (text && "\n") : isJoined ? "" : " ";
      text += this.results.get(key)?.texts?.[0] ?? "";
    }
    return text;
  }

  async copy() {
    const button = this.find(".copy"), show = (text) => (button.textContent = text);
    await navigator.clipboard.writeText(this.text).then(() => show("Copied"), () => show("Not copied"));
    setTimeout(show, 1500, "Copy");
  }
}

// === the words of a translation, and where the model looked ===

class Words {
  constructor(root) {
    this.root = root;
    this.head = find(".head select", root);
    this.sides = [find(".source-side", root), find(".target-side", root)];
    this.counterparts = find(".counterparts", root);
    this.sides.forEach((place, side) => {
      on(place, "pointerover focusin", ({ target }) => this.light(side, this.indexOf(target)));
      on(place, "pointerleave", () => this.lightFocused());
      on(place, "focusout", () => this.light(side, -1));
      on(place, "keydown", (event) => this.move(side, event));
    });
  }

  setHeads(numLayers, numHeads) {
    this.head.length = 1;
    for (let i = 0; i < numLayers * numHeads; i++) {
      const layer = Math.floor(i / numHeads), head = i % numHeads;
      const textContent = `layer ${layer + 1}, head ${head + 1}`;
      make(this.head, "option", { value: `${layer},${head}`, textContent });
    }
    find(".head", this.root).hidden = this.head.length < 2;
  }

  // explained: of the signature `explain`, or of `forced_attention` for the chosen head.
  show(explained) {
    const { value } = this.head;
    this.root.hidden = !explained;
    if (!explained || (explained === this.explained && value === this.value)) return;
    Object.assign(this, { explained, value });
    const { source_words, words, word_scores, source_pieces, target_pieces } = explained;
    const [layer, head] = value.split(",");
    this.texts = (value ? [source_pieces, target_pieces] : [source_words, words])
      .map((texts) => texts.filter(Boolean));
    // a row for each word of the translation, with a number for each of the text
    this.weights = value ? explained.weights[layer][head] : explained.attention;
    this.sides.forEach((place, side) => {
      place.replaceChildren();
      this.texts[side].forEach((text, i) => {
        const button = make(place, "button", { type: "button", tabIndex: i ? -1 : 0 });
        make(button, "span", { textContent: text });
        if (!side || value) return;
        const probability = Math.exp(word_scores[i]);
        make(button, "small", { textContent: percent(probability) });
        button.classList.toggle("unsure", probability < 0.5);
      });
    });
    this.counterparts.textContent =
      "Point at a word, or move with the arrow keys, to see its counterparts.";
  }

  indexOf(element) {
    const button = element.closest("button");
    return button ? [...button.parentElement.children].indexOf(button) : -1;
  }

  // Returns how much a word looks at each of the other side, or they at it.
  sharesOf(side, index) {
    const weight = (row, column) => this.weights[row]?.[column] ?? 0;
    return this.texts[1 - side].map((_, j) => (side ? weight(index, j) : weight(j, index)));
  }

  // Lights a word and its counterparts on the other side; none if the index is -1.
  light(side, index) {
    if (!this.texts) return;
    const shares = this.sharesOf(side, index), most = Math.max(...shares, 1e-9);
    for (const button of this.sides[side].children) {
      button.classList.remove("is-lit", "chosen");
      button.style.setProperty("--share", 0);
    }
    [...this.sides[1 - side].children].forEach((button, j) => {
      button.classList.remove("chosen");
      button.classList.toggle("is-lit", shares[j] > most / 2);
      button.style.setProperty("--share", (shares[j] / most).toFixed(3));
    });
    const button = this.sides[side].children[index];
    if (!button) return;
    button.classList.add("chosen");
    const total = side ? 1 : shares.reduce((sum, share) => sum + share, 0) || 1;
    const found = shares.map((share, j) => [share / total, this.texts[1 - side][j]])
      .filter(([share]) => share >= 0.05).sort(([a], [b]) => b - a).slice(0, 4)
      .map(([share, text]) => `\u2068${text}\u2069 ${percent(share)}`).join(", ");
    const does = side ? "attends to" : "is attended to by";
    const said = `\u2068${this.texts[side][index]}\u2069 ${does} ${found || "no word"}`;
    this.counterparts.textContent = said;
    if (button === document.activeElement) button.setAttribute("aria-description", said);
  }

  lightFocused() {
    const side = this.sides.indexOf(document.activeElement.parentElement);
    this.light(Math.max(side, 0), side < 0 ? -1 : this.indexOf(document.activeElement));
  }

  // Left and right go along a side, up and down to the strongest counterpart on the other one.
  move(side, event) {
    const buttons = [...this.sides[side].children], index = this.indexOf(event.target);
    const step = getComputedStyle(this.sides[side]).direction === "rtl" ? -1 : 1;
    const shares = this.sharesOf(side, index);
    const places = {
      ArrowRight: buttons[index + step], ArrowLeft: buttons[index - step],
      Home: buttons[0], End: buttons.at(-1),
      [side ? "ArrowUp" : "ArrowDown"]:
        this.sides[1 - side].children[shares.indexOf(Math.max(...shares))],
    };
    if (!(event.key in places)) return;
    event.preventDefault();
    const next = places[event.key];
    if (!next) return;
    for (const button of next.parentElement.children) button.tabIndex = button === next ? 0 : -1;
    next.focus();
  }
}

// === a file of lines ===

let job = new AbortController();
const ofJob = (name) => find(`#job-${name}`);

async function translateFile(file) {
  job.abort();
  job = new AbortController();
  const { signal } = job, pane = state.panes[0], result = ofJob("result");
  const show = (text) => (ofJob("state").textContent = text);
  URL.revokeObjectURL(result.href);
  result.hidden = true;
  find("#job").hidden = false;
  ofJob("name").textContent = file.name;
  ofJob("end").textContent = "Cancel";
  show("");
  try {
    if (file.size > MAX_FILE_BYTES) throw new Error("The file has more than 50 MB.");
    const lines = (await file.text()).replace(/^\ufeff/, "").split(/\r?\n/);
    const sentences = constrain(lines.map((line, i) => ({ text: wellFormed(line), line: i + 1 })));
    for (const sentence of sentences) sentence.prefix = "";
    const translations = lines.map(() => "");
    await pane.learn(signal);
    for (const batch of batchesOf(sentences.filter(({ text }) => text))) {
      const rows = await pane.searchEach(batch, signal, 1);
      rows.forEach(({ error, texts }, i) => {
        if (error) throw new Error(`Line ${batch[i].line}: ${error}`);
        translations[batch[i].line - 1] = texts[0].replace(/[\r\n]+/g, " ");
      });
      ofJob("progress").value = batch.at(-1).line / lines.length;
      show(`${batch.at(-1).line} of ${lines.length} lines`);
    }
    ofJob("progress").value = 1;
    const content = new Blob([translations.join("\n")], { type: "text/plain;charset=utf-8" });
    result.href = URL.createObjectURL(content);
    result.download = file.name.replace(/(\.[^.]*)?$/, ".translated$1");
    result.hidden = false;
    show("is translated");
  } catch (error) {
    if (signal.aborted) return;
    show(error.message);
  }
  say(job, `${file.name} ${ofJob("state").textContent}`);
  ofJob("end").textContent = "Close";
}

// === the page ===

const languages = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
const languageCode = (name = "") =>
  /^[a-z]{2,3}([-_][A-Za-z]{2,4})?$/.test(name) ? name.replace("_", "-") : "";

// Tells a screen reader, once nothing newer of the same speaker has come for a while.
function say(speaker, text) {
  clearTimeout(speaker.saying);
  speaker.saying = setTimeout(() => (find("#said").textContent = text), SAYING_MS);
}

const update = () => state.panes.forEach((pane) => pane.update());

function readText() {
  state.sentences = constrain(sentencesOf(find("#text").value));
  state.chosen = sentenceAtCursor();
  const { length } = state.sentences;
  find("#count").textContent = length > 1 ? `${length} sentences` : "";
  update();
}

function sentenceAtCursor() {
  const isPassed = ({ end }) => end < find("#text").selectionStart;
  return Math.min(state.sentences.filter(isPassed).length, Math.max(0, state.sentences.length - 1));
}

function choose(index) {
  if (index === state.chosen) return;
  state.chosen = index;
  update();
}

function compare() {
  const [first, second] = state.panes, isOn = !second;
  if (isOn) {
    const pane = new Pane(), other = state.versions.find((version) => version !== first.version);
    state.panes.push(pane);
    if (other) pane.select.value = `/versions/${other.version}`;
    pane.forget();
    pane.update();
  } else {
    second.controller.abort();
    second.root.remove();
    state.panes.pop();
  }
  find("main").classList.toggle("comparing", isOn);
  find("#compare").ariaPressed = isOn;
}

// Asks which versions there are; those that have changed translate anew.
async function loadVersions() {
  try {
    const { model, versions } = await ask("page.json", new AbortController().signal);
    Object.assign(state, { model, versions });
    write(find("#problem"), "");
  } catch (error) {
    return write(find("#problem"), error.message);
  }
  find("#model").textContent = document.title = state.model;
  find("#compare").hidden = state.versions.length < 2 && state.panes.length < 2;
  if (!state.panes.length) state.panes.push(new Pane());
  for (const pane of state.panes) {
    const before = pane.known;
    pane.showVersions();
    if (pane.known !== before || !pane.signatures) pane.update();
  }
}

let typing;
function onTyping(event) {
  clearTimeout(typing);
  if (!event.isComposing) typing = setTimeout(readText, TYPING_MS);
}

for (const field of ["#text", "#prefix", "#terms"]) on(find(field), "input compositionend", onTyping);
on(find("#text"), "click keyup", ({ target }) => {
  if (target.value && state.sentences.length > 1) choose(sentenceAtCursor());
});
on(find("#clear"), "click", () => {
  find("#text").value = "";
  find("#text").focus();
  readText();
});
on(find("#file"), "change", ({ target }) => target.files[0] && translateFile(target.files[0]));
on(ofJob("end"), "click", () => {
  job.abort();
  find("#job").hidden = true;
  find("#file").value = "";
});
on(find("#compare"), "click", compare);
on(document, "visibilitychange", () => document.hidden || loadVersions());
loadVersions().then(() => find("#text").value && readText()); // a browser may restore the text
