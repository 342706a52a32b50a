"""What can be wrong with how a page looks, as JavaScript that lists it."""

_TEXTS = """
const seen = (e) => e.getClientRects().length && getComputedStyle(e).visibility !== "hidden";
const texts = [...document.querySelectorAll("main *")].filter((e) => seen(e) && e.tagName !== "svg"
  && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()));
"""

# Text below 11 px.
SMALL = f"""(() => {{ {_TEXTS}
return texts.filter((e) => parseFloat(getComputedStyle(e).fontSize) < 11).map((e) => e.textContent); }})()"""

# Text of a figure that is cut by its edge, by more than a pixel.
OUTSIDE = """[...document.querySelectorAll(".plot")].flatMap((plot) => {
  const room = plot.getBoundingClientRect();
  return [...plot.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.width && (box.left < room.left - 1 || box.right > room.right + 1
      || box.top < room.top - 1 || box.bottom > room.bottom + 1);
  }).map((text) => `${plot.id}: ${text.textContent}`);
})"""

# Texts of a figure that lie over each other, by more than two pixels in both directions.
OVERLAPPING = """[...document.querySelectorAll(".plot")].flatMap((plot) => {
  const all = [...plot.querySelectorAll("text")].filter((text) => text.textContent.trim())
    .map((text) => [text.textContent, text.getBoundingClientRect()]).filter(([, box]) => box.width);
  return all.flatMap(([one, a], place) => all.slice(place + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2)
    .map(([other]) => `${plot.id}: ${one} / ${other}`));
})"""

# Text whose contrast with what is behind it is below 4.5 (WCAG AA); a figure lies on its section.
CONTRASTS = f"""(() => {{ {_TEXTS}
const parts = (colour) => colour.match(/[0-9.]+/g).map(Number);
const bright = (colour) => parts(colour).slice(0, 3).map((c) => c / 255)
  .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
const behind = (e) => {{
  for (; e; e = e.parentElement) {{
    const colour = getComputedStyle(e).backgroundColor;
    if ((parts(colour)[3] ?? 1) === 1) return colour;
  }}
  return "rgb(255, 255, 255)";
}};
return texts.map((e) => {{
  const style = getComputedStyle(e);
  const ink = e instanceof SVGElement ? style.fill : style.color;
  const [dark, light] = [bright(ink), bright(behind(e))].sort((a, b) => a - b);
  return [(light + 0.05) / (dark + 0.05), e.textContent.slice(0, 40), ink];
}}).filter(([ratio]) => ratio < 4.5); }})()"""

# Numbers everything that the tab key should reach, in the order of the page, and lists the numbers.
TABBED = """[...document.querySelectorAll("a[href], button, .plot, .scroll")].map((e, order) => {
  e.dataset.order = order;
  return String(order);
})"""

FAULTS = {"small": SMALL, "cut": OUTSIDE, "overlapping": OVERLAPPING, "pale": CONTRASTS}

# Figures in which nothing is drawn.
EMPTY = """[...document.querySelectorAll(".plot")].filter((plot) =>
  ![...plot.querySelectorAll("path.js-line, path.point, .point > path, .hm image")].some((mark) => {
    const box = mark.getBoundingClientRect();
    return box.width + box.height > 0;
  })).map((plot) => plot.id)"""
