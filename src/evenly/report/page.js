// Draws every chart into its place. Light, dark and print need no code: the charts' colours are CSS variables.
(() => {
  "use strict";
  const { specs, page, saved } = JSON.parse(document.getElementById("figures").textContent);
  const drawn = Object.entries(specs).map(async ([id, spec]) => {
    const { title, ...untitled } = spec; // the page has the title as a heading, which wraps
    try {
      await vegaEmbed(`#${id}`, untitled, { renderer: "svg", actions: false, config: page });
    } catch (error) {
      document.getElementById(id).textContent = "This chart could not be drawn.";
      throw error;
    }
  });
  Promise.all(drawn).then(() => {
    document.documentElement.dataset.drawn = drawn.length;
  });

  // A saved chart stands alone: its own title and legend, light colours and a fixed width.
  async function save(id, kind) {
    const apart = document.createElement("div");
    const { view, finalize } = await vegaEmbed(apart, { ...specs[id], width: 640 }, { renderer: "svg", actions: false, config: saved });
    let url;
    if (kind === "svg") {
      const text = await view.toSVG();
      url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    } else {
      url = (await view.toCanvas(2)).toDataURL("image/png");
    }
    const link = document.createElement("a");
    link.href = url;
    link.download = `${id.replace("chart-", "")}.${kind}`;
    link.click();
    finalize();
    if (kind === "svg") setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-save]");
    if (button) save(button.closest("figure").querySelector(".chart").id, button.dataset.save);
  });

  // Paper has no clicks: everything is open while printing.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((part) => (part.open = true));
  });
  addEventListener("afterprint", () => closed.forEach((part) => (part.open = false)));
})();
