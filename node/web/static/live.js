// Keeps the parts of this page up to date: the node sends each element with data-part when it differs.
"use strict";

const AGAIN_MS = 2000; // after a stream was refused
const base = new URL(document.documentElement.dataset.root, location.href);
let stream = null;
let following = "";

const SAYS = { yes: "live", no: "not live: reconnecting", still: "" };
function setLamp(state) {
  const lamp = document.getElementById("live");
  if (!lamp || lamp.dataset.state === state) return;
  lamp.dataset.state = state;
  lamp.hidden = state === "still";
  lamp.querySelector(".says").textContent = SAYS[state];
}

// A part's path and query below the page's root, as the node knows it.
function urlOf(element) {
  const url = new URL(element.dataset.part, location.href);
  return "/" + (url.pathname + url.search).slice(base.pathname.length);
}

const parts = () => [...document.querySelectorAll("[data-part]")];

function follow() {
  const urls = [...new Set(parts().map(urlOf))];
  const lamp = document.getElementById("live");
  if (lamp) lamp.hidden = !urls.length; // nothing of the page changes by itself
  const wanted = urls.length && !document.hidden ? JSON.stringify(urls) : "";
  if (!urls.length) setLamp("still"); // nothing on this page changes
  if (wanted === following) return;
  if (stream) stream.close();
  stream = null;
  following = wanted;
  if (!wanted) return;
  stream = new EventSource(`${base.pathname}live?parts=${encodeURIComponent(wanted)}`);
  stream.addEventListener("open", () => setLamp("yes"));
  stream.addEventListener("error", lost);
  stream.addEventListener("part", show);
}

// A lost connection is made again by the browser. A refused one is not: the session may have ended.
async function lost() {
  setLamp("no");
  if (stream.readyState !== EventSource.CLOSED) return;
  following = "";
  const answer = await fetch(location.href, { headers: { "HX-Request": "true" } }).catch(() => null);
  if (answer && answer.status === 401) signInAgain();
  else setTimeout(follow, AGAIN_MS);
}

function signInAgain() {
  const here = location.pathname + location.search;
  const next = "/" + (here.startsWith(base.pathname) ? here.slice(base.pathname.length) : "");
  location.assign(`${base.pathname}sign-in?next=${encodeURIComponent(next)}`);
}

// As the node wrote it: without the words that page.js gives times, the row that panel.js marks, and when it was made.
function bare(element) {
  const copy = element.cloneNode(true);
  copy.removeAttribute("data-now");
  for (const time of copy.querySelectorAll("time[data-show]")) {
    time.textContent = "";
    time.removeAttribute("title");
  }
  for (const row of copy.querySelectorAll(".chosen")) {
    row.classList.remove("chosen");
    if (!row.className) row.removeAttribute("class");
  }
  return copy;
}

function show(event) {
  const { url, html } = JSON.parse(event.data);
  const made = document.createElement("template");
  made.innerHTML = html;
  const wanted = made.content.firstElementChild;
  if (!wanted) return;
  for (const element of parts()) {
    // What is shown already stays: a replaced element would lose a selection, or a click that has begun.
    if (urlOf(element) === url && !bare(element).isEqualNode(bare(wanted))) become(element, wanted);
  }
}

// The element itself stays: what was asked for in its place may be on its way, and would have no place any more.
function become(element, wanted) {
  for (const { name } of [...element.attributes]) {
    if (!wanted.hasAttribute(name)) element.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) element.setAttribute(name, value);
  htmx.swap(element, wanted.innerHTML, { swapStyle: "innerHTML" });
}

document.addEventListener("visibilitychange", follow);
document.addEventListener("htmx:afterSettle", follow);
document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status === 401) signInAgain();
});
document.addEventListener("htmx:sendError", () => setLamp("no"));
follow();
