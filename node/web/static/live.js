// Keeps the parts of this page up to date: the node sends each element with data-part again when it has changed.
"use strict";

const AGAIN_MS = 2000; // the wait after a stream was refused
const QUIET_MS = 10000; // a connection silent for longer is dead: the node sends an event every 4 s
const SLOW_MS = 3000; // the page is stale after this time without a connection
const base = new URL(document.documentElement.dataset.root, location.href);
let stream = null;
let following = "";
let tried_ms = 0; // when the present stream was begun
let heard_ms = Date.now(); // when the node last sent something; at first, the page itself
let refusal = ""; // the node's error, if it refused a stream

const SAYS = { yes: "live", no: "not live", still: "" };
function setLamp(state) {
  const lamp = document.getElementById("live");
  if (!lamp || lamp.dataset.state === state) return;
  lamp.dataset.state = state;
  lamp.hidden = state === "still";
  lamp.querySelector(".says").textContent = SAYS[state];
}

// Stale data must not look fresh: show its time, and stop its clocks.
function stale() {
  setLamp("no");
  document.body.classList.add("stale");
  const node = document.querySelector(".where .node").textContent;
  const why = refusal || `${node} is not heard: it is down, stands still, or cannot be reached from here.`;
  const text = `What you see is of ${moment.format(heard_ms)}. ${why} Trying again; or open the page of another member.`;
  const said = document.getElementById("stale");
  if (said.textContent !== text) said.textContent = text;
  said.hidden = false;
}
function fresh() {
  heard_ms = Date.now();
  refusal = "";
  setLamp("yes");
  if (!document.body.classList.contains("stale")) return;
  document.body.classList.remove("stale");
  document.getElementById("stale").hidden = true;
  tick();
}

// A connection may be dead without an error: if the node hangs, its machine is lost, or this machine was asleep.
function watch() {
  if (!following) return;
  const now = Date.now();
  const connected = stream && stream.readyState === EventSource.OPEN;
  if (now - heard_ms > (connected ? QUIET_MS : SLOW_MS)) stale();
  if (stream && now - Math.max(heard_ms, tried_ms) > QUIET_MS) again();
}
setInterval(watch, 1000);

function again() {
  if (stream) stream.close();
  stream = null;
  following = "";
  follow();
}

// A part's path and query below the page's root, as the node expects them.
function urlOf(element) {
  const url = new URL(element.dataset.part, location.href);
  return "/" + (url.pathname + url.search).slice(base.pathname.length);
}

const parts = () => [...document.querySelectorAll("[data-part]")];

function follow() {
  const urls = [...new Set(parts().map(urlOf))];
  const lamp = document.getElementById("live");
  if (lamp) lamp.hidden = !urls.length; // the page has no live parts
  const wanted = urls.length && !document.hidden ? JSON.stringify(urls) : "";
  if (!urls.length) setLamp("still");
  if (wanted === following) return;
  if (stream) stream.close();
  stream = null;
  following = wanted;
  if (!wanted) return;
  tried_ms = Date.now();
  stream = new EventSource(`${base.pathname}live?parts=${encodeURIComponent(wanted)}`);
  stream.addEventListener("open", fresh);
  stream.addEventListener("beat", (event) => {
    fresh();
    // If the node was upgraded, its parts may not fit this page's scripts. Only say so: a reload would lose the user's input.
    document.getElementById("outdated").hidden = JSON.parse(event.data).page === document.documentElement.dataset.page;
  });
  stream.addEventListener("error", lost);
  stream.addEventListener("part", (event) => { fresh(); show(event); });
}

// The browser repeats a lost connection, but not a refused one: the session may have ended, or the node has too many streams.
async function lost() {
  setLamp("no");
  const refused = stream;
  if (refused.readyState !== EventSource.CLOSED) return;
  const asking = new AbortController();
  const answer = await fetch(refused.url, { headers: { "HX-Request": "true" }, signal: asking.signal }).catch(() => null);
  if (answer && answer.status === 401) { signInAgain(); return; }
  if (answer && !answer.ok) {
    const said = document.createElement("template");
    said.innerHTML = await answer.text();
    const notice = said.content.querySelector(".notice");
    for (const button of notice ? notice.querySelectorAll("button") : []) button.remove();
    refusal = notice ? notice.textContent.replace(/\s+/g, " ").trim() : `The node answered ${answer.status}.`;
    stale();
  }
  asking.abort();
  setTimeout(() => { if (stream === refused) again(); }, AGAIN_MS);
}

function signInAgain() {
  if (document.querySelector("form.edit")) { // keep the user's input
    refusal = "Your session has ended. Sign in again in another tab, then go on here.";
    stale();
    setTimeout(again, AGAIN_MS);
    return;
  }
  const here = location.pathname + location.search;
  const next = "/" + (here.startsWith(base.pathname) ? here.slice(base.pathname.length) : "");
  location.assign(`${base.pathname}sign-in?next=${encodeURIComponent(next)}`);
}

function unmark(element, name) {
  element.classList.remove(name);
  if (!element.classList.length) element.removeAttribute("class");
}

// A copy as the node rendered it: without the times and zones that page.js filled in, the marks of panel.js and
// timeline.js, and its time stamp.
function bare(element) {
  const copy = element.cloneNode(true);
  copy.removeAttribute("data-now");
  copy.removeAttribute("data-part");
  for (const time of copy.querySelectorAll("time[data-show]")) {
    time.textContent = "";
    time.removeAttribute("title");
  }
  for (const named of copy.querySelectorAll("[data-zone]")) named.textContent = "";
  for (const told of copy.querySelectorAll("[data-timed]")) {
    told.removeAttribute("aria-label");
    told.querySelector("title").textContent = "";
  }
  for (const name of ["chosen", "traced", "tracing"]) {
    for (const one of copy.querySelectorAll(`.${name}`)) unmark(one, name);
  }
  return copy;
}

function show(event) {
  const { url, html, why } = JSON.parse(event.data);
  if (why !== undefined) { keep(url, why); return; }
  const made = document.createElement("template");
  made.innerHTML = html;
  const wanted = made.content.firstElementChild;
  if (!wanted) return;
  for (const element of parts()) {
    // Keep an element that has not changed: a replaced one would lose a selection, or a click that has begun.
    if (urlOf(element) === url && !bare(element).isEqualNode(bare(wanted))) become(element, wanted);
  }
}

// A part cannot be made any more, for example because its task was deleted: keep the old content, and say that it is old.
function keep(url, why) {
  for (const element of parts()) {
    if (urlOf(element) !== url || element.querySelector(":scope > .old")) continue;
    const said = document.createElement("p");
    said.className = "banner old";
    said.setAttribute("role", "status");
    said.textContent = `This is not kept up to date any more: ${why}`;
    element.prepend(said);
  }
}

// Keep the element, and replace its content: a response that targets the element may be under way.
function become(element, wanted) {
  for (const { name } of [...element.attributes]) {
    if (!wanted.hasAttribute(name)) element.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (name !== "data-part") element.setAttribute(name, value); // in `wanted` it is relative to the part's path
  }
  htmx.swap(element, wanted.innerHTML, { swapStyle: "innerHTML" });
}

document.addEventListener("visibilitychange", follow);
document.addEventListener("htmx:afterSettle", follow);
document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status === 401) signInAgain();
});
for (const name of ["htmx:sendError", "htmx:timeout"]) document.addEventListener(name, (event) => {
  setLamp("no");
  const pressed = event.detail.requestConfig.verb === "post";
  if (pressed) noticeBad("The node does not answer. Whether it has done what you asked is not known: look before you repeat it.");
});
window.addEventListener("pageshow", (event) => { if (event.persisted) again(); });
follow();
