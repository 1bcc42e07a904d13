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
const percent = (share) => `${Math.round(100 * share)}%`;

const state = {
  model: "",
  versions: [], // {version, labels, card}, the highest first
  sentences: [], // see `sentencesOf`
  chosen: 0, // the number of the sentence whose details are shown
  panes: [],
};

// === the server ===

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

// Returns the parsed answer. A busy server is asked again, each time after a longer pause.
async function ask(path, signal, body) {
  const options = body ? { method: "POST", body: JSON.stringify(body), signal } : { signal };
  for (let attempt = 1; ; attempt++) {
    const response = await fetch(path, options).catch((error) => {
      throw signal.aborted ? error : new Error("The server cannot be reached.");
    });
    if (response.ok) return response.json();
    if (![429, 503].includes(response.status) || attempt === ATTEMPTS) {
      const found = await response.json().catch(() => ({}));
      throw new Refusal(response.status, String(found.error ?? `Status ${response.status}`));
    }
    await pause(250 * 2 ** attempt, signal);
  }
}

// === the text ===

const LINE = /[^\r\n\u2028\u2029]+/g;
const NO_END = /(?:^|[\s(])(?:\p{Lu}|\d{1,2}|Dr|Mr|Mrs|Ms|Prof|St|No|Nr|vs|etc|e\.g|i\.e|z\. ?B)\.\s*$/u;
const segmenter = Intl.Segmenter && new Intl.Segmenter(undefined, { granularity: "sentence" });

// Returns the sentences of a text as {text, start, end, beginsLine, prefix, terms, key}.
function sentencesOf(text) {
  const found = [];
  for (const line of text.matchAll(LINE)) {
    const parts = [];
    for (const { segment } of segmenter ? segmenter.segment(line[0]) : [{ segment: line[0] }]) {
      if (parts.length && NO_END.test(parts.at(-1).slice(-20))) parts.push(parts.pop() + segment);
      else parts.push(segment);
    }
    let start = line.index, beginsLine = true;
    for (const part of parts) {
      const end = start + part.length;
      if (part.trim()) {
        found.push({ text: wellFormed(part.trim()), start, end, beginsLine });
        beginsLine = false;
      }
      start = end;
    }
  }
  return found;
}

// Half of a surrogate pair is no character; the server would refuse it.
const wellFormed = (text) => (text.toWellFormed ? text.toWellFormed() : text);

// Returns the lines of the terms as {isIn, forms}: whether a text has the term, and its forms.
function termsOf(lines) {
  return lines.split("\n").filter((line) => line.trim()).map((line) => {
    const parts = line.split(/[\t=|]/).map((part) => wellFormed(part.trim()));
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
    sentence.prefix = index ? "" : wellFormed(find("#prefix").value);
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
    this.words = new Words(find(".words", this.root));
    this.controller = new AbortController();
    this.alternative = 0;
    this.numAsked = 0;
    this.forget();
    const version = find(".version select", this.root);
    version.addEventListener("change", () => this.forget() || this.update());
    this.words.head.addEventListener("change", () => this.update());
    find(".copy", this.root).addEventListener("click", () => this.copy());
    find(".copy", this.root).hidden = !navigator.clipboard;
    this.showVersions();
  }

  // === what it is asked ===

  // The part of the path behind the model: the chosen label or version, or nothing.
  get target() {
    return find(".version select", this.root).value;
  }

  // The version that answers, {version, labels, card}, as of when the page last asked.
  get version() {
    const [, kind, name] = this.target.split("/").map(decodeURIComponent);
    const isIt = ({ version, labels }) =>
      !kind || (kind === "labels" ? labels.includes(name) : version === name);
    return state.versions.find(isIt);
  }

  get number() {
    return this.version?.version;
  }

  showVersions() {
    const select = find(".version select", this.root), before = select.value;
    select.replaceChildren();
    const add = (value, textContent) => make(select, "option", { value, textContent });
    if (state.versions.length) add("", `latest (${state.versions[0].version})`);
    for (const { version, labels } of state.versions) {
      for (const label of labels) add(`/labels/${encodeURIComponent(label)}`, `${label} (${version})`);
    }
    for (const { version } of state.versions) add(`/versions/${version}`, version);
    select.value = before;
    if (select.selectedIndex < 0) select.selectedIndex = 0;
    if (this.number !== this.known) this.forget();
  }

  // Forgets all that another version has said.
  forget() {
    this.known = this.number;
    this.signatures = null;
    this.results = new Map(); // key of a sentence to what `search` returns, or {error}
    this.showCard();
  }

  predict(signature_name, inputs, signal) {
    this.numAsked++;
    const path = `v1/models/${encodeURIComponent(state.model)}${this.target}:predict`;
    return ask(path, signal, { signature_name, inputs }).then(({ outputs }) => outputs);
  }

  // Reads which signatures the version has.
  async learn(signal) {
    if (this.signatures) return;
    const path = `v1/models/${encodeURIComponent(state.model)}${this.target}/metadata`;
    const found = (await ask(path, signal)).metadata.signature_def.signature_def;
    const size = (signature, output, axis) =>
      Number(found[signature]?.outputs[output]?.tensor_shape.dim[axis]?.size ?? 0);
    if (!found.serving_default?.inputs.text || !found.serving_default.outputs.translation) {
      throw new Error("This model does not translate text. Its signatures answer REST requests.");
    }
    this.signatures = found;
    this.numBest = size("n_best", "translations", 1);
    this.words.setHeads(size("attention", "weights", 1), size("attention", "weights", 2));
    find("#constraints").hidden = !state.panes.some((pane) => pane.signatures?.constrained);
  }

  // Returns for each sentence {texts, scores, truncated, met}: the best translation first.
  async search(sentences, signal, numBest = this.numBest) {
    const inputs = { text: sentences.map(({ text }) => text) };
    const rows = (texts, scores, truncated, met) =>
      sentences.map((_, i) => ({
        texts: texts[i], scores: scores[i], truncated: truncated[i], met: met?.[i], explained: [],
      }));
    const columns = (name) => name.map((value) => [value]);
    if (sentences.some(isConstrained) && this.signatures.constrained) {
      const most = Math.max(1, ...sentences.map(({ terms }) => terms.length));
      inputs.prefix = sentences.map(({ prefix }) => prefix);
      inputs.terms = sentences.map(({ terms }) => [...terms, ...Array(most - terms.length).fill("")]);
      const found = await this.predict("constrained", inputs, signal);
      return rows(columns(found.translation), columns(found.score), columns(found.truncated),
        found.terms_met);
    }
    if (numBest > 1) {
      const found = await this.predict("n_best", inputs, signal);
      return rows(found.translations, found.scores, found.truncated);
    }
    const found = await this.predict("serving_default", inputs, signal);
    return rows(columns(found.translation), columns(found.score), columns(found.truncated));
  }

  // Does what `search` does; a sentence that the server refuses is {error}, the others are not.
  async searchEach(sentences, signal, numBest) {
    try {
      return await this.search(sentences, signal, numBest);
    } catch (error) {
      if (!(error instanceof Refusal) || [404, 429, 503].includes(error.status)) throw error;
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

  // Translates what has not been translated, the chosen sentence first. Cancels what still runs.
  async update(alternative = 0) {
    this.controller.abort();
    this.controller = new AbortController();
    const { signal } = this.controller, { numAsked } = this, start = performance.now();
    this.alternative = alternative;
    try {
      find(".failure", this.root).hidden = true;
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

  // Asks what is known of the words of the chosen translation.
  async explain(signal) {
    const { result, alternative } = this, sentence = state.sentences[state.chosen];
    const target = result?.texts?.[alternative], head = this.words.head.value;
    if (target && this.signatures.explain && !result.explained[alternative]) {
      const inputs = { text: [sentence.text], target: [target] };
      const found = await this.predict("explain", inputs, signal);
      const first = Object.entries(found).map(([name, [row]]) => [name, row]);
      result.explained[alternative] = Object.fromEntries(first);
    }
    if (target && head && !result.heads) {
      const found = await this.predict("attention", { text: [sentence.text] }, signal);
      result.heads = {
        source: found.source_pieces[0], target: found.target_pieces[0], weights: found.weights[0],
      };
    }
    this.showDetails();
  }

  fail(error) {
    const place = find(".failure", this.root);
    place.textContent = error.message;
    place.hidden = false;
    find(".progress", this.root).hidden = true;
    find(".state", this.root).textContent = "";
    if (error.status === 404) loadVersions(); // the version has gone
  }

  // === what is shown ===

  show() {
    const { sentences } = state, isOne = sentences.length < 2;
    const best = find(".best", this.root), list = find(".sentences", this.root);
    best.hidden = !isOne;
    list.hidden = isOne;
    if (isOne) {
      list.replaceChildren();
      const result = this.result;
      if (result || !sentences.length) best.textContent = result?.error ?? result?.texts[0] ?? "";
      best.classList.toggle("waiting", Boolean(sentences.length && !result));
      best.classList.toggle("failed", Boolean(result?.error));
    } else {
      this.showSentences(list);
    }
    const done = sentences.filter(({ key }) => this.results.has(key)).length;
    const progress = find(".progress", this.root);
    progress.hidden = isOne || done === sentences.length;
    progress.max = Math.max(1, sentences.length);
    progress.value = done;
    find(".state", this.root).textContent = progress.hidden ? "" : `${done} of ${sentences.length}`;
    this.showDetails();
  }

  showSentences(list) {
    while (list.childElementCount > state.sentences.length) list.lastElementChild.remove();
    state.sentences.forEach((sentence, i) => {
      const item = list.children[i] ?? make(list, "li");
      const button = item.firstElementChild ?? make(item, "button", {
        type: "button", dir: "auto", onclick: () => choose(i),
      });
      const result = this.results.get(sentence.key);
      const text = result?.error ?? result?.texts[0] ?? sentence.text;
      const name = result?.error ? "failed" : result ? "" : "waiting";
      const shown = `${name} ${i === state.chosen} ${sentence.beginsLine} ${text}`;
      if (button.shown === shown) return; // there may be thousands
      Object.assign(button, { shown, textContent: text, className: name });
      button.setAttribute("aria-pressed", i === state.chosen);
      item.className = sentence.beginsLine ? "begins-line" : "";
    });
  }

  // seconds: how long the server took; false if everything was known.
  showState(seconds) {
    const { sentences } = state;
    if (!sentences.length) return;
    const number = sentences.length > 1 && `${sentences.length} sentences`;
    const time = seconds && `${seconds.toFixed(2)} s`;
    find(".state", this.root).textContent = [number, time].filter(Boolean).join(", ");
    const which = state.panes.length > 1 ? `Version ${this.number}: ` : "";
    const result = this.result;
    say(this, which + (sentences.length > 1
      ? `${sentences.length} sentences translated.` : result?.error ?? result?.texts[0] ?? ""));
  }

  // Shows the alternatives, remarks and words of the chosen sentence. What is there stays, dimmed,
  // until there is something newer: nothing moves while someone types.
  showDetails() {
    const { result, alternative } = this, explained = result?.explained?.[alternative];
    const waits = Boolean(state.sentences.length && !result);
    const waitsForWords = waits || Boolean(
      result?.texts?.[alternative] && this.signatures.explain && !explained);
    find(".alternatives", this.root).classList.toggle("waiting", waits);
    this.words.root.classList.toggle("waiting", waitsForWords);
    if (waits) return;
    const texts = (result?.texts ?? []).filter((_, i) => result.scores[i] > NO_SCORE);
    const box = find(".alternatives", this.root), list = find("ol", box);
    const hadFocus = list.contains(document.activeElement);
    box.hidden = texts.length < 2;
    const isNew = list.result !== result || list.alternative !== alternative;
    if (isNew) list.replaceChildren(); // else a click on it could be lost
    Object.assign(list, { result, alternative });
    if (isNew) texts.forEach((text, i) => {
      const button = make(make(list, "li"), "button", {
        type: "button", onclick: () => this.update(i),
      });
      button.setAttribute("aria-pressed", i === alternative);
      make(button, "span", { dir: "auto", textContent: text });
      make(button, "span", { className: "score", textContent: result.scores[i].toFixed(2) });
      if (hadFocus && i === alternative) button.focus();
    });
    this.showRemarks(result, explained);
    if (!waitsForWords) this.words.show(explained, alternative || result?.met ? null : result?.heads);
  }

  showRemarks(result, explained) {
    const sentence = state.sentences[state.chosen], remarks = [];
    if (result?.truncated?.[this.alternative]) remarks.push("The text or its translation was cut.");
    if (explained?.num_unknown) {
      remarks.push(`${explained.num_unknown} of its tokens are unknown to the tokenizer.`);
    }
    const missing = sentence?.terms.filter((_, i) => result?.met && !result.met[i]) ?? [];
    for (const forms of missing) remarks.push(`Without the term ${forms.replaceAll("\t", " | ")}.`);
    if (result && this.signatures && !this.signatures.constrained && isConstrained(sentence)) {
      remarks.push("This version takes no beginning and no terms.");
    }
    const place = find(".remarks", this.root);
    place.textContent = remarks.join(" ");
    place.hidden = !remarks.length;
  }

  // Shows the model card, and names its languages to a screen reader.
  showCard() {
    const card = this.version?.card ?? {}, place = find(".card", this.root);
    place.hidden = !Object.keys(card).length;
    const box = find("div", place);
    box.replaceChildren();
    for (const [title, facts] of Object.entries(card)) {
      make(box, "h3", { textContent: title });
      const list = make(box, "dl");
      for (const [label, value] of Object.entries(facts)) {
        make(list, "dt", { textContent: label });
        make(list, "dd", { textContent: value });
      }
    }
    const { source = "", target = "" } = card.languages ?? {};
    const code = (name) => (/^[a-z]{2,3}([-_][A-Za-z]{2,4})?$/.test(name) ? name.replace("_", "-") : "");
    const places = { source: "#text, .source-side", target: ".best, .sentences, .alternatives ol, .target-side" };
    for (const [selectors, name] of [[places.source, source], [places.target, target]]) {
      for (const one of document.querySelectorAll(selectors)) {
        if (one.id === "text" || this.root.contains(one)) one.lang = code(name);
      }
    }
    if (state.panes[0] === this || !state.panes.length) {
      find("#about").textContent = code(source) && code(target)
        ? `${languageName(source)} to ${languageName(target)}` : "";
    }
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
    const button = find(".copy", this.root);
    await navigator.clipboard.writeText(this.text).then(
      () => (button.textContent = "Copied"), () => (button.textContent = "Not copied"));
    setTimeout(() => (button.textContent = "Copy"), 1500);
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
      const over = (event) => this.light(side, this.indexOf(event.target));
      place.addEventListener("pointerover", over);
      place.addEventListener("focusin", over);
      place.addEventListener("pointerleave", () => this.lightFocused());
      place.addEventListener("focusout", () => this.light(side, -1));
      place.addEventListener("keydown", (event) => this.move(side, event));
    });
  }

  setHeads(numLayers, numHeads) {
    while (this.head.options.length > 1) this.head.remove(1);
    for (let layer = 0; layer < numLayers; layer++) {
      for (let head = 0; head < numHeads; head++) {
        const textContent = `layer ${layer + 1}, head ${head + 1}`;
        make(this.head, "option", { value: `${layer},${head}`, textContent });
      }
    }
    find(".head", this.root).hidden = this.head.options.length < 2;
  }

  // explained: of the signature `explain`; heads: {source, target, weights}, of `attention`.
  show(explained, heads) {
    this.root.hidden = !explained;
    const shown = this.head.value && heads ? this.head.value : explained;
    if (!explained || (shown === this.shown && heads === this.heads)) return;
    [this.shown, this.heads] = [shown, heads];
    if (shown !== explained) {
      const [layer, head] = shown.split(",").map(Number);
      const weights = heads.weights[layer][head];
      this.draw(heads.source.filter(Boolean), heads.target.filter(Boolean), [], weights);
    } else {
      const { source_words, words, word_scores, attention } = explained;
      this.draw(source_words.filter(Boolean), words.filter(Boolean), word_scores, attention);
    }
    const isOther = this.head.value && !heads;
    this.counterparts.textContent = isOther
      ? "A layer and a head are shown for the best translation without a beginning and terms."
      : "Point at a word, or move with the arrow keys, to see its counterparts.";
  }

  // weights: a row for each word of the translation, with a number for each of the text.
  draw(source, target, scores, weights) {
    this.texts = [source, target];
    this.weight = [(i, j) => weights[j]?.[i] ?? 0, (j, i) => weights[j]?.[i] ?? 0];
    this.sides.forEach((place, side) => {
      place.replaceChildren();
      this.texts[side].forEach((text, i) => {
        const button = make(place, "button", { type: "button", tabIndex: i ? -1 : 0 });
        make(button, "span", { textContent: text });
        if (side && scores[i] !== undefined) {
          const probability = Math.exp(scores[i]);
          make(button, "small", { textContent: percent(probability) });
          button.classList.toggle("unsure", probability < 0.5);
        }
      });
    });
  }

  indexOf(element) {
    const button = element.closest("button");
    return button ? [...button.parentElement.children].indexOf(button) : -1;
  }

  // Lights a word and its counterparts on the other side; none if the index is -1.
  light(side, index) {
    if (!this.texts) return;
    const others = [...this.sides[1 - side].children];
    const shares = others.map((_, j) => (index < 0 ? 0 : this.weight[side](index, j)));
    const most = Math.max(...shares, 1e-9);
    for (const place of this.sides) {
      for (const button of place.children) {
        button.classList.remove("chosen", "is-lit");
        button.style.setProperty("--share", 0);
      }
    }
    others.forEach((button, j) => {
      button.style.setProperty("--share", (shares[j] / most).toFixed(3));
      button.classList.toggle("is-lit", index >= 0 && shares[j] > most / 2);
    });
    if (index < 0) return;
    this.sides[side].children[index].classList.add("chosen");
    const total = side ? 1 : shares.reduce((sum, share) => sum + share, 0) || 1;
    const ranked = shares.map((share, j) => [share / total, this.texts[1 - side][j]])
      .filter(([share]) => share >= 0.05).sort(([a], [b]) => b - a).slice(0, 4);
    const found = ranked.map(([share, text]) => `\u2068${text}\u2069 ${percent(share)}`).join(", ");
    const text = `\u2068${this.texts[side][index]}\u2069`;
    this.counterparts.textContent = side
      ? `${text} attends to ${found || "no word"}` : `${text} is attended to by ${found || "no word"}`;
    const focused = this.sides[side].children[index];
    if (focused === document.activeElement) {
      focused.setAttribute("aria-description", this.counterparts.textContent);
    }
  }

  lightFocused() {
    const side = this.sides.findIndex((place) => place.contains(document.activeElement));
    this.light(Math.max(side, 0), side < 0 ? -1 : this.indexOf(document.activeElement));
  }

  // Left and right go along a side, up and down to the strongest counterpart on the other one.
  move(side, event) {
    const buttons = [...this.sides[side].children], index = this.indexOf(event.target);
    const isRtl = getComputedStyle(this.sides[side]).direction === "rtl";
    const steps = { ArrowRight: isRtl ? -1 : 1, ArrowLeft: isRtl ? 1 : -1 };
    let next;
    if (event.key in steps) next = buttons[index + steps[event.key]];
    else if (event.key === "Home") next = buttons[0];
    else if (event.key === "End") next = buttons.at(-1);
    else if (event.key === (side ? "ArrowUp" : "ArrowDown")) {
      const others = [...this.sides[1 - side].children];
      const shares = others.map((_, j) => this.weight[side](index, j));
      next = others[shares.indexOf(Math.max(...shares))];
    } else return;
    event.preventDefault();
    if (!next) return;
    for (const button of next.parentElement.children) button.tabIndex = button === next ? 0 : -1;
    next.focus();
  }
}

// === a file of lines ===

let job = new AbortController();

async function translateFile(file) {
  job.abort();
  job = new AbortController();
  const { signal } = job, pane = state.panes[0];
  const result = find("#job-result"), progress = find("#job-progress");
  URL.revokeObjectURL(result.href);
  result.hidden = true;
  find("#job").hidden = false;
  find("#job-name").textContent = file.name;
  find("#job-end").textContent = "Cancel";
  const show = (text) => (find("#job-state").textContent = text);
  show("");
  try {
    if (file.size > MAX_FILE_BYTES) throw new Error("The file has more than 50 MB.");
    const lines = (await file.text()).replace(/^\ufeff/, "").split(/\r?\n/);
    const sentences = constrain(lines.map((line) => ({ text: wellFormed(line.trim()) })));
    sentences.forEach((sentence, i) => Object.assign(sentence, { line: i + 1, prefix: "" }));
    const translations = lines.map(() => "");
    await pane.learn(signal);
    progress.max = lines.length;
    for (const batch of batchesOf(sentences.filter(({ text }) => text))) {
      const rows = await pane.searchEach(batch, signal, 1);
      rows.forEach(({ error, texts }, i) => {
        if (error) throw new Error(`Line ${batch[i].line}: ${error}`);
        translations[batch[i].line - 1] = texts[0].replace(/[\r\n]+/g, " ");
      });
      progress.value = batch.at(-1).line;
      show(`${batch.at(-1).line} of ${lines.length} lines`);
    }
    progress.value = lines.length;
    const content = new Blob([translations.join("\n")], { type: "text/plain;charset=utf-8" });
    result.href = URL.createObjectURL(content);
    result.download = file.name.replace(/(\.[^.]*)?$/, ".translated$1");
    result.hidden = false;
    show("is translated");
    say(job, `${file.name} is translated.`);
  } catch (error) {
    if (signal.aborted) return;
    show(error.message);
    say(job, error.message);
  }
  find("#job-end").textContent = "Close";
}

function endJob() {
  job.abort();
  find("#job").hidden = true;
  find("#file").value = "";
}

// === the page ===

// The English name of a language with a code such as "de".
function languageName(code) {
  const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
  return names.of(code.replace("_", "-"));
}

// Tells a screen reader, once nothing newer of the same speaker has come for a while.
const timers = new Map();
function say(speaker, text) {
  clearTimeout(timers.get(speaker));
  timers.set(speaker, setTimeout(() => {
    timers.delete(speaker);
    find("#said").textContent = text;
  }, SAYING_MS));
}

function readText() {
  const text = find("#text").value;
  state.sentences = constrain(sentencesOf(text));
  state.chosen = sentenceAtCursor();
  const { length } = state.sentences;
  find("#count").textContent = length > 1 ? `${length} sentences` : "";
  for (const pane of state.panes) pane.update();
}

function sentenceAtCursor() {
  const place = find("#text").selectionStart;
  const index = state.sentences.findIndex(({ end }) => place <= end);
  return index < 0 ? Math.max(0, state.sentences.length - 1) : index;
}

function choose(index) {
  if (index === state.chosen) return;
  state.chosen = index;
  for (const pane of state.panes) pane.update();
}

function compare() {
  const isOn = state.panes.length === 1;
  if (isOn) {
    const pane = new Pane(), first = state.panes[0].number;
    const other = state.versions.find(({ version }) => version !== first);
    if (other) find(".version select", pane.root).value = `/versions/${other.version}`;
    pane.forget();
    state.panes.push(pane);
    pane.update();
  } else {
    const pane = state.panes.pop();
    pane.controller.abort();
    pane.root.remove();
  }
  find("main").classList.toggle("comparing", isOn);
  find("#compare").setAttribute("aria-pressed", isOn);
}

// Asks which versions there are; those that have changed translate anew.
async function loadVersions() {
  const problem = find("#problem");
  try {
    const found = await ask("page.json", new AbortController().signal);
    state.model = found.model;
    state.versions = found.versions;
    problem.hidden = true;
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
    return;
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

for (const field of ["#text", "#prefix", "#terms"]) {
  find(field).addEventListener("input", onTyping);
  find(field).addEventListener("compositionend", onTyping);
}
for (const name of ["click", "keyup"]) {
  find("#text").addEventListener(name, () => {
    if (find("#text").value && state.sentences.length > 1) choose(sentenceAtCursor());
  });
}
find("#clear").addEventListener("click", () => {
  find("#text").value = "";
  find("#text").focus();
  readText();
});
find("#file").addEventListener("change", ({ target }) => target.files[0] && translateFile(target.files[0]));
find("#job-end").addEventListener("click", endJob);
find("#compare").addEventListener("click", compare);
document.addEventListener("visibilitychange", () => document.hidden || loadVersions());
loadVersions().then(() => find("#text").value && readText()); // a browser may restore the text
