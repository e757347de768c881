// Lists the questions, and shows one when it is opened. What was said becomes text nodes, never markup.
"use strict";

const STEP = 100; // questions that are listed at once
const { systems, fields, right, all } = JSON.parse(document.getElementById("questions").textContent);
const questions = all.map((one) => ({ ...one, answers: one.answers.map(answered) }));
const conversations = new Map(); // by file, once one of its questions is open

function answered(values) {
  return values && Object.fromEntries(fields.map((name, n) => [name, values[n]]));
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const figure = (value) =>
  value === null || value === undefined ? "–" : typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
const share = (value) => (typeof value === "number" ? value.toFixed(3) : figure(value));

function conversation(file) {
  if (!conversations.has(file)) {
    const data = [...document.querySelectorAll("script.conversation")].find((one) => one.dataset.file === file);
    conversations.set(file, JSON.parse(data.textContent));
  }
  return conversations.get(file);
}

function outcomes(answer) {
  if (answer.failed) return ["failed"];
  return [answer.f1 >= right ? "right" : "wrong", ...(answer.refused ? ["refused"] : [])];
}

// what was asked for

const form = document.getElementById("filters");
const list = document.getElementById("list");
const more = document.getElementById("more");
let found = [];

function fits(question, { words, category, system, outcome }) {
  if (category && question.category !== category) return false;
  const answers = question.answers.filter((answer, n) => answer && (system === "" || n === Number(system)));
  if (!answers.length || (outcome && !answers.some((answer) => outcomes(answer).includes(outcome)))) return false;
  const texts = [question.question, question.gold, question.corrected ?? "", ...answers.map((answer) => answer.text)];
  return !words || texts.some((text) => text.toLowerCase().includes(words));
}

function filter() {
  const asked = Object.fromEntries(new FormData(form));
  asked.words = asked.words.trim().toLowerCase();
  found = questions.filter((question) => fits(question, asked));
  document.getElementById("count").textContent = `${found.length} of ${questions.length} questions`;
  list.replaceChildren();
  extend(asked.system);
}

function extend(system) {
  const start = list.childElementCount;
  list.append(...found.slice(start, start + STEP).map((question) => line(question, system)));
  more.hidden = list.childElementCount === found.length;
}

// a question

function line(question, system) {
  const seen = (n) => question.answers[n] && (system === "" || n === Number(system));
  const chips = question.answers.flatMap((answer, n) => (seen(n) ? [chip(answer, n)] : []));
  const row = element("span", { class: "row" }, element("span", { class: "chip" }, question.category), ...chips);
  const heading = element("summary", {}, question.question, row);
  const made = element("details", { class: "question" }, heading);
  made.addEventListener("toggle", () => made.childElementCount > 1 || made.append(opened(question)));
  return made;
}

function chip(answer, n) {
  const [first, second] = outcomes(answer);
  const kind = first === "right" ? "good" : "bad";
  return element("span", { class: `chip ${kind}` }, `${systems[n].label}: ${second ? `${second}, ${first}` : first}`);
}

function opened(question) {
  const told = [["key", question.gold || "nothing that was said answers it"]];
  if (question.corrected !== null) told.push(["corrected key", question.corrected]);
  told.push(["evidence", question.evidence.join(", ") || "none is named"]);
  told.push(["where", `${conversation(question.file).name}, question ${question.number}`]);
  const lines = told.flatMap(([name, value]) => [element("dt", {}, name), element("dd", { class: "said" }, value)]);
  const shown = question.answers.flatMap((answer, n) => (answer ? [exhibit(question, answer, n)] : []));
  return element("div", {}, element("dl", { class: "facts" }, ...lines), answersOf(question), ...shown);
}

const COLUMNS = [
  ["F1", (a) => share(a.f1)],
  ["corrected", (a) => share(a.corrected)],
  ["BLEU-1", (a) => share(a.bleu1)],
  ["evidence", (a) => share(a.recall)],
  ["refused", (a) => figure(a.refused)],
  ["judged right", (a) => figure(a.judged)],
  ["confidence", (a) => share(a.confidence)],
  ["tokens", (a) => figure(a.tokens)],
  ["calls", (a) => figure(a.calls)],
];

function answersOf(question) {
  const names = ["system", "answer", ...COLUMNS.map(([name]) => name)];
  const head = names.map((name, n) => element("th", { scope: "col", class: n > 1 ? "num" : "" }, name));
  const rows = question.answers.flatMap((answer, n) => (answer ? [answerOf(answer, n)] : []));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  return element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Answers" }, table);
}

function answerOf(answer, n) {
  const text = element("td", { class: "said" }, answer.failed ? `failed: ${answer.failed}` : answer.text);
  const cells = COLUMNS.map(([, value]) => element("td", { class: "num" }, answer.failed ? "–" : value(answer)));
  return element("tr", {}, element("th", { scope: "row" }, systems[n].label), text, ...cells);
}

// what was shown, and why

function exhibit(question, answer, n) {
  const { memories, found: shown } = conversation(question.file);
  const hits = shown[systems[n].name][question.number];
  const whole = typeof hits === "number";
  const count = whole ? hits : hits.length / 2;
  const left = answer.left_out ? `; ${answer.left_out} did not fit: the lowest scores, of the same the oldest` : "";
  const counted = `${whole ? `all of it, ${count}` : count || "no"} ${count === 1 ? "memory" : "memories"}`;
  const title = `What ${systems[n].label} showed: ${counted}${left}`;
  if (whole || !count) return element("p", { class: "small" }, title);
  const made = element("details", {}, element("summary", { class: "small" }, title));
  const evidence = new Set(question.evidence);
  made.addEventListener("toggle", () => made.childElementCount > 1 || made.append(hitsOf(hits, memories, evidence)));
  return made;
}

function hitsOf(hits, memories, evidence) {
  const items = [];
  for (let n = 0; n < hits.length; n += 2) {
    const [text, speaker, said, turns] = memories[hits[n]];
    const about = [speaker, said.slice(0, 16).replace("T", " "), `score ${share(hits[n + 1])}`].filter(Boolean);
    const chips = turns.some((turn) => evidence.has(turn)) ? [element("span", { class: "chip good" }, "evidence")] : [];
    const heading = element("div", { class: "row small muted" }, about.join(" · "), ...chips);
    items.push(element("li", {}, heading, element("p", { class: "said" }, text)));
  }
  return element("ol", { class: "hits" }, ...items);
}

form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
more.addEventListener("click", () => extend(form.elements.system.value));
filter();
