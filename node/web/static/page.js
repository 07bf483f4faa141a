// What the page needs beside htmx: times count down; and keyboard, and notices.
"use strict";

// Only HTML of our templates enters the page. A problem document quotes what was sent: it is shown as text.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr } = event.detail;
  if ((xhr.getResponseHeader("Content-Type") || "").startsWith("text/html")) {
    // htmx looks for another target beside what was pressed, which may have been replaced since.
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

// Times: <time datetime="..." data-show="until|since|clock|...">. The server's words stand until this script has run.
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

// All times of the page are by the clocks of one time zone, which is named at the top: the reader's own unless another is chosen.
const OWN_ZONE = new Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const zones = new Set([OWN_ZONE, "UTC"]);
let zone = OWN_ZONE;
function offer(name) {
  try { new Intl.DateTimeFormat(undefined, { timeZone: name }); zones.add(name); return true; } catch { return false; } // not known to this browser
}
try {
  const kept = localStorage.getItem("rota-zone");
  if (kept && offer(kept)) zone = kept;
} catch { /* it keeps nothing */ }
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
  try { localStorage.setItem("rota-zone", zone === OWN_ZONE ? "" : zone); } catch { /* it keeps nothing */ }
  for (const element of document.querySelectorAll("time[title]")) element.removeAttribute("title");
  tick();
  document.dispatchEvent(new Event("rota:zone"));
});
const told = new WeakMap(); // by the clocks of which zone a text without elements tells its times
function tellTimes() {
  for (const element of document.querySelectorAll("[data-timed]")) {
    if (told.get(element) === zone) continue;
    told.set(element, zone);
    const text = element.dataset.timed.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (at) => clock.format(Date.parse(at)));
    element.setAttribute("aria-label", text);
    element.querySelector("title").textContent = text;
  }
}
// The cluster's clock, not this machine's: the page says what time it was when it was made.
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
  if (Math.max(0, ...stamps) <= newest) return; // parts that were made earlier say nothing of the present
  newest = Math.max(...stamps);
  ahead_ms = newest - Date.now();
}
readClock();
tick();
setInterval(tick, 1000);
document.addEventListener("htmx:afterSwap", () => {
  // A search that was typed stays in the address.
  const rows = document.querySelector("[data-here]");
  if (rows) history.replaceState(null, "", document.documentElement.dataset.root + rows.dataset.here);
  tick(); // before the words of the server are painted
});
document.addEventListener("htmx:afterSettle", () => { readClock(); tick(); announce(); });

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

// A wide picture scrolls in its own box: at first so that the present is seen, and then it stays where it was.
const scrolled = new Map();
function keepScroll() {
  for (const box of document.querySelectorAll("[data-keep-scroll]")) {
    box.scrollLeft = scrolled.get(box.id) ?? Math.max(0, Number(box.dataset.nowX) - box.clientWidth / 3);
  }
}
document.addEventListener("scroll", (event) => {
  if (event.target.dataset && "keepScroll" in event.target.dataset) scrolled.set(event.target.id, event.target.scrollLeft);
}, true);
document.addEventListener("htmx:afterSwap", keepScroll);
keepScroll();

// What was opened stays open when its part of the page is fetched again.
const opened = new Set();
document.addEventListener("toggle", ({ target }) => {
  if (!target.id) return;
  if (target.open) opened.add(target.id);
  else opened.delete(target.id);
}, true);
document.addEventListener("htmx:afterSwap", () => {
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
});
