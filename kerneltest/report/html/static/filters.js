// The address after # holds the whole state: #/view/name?verdict=...&backend=...&dtype=...&family=...&suspect=...&text=...
// Lists add &sort=COLUMN, or &sort=-COLUMN for the reverse order.

const FILTERS = ["verdict", "backend", "dtype", "family", "suspect", "text"];

function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/");
  const requested = new URLSearchParams(query || "");
  const filters = {};
  for (const name of FILTERS) if (requested.get(name)) filters[name] = requested.get(name);
  if (requested.get("sort")) filters.sort = requested.get("sort");
  let name = "";
  try { name = decodeURIComponent(parts.slice(1).join("/")); } catch { /* an invalid address has no name */ }
  return { view: parts[0], name, filters };
}

function address(view, name = "", filters = {}) {
  const query = new URLSearchParams();
  for (const each of FILTERS) if (filters[each]) query.set(each, filters[each]);
  if (filters.sort && (view === "findings" || view === "results")) query.set("sort", filters.sort);
  const text = query.toString();
  return `#/${view}${name ? "/" + encodeURIComponent(name) : ""}${text ? "?" + text : ""}`;
}

// The filters without those that a cell of the matrix sets.
const widened = (filters) => ({ ...filters, backend: "", dtype: "" });

// The rows that pass the filters, in order.
function select(data, filters, { pairing = -1, findings = false } = {}) {
  const rows = data.rows, selected = [];
  const allowed = (words, wanted, all = () => false) => words.map((word) => !wanted || word === wanted || all(word, wanted));
  const tier = (word, wanted) => wanted.endsWith(":*") && word.tier === wanted.slice(0, -2);
  const verdict = data.verdicts.map((each, i) =>
    (!findings || data.isFinding[i]) &&
    (!filters.verdict || each.name === filters.verdict || (filters.verdict === "any finding" && data.isFinding[i])));
  const backend = data.backends.map((each) => !filters.backend || each.id === filters.backend || tier(each, filters.backend));
  const dtype = allowed(data.dtypes, filters.dtype);
  const family = data.families.map((each) => !filters.family || each.id === filters.family);
  const suspect = data.suspects.map((each) => each.id === filters.suspect);
  const text = (filters.text || "").toLowerCase();
  const columns = Object.entries(data.lower);
  const hits = columns.map(([column, words]) => [rows[column], words.map((word) => word.includes(text))]);
  for (let row = 0; row < data.count; row++) {
    if (pairing >= 0 && rows.pairing[row] !== pairing) continue;
    if (!verdict[rows.verdict[row]] || !backend[rows.backend[row]] || !dtype[rows.dtype[row]] || !family[rows.family[row]]) continue;
    if (filters.suspect && !suspect[rows.suspect[row]]) continue;
    if (text && !hits.some(([column, hit]) => hit[column[row]])) continue;
    selected.push(row);
  }
  return selected;
}

// The form shows the filters of the address, and a change of the form changes the address.
function bindFilters(data, form, go) {
  const option = (value, text = value) => el("option", { value }, text);
  const fill = (name, ...options) => form.elements[name].append(option("", "all"), ...options.flat());
  const present = new Set(data.rows.verdict);
  const verdicts = data.verdicts.filter((_, i) => present.has(i));
  fill("verdict", option("any finding"), verdicts.map((each) => option(each.name, `${each.letter} ${each.name}`)));
  const tiers = group(data.backends, (each) => each.tier);
  fill("backend", [...tiers].map(([tier, members]) => el("optgroup", { label: tier },
    members.length > 1 ? option(`${tier}:*`, `all of ${tier}`) : null, members.map((each) => option(each.id)))));
  fill("dtype", data.dtypes.filter((each) => each !== ALL).map((each) => option(each)));
  const families = group(data.families.filter((each) => each.id !== ALL), (each) => each.group);
  fill("family", [...families].map(([name, members]) => el("optgroup", { label: name }, members.map((each) => option(each.id)))));
  fill("suspect", data.suspects.map((each) => option(each.id, `${data.short[each.pairing]}: ${each.title}`)));
  let waiting = 0;
  const apply = () => go(Object.fromEntries(FILTERS.map((name) => [name, form.elements[name].value.trim()])));
  form.addEventListener("change", apply);
  form.addEventListener("input", (event) => {
    if (event.target.name !== "text") return;
    clearTimeout(waiting);
    waiting = setTimeout(apply, 120);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
}

function showFilters(form, filters) {
  for (const name of FILTERS) {
    const field = form.elements[name], value = filters[name] || "";
    if (field.value.trim() !== value) field.value = value;
    field.classList.toggle("set", Boolean(value));
  }
}

function group(items, key) {
  const groups = new Map();
  for (const item of items) {
    const name = key(item);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(item);
  }
  return groups;
}
