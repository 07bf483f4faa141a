// Keeps the parts of this page up to date: the node sends each element with data-part when it differs.
"use strict";

const AGAIN_MS = 2000; // after a stream was refused
const base = new URL(document.documentElement.dataset.root, location.href);
let stream = null;
let following = "";

function setLive(live) {
  const lamp = document.getElementById("live");
  if (!lamp) return;
  const state = live ? "yes" : "no";
  if (lamp.dataset.state === state) return;
  lamp.dataset.state = state;
  lamp.querySelector(".says").textContent = live ? "live" : "not live: reconnecting";
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
  if (wanted === following) return;
  if (stream) stream.close();
  stream = null;
  following = wanted;
  if (!wanted) return;
  stream = new EventSource(`${base.pathname}live?parts=${encodeURIComponent(wanted)}`);
  stream.addEventListener("open", () => setLive(true));
  stream.addEventListener("error", lost);
  stream.addEventListener("part", show);
}

// A lost connection is made again by the browser. A refused one is not: the session may have ended.
async function lost() {
  setLive(false);
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

function show(event) {
  const { url, html } = JSON.parse(event.data);
  for (const element of parts()) {
    if (urlOf(element) === url) htmx.swap(element, html, { swapStyle: "outerHTML" });
  }
}

document.addEventListener("visibilitychange", follow);
document.addEventListener("htmx:afterSettle", follow);
document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status === 401) signInAgain();
});
document.addEventListener("htmx:sendError", () => setLive(false));
follow();
