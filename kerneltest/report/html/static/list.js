// A virtual list of results, sorted by a column: only the visible rows are elements.

const ROW_HEIGHT = 28;
const COLUMNS = [["verdict", "11.5rem"], ["pairing", "8rem"], ["backend", "9rem"], ["dtype", "5.5rem"], ["family", "11rem"], ["signature", "11rem"], ["used", "7.5rem", "error / bound"], ["text", "auto", "message"]];

function caseTable(data, { title, sortBy }) {
  const body = el("tbody");
  const heads = COLUMNS.map(([column, width, text]) => {
    const button = el("button", { type: "button" }, text || column);
    button.addEventListener("click", () => sortBy(sort === column ? `-${column}` : sort === `-${column}` ? "" : column));
    return el("th", { scope: "col", "data-column": column, "data-width": width }, button);
  });
  const table = el("table", {}, el("caption", { class: "hidden" }, title), el("thead", {}, el("tr", {}, heads)), body);
  for (const head of heads) head.style.width = head.dataset.width;  // the policy forbids style attributes
  const box = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "List of results" }, table);
  const above = spacer(), below = spacer();
  let selected = [], first = -1, sort = "";
  const draw = () => {
    const height = body.rows[1] ? body.rows[1].offsetHeight || ROW_HEIGHT : ROW_HEIGHT;
    const seen = Math.ceil((box.clientHeight || 600) / height) + 20;
    const start = Math.max(0, Math.min(Math.floor(box.scrollTop / height) - 10, selected.length - seen));
    if (start === first) return;
    first = start;
    const part = selected.slice(start, start + seen);
    above.firstChild.style.height = `${start * height}px`;
    below.firstChild.style.height = `${Math.max(0, selected.length - start - part.length) * height}px`;
    body.replaceChildren(above, ...part.map((row, i) => caseLine(data, row, start + i + 2)), below);
  };
  box.addEventListener("scroll", draw, { passive: true });
  addEventListener("resize", () => { first = -1; draw(); });
  return {
    box,
    rows: () => selected,
    show(rows, by = "") {
      selected = sorted(data, rows, by);
      [first, sort] = [-1, by];
      for (const head of heads) {
        const order = by === head.dataset.column ? "ascending" : by === `-${head.dataset.column}` ? "descending" : null;
        if (order) head.setAttribute("aria-sort", order);
        else head.removeAttribute("aria-sort");
      }
      box.scrollTop = 0;
      table.setAttribute("aria-rowcount", String(rows.length + 1));
      draw();
    },
  };
}

const spacer = () => el("tr", { class: "space", "aria-hidden": "true" }, el("td", { colspan: String(COLUMNS.length) }));

// Rows in the order of a column, with a minus sign in the reverse order; equal ones keep theirs. Numbers in names count.
function sorted(data, rows, by) {
  const reverse = by.startsWith("-"), column = by.replace(/^-/, "");
  if (!COLUMNS.some(([name]) => name === column)) return rows;
  const values = data.rows[column];
  let rank = null;
  if (data.lower[column] && column !== "verdict") {  // verdicts are numbered by severity
    const { compare } = new Intl.Collator("en", { numeric: true }), words = data.lower[column];
    rank = [];
    words.map((_, i) => i).sort((a, b) => compare(words[a], words[b])).forEach((word, place) => (rank[word] = place));
  }
  const key = rank ? (row) => rank[values[row]] ?? -1 : (row) => values[row];
  return rows.slice().sort(reverse ? (a, b) => key(b) - key(a) : (a, b) => key(a) - key(b));
}

// What the columns of a row show.
function cellsOf(data, row) {
  const rows = data.rows, target = data.targets[rows.target[row]], used = rows.used[row];
  return [
    data.short[rows.pairing[row]], data.backends[rows.backend[row]].id, data.dtypes[rows.dtype[row]],
    data.families[rows.family[row]].id + (target ? ` in ${target}` : ""), data.signatures[rows.signature[row]],
    used < 0 ? "" : number(used), data.message(row).split("\n")[0],
  ];
}

function caseLine(data, row, position) {
  const verdict = data.verdicts[data.rows.verdict[row]];
  return el("tr", { "aria-rowindex": String(position) },
    el("td", { class: `k-${verdict.kind}` }, el("a", { href: rowAddress(data, row), class: `k-${verdict.kind} ink` }, named(verdict))),
    cellsOf(data, row).map((text, i) => el("td", { title: text, class: i === 5 ? "number" : null }, text)));
}

const findingAddress = (data, finding, filters = {}) => address("finding", nameOf(data, finding), filters);

// Each row has an address, which is the same in every report that has it.
function rowAddress(data, row) {
  const detail = data.detail.get(row);
  return detail ? findingAddress(data, detail) : address("finding", rowNames(data)[row]);
}

// The names of all rows: pairing, backend, dtype, family, signature and target, numbered where several are equal.
function rowNames(data) {
  if (data.rowNames) return data.rowNames;
  const rows = data.rows, seen = new Map();
  data.rowNames = Array.from({ length: data.count }, (_, row) => {
    const which = [data.dtypes[rows.dtype[row]], data.families[rows.family[row]].id, data.signatures[rows.signature[row]], data.targets[rows.target[row]]];
    const name = [data.pairings[rows.pairing[row]].id, data.backends[rows.backend[row]].id, which.filter(Boolean).join(" ")].join(" @ ");
    const count = (seen.get(name) || 0) + 1;
    seen.set(name, count);
    return count > 1 ? `${name} #${count}` : name;
  });
  return data.rowNames;
}

function toCsv(data, rows) {
  const quote = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;  // no formula
  const head = ["verdict", "pairing", "backend", "dtype", "family", "signature", "error / bound", "message", "link"];
  const page = location.href.split("#")[0];
  const lines = rows.map((row) => {
    const [, ...cells] = cellsOf(data, row), used = cells.splice(4, 1);
    const texts = [data.verdicts[data.rows.verdict[row]].name, data.pairings[data.rows.pairing[row]].id, ...cells].map(quote);
    return [...texts.slice(0, 6), used, texts[6], quote(page + rowAddress(data, row))].join(",");
  });
  return [head.join(","), ...lines, ""].join("\r\n");
}

function download(name, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
