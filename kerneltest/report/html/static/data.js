// The page's data: unpacked once, and indexed as the views need it.

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

const ALL = "*";  // the dtype, family and signature of a row that stands for all of them
const GAPS = new Set(["missing", "nothing compared"]);  // no record says more about them

function index(data) {
  const rows = data.rows, count = rows.verdict.length;
  data.count = count;
  data.isFinding = data.verdicts.map((verdict) => verdict.finding);
  data.detail = new Map(data.findings.map((finding) => [finding.row, finding]));
  data.pairingNumber = new Map(data.pairings.map((pairing, i) => [pairing.id, i]));
  data.short = data.pairings.map((pairing) => pairing.id.split("::").pop());
  data.byName = new Map(data.findings.map((finding) => [nameOf(data, finding), finding]));
  data.message = (row) => (rows.text[row] < 0 ? "left out of this page; the record has it" : data.texts[rows.text[row]]);
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

// What a finding is called in the URL: the same in every report that holds it.
function nameOf(data, finding) {
  const rows = data.rows, row = finding.row;
  const which = finding.case || `${data.dtypes[rows.dtype[row]]} ${data.families[rows.family[row]].id}`;
  return [data.pairings[rows.pairing[row]].id, data.backends[rows.backend[row]].id, which].join(" @ ");
}
