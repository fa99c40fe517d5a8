// Asks the search of the built site what users ask, with the site's own script, and fails where the page that answers is
// not among the first three: `node tools/check_search.mjs site docs/search-questions.json`.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import vm from "node:vm";

const FIRST = 3;
const [SETUP, READY, QUERY, RESULT] = [0, 1, 2, 3]; // kinds of messages to and from the script

const [site, questions] = process.argv.slice(2);
const folder = join(site, "assets/javascripts/workers");
const script = readdirSync(folder).find((name) => /^search\..*\.min\.js$/.test(name));
const index = JSON.parse(readFileSync(join(site, "search/search_index.json"), "utf8"));

const waiting = [];
const worker = {
  listeners: [],
  addEventListener: (kind, listener) => kind === "message" && worker.listeners.push(listener),
  postMessage: (message) => waiting.shift()?.(message),
  location: { href: "https://example.com/" },
  performance,
  console,
  URL,
};
worker.self = worker;
vm.runInNewContext(readFileSync(join(folder, script), "utf8"), worker);

function ask(message) {
  return new Promise((resolve, reject) => {
    waiting.push(resolve);
    setTimeout(() => reject(new Error("the search does not answer")), 20_000).unref();
    worker.listeners.forEach((listener) => listener({ data: message }));
  });
}

const ready = await ask({ type: SETUP, data: { ...index, options: { suggest: false } } });
if (ready.type !== READY) throw new Error("the search does not start");
const asked = Object.entries(JSON.parse(readFileSync(questions, "utf8")));
const answers = await Promise.all(asked.map(([question]) => ask({ type: QUERY, data: question })));
const problems = asked.flatMap(([question, page], number) => {
  const answer = answers[number];
  if (answer.type !== RESULT) throw new Error(`no result for ${question}`);
  const found = answer.data.items.slice(0, FIRST).map((item) => item[0].location.split("#")[0]);
  return found.includes(page) ? [] : [`${question}: ${page} is not among ${found.join(", ") || "nothing"}\n`];
});
process.stderr.write(problems.join(""));
const right = asked.length - problems.length;
process.stdout.write(`search: ${right} of ${asked.length} questions find their page among the first ${FIRST}\n`);
process.exit(problems.length ? 1 : 0);
