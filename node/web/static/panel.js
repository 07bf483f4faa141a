// Opens a task in a panel beside the list. On a narrow screen, or with a modifier key, the link leads to the task's page.
"use strict";
{ // scripts share one scope

const panel = document.getElementById("panel");
const roomy = window.matchMedia("(min-width: 75rem)");
let opener = null;

function close() {
  if (panel.hidden) return;
  panel.hidden = true;
  panel.replaceChildren();
  document.body.classList.remove("with-panel");
  const link = opener && document.querySelector(`a[data-panel][href="${CSS.escape(opener)}"]`);
  if (link) link.focus();
}

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-close-panel]")) { close(); return; }
  const link = event.target.closest("a[data-panel]");
  if (!link || !roomy.matches || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  opener = link.getAttribute("href");
  panel.hidden = false;
  document.body.classList.add("with-panel");
  htmx.ajax("GET", `${opener}?part=panel`, { target: "#panel", swap: "innerHTML" })
    .then(() => { const title = panel.querySelector("h2"); if (title) title.focus({ preventScroll: true }); });
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.target.closest("input, textarea")) close();
});
// Marks the row of the open task, also after the rows were fetched again.
function mark() {
  const open = panel.hidden ? "" : (panel.querySelector("[data-task]") || { dataset: {} }).dataset.task;
  for (const link of document.querySelectorAll("a[data-panel]")) {
    const row = link.closest("tr");
    if (row) row.classList.toggle("chosen", link.textContent === open);
  }
}
document.addEventListener("htmx:afterSettle", mark);
document.addEventListener("click", () => setTimeout(mark));
}
