// What the page needs beside htmx: parts are fetched again when something has happened, once a second at most;
// the lamp says whether events arrive; times count down; and keyboard, notices and sessions that end.
"use strict";

const COALESCE_MS = 1000; // events within this time cause one fetch of each part
const lamp = () => document.getElementById("live");

function setLive(live) {
  const element = lamp();
  if (!element) return;
  const state = live ? "yes" : "no";
  if (element.dataset.state === state) return;
  element.dataset.state = state;
  element.querySelector(".says").textContent = live ? "live" : "not live: reconnecting";
}

const pending = new Set();
let timer = null;
let last = 0;

// Parts listen for rota:run, rota:owner and rota:member on the body.
function changed(...names) {
  names.forEach((name) => pending.add(name));
  if (timer !== null || document.hidden) return;
  timer = setTimeout(flush, Math.max(50, last + COALESCE_MS - Date.now()));
}

function flush() {
  timer = null;
  last = Date.now();
  const names = [...pending];
  pending.clear();
  names.forEach((name) => htmx.trigger(document.body, `rota:${name}`));
}

const all = () => changed("run", "owner", "member");
for (const name of ["run", "owner", "member"]) {
  document.addEventListener(`sse:${name}`, () => changed(name));
}
document.addEventListener("sse:reset", all);
document.addEventListener("rota:changed", all);
document.addEventListener("htmx:sseOpen", () => { setLive(true); all(); });
document.addEventListener("htmx:sseError", () => setLive(false));
document.addEventListener("htmx:sseClose", () => setLive(false));
document.addEventListener("visibilitychange", () => { if (!document.hidden) all(); });

document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status !== 401) return;
  const here = location.pathname + location.search;
  const base = new URL(document.documentElement.dataset.root, location.href).pathname;
  const next = "/" + (here.startsWith(base) ? here.slice(base.length) : "");
  location.assign(`${document.documentElement.dataset.root}sign-in?next=${encodeURIComponent(next)}`);
});
// Only HTML of our templates enters the page. A problem document quotes what was sent: it is shown as text.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr } = event.detail;
  if ((xhr.getResponseHeader("Content-Type") || "").startsWith("text/html")) return;
  event.detail.shouldSwap = false;
  if (xhr.status < 400) return;
  let said = `The node answered ${xhr.status}.`;
  try { said = JSON.parse(xhr.responseText).detail || said; } catch { /* no problem document */ }
  const notice = document.createElement("p");
  notice.className = "notice bad";
  notice.textContent = said;
  document.getElementById("notice").replaceChildren(notice);
});
document.addEventListener("htmx:sendError", () => setLive(false));

// A notice that all went well goes by itself; one of a problem stays until it is read.
document.addEventListener("htmx:afterSettle", () => {
  for (const notice of document.querySelectorAll(".notice.good")) setTimeout(() => notice.remove(), 6000);
});
document.addEventListener("click", (event) => {
  const close = event.target.closest("[data-close]");
  if (close) close.closest(".notice").remove();
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing) {
    const search = document.getElementById("search");
    if (search) { event.preventDefault(); search.focus(); search.select(); }
  }
});

// Times: <time datetime="..." data-show="until|since|clock">. The server's words stand until this script has run.
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
function duration(seconds) {
  const left = Math.max(0, Math.floor(seconds));
  for (let i = 0; i < UNITS.length; i += 1) {
    const [size, unit] = UNITS[i];
    if (left < size) continue;
    const whole = Math.floor(left / size);
    const less = i + 1 < UNITS.length ? Math.floor((left % size) / UNITS[i + 1][0]) : 0;
    return less ? `${whole} ${unit} ${less} ${UNITS[i + 1][1]}` : `${whole} ${unit}`;
  }
  return "0 s";
}
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const moment = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
// The cluster's clock, not this machine's: the page says what time it was when it was made.
let ahead_ms = 0;
function tick() {
  const now = Date.now() + ahead_ms;
  for (const element of document.querySelectorAll("time[data-show]")) {
    const at = Date.parse(element.dateTime);
    const show = element.dataset.show;
    let text;
    if (show === "clock") text = clock.format(at);
    else if (show === "moment") text = moment.format(at);
    else if (show === "since") text = duration((now - at) / 1000);
    else text = at > now ? `in ${duration((at - now) / 1000)}` : "now";
    if (element.textContent !== text) element.textContent = text;
    if (!element.title) element.title = exact.format(at);
  }
}
let newest = 0;
function readClock() {
  const stamps = [...document.querySelectorAll("[data-now]")].map((one) => Date.parse(one.dataset.now));
  if (Math.max(0, ...stamps) <= newest) return; // parts that were made earlier say nothing of the present
  newest = Math.max(...stamps);
  ahead_ms = newest - Date.now();
}
readClock();
tick();
setInterval(tick, 1000);
document.addEventListener("htmx:afterSwap", () => {
  // A search that was typed stays in the address.
  const rows = document.getElementById("rows");
  if (rows) history.replaceState(null, "", document.documentElement.dataset.root + rows.dataset.here);
  tick(); // before the words of the server are painted
});
document.addEventListener("htmx:afterSettle", () => { readClock(); tick(); announce(); });

// What changes without an event: progress, and what becomes due. Not while nobody looks.
setInterval(() => { if (!document.hidden) changed("quick"); }, 3000);
setInterval(() => { if (!document.hidden) changed("slow"); }, 10000);

// A screen reader hears the verdict when it is another one.
let announced = null;
function announce() {
  const region = document.getElementById("announce");
  const headline = document.querySelector("#verdict h1");
  if (!region || !headline) return;
  const text = headline.textContent;
  if (announced !== null && announced !== text) region.textContent = text;
  announced = text;
}
announce();
