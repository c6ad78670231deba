// The page: loads the plan once, then fetches new metrics twice a second and shows them.

import { add, bytes, count, drawCharts, latest, measured, percent, processors, recentRate, rowsIn, rowsOut, seconds } from "/figures.js";
import { drawEdges, drawLosers, drawPicture, element } from "/plan.js";
import { drawControls } from "/questions.js";

const EVERY_MS = 500;
let about = null;
let seen = 0;

if (location.search) history.replaceState(null, "", "/"); // the cookie holds the token now, so remove it from the address

async function start() {
  about = await (await fetch("/api/plan")).json();
  document.getElementById("title").textContent = about.title;
  document.getElementById("query").textContent = about.query;
  document.getElementById("plan-words").textContent = about.plan;
  judge(about.feasible ? "keeps up" : "cannot keep up", about.feasible ? "good" : "bad");
  document.getElementById("plan-notes").textContent = notes();
  drawPicture(about.cards, null);
  drawLosers(about);
  drawControls(about);
  drawTiles({ rows_in: 0, rows_out: 0, late: 0, shed: 0 });
  addEventListener("resize", drawEdges);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);
  await refresh();
}

function notes() {
  const words = [`Predicted: ${percent(about.utilisation)} of ${processors(about)}, ${bytes(about.state_bytes)} of state in ${count(about.state_rows)} rows, ${count(about.rows_out_per_s)} rows/s out; ${about.weights}.`];
  if (about.waits_for_watermark) words.push("Results wait for the watermark, because a ROWS window needs rows in time order.");
  if (about.reason) words.push(`The query cannot keep up: ${about.reason}.`);
  return words.join(" ");
}

async function refresh() {
  try {
    const answer = await (await fetch(`/api/figures?since=${seen}`)).json();
    seen = answer.seen;
    show(answer);
    setTimeout(refresh, EVERY_MS);
  } catch {
    status("server stopped", "bad");
  }
}

function show(answer) {
  status(answer.status, { running: "good", failed: "bad" }[answer.status]);
  if (answer.figures.length) {
    add(answer.figures);
    drawTiles(answer.totals);
    drawCharts();
    drawPicture(about.cards, measured());
  } else if (!latest()) {
    for (const plot of document.querySelectorAll(".plot:empty")) plot.append(element("p", "", "no batches yet"));
  }
  showForecast(answer.live);
  document.getElementById("changes").replaceChildren(
    ...[...answer.changes].reverse().map((change) => {
      const line = element("li");
      line.append(element("span", "when", `${new Date(change.at_s * 1000).toLocaleTimeString("en-GB")} batch ${change.batch}`), change.words);
      return line;
    }),
  );
}

function judge(words, kind) {
  const verdict = document.getElementById("verdict");
  verdict.textContent = words;
  verdict.className = `chip ${kind}`;
}

// The verdict on a run follows its newest batches. Until they allow one, the forecast from before the start stays.
function showForecast(live) {
  if (!live || !live.is_known) return;
  judge(live.verdict, live.verdict === "keeps up" ? "good" : "bad");
  document.getElementById("forecast").hidden = false;
  document.getElementById("forecast-words").textContent = live.sentence;
  const lines = [["", "first forecast", "measured", "next batch", ""], ...live.table].map((cells, number) => {
    const line = element("tr");
    line.append(...cells.map((words) => element(number ? "td" : "th", "", words)));
    return line;
  });
  document.getElementById("forecast-figures").replaceChildren(...lines);
  document.getElementById("forecast-failed").textContent = live.failed.map((words) => `Assumption that failed: ${words}.`).join(" ");
}

function status(words, kind) {
  const place = document.getElementById("status");
  place.textContent = words;
  place.className = kind ? `chip ${kind}` : "chip";
}

function drawTiles(totals) {
  const now = latest();
  const watermark = now && now.watermark_us !== null ? new Date(now.watermark_us / 1000).toISOString().replace("T", " ").slice(0, 19) : "";
  const tiles = [
    ["rows in", `${count(recentRate(rowsIn))} rows/s`, `${count(totals.rows_in)} in total`],
    ["rows out", `${count(recentRate(rowsOut))} rows/s`, `${count(totals.rows_out)} in total`],
    ["latency", now ? seconds(now.took_s) : "–", now ? `batch ${now.batch}` : ""],
    ["state", now ? bytes(now.state_bytes) : "–", now ? `${count(now.state_rows)} rows` : ""],
    ["watermark lag", now ? seconds(now.watermark_lag_s) : "–", watermark],
    ["late rows", count(totals.late), share(totals.late, totals.rows_in)],
    ["shed rows", count(totals.shed), share(totals.shed, totals.rows_in)],
  ];
  document.getElementById("tiles").replaceChildren(
    ...tiles.map(([name, value, more]) => {
      const tile = element("div", "tile");
      tile.append(element("div", "name", name), element("div", "value", value), element("div", "more", more));
      tile.dataset.name = name;
      return tile;
    }),
  );
}

function share(part, whole) {
  return part && whole ? `${percent(part / whole)} of all rows` : "";
}

start().catch((error) => status(String(error), "bad"));
