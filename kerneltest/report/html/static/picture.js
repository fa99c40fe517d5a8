// Small plots: strips of error / bound on a logarithmic axis, parts of a bound, and histograms of distances in ULPs.

const STRIP = { left: 4, right: 6, width: 300, row: 15, low: -6, high: 1.5 };

// A strip for each backend with a tick for each case, at its error / bound.
function strips(title, entries) {
  const { left, right, width, row, low, high } = STRIP;
  const names = Math.max(...entries.map(([name]) => name.length)) * 6.6 + 12;
  const height = entries.length * row + 18;
  const x = (used) => names + left + (Math.min(Math.max(Math.log10(used), low), high) - low) / (high - low) * (width - left - right);
  const words = entries.map(([name, values]) => `${name} at most ${number(Math.max(...values))} in ${plural(values.length, "case")}`);
  const ticks = (values, y) => [...new Set(values.map((used) => x(used > 0 ? used : 1e-9).toFixed(1)))].map((at) => `M${at} ${y}v9`).join("");
  return svg("svg", { class: "plot", width: names + width, height, viewBox: `0 0 ${names + width} ${height}`, role: "img", "aria-label": `${title}: error / bound, ${words.join("; ")}` },
    entries.map(([name, values], i) => {
      const y = i * row + 2, over = values.filter((used) => used > 1), within = values.filter((used) => used <= 1);
      return [
        svg("text", { class: "name", x: 0, y: y + 9 }, name),
        svg("path", { class: "axis", d: `M${names} ${y + 9.5}H${names + width - right}` }),
        within.length ? svg("path", { class: "marks", d: ticks(within, y) }) : null,
        over.length ? svg("path", { class: "over", d: ticks(over, y) }) : null,
      ];
    }),
    svg("path", { class: "limit", d: `M${x(1)} 0V${height - 14}` }),
    [-6, -4, -2, 0].map((power) => svg("text", { x: x(10 ** power), y: height - 3, "text-anchor": power === -6 ? "start" : "middle" },
      power === 0 ? "bound" : power === -6 ? "≤1e-6" : `1e${power}`)));
}

// Bars of counts on a logarithmic scale, so that single outliers are visible.
function ulpHistogram(title, counts) {
  const most = Math.log10(Math.max(...counts) + 1), { width, height } = { width: 90, height: 9 };
  const name = (i) => (i === 0 ? "0" : i === 15 ? `≥ ${whole(2 ** 14)}` : `< ${whole(2 ** i)}`);
  return el("figure", {}, el("figcaption", {}, title), el("ul", { class: "bars flat ulps" }, counts.map((n, i) => el("li", {},
    el("span", { class: "number" }, name(i), el("span", { class: "hidden" }, " ULP: ")),
    bar(width, height, n && { class: "share", width: Math.max(2, Math.round(Math.log10(n + 1) / most * width)), height }),
    el("span", { class: "number" }, whole(n))))));
}

// A mismatch as a grid of elements: blocks are outlined, wrong elements marked, values shown on hover or by arrow keys.

const FOLD = 32;

const isSpecial = (value) => typeof value === "string";  // NaN and infinities are strings

// The index in its array of the i-th element of a window.
function indexOf(window, i) {
  const [, columns] = window.extent, at = [...window.origin];
  if (at.length) at[at.length - 1] += i % columns;
  if (at.length > 1) at[at.length - 2] += Math.floor(i / columns);
  return at;
}

function drawPicture(picture) {
  const [, columns] = picture.extent, count = picture.values.length;
  const flat = picture.extent[0] === 1 && columns > FOLD;
  const block = picture.blocks[1];
  const across = flat ? (block && block <= FOLD ? Math.floor(FOLD / block) * block : FOLD) : columns;
  const worst = picture.worst.join();
  const readout = el("dl", { class: "readout", "aria-live": "off" });
  const cells = [];
  let active = 0;
  const lines = [];
  for (let start = 0; start < count; start += across) {
    const line = [];
    for (let i = start; i < Math.min(start + across, count); i++) {
      const at = indexOf(picture, i), cell = gridCell(picture, i, at, at.join() === worst, flat, across);
      if (at.join() === worst) active = i;
      cells.push(cell);
      line.push(cell);
    }
    const at = indexOf(picture, start), row = flat ? at.at(-1) : at.length > 1 ? at.at(-2) : "";
    const numbered = flat || start === 0 || row % (picture.blocks[0] || 8) === 0;
    lines.push(el("tr", {}, el("th", { scope: "row" }, numbered && row !== "" ? String(row) : el("span", { class: "hidden" }, String(row) || "output")), line));
  }
  const first = picture.origin.at(-1) || 0;
  const every = block || 8, mark = (j) => (flat ? (j % 8 ? "" : `+${j}`) : (first + j) % every && (j || every - first % every < 4) ? "" : String(first + j));
  const marks = Array.from({ length: Math.min(across, count) }, (_, j) => mark(j));
  const grid = el("table", { class: "grid", role: "grid", "aria-label": gridName(picture) },
    el("thead", { "aria-hidden": "true" }, el("tr", {}, el("td", { class: "idle" }), marks.map((mark) => el("td", { class: "idle" }, mark)))), el("tbody", {}, lines));
  for (const mark of grid.tHead.rows[0].cells) mark.style.background = "none";
  const showElement = (i) => {
    const at = indexOf(picture, i), [row, column] = [at.at(-2), at.at(-1)];
    const blocks = [picture.blocks[0] && row !== undefined ? Math.floor(row / picture.blocks[0]) : null, block ? Math.floor(column / block) : null].filter((each) => each !== null);
    const [got, expected] = numbers(picture.values[i], picture.expected[i]);
    readout.replaceChildren(...[
      ["element", `[${at.join(", ")}]${blocks.length ? `, block [${blocks.join(", ")}]` : ""}`],
      ["got", got + (picture.wrong[i] === "1" ? "  (wrong)" : "")],
      ["expected", expected],
      ["bound", `± ${number(picture.bound[i])}`],
    ].flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  };
  const focus = (i) => {
    cells[active].tabIndex = -1;
    active = Math.max(0, Math.min(count - 1, i));
    cells[active].tabIndex = 0;
    cells[active].focus();
  };
  grid.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across };
    const start = active - active % across;
    const to = event.key in steps ? active + steps[event.key] : event.key === "Home" ? start : event.key === "End" ? Math.min(start + across, count) - 1 : null;
    if (to === null || to < 0 || to >= count) return;
    event.preventDefault();
    focus(to);
  });
  grid.addEventListener("focusin", (event) => {
    const i = cells.indexOf(event.target.closest("td"));
    if (i >= 0) showElement(i);
  });
  grid.addEventListener("mouseover", (event) => {
    const i = cells.indexOf(event.target.closest("td"));
    if (i >= 0) showElement(i);
  });
  grid.addEventListener("mouseleave", () => showElement(active));
  cells[active].tabIndex = 0;
  showElement(active);
  return el("figure", {},
    el("div", { class: "wide" }, grid), key(picture), readout,
    el("figcaption", {}, caption(picture, flat)));
}

function gridCell(picture, i, at, worst, flat, across) {
  const value = picture.values[i], wrong = picture.wrong[i] === "1";
  const special = wrong && (isSpecial(value) || isSpecial(picture.expected[i]));
  const mark = !wrong ? "" : value === "nan" ? "N" : isSpecial(value) ? "∞" : "×";
  const [rows, columns] = picture.blocks, classes = [];
  if (wrong) classes.push(special ? "special" : "wrong");
  if (picture.bound[i] === "inf" && !wrong) classes.push("idle");
  if (worst) classes.push("worst");
  const column = at.at(-1) ?? 0, row = at.at(-2) ?? 0;
  if (columns && column % columns === 0 && i % across) classes.push("left");
  if (!flat && rows && row % rows === 0 && i >= across) classes.push("top");
  const label = `[${at.join(", ")}]${wrong ? " wrong" : ""}: got ${numbers(value, picture.expected[i]).join(", expected ")}, bound ${number(picture.bound[i])}`;
  return el("td", { class: classes.join(" "), tabindex: "-1", role: "gridcell", "aria-label": label }, mark);
}

function gridName(picture) {
  const wrong = [...picture.wrong].filter((each) => each === "1").length;
  return `Output ${picture.output}, ${wrong} of ${picture.values.length} elements shown are wrong; arrow keys move`;
}

function caption(picture, flat) {
  const part = picture.values.length < picture.shape.reduce((a, b) => a * b, 1) ? "The part around the worst element of output" : "Output";
  const fixed = picture.origin.length > 2 ? `, at [${picture.origin.slice(0, -2).join(", ")}]` : "";
  const blocks = picture.blocks.some(Boolean) ? `; lines separate blocks of ${picture.blocks.slice(picture.shape.length > 1 ? 0 : 1).map((each, i) => each || ["all rows", "all columns"][i]).join(" × ")}` : "";
  return `${part} ${picture.output}, ${picture.dtype} [${picture.shape.join(", ")}]${fixed}${blocks}${flat ? "; one axis, folded" : ""}.`;
}

function key(picture) {
  const sample = (name, mark, words) => el("li", {}, el("span", { class: `grid-cell ${name}`, "aria-hidden": "true" }, mark), words);
  const has = (test) => picture.values.some((value, i) => picture.wrong[i] === "1" && test(value, picture.expected[i]));
  return el("ul", { class: "key" },
    sample("right", "", "right"),
    has((value, expected) => !isSpecial(value) && !isSpecial(expected)) ? sample("wrong", "×", "wrong") : null,
    has((value) => value === "nan") ? sample("special", "N", "NaN, should not be") : null,
    has((value) => isSpecial(value) && value !== "nan") ? sample("special", "∞", "infinite, should not be") : null,
    has((value, expected) => !isSpecial(value) && isSpecial(expected)) ? sample("special", "×", "should be NaN or infinite") : null,
    sample("outlined", "", "worst element"));
}

// Text in which backticks enclose source.
const worded = (words) => words.split("`").map((text, i) => (i % 2 ? el("code", {}, text) : text));

// The parts of a bound as bars; the last one is the sum of all smaller parts.
function budgetBars(parts) {
  const left = 1 - parts.reduce((sum, [, , part]) => sum + part, 0), width = 56, height = 9;
  const rows = left >= .005 ? [...parts, ["other", "", left]] : parts;
  return el("ul", { class: "bars flat budget" }, rows.map(([words, place, part]) => el("li", {},
    bar(width, height, { class: "share", x: 0, y: 0, width: Math.max(1, Math.round(width * part)), height }),
    el("span", { class: "number" }, `${Math.round(100 * part)}%`),
    el("span", {}, worded(words), place ? el("span", { class: "dim" }, ` ${place}`) : null))));
}

// The values of an argument around the worst element.
function drawInput(window, of = "") {
  const [rows, columns] = window.extent, across = rows === 1 ? Math.min(columns, 16) : columns;
  const title = [el("b", {}, window.name), ` ${window.dtype} [${window.shape.join(", ")}]`];
  const [one] = window.values;
  if (window.values.length > 1 && window.values.every((value) => Object.is(value, one))) {
    const complete = window.values.length === window.shape.reduce((product, length) => product * length, 1);
    return el("figure", {}, el("figcaption", {}, title, complete ? `: all are ${number(one)}` : `: around the worst element, all are ${number(one)}`));
  }
  const lines = [];
  for (let start = 0; start < window.values.length; start += across) {
    const at = indexOf(window, start), row = rows === 1 ? at.at(-1) : at.at(-2);
    lines.push(el("tr", {}, el("th", { scope: "row" }, row === undefined ? el("span", { class: "hidden" }, "value") : String(row)),
      window.values.slice(start, start + across).map((value) => el("td", { class: isSpecial(value) ? "odd" : null }, typeof value === "number" ? String(Number(value.toPrecision(4))) : String(value)))));
  }
  const head = rows === 1 ? null : el("thead", {}, el("tr", {}, el("td", {}), Array.from({ length: across }, (_, j) => el("th", { scope: "col" }, String(window.origin.at(-1) + j)))));
  return el("figure", {}, el("figcaption", {}, title),
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `Values of ${window.name}${of}` }, el("table", { class: "values" }, head, el("tbody", {}, lines))));
}
