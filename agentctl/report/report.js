// Draws every figure into the div that the page keeps for it. No request leaves the page.
for (const figure of JSON.parse(document.getElementById("figures").textContent)) {
  Plotly.newPlot(`figure-${figure.name}`, figure.data, figure.layout, {displayModeBar: false, responsive: true});
}
