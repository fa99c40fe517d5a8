// Creates elements from plain values. Text becomes text nodes only; nothing from the data is ever parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, f] of Object.entries(value)) node.addEventListener(event, f);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== ""));
  return node;
}
const el = (tag, attributes = {}, ...children) => put(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => put(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);
const whole = (n) => n.toLocaleString("en-US");
const plural = (n, word) => `${whole(n)} ${word}${n === 1 ? "" : "s"}`;

function number(value, digits = 7) {
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return Object.is(value, -0) ? "-0" : String(value);
  return String(Number(value.toPrecision(digits)));
}

// Two numbers, with as many digits as show how they differ.
function numbers(one, other) {
  const digits = [7, 9, 17].find((count) => number(one, count) !== number(other, count));
  return [number(one, digits), number(other, digits)];
}

function pairs(entries) {
  return el("dl", { class: "pairs" }, entries.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}
// A part of a view: its title, a note, and what it shows.
const titled = (title, note, ...shown) => [el("h2", {}, title), el("p", { class: "dim" }, note), ...shown];

// A bar on its track.
const bar = (width, height, filled) => svg("svg", { width, height, "aria-hidden": "true" },
  svg("rect", { class: "track", x: .5, y: .5, width: width - 1, height: height - 1 }), filled ? svg("rect", filled) : null);

// A verdict's letter and name. The gap is an element, so that a link's underline leaves it out.
const named = (verdict) => [el("span", { class: "glyph" }, verdict.letter), el("span", { class: "gap" }, " "), verdict.name];

function tag(verdict, href, ...more) {
  const inside = [...named(verdict), ...more];
  return el(href ? "a" : "span", { class: `tag k-${verdict.kind}`, href, title: verdict.meaning }, inside);
}

// Text with a copy button. If the browser forbids copying, the button selects the text.
function copyable(text, what) {
  const pre = el("pre", { tabindex: "0", role: "region", "aria-label": what }, text);
  const button = el("button", { type: "button", "aria-label": `Copy ${what}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(pre);
      button.textContent = "Ctrl+C";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  return el("div", { class: "block" }, button, pre);
}

// The page's data: unpacked once, and indexed for the views.

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

const ALL = "*";  // the dtype, family and signature of a row for a whole pairing on a backend
const GAPS = new Set(["missing", "nothing compared"]);  // they have no records

function index(data) {
  const rows = data.rows, count = rows.verdict.length;
  data.count = count;
  data.isFinding = data.verdicts.map((verdict) => verdict.finding);
  data.detail = new Map(data.findings.map((finding) => [finding.row, finding]));
  data.pairingNumber = new Map(data.pairings.map((pairing, i) => [pairing.id, i]));
  data.short = data.pairings.map((pairing) => pairing.id.split("::").pop());
  data.byName = new Map(data.findings.map((finding) => [nameOf(data, finding), finding]));
  data.message = (row) => (rows.text[row] < 0 ? "left out of this page; see the record" : data.texts[rows.text[row]]);
  data.lower = {};
  for (const [column, words] of Object.entries({
    pairing: data.pairings.map((each) => each.id),
    backend: data.backends.map((each) => each.id),
    dtype: data.dtypes,
    family: data.families.map((each) => each.id),
    signature: data.signatures,
    target: data.targets,
    verdict: data.verdicts.map((each) => each.name),
    text: data.texts,
  })) data.lower[column] = words.map((word) => word.toLowerCase());
  return data;
}

// The number of rows with each verdict.
function countVerdicts(data, rows) {
  const counts = new Map();
  for (const row of rows) counts.set(data.rows.verdict[row], (counts.get(data.rows.verdict[row]) || 0) + 1);
  return counts;
}

// The worst verdict of some, which are numbered by severity, and the number of findings, or of all if there are none.
function worstOf(data, counts) {
  let findings = 0, all = 0;
  for (const [each, n] of counts) {
    all += n;
    if (data.isFinding[each]) findings += n;
  }
  return [data.verdicts[Math.max(...counts.keys())], findings || all];
}

// The name of a finding in the address, the same in every report that has it.
function nameOf(data, finding) {
  const rows = data.rows, row = finding.row;
  const which = finding.case || `${data.dtypes[rows.dtype[row]]} ${data.families[rows.family[row]].id}`;
  return [data.pairings[rows.pairing[row]].id, data.backends[rows.backend[row]].id, which].join(" @ ");
}
