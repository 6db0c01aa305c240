// Render formulas. KaTeX is loaded only by pages that have formulas.
(() => {
  const formulas = document.querySelectorAll(".arithmatex");
  if (formulas.length === 0) return;
  const folder = new URL("vendored/katex/", document.currentScript.src).href;

  const style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = folder + "katex.min.css";
  document.head.append(style);

  const script = document.createElement("script");
  script.src = folder + "katex.min.js";
  script.addEventListener("load", () => {
    for (const formula of formulas) {
      const text = formula.textContent.trim();
      katex.render(text.slice(2, -2), formula, {
        displayMode: text.startsWith("\\["),
        throwOnError: false,
      });
      keepTogether(formula);
    }
  });
  document.head.append(script);

  // A comma or a full stop behind a formula must not start a line.
  function keepTogether(formula) {
    const after = formula.nextSibling;
    const mark = after?.nodeType === Node.TEXT_NODE && after.data.match(/^[.,;:)]+/);
    if (!mark) return;
    after.data = after.data.slice(mark[0].length);
    const together = document.createElement("span");
    const pieces = formula.querySelector(".katex-html")?.children.length; // lines may break between them
    if (pieces === 1) together.style.whiteSpace = "nowrap";
    formula.replaceWith(together);
    together.append(formula, mark[0]);
  }
})();
