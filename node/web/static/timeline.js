// Lets the chain of a bar stand out while the bar is pointed at or focused: its runs, and the lines between them.
"use strict";
{ // scripts share one scope

function trace(element) {
  const chain = element?.closest?.("#chart [data-chain]")?.dataset.chain;
  for (const one of document.querySelectorAll("#chart .traced")) unmark(one, "traced");
  const lanes = document.querySelector("#chart .lanes");
  if (!lanes) return;
  lanes.classList.toggle("tracing", chain !== undefined);
  if (chain === undefined) return;
  for (const one of lanes.querySelectorAll(`[data-chain="${chain}"]`)) one.classList.add("traced");
}
// The element that is pointed at, or else the one that has the focus.
const now = () => trace(document.querySelector("#chart [data-chain]:hover") ?? document.activeElement);
for (const name of ["pointerover", "pointerout", "focusin", "focusout", "htmx:afterSwap"]) document.addEventListener(name, now);
}
