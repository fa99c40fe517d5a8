// The matrix: fills the page's static table with the counts of the filtered results.

function bindMatrix(data, table) {
  const lines = [...table.querySelectorAll("tr[data-pairing]")].map((line) => ({
    line,
    pairing: data.pairingNumber.get(JSON.parse(line.dataset.pairing)),
    dtype: line.dataset.dtype ? data.dtypes.indexOf(JSON.parse(line.dataset.dtype)) : -1,
    cells: [...line.cells].filter((cell) => "backend" in cell.dataset).map((cell) => ({ cell, link: cell.querySelector("a"), tail: tailOf(cell) })),
  }));
  const heads = [...table.tHead.rows[1].cells].filter((cell) => "backend" in cell.dataset);
  const backendNumber = new Map(data.backends.map((each, i) => [each.id, i]));
  const columns = heads.map((head) => backendNumber.get(JSON.parse(head.dataset.backend)));
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
    line.cells[0].title = data.pairings[pairing].id;
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
    const rows = data.rows;
    counts = new Map();
    for (const dtypeOf of [() => -1, (row) => rows.dtype[row]]) {
      const byCell = group(selected, (row) => keyOf(rows.pairing[row], rows.backend[row], dtypeOf(row)));
      for (const [key, mine] of byCell) counts.set(key, countVerdicts(data, mine));
    }
    const shown = columns.map((backend) => selected.length === 0 || lines.some(({ pairing }) => counts.has(keyOf(pairing, backend, -1))));
    for (const { pairing, dtype, cells } of lines) {
      cells.forEach(({ cell, link, tail }, i) => {
        cell.hidden = !shown[i];
        const mine = counts.get(keyOf(pairing, columns[i], dtype));
        cell.className = mine ? `k-${paint(data, link, mine)}` : "";
        if (!link) return;
        link.hidden = !mine;
        const chosen = { ...filters, backend: data.backends[columns[i]].id };
        if (dtype >= 0) chosen.dtype = data.dtypes[dtype];
        link.setAttribute("href", address("pairing", data.pairings[pairing].id, chosen));
        const name = data.short[pairing] + (dtype >= 0 ? `, ${data.dtypes[dtype]}` : "");
        const words = mine ? wordsOf(data, mine) : "no result passes the filters";
        link.querySelector(".hidden").textContent = `${name} on ${chosen.backend}: ${words}${tail}`;
        link.title = `${name} on ${chosen.backend}\n${words}${tail}`;
      });
    }
    heads.forEach((head, i) => (head.hidden = !shown[i]));
    for (const head of table.tHead.rows[0].querySelectorAll("th[data-tier]")) {
      const span = columns.filter((backend, i) => shown[i] && data.backends[backend].tier === head.dataset.tier).length;
      head.hidden = span === 0;
      if (span) head.colSpan = span;
    }
    fold();
  };
}

function paint(data, link, counts) {
  const [verdict, count] = worstOf(data, counts);
  link.querySelector(".glyph").textContent = verdict.letter;
  link.querySelector(".count").textContent = verdict.kind === "unavailable" ? "" : whole(count);
  return verdict.kind;
}

function wordsOf(data, counts) {
  return [...counts].sort((a, b) => b[0] - a[0]).map(([each, n]) => `${whole(n)} ${data.verdicts[each].name}`).join(", ");
}

function tailOf(cell) {
  const title = cell.querySelector("svg title");
  return title ? `; ${title.textContent}` : "";
}
