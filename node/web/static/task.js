// The chart of a task's page: the duration and amount of its latest runs. The table below the chart has the same figures.
"use strict";
{ // scripts share one scope

const section = document.getElementById("figures");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
let shown = null; // the figures that are drawn
let drawn = [];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 120) return `${+value.toFixed(value < 1 ? 2 : 1)} s`;
  return value < 7200 ? `${Math.round(value / 60)} min` : `${+(value / 3600).toFixed(1)} h`;
}
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const bytes = (value) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let number = value;
  while (number >= 1000 && units.length > 1) { number /= 1000; units.shift(); }
  return `${+number.toFixed(1)} ${units[0]}`;
};

function draw(element, values, good, at, words, tallest) {
  const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px sans-serif" };
  const bars = uPlot.paths.bars({ size: [0.7, 26], radius: 0.15 });
  const series = (paint, kept) => ({ label: kept, paths: bars, points: { show: false }, stroke: colour(paint), fill: colour(paint), width: 0 });
  const when = zoned({ day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const options = {
    width: element.clientWidth, height: tallest, legend: { show: false }, cursor: { show: false },
    // Runs are evenly spaced, however far apart in time they are.
    scales: { x: { time: false, range: (_, low, high) => [low - 0.7, Math.max(high, low + 9) + 0.7] }, y: { range: (_, __, high) => [0, (high || 1) * 1.08] } },
    axes: [
      { ...axis, grid: { show: false }, size: 28, space: 90, splits: (self, _, low, high) => {
        const step = Math.max(1, Math.ceil((high - low) / Math.max(1, Math.floor(self.width / 110))));
        return at.map((__, n) => n).filter((n) => n % step === 0);
      }, values: (_, splits) => splits.map((n) => (at[n] === undefined ? "" : when.format(at[n] * 1000))) },
      { ...axis, size: 62, space: 28, values: (_, splits) => splits.map(words) },
    ],
    series: [{}, series("busy", "succeeded"), series("bad", "other")],
  };
  const data = [values.map((_, n) => n), values.map((v, n) => (good[n] ? v : null)), values.map((v, n) => (good[n] ? null : v))];
  return new uPlot(options, data, element);
}

function show() {
  for (const chart of drawn) chart.destroy();
  drawn = [];
  if (!shown || shown.at_s.length < 2) { section.hidden = true; return; }
  section.hidden = false;
  const [took, amount, title] = [document.getElementById("chart-took"), document.getElementById("chart-amount"), section.querySelector("h3")];
  const many = shown.at_s.length;
  section.querySelector(".count").textContent = `the latest ${many}${shown.good.includes(false) ? ", red: did not succeed" : ""}`;
  drawn.push(draw(took, shown.took_s, shown.good, shown.at_s, (v) => seconds(v), 150));
  amount.hidden = title.hidden = !shown.unit;
  if (!shown.unit) return;
  title.textContent = shown.unit === "rows" ? "Rows of each" : "Bytes of each";
  const words = shown.unit === "rows" ? (v) => compact.format(v) : bytes;
  drawn.push(draw(amount, shown.amount, shown.good, shown.at_s, words, 120));
}

async function refresh() {
  const response = await fetch(section.dataset.url, { headers: { Accept: "application/json" } });
  if (!response.ok) return; // the page's parts show the error
  shown = await response.json();
  show();
}

const latest = () => [...document.querySelectorAll("#past tr[data-run]")].map((row) => row.dataset.run).join(",");
let known = latest();
document.addEventListener("htmx:afterSettle", () => {
  const now = latest();
  if (now !== known) { known = now; refresh(); }
});
dark.addEventListener("change", show);
document.addEventListener("rota:zone", show);
let resizing = null;
window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(show, 150); });
refresh();
}
