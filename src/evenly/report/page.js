// Draws every chart into its place: those in sight at once, the others when they come near or the browser has nothing to do.
// Light, dark and print need no code: the charts' colours are CSS variables.
(() => {
  "use strict";
  const { specs, page, saved } = JSON.parse(document.getElementById("figures").textContent);
  const NEAR = "400px";
  const places = new Map();
  for (const place of document.querySelectorAll(".chart")) if (specs[place.id]) places.set(place.id, place);
  const variants = new Map(); // chart -> which of its variants is shown
  const views = new Map(); // chart -> what finishes it
  const waiting = new Set(places.keys());
  let keeps = () => true; // which methods' rows are drawn

  function specOf(id) {
    const spec = specs[variants.has(id) ? `${id}@${variants.get(id)}` : id];
    if (!("filtered" in places.get(id).dataset)) return spec;
    const kept = (rows) => rows.filter((row) => row.method === undefined || keeps(row.method));
    return { ...spec, datasets: Object.fromEntries(Object.entries(spec.datasets).map(([name, rows]) => [name, kept(rows)])) };
  }
  const untitled = ({ title, ...spec }) => spec; // the page has the title as a heading, which wraps

  async function draw(id) {
    waiting.delete(id);
    const place = places.get(id);
    try {
      const done = await vegaEmbed(place, untitled(specOf(id)), { renderer: "svg", actions: false, config: page });
      views.get(id)?.();
      views.set(id, () => done.finalize());
    } catch (error) {
      place.textContent = "This chart could not be drawn.";
      throw error;
    }
  }
  const redraw = (id) => (waiting.has(id) ? undefined : draw(id));

  for (const [id, place] of places) place.style.minHeight = `${(specs[id].height ?? 190) + 60}px`; // nothing moves when it is drawn
  const mark = (name) => (document.documentElement.dataset[name] = places.size);
  const seen = new IntersectionObserver(
    async (entries) => {
      const near = entries.filter((entry) => entry.isIntersecting && waiting.has(entry.target.id));
      await Promise.all(near.map((entry) => draw(entry.target.id)));
      if (!("ready" in document.documentElement.dataset)) mark("ready");
    },
    { rootMargin: NEAR },
  );
  places.forEach((place) => seen.observe(place));
  const later = window.requestIdleCallback ?? ((work) => setTimeout(work, 30));
  async function drawRest() {
    const [next] = waiting;
    if (next === undefined) return ["ready", "drawn"].forEach(mark);
    await draw(next);
    later(drawRest);
  }
  addEventListener("load", () => later(drawRest));

  for (const choice of document.querySelectorAll("select[data-charts]")) {
    choice.addEventListener("change", () => {
      for (const id of choice.dataset.charts.split(" ")) {
        if (specs[`${id}@${choice.value}`]) variants.set(id, choice.value);
        else variants.delete(id);
        redraw(id);
      }
    });
  }
  addEventListener("methods", (event) => {
    keeps = event.detail;
    for (const [id, place] of places) if ("filtered" in place.dataset) redraw(id);
  });

  // A saved chart stands alone: its own title and legend, light colours and a fixed width.
  async function save(id, kind) {
    const apart = document.createElement("div");
    const { view, finalize } = await vegaEmbed(apart, { ...specOf(id), width: 640 }, { renderer: "svg", actions: false, config: saved });
    let url;
    if (kind === "svg") {
      const text = await view.toSVG();
      url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    } else {
      url = (await view.toCanvas(2)).toDataURL("image/png");
    }
    const link = document.createElement("a");
    link.href = url;
    link.download = `${[id.replace("chart-", ""), variants.get(id)].filter(Boolean).join("-")}.${kind}`;
    link.click();
    finalize();
    if (kind === "svg") setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-save]");
    if (button) save(button.closest("figure").querySelector(".chart").id, button.dataset.save);
  });

  // Paper has no clicks: everything is open while printing. What was not drawn yet is drawn now; as nothing has to be loaded for it,
  // that is done before the browser goes on to lay out the paper.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((part) => (part.open = true));
    [...waiting].forEach(draw);
  });
  addEventListener("afterprint", () => closed.forEach((part) => (part.open = false)));
})();
