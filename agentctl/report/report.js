// Draws every figure into the div that the page keeps for it. No request leaves the page.
"use strict";

const number = new Intl.NumberFormat("en", {maximumSignificantDigits: 3});
const percent = new Intl.NumberFormat("en", {style: "percent", maximumFractionDigits: 1});
const show = (axis, value) => axis?.hoverformat === "d" ? String(Math.round(value))
  : (axis?.hoverformat?.endsWith("%") ? percent : number).format(value);

for (const figure of JSON.parse(document.getElementById("figures").textContent)) {
  const plot = document.getElementById(`figure-${figure.name}`);
  Plotly.newPlot(plot, figure.data, figure.layout, {displayModeBar: false, responsive: true});
  plot.addEventListener("keydown", (event) => read(plot, figure, event));
  plot.addEventListener("blur", () => leave(plot, figure));
}

// A button of a legend hides its line, or shows it again.
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const plot = document.getElementById(`figure-${button.dataset.figure}`);
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", shown);
    const traces = plot.data.flatMap((trace, place) => (trace.meta === Number(button.dataset.entry) ? [place] : []));
    Plotly.restyle(plot, {visible: shown}, traces);
  });
}

// Arrow keys walk along a figure and read it out, as the mouse does.
function read(plot, figure, event) {
  const lines = plot.data.map((trace, place) => ({trace, place}))
    .filter(({trace}) => trace.visible !== false && trace.hoverinfo !== "skip");
  if (!lines.length) return;
  const {trace} = lines[0];
  const heat = trace.type === "heatmap";
  const upright = trace.orientation !== "h" && !figure.layout.yaxis.ticktext;
  const along = ({trace}) => (upright ? trace.x : trace.y.map(Math.round));
  const stops = [...new Set(lines.flatMap(along))].filter((stop) => stop !== null).sort((a, b) => a - b);
  const steps = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10,
    Home: -Infinity, End: Infinity};
  if (event.key === "Escape") return leave(plot, figure);
  if (!(event.key in steps)) return;
  event.preventDefault();
  const step = steps[event.key];
  const start = plot.stop ?? (step > 0 ? -1 : stops.length);
  plot.stop = Math.min(Math.max(start + step, 0), stops.length - 1);
  const at = stops[plot.stop];
  const points = lines.map((line) => ({...line, point: nearest(along(line), at)}))
    .filter(({point}) => point !== null);
  const axes = [...new Set(points.map(({trace}) => `xy${(trace.yaxis ?? "y").slice(1)}`))];
  if (!heat) Plotly.Fx.hover(plot, points.map(({place, point}) => ({curveNumber: place, pointNumber: point})), axes);
  const {xaxis, yaxis} = figure.layout;
  const value = ({trace, point}) => heat ? column(trace, point)
    : upright ? show(yaxis, trace.y[point]) : show(xaxis, trace.x[point]);
  const said = points.map((point) => `${figure.said.entries[point.trace.meta]} ${value(point)}`);
  const where = upright ? `${figure.said.x} ${show(xaxis, at)}` : figure.said.categories[at];
  document.getElementById(`reading-${figure.name}`).textContent = `${where}: ${said.join(", ")}`;
}

// A column of a heat map, from row 0 upwards.
function column(trace, point) {
  return trace.z.map((row) => (row[point] === null ? "–" : number.format(row[point]))).join(" ");
}

// The place of the last value at or before `at`; the first one where none is.
function nearest(values, at) {
  let found = null;
  values.forEach((value, place) => {
    if (value !== null && (found === null || (value <= at && value >= values[found]))) found = place;
  });
  return found;
}

function leave(plot, figure) {
  plot.stop = undefined;
  document.getElementById(`reading-${figure.name}`).textContent = "";
  Plotly.Fx.unhover(plot);
}
