// Metrics of batches as tiles and charts. Names come from outside: they enter the page as text, and are escaped in the labels of Plotly.

const KEPT = 600;
const figures = [];

export function add(batches) {
  figures.push(...batches);
  if (figures.length > KEPT) figures.splice(0, figures.length - KEPT);
}

export function latest() {
  return figures[figures.length - 1];
}

// Rows per second of wall-clock time between the ends of two batches, but at least the time that the batch took.
function rates(rowsOf) {
  return figures.map((each, i) => {
    const gap = i > 0 ? Math.max(each.ended_s - figures[i - 1].ended_s, each.took_s) : each.took_s;
    return gap > 0 ? rowsOf(each) / gap : null;
  });
}

const sum = (counts) => Object.values(counts).reduce((all, each) => all + each, 0);

export function recentRate(rowsOf, seconds = 3) {
  if (!figures.length) return null;
  const end = latest().ended_s;
  const recent = figures.filter((each) => each.ended_s > end - seconds);
  const span = Math.max(end - recent[0].ended_s + recent[0].took_s, 1e-9);
  return recent.reduce((rows, each) => rows + rowsOf(each), 0) / span;
}

export const rowsIn = (each) => sum(each.rows_in);
export const rowsOut = (each) => each.rows_out;

// CPU seconds per second of event time, by operator, over the recent batches: the quantity that the cost model predicts. Null if nothing was measured.
export function measured() {
  const recent = figures.slice(-30);
  const reached = (each) => each.newest_us ?? each.watermark_us; // some hosts know only the watermark
  const span = recent.length > 1 ? (reached(latest()) - reached(recent[0])) / 1e6 : 0;
  if (!(span > 0)) return null;
  const spent = {};
  for (const each of recent.slice(1)) {
    for (const [name, seconds] of Object.entries(each.operators_s)) spent[name] = (spent[name] || 0) + seconds / span;
  }
  return spent;
}

export function count(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return (value / 1e9).toPrecision(3) + " G";
  if (size >= 1e6) return (value / 1e6).toPrecision(3) + " M";
  if (size >= 1e4) return (value / 1e3).toPrecision(3) + " k";
  return size >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= size * 0.9995) return (value / size).toPrecision(3) + " " + unit;
  }
  return Math.round(value) + " B";
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (value >= size * 0.9995) return Number((value / size).toPrecision(3)).toString() + " " + unit;
  }
  return (value * 1e9).toPrecision(3) + " ns";
}

export function percent(share) {
  if (share === null || share === undefined) return "–";
  const value = share * 100;
  if (value === 0) return "0 %";
  if (value < 0.01) return "< 0.01 %";
  if (value < 0.095) return value.toFixed(2) + " %";
  return value < 99.95 ? value.toFixed(1) + " %" : Math.round(value).toLocaleString("en") + " %";
}

// CPU seconds per second of event time, as a share of a core or a number of cores.
export function cores(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.9995) return percent(value) + " of a core";
  return `${Number(value.toPrecision(3)).toLocaleString("en")} ${Math.round(value * 100) === 100 ? "core" : "cores"}`;
}

export const processors = (about) => `${count(about.processors)} ${about.processors === 1 ? "core" : "cores"}`;

const escaped = (name) => String(name).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function draw(id, traces, unit) {
  const lines = { color: colour("--line") };
  const layout = {
    margin: { l: 52, r: 10, t: 8, b: 28 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, DejaVu Sans, sans-serif", size: 11, color: colour("--soft") },
    showlegend: traces.length > 1,
    legend: { orientation: "h", x: 0, y: 1.14, bgcolor: "rgba(0,0,0,0)" },
    xaxis: { type: "date", tickformat: "%H:%M:%S", gridcolor: lines.color, linecolor: lines.color, zeroline: false, nticks: 6 },
    yaxis: { gridcolor: lines.color, zeroline: false, rangemode: "tozero", ticksuffix: unit, exponentformat: "SI", nticks: 5 },
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("--panel"), bordercolor: lines.color, font: { color: colour("--text") } },
  };
  window.Plotly.react(id, traces, layout, { displayModeBar: false, responsive: true });
}

function line(name, values, colourName, more = {}) {
  const x = figures.map((each) => new Date(each.ended_s * 1000));
  return { x, y: values, name: escaped(name), mode: figures.length > 1 ? "lines" : "markers", line: { color: colour(colourName), width: 2 }, ...more };
}

const filled = (name) => ({ fill: "tozeroy", fillcolor: `${colour(name)}33` }); // a fifth as dense as the line

export function drawCharts() {
  if (!figures.length || !window.Plotly) return;
  for (const note of document.querySelectorAll(".plot > p")) note.remove();
  draw("chart-rates", [line("in", rates(rowsIn), "--predicted"), line("out", rates(rowsOut), "--measured")], "");
  draw("chart-latency", [line("latency", figures.map((each) => each.took_s), "--measured", filled("--measured"))], "s");
  draw("chart-state", [line("state", figures.map((each) => each.state_bytes), "--predicted", filled("--predicted"))], "B");
  draw("chart-lag", [line("lag", figures.map((each) => each.watermark_lag_s), "--third", filled("--third"))], "s");
  draw("chart-lost", lost(), "");
}

const COLOURS = ["--predicted", "--measured", "--third", "--good", "--bad"];

function lost() {
  const names = [...new Set(figures.flatMap((each) => [...Object.keys(each.late), ...Object.keys(each.shed)]))].sort();
  const kinds = names.flatMap((name) => [["late", name], ["shed", name]]);
  const traces = kinds.map(([kind, name], i) => {
    let total = 0;
    const values = figures.map((each) => (total += each[kind][name] || 0));
    const dash = kind === "shed" ? "dot" : "solid";
    const tint = COLOURS[(i >> 1) % COLOURS.length];
    return line(`${name} ${kind}`, values, tint, { line: { color: colour(tint), width: 2, dash } });
  });
  const some = traces.filter((trace) => trace.y[trace.y.length - 1] > 0);
  return some.length ? some : [line("none", figures.map(() => 0), "--good")];
}
