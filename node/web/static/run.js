// The page of a run: follows its log, with search, and shows the rate of its progress.
"use strict";
{ // scripts share one scope

const LINE_MAX = 20000; // characters shown of one line
const LINES_MAX = 2000; // lines kept in the page; the file has all
const HIDE_MS = 5000; // a tab that is hidden for longer stops following
const TAIL_BYTES = 262144; // how much to read of the log from before the page was opened
const box = document.getElementById("log-box");
const log = document.getElementById("log");
const search = document.getElementById("log-search");
const follow = document.getElementById("log-follow");
const said = document.getElementById("log-said");
const now = () => document.getElementById("now").dataset;

let attempt = null; // the attempt whose log is shown
let chosen = false; // whether the reader has chosen the attempt
let reading = null; // the AbortController of the present request
let rest = ""; // the last line, if it has not ended
let count = 0;
let dropped = false;

function fits(line) { return !search.value || line.textContent.toLowerCase().includes(search.value.toLowerCase()); }

function tell(state) {
  const parts = [];
  if (attempt && document.querySelectorAll("[data-log]").length) parts.push(`attempt ${attempt}`);
  if (search.value) parts.push(`${[...log.children].filter((line) => !line.hidden).length} of ${log.children.length} lines`);
  else if (dropped) parts.push(`the last ${log.children.length.toLocaleString()} lines: download has more`);
  else parts.push(`${count.toLocaleString()} ${count === 1 ? "line" : "lines"}`);
  if (state !== undefined) said.dataset.state = state;
  if (said.dataset.state) parts.push(said.dataset.state);
  const text = parts.join(" · ");
  if (said.textContent !== text) said.textContent = text;
}

// A line as a terminal would finally show it, without colours, and with bidirectional characters escaped.
const STYLE = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
function readable(line) {
  const whole = line.replace(/\r+$/, "");
  const last = whole.slice(whole.lastIndexOf("\r") + 1);
  const text = last.slice(0, LINE_MAX).replace(STYLE, "")
    .replace(CONTROL, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return last.length > LINE_MAX ? `${text} … (the line is longer: download has all of it)` : text || "\u00a0";
}
function lineOf(text) {
  const line = document.createElement("div");
  line.textContent = readable(text);
  line.hidden = !fits(line);
  return line;
}

let open = null; // the element of a line that has not ended, such as a progress bar
function append(text) {
  if (open) open.remove();
  open = null;
  const lines = (rest + text).split("\n");
  rest = lines.pop();
  const begin = rest.replace(/\r+$/, "").lastIndexOf("\r");
  rest = rest.slice(Math.max(0, begin)).slice(0, LINE_MAX + 1);
  const fragment = document.createDocumentFragment();
  const kept = lines.slice(-LINES_MAX);
  if (kept.length < lines.length) dropped = true;
  for (const one of kept) fragment.append(lineOf(one));
  count += lines.length;
  if (rest) { open = lineOf(rest); fragment.append(open); }
  log.append(fragment);
  while (log.children.length > LINES_MAX) { log.firstChild.remove(); dropped = true; }
  if (follow.checked) log.scrollTop = log.scrollHeight;
}

async function read(number) {
  if (reading) reading.abort();
  const mine = new AbortController();
  reading = mine;
  attempt = number;
  rest = ""; count = 0; dropped = false; open = null;
  log.replaceChildren();
  const live = () => now().live === "yes" && now().attempt === number;
  document.getElementById("log-download").href = `${box.dataset.url}?attempt=${number}`;
  tell("");
  while (!mine.signal.aborted) {
    const following = live();
    try {
      const response = await fetch(`${box.dataset.url}?attempt=${number}&follow=${following}&tail_bytes=${TAIL_BYTES}`, { signal: mine.signal });
      if (!response.ok) {
        let why = `the node answered ${response.status}`;
        try { why = (await response.json()).detail || why; } catch { /* no problem document */ }
        tell(why);
        if (response.status !== 503 || !live()) return;
      } else {
        rest = ""; count = 0; dropped = false; open = null;
        log.replaceChildren();
        tell(following ? "following" : "");
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          const { value, done } = await reader.read();
          if (done || mine.signal.aborted) break;
          append(value);
          tell();
        }
        if (mine.signal.aborted) return;
        if (rest) append("\n");
        tell("");
        if (!live()) return;
      }
    } catch (error) {
      if (mine.signal.aborted) return;
      tell("interrupted: trying again");
      if (!live()) return;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

// Switches to a new attempt as soon as it has begun, unless the reader has chosen one.
function newest() {
  const number = now().attempt;
  if (number && !chosen && number !== attempt) read(number);
  if (!number) tell("no attempt has begun");
  follow.closest("label").hidden = now().live !== "yes";
}

// A browser opens at most six connections to a node: hidden tabs must not hold them.
let hiding = null;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(() => { if (reading && now().live === "yes") { reading.abort(); reading = null; } }, HIDE_MS);
  else if (!reading && attempt) read(attempt);
});

search.addEventListener("input", () => {
  for (const line of log.children) line.hidden = !fits(line);
  if (follow.checked) log.scrollTop = log.scrollHeight;
  tell();
});
follow.addEventListener("change", () => { if (follow.checked) log.scrollTop = log.scrollHeight; });
log.addEventListener("scroll", () => {
  follow.checked = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-log]");
  if (!button) return;
  chosen = button.dataset.log !== now().attempt;
  read(button.dataset.log);
  box.scrollIntoView({ block: "nearest" });
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input, textarea, select")) return;
  event.preventDefault();
  search.focus();
});

// The rate of an attempt's progress in the last minute, as far as this page has seen it.
const WINDOW_MS = 60000;
let samples = [];
function left(s) {
  if (s < 90) return `${Math.ceil(s)} s`;
  return s < 5400 ? `${Math.round(s / 60)} min` : `${+(s / 3600).toFixed(1)} h`;
}
function rate() {
  const element = document.getElementById("progress");
  if (!element || !element.dataset.done) { samples = []; return; }
  const { attempt: of, unit } = element.dataset;
  const done = Number(element.dataset.done);
  const at = performance.now();
  if (samples.length && (samples[0].of !== of || done < samples[samples.length - 1].done)) samples = [];
  samples.push({ at, done, of });
  samples = samples.filter((one, n) => at - one.at <= WINDOW_MS || n === samples.length - 1);
  const [first, last] = [samples[0], samples[samples.length - 1]];
  const place = element.querySelector("[data-rate]");
  if (!place || last.at - first.at < 2000 || last.done <= first.done) return;
  const each = (last.done - first.done) / ((last.at - first.at) / 1000);
  const total = Number(element.dataset.total);
  const speed = each >= 10 ? Math.round(each).toLocaleString() : +each.toFixed(each < 1 ? 2 : 1);
  place.textContent = `· ${speed} ${unit || ""}/s${total > done ? ` · about ${left((total - done) / each)} left` : ""}`;
}

document.addEventListener("htmx:afterSettle", () => { rate(); newest(); });
rate();
newest();
}
