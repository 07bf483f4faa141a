// The week is made on the node by the clocks of one time zone: it follows the page's, and the page's follows a link's.
"use strict";
{ // scripts share one scope

const form = document.getElementById("week");
function show(name) {
  const url = new URL(location.href);
  url.searchParams.set("timezone", name);
  location.replace(url);
}
if (form.dataset.chosen !== undefined) {
  if (zone !== form.dataset.timezone && offer(form.dataset.timezone)) { zone = form.dataset.timezone; tick(); offerZones(); chooser.value = zone; }
} else if (zone !== form.dataset.timezone) {
  show(zone);
}
document.addEventListener("rota:zone", () => show(zone));
form.addEventListener("change", () => form.requestSubmit());
}
