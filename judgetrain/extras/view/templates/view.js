"use strict";
const rows = [...document.querySelectorAll("details.row")];
const texts = rows.map((row) => row.textContent.toLowerCase());
const value = (name) => document.getElementById(name)?.value ?? "";

function isRight(row, wanted) {
  const left = row.dataset.left === "yes";
  const right = row.dataset.right === "yes";
  // Of a row without a label nobody is right or wrong.
  if (!row.dataset.label) return false;
  return { left: left && !right, right: right && !left, both: left && right, none: !left && !right }[wanted];
}

function fits(row, text) {
  for (const name of ["differ", "label", "better", "length"]) {
    if (value(name) && row.dataset[name] !== value(name)) return false;
  }
  if (value("right") && !isRight(row, value("right"))) return false;
  if (value("criterion") && !JSON.parse(row.dataset.criteria).includes(value("criterion"))) return false;
  return value("words").toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function show() {
  let shown = 0;
  let labelled = 0;
  const right = { left: 0, right: 0 };
  rows.forEach((row, index) => {
    const isShown = fits(row, texts[index]);
    row.hidden = !isShown;
    if (!isShown) return;
    shown += 1;
    if (!row.dataset.label) return;
    labelled += 1;
    for (const side of ["left", "right"]) right[side] += row.dataset[side] === "yes";
  });
  const [left, other] = document.querySelector("h1").innerText.split(" beside ");
  let line = `${shown} of ${rows.length} comparisons`;
  if (labelled) {
    const percent = (count) => `${((100 * count) / labelled).toFixed(0)}%`;
    line += `: ${left} is right in ${percent(right.left)}, ${other} in ${percent(right.right)}`;
  }
  document.getElementById("count").textContent = line;
}

document.getElementById("filters").addEventListener("input", show);
document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
show();
