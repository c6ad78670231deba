// The drawing of the plan, and the list of plans that lost. All content is set as text.

import { cores } from "/figures.js";

const SVG = "http://www.w3.org/2000/svg";

export function element(kind, className, text) {
  const made = document.createElement(kind);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

let shown = [];

export function drawPicture(cards, spent) {
  const place = document.getElementById("picture");
  place.replaceChildren(document.createElementNS(SVG, "svg"));
  shown = cards.map((card) => ({ card }));
  const largest = Math.max(...cards.flatMap((card) => [card.predicted_s, measuredOf(card, spent) || 0]), 1e-12);
  shown = cards.map((card) => ({ card, box: box(card, spent, largest) }));
  for (const column of [0, 1, 2]) {
    const stack = element("div", "stack");
    stack.append(...shown.filter(({ card }) => card.column === column).map((each) => each.box));
    if (stack.childElementCount) place.append(stack);
  }
  drawEdges();
}

export function measuredOf(card, spent) {
  if (!spent) return null;
  const known = card.measured.filter((name) => name in spent);
  if (known.length) return known.reduce((all, name) => all + spent[name], 0);
  return isShared(card, spent) ? spent.probe / shown.filter((each) => each.card.key.startsWith("probe ")).length : null;
}

// Only some algorithms measure each origin. For the others, an origin shows an equal share of all probing.
function isShared(card, spent) {
  return Boolean(spent && card.key.startsWith("probe ") && !(card.key in spent) && "probe" in spent);
}

function box(card, spent, largest) {
  const made = element("div", "card");
  made.append(element("h3", "", card.title), ...card.lines.map((line) => element("p", "", line)));
  const bars = element("div", "bars");
  bars.append(...bar("predicted", card.predicted_s, largest), ...bar("measured", measuredOf(card, spent), largest, isShared(card, spent) ? "about " : ""));
  made.append(bars);
  made.title = card.operators.map((each) => `${each.name}: ${cores(each.predicted_s)} predicted`).join("\n");
  return made;
}

function bar(kind, value, largest, prefix = "") {
  const track = element("div", "track");
  if (value !== null) {
    const filled = element("i", kind);
    filled.style.width = `${Math.max(0, Math.min(1, value / largest)) * 100}%`;
    track.append(filled);
  }
  return [track, element("span", `${kind}-text`, value === null ? "not measured" : prefix + cores(value))];
}

export function drawEdges() {
  const place = document.getElementById("picture");
  const drawing = place.querySelector("svg");
  if (!drawing) return;
  drawing.replaceChildren();
  const origin = place.getBoundingClientRect();
  const boxes = new Map(shown.map(({ card, box }) => [card.key, box.getBoundingClientRect()]));
  for (const { card } of shown) {
    card.after.forEach((key, i) => {
      const from = boxes.get(key);
      const to = boxes.get(card.key);
      if (!from || !to) return;
      const [x1, y1, x2, y2] = [from.right - origin.left, middle(from) - origin.top, to.left - origin.left, middle(to) - origin.top];
      const bend = (x2 - x1) / 2;
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("d", `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`);
      if (i === 0 || card.column === 2) path.classList.add("own");
      drawing.append(path);
    });
  }
}

const middle = (area) => (area.top + area.bottom) / 2;

export function drawLosers(about) {
  const place = document.getElementById("losers");
  const largest = Math.max(...about.losers.map((each) => each.cpu_per_s), about.cpu_per_s, 1e-12);
  // A pinned plan need not be the cheapest, nor a plan that was chosen without enough rows to compare.
  const lost = about.losers.every((each) => each.times === null || each.times >= 1);
  document.getElementById("losers-heading").textContent = lost ? "Plans that lost" : "Other plans, not compared";
  document.getElementById("losers-of").textContent = `compared with ${cores(about.cpu_per_s)} for ${about.plan}`;
  place.replaceChildren(
    ...about.losers.map((each) => {
      const row = element("div", each.feasible ? "loser" : "loser infeasible");
      const times = each.times === null ? "" : `${each.times >= 100 ? Math.round(each.times).toLocaleString("en") : each.times.toPrecision(3)} ×`;
      const track = element("div", "track");
      const filled = element("i");
      // Costs of plans differ by orders of magnitude, so the bar shows their logarithm.
      filled.style.width = `${(Math.log1p(each.cpu_per_s / about.cpu_per_s) / Math.log1p(largest / about.cpu_per_s)) * 100}%`;
      track.append(filled);
      row.append(element("span", "plan", each.plan), element("span", "times", each.feasible ? times : `${times}, cannot keep up`), track);
      return row;
    }),
  );
  if (!about.losers.length) place.append(element("p", "", "This query has no other plan."));
  if (about.losers_left_out) place.append(element("p", "", `and ${about.losers_left_out} more, which cost more`));
}
