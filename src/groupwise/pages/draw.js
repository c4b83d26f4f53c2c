// Draws every chart of the page from the description that stands in the page. Nothing is loaded.
"use strict";
for (const place of document.querySelectorAll("[data-chart]")) {
  const description = JSON.parse(document.getElementById(place.dataset.chart).textContent);
  // ast: expressions are interpreted, so that the page may forbid eval.
  window.vegaEmbed(place, description, { renderer: "svg", actions: false, ast: true }).catch((error) => {
    place.textContent = "This chart could not be drawn: " + error.message;
    place.classList.add("empty");
  });
}
