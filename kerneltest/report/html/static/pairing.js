// Source with line numbers; `here` is the line to mark.

function drawSource(source, { here = 0, around = 0, of = "", notes = [] } = {}) {
  const beside = group(notes.filter(([place]) => place.startsWith(`${source.file}:`)), ([place]) => Number(place.slice(source.file.length + 1)));
  const items = [];
  source.parts.forEach(([first, lines]) => {
    const from = around && here ? Math.max(0, here - first - around) : 0;
    const to = around && here ? Math.min(lines.length, here - first + around + 1) : lines.length;
    if (around && here && (here < first || here >= first + lines.length)) return;
    if (items.length) items.push(el("li", { class: "gap" }));
    for (let i = from; i < to; i++) {
      const marked = first + i === here;
      items.push(el("li", { "data-line": String(first + i), class: marked ? "here" : null, "aria-current": marked ? "true" : null },
        lines[i].map(([token, text]) => (token ? el("span", { class: token }, text) : text)),
        (beside.get(first + i) || []).map(([, text, good]) => el("span", { class: good ? "beside good" : "beside bad" }, `${good ? "✓" : "✗"} ${text}`))));
    }
  });
  return el("div", { class: "source", tabindex: "0", role: "region", "aria-label": `Source in ${source.file}${of}` }, el("ol", {}, items));
}

// The line at a place, FILE:LINE, if the sources of the pairing have it.
function sourceLine(pairing, place) {
  const colon = place.lastIndexOf(":"), file = place.slice(0, colon), line = Number(place.slice(colon + 1));
  const has = (source) => source && source.file === file && source.parts.some(([first, lines]) => line >= first && line < first + lines.length);
  const source = [pairing.kernel, pairing.oracle].find(has);
  return source ? { source, line, text: place } : null;
}

// One pairing: declaration, findings, use of error bounds, compiled code, sources.

function drawPairing(data, name, filters) {
  const number = data.pairingNumber.get(name);
  if (number === undefined) return absent(`This report has no pairing ${name}.`);
  const pairing = data.pairings[number], rows = data.rows;
  const selected = select(data, filters, { pairing: number });
  const all = select(data, {}, { pairing: number });
  const backends = [...new Set(all.map((row) => rows.backend[row]))].sort((a, b) => a - b);
  const narrowed = selected.length < all.length;
  return [
    el("p", { class: "crumbs" }, el("a", { href: address("matrix", "", widened(filters)) }, "Matrix"), " › ", name),
    el("div", { class: "head" }, el("h2", { tabindex: "-1" }, data.short[number]), el("span", { class: "dim" }, pairing.oracle ? pairing.oracle.file : "")),
    suspectsOf(data, number),
    el("ul", { class: "tags", "aria-label": "Verdicts by backend" }, backends.map((backend) => backendTag(data, name, backend, all, filters))),
    findingsOf(data, name, selected, filters, narrowed),
    pairing.xfails.length ? [el("h3", {}, "Declared xfails"), el("ul", {}, pairing.xfails.map((text) => el("li", {}, text)))] : null,
    pairing.declaration ? [el("h2", {}, "Declaration"), pairs(Object.entries(pairing.declaration))] : null,
    boundsOf(data, selected),
    budgetsOf(data, number, filters),
    sharpnessOf(data, number, filters),
    ulpsOf(data, name, filters),
    coverageOf(data, pairing),
    pairing.slowest.length ? titled("Slowest cases", "Time to run and to judge, without compiling.", slowestOf(data, pairing.slowest, "Slowest cases of the pairing")) : null,
    grouped(data, selected, "family", "Families", "family", (i) => data.families[i].id),
    grouped(data, selected, "signature", "Signatures", "signature", (i) => data.signatures[i]),
    compiledOf(data, pairing),
    [["Kernel", pairing.kernel], ["Oracle", pairing.oracle]].map(([title, source]) => source && source.parts.length
      ? [el("h2", {}, title, " ", el("span", { class: "dim" }, source.file)), drawSource(source, { of: ` of the ${title.toLowerCase()}`, notes: data.notes[name] })] : null),
  ];
}

const absent = (text) => [el("div", { class: "head" }, el("h2", { tabindex: "-1" }, "Not found")), el("p", {}, text, " ", el("a", { href: "#/matrix" }, "To the matrix"))];

function backendTag(data, name, backend, all, filters) {
  const counts = countVerdicts(data, all.filter((row) => data.rows.backend[row] === backend));
  const [verdict] = worstOf(data, counts), id = data.backends[backend].id;
  const chosen = filters.backend === id;
  const href = address("pairing", name, { ...filters, backend: chosen ? "" : id });
  return el("li", {}, el("a", { class: `tag k-${verdict.kind}`, href, "aria-current": chosen ? "true" : null, title: wordsOf(data, counts) },
    el("span", { class: "glyph", "aria-hidden": "true" }, verdict.letter), ` ${id}`, el("span", { class: "hidden" }, `: ${wordsOf(data, counts)}`)));
}

// Findings that differ only in signature, dtype and argument share a line.
function findingsOf(data, name, selected, filters, narrowed) {
  const rows = data.rows, findings = selected.filter((row) => data.isFinding[rows.verdict[row]]);
  const kinds = [...group(findings, (row) => [rows.verdict[row], rows.backend[row], rows.family[row]].join()).values()];
  kinds.sort((a, b) => rows.verdict[b[0]] - rows.verdict[a[0]]);
  const title = el("h2", {}, findings.length ? `${plural(findings.length, "finding")}` : "No finding", narrowed ? el("span", { class: "dim" }, " among the filtered results") : null);
  if (!findings.length) return title;
  const line = (kind) => {
    const row = kind.find((each) => data.detail.has(each)) ?? kind[0];
    const dtypes = [...new Set(kind.map((each) => data.dtypes[rows.dtype[each]]))];
    return kindLine(data, row, filters, [dtypes.join(", ")], kind.length, data.message(row));
  };
  const heads = ["verdict", "backend", "family", "dtypes", "cases", "first message"], most = 12;
  const rest = kinds.slice(most);
  const box = scrolled("Kinds of findings", heads, kinds.slice(0, most).map(line));
  const more = el("button", { type: "button" }, `Show ${plural(rest.length, "more kind")}`);
  more.addEventListener("click", () => {
    box.querySelector("tbody").append(...rest.map(line));
    more.remove();
  });
  return [title, box, el("p", {}, rest.length ? [more, " "] : null,
    el("a", { href: address("findings", "", { ...filters, text: name }) }, `List all ${whole(findings.length)}`))];
}
// A line of a table of kinds of cases; the message is the first one's.
function kindLine(data, row, filters, more, count, title) {
  const rows = data.rows, detail = data.detail.get(row), verdict = data.verdicts[rows.verdict[row]];
  return el("tr", {},
    el("td", { class: `k-${verdict.kind} line` }, tagText(verdict, detail && findingAddress(data, detail, filters))),
    [data.backends[rows.backend[row]].id, data.families[rows.family[row]].id, ...more].map((text) => el("td", { class: "line" }, text)),
    el("td", { class: "number" }, whole(count)), el("td", { class: "cut", title }, data.message(row).split("\n")[0]));
}

const tagText = (verdict, href) => el(href ? "a" : "span", { href, class: `k-${verdict.kind} ink` }, named(verdict));

function scrolled(label, heads, lines) {
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label },
    el("table", {}, el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, lines)));
}

function boundsOf(data, selected) {
  const rows = data.rows, used = selected.filter((row) => rows.used[row] >= 0);
  if (!used.length) return null;
  const families = [...group(used, (row) => rows.family[row])].sort((a, b) => a[0] - b[0]);
  return titled("Error as a fraction of its bound", "Each tick is the largest error of a case as a fraction of its bound, on a logarithmic axis. To the right of the dashed line, the bound is exceeded.",
    el("div", { class: "small-plots" }, families.map(([family, mine]) => {
      const byBackend = [...group(mine, (row) => rows.backend[row])].sort((a, b) => a[0] - b[0]);
      const entries = byBackend.map(([backend, own]) => [data.backends[backend].id, own.map((row) => rows.used[row])]);
      return el("figure", {}, el("figcaption", {}, data.families[family].id), strips(data.families[family].id, entries));
    })));
}

// The error budget of the case closest to its bound, for each backend.
function budgetsOf(data, wanted, filters) {
  const mine = data.budgets.filter(([pairing, backend]) => pairing === wanted && (!filters.backend || data.backends[backend].id === filters.backend));
  if (!mine.length) return null;
  return titled("Parts of the bound", "For each backend, the parts of the bound of the case that comes closest to it; findings only if no case passes.",
    el("div", { class: "small-plots" }, mine.map(([, backend, family, used, parts]) => el("figure", {},
      el("figcaption", {}, `${data.backends[backend].id}: ${number(used)} of its bound, in ${data.families[family].id}`), budgetBars(parts)))));
}

// The smallest relative errors that the bounds show, by backend and dtype.
function sharpnessOf(data, wanted, filters) {
  const mine = data.sharpness.filter(([pairing, backend, dtype]) => pairing === wanted
    && (!filters.backend || data.backends[backend].id === filters.backend) && (!filters.dtype || data.dtypes[dtype] === filters.dtype));
  if (!mine.length) return null;
  const error = (part) => (part >= 1e99 ? "any" : part && part < 0.001 ? part.toExponential(1) : number(part));
  return titled("Sharpness", "The smallest relative error of a whole output that its bounds would show, in the sharpest and in the median numeric case; the share of elements whose bound exceeds 10% of their value; and the number of cases whose formula was also compared without rounding.",
    scrolled("Sharpness", ["backend", "dtype", "sharpest case", "median case", "elements over 10%", "cases", "without rounding"], mine.map(([, backend, dtype, cases, formulas, best, typical, coarse]) =>
      el("tr", {}, el("th", { scope: "row" }, data.backends[backend].id), el("td", {}, data.dtypes[dtype]), [error(best), error(typical), `${number(100 * coarse)}%`, whole(cases), whole(formulas)].map((text) => el("td", { class: "number" }, text))))));
}

function ulpsOf(data, name, filters) {
  const mine = data.ulps.filter(([pairing, backend, dtype]) => pairing === name && (!filters.backend || backend === filters.backend) && (!filters.dtype || dtype === filters.dtype));
  if (!mine.length) return null;
  return titled("Distance from the rounded oracle", "Number of elements by their distance in units in the last place of the output. The lengths of the bars are logarithmic.",
    el("div", { class: "small-plots" }, mine.map(([, backend, dtype, counts]) => ulpHistogram(`${backend}, ${dtype}`, counts))));
}

// Verdicts by family or signature, with a column for each backend.
function grouped(data, selected, column, title, head, name) {
  const rows = data.rows, named = selected.filter((row) => name(rows[column][row]) !== ALL);
  const backends = [...new Set(named.map((row) => rows.backend[row]))].sort((a, b) => a - b);
  const groups = [...group(named, (row) => rows[column][row])];
  if (!groups.length) return null;
  const cell = (mine, backend) => {
    const counts = countVerdicts(data, mine.filter((row) => rows.backend[row] === backend));
    if (!counts.size) return el("td", {});
    const [verdict, count] = worstOf(data, counts);
    return el("td", { class: `k-${verdict.kind}`, title: wordsOf(data, counts) }, el("span", { class: "glyph" }, verdict.letter), ` ${whole(count)}`);
  };
  const most = 200;
  return el("details", { open: column === "family" },
    el("summary", {}, el("h2", {}, `${title} `, el("span", { class: "dim" }, whole(groups.length)))),
    scrolled(title, [head, ...backends.map((backend) => data.backends[backend].id)], groups.slice(0, most).map(([key, mine]) =>
      el("tr", {}, el("th", { scope: "row", class: column === "signature" ? "mono" : null }, name(key)), backends.map((backend) => cell(mine, backend))))),
    groups.length > most ? el("p", {}, `and ${whole(groups.length - most)} more; see All results`) : null);
}

function compiledOf(data, pairing) {
  if (!pairing.compiled.length && !pairing.artifacts.length) return null;
  return titled("Compiled code", "Maxima over all signatures: registers, bytes of stack and bytes of spills per thread; bytes of shared memory per block.",
    pairing.compiled.length ? scrolled("Compiled code", ["backend", "kernel", "signatures", ...data.facts], pairing.compiled.map(([backend, kernel, signatures, facts]) =>
      el("tr", {}, el("th", { scope: "row" }, backend), el("td", {}, kernel), el("td", { class: "number" }, whole(signatures)), facts.map((fact) => el("td", { class: "number" }, whole(fact)))))) : null,
    pairing.advice.length ? el("ul", {}, pairing.advice.map(([backend, line, signatures]) => el("li", {}, `${backend}: ${line} (${plural(signatures.length, "signature")}, first `, el("code", {}, signatures[0]), ")"))) : null,
    pairing.artifacts.length ? el("details", {}, el("summary", {}, plural(pairing.artifacts.length, "artifact")), el("ul", {}, pairing.artifacts.map(([backend, signature, files]) =>
      el("li", {}, `${backend}, ${signature}: `, files.map((file) => [el("a", { href: file }, file.split("/").pop()), " "]))))) : null);
}
