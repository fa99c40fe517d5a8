// The matrix: fills the page's static table with the counts of the filtered results.

function bindMatrix(data, table) {
  const lines = [...table.querySelectorAll("tr[data-pairing]")].map((line) => ({
    line,
    pairing: data.pairingNumber.get(line.dataset.pairing),
    dtype: line.dataset.dtype ? data.dtypes.indexOf(line.dataset.dtype) : -1,
    cells: [...line.cells].slice(1).map((cell) => ({ cell, link: cell.querySelector("a"), tail: tailOf(cell) })),
  }));
  const heads = [...table.tHead.rows[1].cells].slice(1);
  const backendNumber = new Map(data.backends.map((each, i) => [each.id, i]));
  const columns = heads.map((head) => backendNumber.get(head.dataset.backend));
  const opened = new Set();
  for (const { line, pairing, dtype } of lines) {
    if (dtype >= 0) continue;
    const button = el("button", { type: "button", "aria-expanded": "false", "aria-label": `Dtypes of ${data.short[pairing]}` });
    button.addEventListener("click", () => {
      if (!opened.delete(pairing)) opened.add(pairing);
      button.setAttribute("aria-expanded", String(opened.has(pairing)));
      fold();
    });
    line.cells[0].prepend(button);
    line.cells[0].title = line.dataset.pairing;
  }
  let counts = new Map();
  const fold = () => {
    for (const { line, pairing, dtype } of lines) {
      const any = columns.some((backend) => counts.has(keyOf(pairing, backend, dtype)));
      line.hidden = !any || (dtype >= 0 && !opened.has(pairing));
    }
    for (const head of table.querySelectorAll("tr.file")) {
      head.hidden = [...head.parentNode.rows].slice(1).every((line) => line.hidden);
    }
  };
  const width = data.backends.length, dtypes = data.dtypes.length + 1;
  const keyOf = (pairing, backend, dtype) => (pairing * width + backend) * dtypes + dtype + 1;
  return (filters, selected) => {
    counts = new Map();
    const rows = data.rows;
    const bump = (key, verdict) => {
      let mine = counts.get(key);
      if (!mine) counts.set(key, (mine = new Map()));
      mine.set(verdict, (mine.get(verdict) || 0) + 1);
    };
    for (const row of selected) {
      bump(keyOf(rows.pairing[row], rows.backend[row], -1), rows.verdict[row]);
      bump(keyOf(rows.pairing[row], rows.backend[row], rows.dtype[row]), rows.verdict[row]);
    }
    const shown = columns.map((backend) => selected.length === 0 || lines.some(({ pairing }) => counts.has(keyOf(pairing, backend, -1))));
    for (const { line, pairing, dtype, cells } of lines) {
      cells.forEach(({ cell, link, tail }, i) => {
        cell.hidden = !shown[i];
        const mine = counts.get(keyOf(pairing, columns[i], dtype));
        cell.className = mine ? `k-${paint(data, link, mine)}` : "";
        if (!link) return;
        link.hidden = !mine;
        const chosen = { ...filters, backend: data.backends[columns[i]].id };
        if (dtype >= 0) chosen.dtype = data.dtypes[dtype];
        link.setAttribute("href", address("pairing", line.dataset.pairing, chosen));
        const name = data.short[pairing] + (dtype >= 0 ? `, ${data.dtypes[dtype]}` : "");
        const words = mine ? wordsOf(data, mine) : "no result passes the filters";
        link.querySelector(".hidden").textContent = `${name} on ${chosen.backend}: ${words}${tail}`;
        link.title = `${name} on ${chosen.backend}\n${words}${tail}`;
      });
    }
    heads.forEach((head, i) => (head.hidden = !shown[i]));
    for (const head of table.tHead.rows[0].querySelectorAll("th")) {
      const span = columns.filter((backend, i) => shown[i] && data.backends[backend].tier === head.dataset.tier).length;
      head.hidden = span === 0;
      if (span) head.colSpan = span;
    }
    fold();
  };
}

// Verdicts are numbered by severity.
function paint(data, link, counts) {
  const worst = Math.max(...counts.keys());
  const verdict = data.verdicts[worst];
  let findings = 0, all = 0;
  for (const [each, n] of counts) {
    all += n;
    if (data.isFinding[each]) findings += n;
  }
  link.querySelector(".glyph").textContent = verdict.letter;
  link.querySelector(".count").textContent = verdict.kind === "unavailable" ? "" : whole(findings || all);
  return verdict.kind;
}

function wordsOf(data, counts) {
  return [...counts].sort((a, b) => b[0] - a[0]).map(([each, n]) => `${whole(n)} ${data.verdicts[each].name}`).join(", ");
}

function tailOf(cell) {
  const title = cell.querySelector("svg title");
  return title ? `; ${title.textContent}` : "";
}

// A virtual list of results: only the visible rows are elements.

const ROW_HEIGHT = 28;

function caseTable(data, { title = "" } = {}) {
  const heads = [["verdict", "10.5rem"], ["pairing", "8rem"], ["backend", "9rem"], ["dtype", "5.5rem"], ["family", "11rem"], ["signature", "11rem"], ["error / bound", "6rem"], ["message", "auto"]];
  const body = el("tbody");
  const table = el("table", {}, title ? el("caption", { class: "hidden" }, title) : null,
    el("thead", {}, el("tr", {}, heads.map(([name]) => el("th", { scope: "col" }, name)))), body);
  [...table.tHead.rows[0].cells].forEach((cell, i) => (cell.style.width = heads[i][1]));
  const box = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "List of results" }, table);
  const above = spacer(), below = spacer();
  let selected = [], first = -1;
  const draw = () => {
    const seen = Math.ceil((box.clientHeight || 600) / ROW_HEIGHT) + 20;
    const start = Math.max(0, Math.min(Math.floor(box.scrollTop / ROW_HEIGHT) - 10, selected.length - seen));
    if (start === first) return;
    first = start;
    const part = selected.slice(start, start + seen);
    above.firstChild.style.height = `${start * ROW_HEIGHT}px`;
    below.firstChild.style.height = `${Math.max(0, selected.length - start - part.length) * ROW_HEIGHT}px`;
    body.replaceChildren(above, ...part.map((row, i) => caseLine(data, row, start + i + 2)), below);
  };
  box.addEventListener("scroll", draw, { passive: true });
  addEventListener("resize", () => { first = -1; draw(); });
  return {
    box,
    show(rows) {
      selected = rows;
      first = -1;
      box.scrollTop = 0;
      table.setAttribute("aria-rowcount", String(rows.length + 1));
      draw();
    },
  };
}

const spacer = () => el("tr", { class: "space", "aria-hidden": "true" }, el("td", { colspan: "8" }));

function caseLine(data, row, position) {
  const rows = data.rows, verdict = data.verdicts[rows.verdict[row]], detail = data.detail.get(row);
  const target = data.targets[rows.target[row]], message = data.message(row).split("\n")[0];
  const label = [el("span", { class: "glyph" }, verdict.letter), " ", verdict.name];
  const used = rows.used[row];
  const cells = [
    data.short[rows.pairing[row]], data.backends[rows.backend[row]].id, data.dtypes[rows.dtype[row]],
    data.families[rows.family[row]].id + (target ? ` in ${target}` : ""), data.signatures[rows.signature[row]],
    used < 0 ? "" : number(used), message,
  ];
  return el("tr", { "aria-rowindex": String(position) },
    el("td", { class: `k-${verdict.kind}` }, detail ? el("a", { href: findingAddress(data, detail), class: `k-${verdict.kind} ink` }, label) : label),
    cells.map((text, i) => el("td", { title: text, class: i === 5 ? "number" : null }, text)));
}

const findingAddress = (data, finding, filters = {}) => address("finding", nameOf(data, finding), filters);
