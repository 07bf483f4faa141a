// The script of every page, beside htmx: times that count down, time zones, keys, and notices.
"use strict";

// Only HTML of our templates enters the page. A problem document (JSON) may quote the request, so it is shown as text.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr } = event.detail;
  if ((xhr.getResponseHeader("Content-Type") || "").startsWith("text/html")) {
    // Show an error as a notice: htmx's own target is beside the pressed button, which may have been replaced.
    if (xhr.status >= 400) event.detail.target = document.getElementById("notice");
    return;
  }
  event.detail.shouldSwap = false;
  if (xhr.status < 400) return;
  let said = `The node answered ${xhr.status}.`;
  try { said = JSON.parse(xhr.responseText).detail || said; } catch { /* no problem document */ }
  noticeBad(said);
});
function noticeBad(text) {
  const notice = document.createElement("p");
  notice.className = "notice bad";
  notice.textContent = text;
  document.getElementById("notice").replaceChildren(notice);
}

// A notice of success disappears by itself; a notice of a problem stays until the user closes it.
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

// Times: <time datetime="..." data-show="until|since|clock|...">. The server's text is shown until this script has run.
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

// All times of the page are in one time zone, which is shown at the top: the reader's own, or the chosen one.
const OWN_ZONE = new Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const zones = new Set([OWN_ZONE, "UTC"]);
let zone = OWN_ZONE;
function offer(name) {
  try { new Intl.DateTimeFormat(undefined, { timeZone: name }); zones.add(name); return true; } catch { return false; } // not known to this browser
}
try {
  const kept = localStorage.getItem("rota-zone");
  if (kept && offer(kept)) zone = kept;
} catch { /* this browser stores nothing */ }
function zoned(options) {
  let made = null;
  let of = "";
  return { format(at) {
    if (of !== zone) { made = new Intl.DateTimeFormat(undefined, { ...options, timeZone: zone }); of = zone; }
    return made.format(at);
  } };
}
const clock = zoned({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const moment = zoned({ day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const second = zoned({ timeStyle: "medium", hourCycle: "h23" });
const day = zoned({ weekday: "short", day: "numeric", month: "short", year: "numeric" });
const exact = zoned({ dateStyle: "medium", timeStyle: "long" });
const named = zoned({ year: "numeric", timeZoneName: "longOffset" });
function offset(at) { return (named.format(at).match(/[+\u2212-]\d\d:\d\d/) || ["+00:00"])[0]; }
const chooser = document.createElement("select");
chooser.setAttribute("aria-label", "Time zone of the times on this page");
function offerZones() {
  for (const element of document.querySelectorAll("[data-zone]")) {
    offer(element.dataset.zone);
    if (element.textContent !== zone) element.textContent = zone;
  }
  if (chooser.options.length === zones.size) return;
  chooser.replaceChildren(...[...zones].map((name) => new Option(name, name, false, name === zone)));
}
document.getElementById("zone")?.replaceChildren(chooser);
chooser.addEventListener("change", () => {
  zone = chooser.value;
  try { localStorage.setItem("rota-zone", zone === OWN_ZONE ? "" : zone); } catch { /* this browser stores nothing */ }
  for (const element of document.querySelectorAll("time[title]")) element.removeAttribute("title");
  tick();
  document.dispatchEvent(new Event("rota:zone"));
});
const told = new WeakMap(); // by element: the time zone of the times in its text
function tellTimes() {
  for (const element of document.querySelectorAll("[data-timed]")) {
    if (told.get(element) === zone) continue;
    told.set(element, zone);
    const text = element.dataset.timed.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (at) => clock.format(Date.parse(at)));
    element.setAttribute("aria-label", text);
    element.querySelector("title").textContent = text;
  }
}
// Use the cluster's clock, not this machine's: the page holds the time when it was made.
let ahead_ms = 0;
function tick() {
  if (document.body.classList.contains("stale")) return;
  offerZones();
  tellTimes();
  const now = Date.now() + ahead_ms;
  for (const element of document.querySelectorAll("time[data-show]")) {
    const at = Date.parse(element.dateTime);
    const show = element.dataset.show;
    let text;
    if (show === "clock") text = clock.format(at);
    else if (show === "moment") text = moment.format(at);
    else if (show === "second") text = second.format(at);
    else if (show === "day") text = day.format(at).replaceAll(",", "");
    else if (show === "offset") text = offset(at);
    else if (show === "since") text = duration((now - at) / 1000);
    else text = at > now ? `in ${duration((at - now) / 1000)}` : "now";
    if (element.textContent !== text) element.textContent = text;
    if (!element.title) element.title = exact.format(at);
  }
  for (const element of document.querySelectorAll("text[data-at]")) {
    const text = clock.format(Date.parse(element.dataset.at));
    if (element.textContent !== text) element.textContent = text;
  }
}
let newest = 0;
function readClock() {
  const stamps = [...document.querySelectorAll("[data-now]")].map((one) => Date.parse(one.dataset.now));
  if (Math.max(0, ...stamps) <= newest) return; // no part is newer than the last reading
  newest = Math.max(...stamps);
  ahead_ms = newest - Date.now();
}
readClock();
tick();
setInterval(tick, 1000);
document.addEventListener("htmx:afterSwap", () => {
  // Keep the search in the page's URL.
  const rows = document.querySelector("[data-here]");
  if (rows) history.replaceState(null, "", document.documentElement.dataset.root + rows.dataset.here);
  tick(); // before the browser paints the server's text
});
document.addEventListener("htmx:afterSettle", () => { readClock(); tick(); announce(); });

// Announces the verdict to screen readers when it changes.
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

// A wide chart scrolls in its own box: at first to the present; when the chart is replaced, the position is kept.
const scrolled = new Map();
function keepScroll() {
  for (const box of document.querySelectorAll("[data-keep-scroll]")) {
    const [left, top] = scrolled.get(box.id) ?? [box.dataset.nowX - box.clientWidth / 3, (box.dataset.nowY ?? 0) - box.clientHeight / 2];
    box.scrollLeft = Math.max(0, left);
    box.scrollTop = Math.max(0, top);
  }
}
document.addEventListener("scroll", (event) => {
  if (event.target.dataset && "keepScroll" in event.target.dataset) scrolled.set(event.target.id, [event.target.scrollLeft, event.target.scrollTop]);
}, true);
document.addEventListener("htmx:afterSwap", keepScroll);
keepScroll();

// Elements that the user has opened stay open when their part of the page is replaced.
const opened = new Set();
document.addEventListener("toggle", ({ target }) => {
  if (!target.id) return;
  if (target.open) opened.add(target.id);
  else opened.delete(target.id);
}, true);
document.addEventListener("htmx:afterSwap", () => {
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
});
