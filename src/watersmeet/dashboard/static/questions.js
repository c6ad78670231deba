// What-if sliders. The server runs the planner on the question and returns the plan that it would choose.

import { bytes, count, percent, processors, seconds } from "/figures.js";
import { drawLosers, element } from "/plan.js";

const STEPS = 1000;
const moved = new Map();
let waiting = null;
let base = null;

export function drawControls(about) {
  base = about;
  const place = document.getElementById("controls");
  place.replaceChildren(...about.controls.map((control, i) => slider(control, `control-${i}`)));
  place.addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("reset").addEventListener("click", () => {
    moved.clear();
    drawControls(base);
    drawAnswer(base, true);
  });
  drawAnswer(about, true);
}

function slider(control, id) {
  const row = element("div", "control");
  const label = element("label", "", control.label);
  const shown = element("output", "", formatValue(control, control.value));
  const input = element("input");
  label.htmlFor = input.id = id;
  input.type = "range";
  input.min = 0;
  input.max = STEPS;
  input.value = moved.has(control.key) ? position(control, moved.get(control.key)) : position(control, control.value);
  input.dataset.key = control.key;
  input.addEventListener("input", () => {
    const value = valueAt(control, Number(input.value));
    moved.set(control.key, value);
    row.classList.add("moved");
    shown.textContent = formatValue(control, value);
    input.setAttribute("aria-valuetext", shown.textContent);
    clearTimeout(waiting);
    waiting = setTimeout(ask, 60);
  });
  row.append(label, shown, input);
  return row;
}

function valueAt(control, at) {
  const share = at / STEPS;
  if (at === STEPS) return control.most;
  const value = control.linear ? control.least + share * (control.most - control.least) : control.least * (control.most / control.least) ** share;
  return control.is_integer ? Math.round(value) : Number(value.toPrecision(3));
}

function position(control, value) {
  const share = control.linear ? (value - control.least) / (control.most - control.least) : Math.log(value / control.least) / Math.log(control.most / control.least);
  return Math.round(share * STEPS);
}

function formatValue(control, value) {
  if (control.unlimited && value >= control.most) return "no limit";
  if (control.unit === "bytes") return bytes(value);
  if (control.unit === "s") return seconds(value);
  if (control.key === "headroom") return `${Math.round(value * 100)} %`;
  return `${count(value)} ${control.unit}`.trim();
}

let asked = 0;

async function ask() {
  const number = ++asked;
  const answer = await fetch("/api/what-if", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(Object.fromEntries(moved)) });
  const about = await answer.json();
  if (number !== asked) return; // a later question was sent
  if (about.error) {
    document.getElementById("answer").replaceChildren(element("p", "error", about.error));
    return;
  }
  drawAnswer(about, about.same_plan);
  drawLosers(about);
}

function drawAnswer(about, samePlan) {
  const place = document.getElementById("answer");
  const verdict = element("span", about.feasible ? "chip good" : "chip bad", about.feasible ? "keeps up" : "cannot keep up");
  const plan = element("p", "answer-plan", `${samePlan ? "same plan" : "another plan"}: ${about.plan}`);
  const use = about.utilisation === null ? "unbounded CPU" : `${percent(about.utilisation)} of ${processors(about)}`;
  const costs = element("p", "", `${use}, ${bytes(about.state_bytes)} of state, ${count(about.rows_out_per_s)} rows/s out`);
  place.replaceChildren(verdict, plan, costs);
  if (about.orders.length) place.append(element("p", "answer-orders", `probe orders: ${about.orders.join(", ")}`));
  if (about.reason) place.append(element("p", "", about.reason));
  const drops = Object.entries(about.drop);
  if (drops.length) place.append(dropRates(drops));
  if (about.remedies.length) {
    const list = element("ul");
    list.append(...about.remedies.map((words) => element("li", "", words)));
    place.append(element("p", "", "Any of these would help:"), list);
  }
}

// Share of each stream to shed, as bars.
function dropRates(drops) {
  const bars = element("div", "bars drops");
  for (const [name, share] of drops) {
    const track = element("div", "track");
    const filled = element("i", "measured");
    filled.style.width = `${share * 100}%`;
    track.append(filled);
    bars.append(track, element("span", "drop-rate", `shed ${percent(share)} of ${name}`));
  }
  return bars;
}
