"use strict";
// Asks this server and shows what it says. Texts of users and models are set as text (textContent), never as markup.
const form = document.querySelector("form"), said = document.getElementById("said"), button = form.querySelector("button");
const WORDS = {A: "A is better", B: "B is better", tie: "tie", inconsistent: "no verdict: the orders differ",
  unreadable: "no verdict: it could not be read"};
const SHOWN = {AB: "A shown first", BA: "B shown first", A: "A by itself", B: "B by itself"};
let asking = null;

function add(parent, tag, text = "", kind = "") {
  const made = parent.appendChild(document.createElement(tag));
  made.textContent = text;
  made.className = kind;
  if (kind === "text") made.dir = "auto";
  return made;
}

const number = (value) => value === null ? "–" : String(Math.round(100 * value) / 100);
const colour = (verdict) => ["A", "B", "tie"].includes(verdict) ? verdict : "none";
const verdictOf = (verdict) => verdict === null ? "could not be read" : WORDS[verdict];

function fact(list, name, text, kind = "") {
  add(list, "dt", name);
  add(list, "dd", text, kind);
}

function cost(found, seconds) {
  const spent = found.cost, times = "verdict" in found && found.plan !== null ? 2 : 1; // told of one order
  const part = (value, unit) => value === null ? "" : `${Math.round(times * value).toLocaleString("en")} ${unit}, `;
  return part(spent.prompt_tokens, "tokens read") + part(spent.generated_tokens, "written") +
    part(spent.calls, "calls") + `${seconds.toFixed(1)} s`;
}

function judgment(parent, reason) {
  const card = add(parent, "div", "", "card"), scores = [["A", reason.score_a], ["B", reason.score_b]];
  const told = ([side, score]) => score !== null && reason.order.includes(side); // of one response: its own alone
  const head = add(card, "h3", scores.filter(told)
    .map(([side, score]) => `${side} ${number(score)}`).join(" : "));
  if (reason.failure) add(head, "span", ` not read: ${reason.failure}`, "bad");
  else if (reason.order.length === 2) add(head, "span", ` ${verdictOf(reason.verdict)}`, colour(reason.verdict));
  add(card, "small", SHOWN[reason.order]);
  add(card, "div", reason.text, "text");
}

function show(found, seconds) {
  said.replaceChildren();
  const two = "verdict" in found;
  if (two) add(said, "h2", WORDS[found.verdict], colour(found.verdict));
  else add(said, "h2", found.value === null ? WORDS.unreadable : `Score ${found.value.toFixed(2)}, from 0 to 1`);
  const facts = add(said, "dl");
  if (two) {
    const alone = found.reasons.length > 0 && found.reasons.every((reason) => reason.order.length === 1);
    if (alone) fact(facts, "Orders", "none: each response was read by itself");
    else fact(facts, "A shown first", verdictOf(found.verdict_ab), colour(found.verdict_ab));
    if (!alone) fact(facts, "B shown first", verdictOf(found.verdict_ba), colour(found.verdict_ba));
    if (found.margin !== null) fact(facts, "Score of A less B's", number(found.margin));
    if (found.score_a !== null) fact(facts, "A and B, of 1", `${number(found.score_a)} and ${number(found.score_b)}`);
  }
  for (const [why, n] of Object.entries(found.failures)) fact(facts, "Not read", `${n}× ${why}`, "bad");
  fact(facts, "Cost", cost(found, seconds));
  const criteria = new Map();
  for (const reason of found.reasons) {
    const key = JSON.stringify([reason.criterion, reason.guideline]);
    if (!criteria.has(key)) {
      const part = add(said, "section", "", "criterion"), head = add(part, "h3");
      add(head, "span", reason.criterion || "Asked once, without criteria", "text");
      if (reason.weight !== 1) add(head, "small", ` weight ${number(reason.weight)}`);
      if (reason.source === "given") add(head, "small", " yours");
      if (reason.guideline) {
        const folded = add(part, "details");
        add(folded, "summary", "Guideline");
        add(folded, "div", reason.guideline, "text");
      }
      criteria.set(key, add(part, "div", "", "two"));
    }
    judgment(criteria.get(key), reason);
  }
}

async function ask() {
  const given = Object.fromEntries([...new FormData(form)].filter(([, text]) => text.trim()));
  const headers = {"Content-Type": "application/json"}, began = performance.now();
  if (given.token) headers.Authorization = `Bearer ${given.token.trim()}`;
  delete given.token;
  if (given.reasons) given.reasons = given.reasons === "true";
  asking = new AbortController();
  button.textContent = "Stop";
  said.replaceChildren();
  add(said, "p", "Judging …", "soft");
  try {
    const answer = await fetch("v1/judge", {method: "POST", headers, body: JSON.stringify(given), signal: asking.signal});
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error.message);
    show(found, (performance.now() - began) / 1000);
    said.firstChild.scrollIntoView({block: "start"});
  } catch (error) {
    said.replaceChildren();
    const told = error.name === "AbortError" ? "Stopped." : error.message;
    add(said, "p", told, "bad").setAttribute("role", "alert");
  }
  asking = null;
  button.textContent = "Judge";
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (asking) asking.abort();
  else ask();
});
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !asking) form.requestSubmit();
});
