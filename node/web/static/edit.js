// The form for a definition: the button beside an error selects the error's line.
"use strict";
{ // scripts share one scope

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-line]");
  if (!button) return;
  const text = document.getElementById("definition");
  const lines = text.value.split("\n");
  const number = Math.min(Number(button.dataset.line), lines.length) - 1;
  const start = lines.slice(0, number).reduce((sum, line) => sum + line.length + 1, 0);
  text.focus();
  text.setSelectionRange(start, start + lines[number].length);
  text.scrollTop = Math.max(0, (number - 3) * parseFloat(getComputedStyle(text).lineHeight));
});
}
